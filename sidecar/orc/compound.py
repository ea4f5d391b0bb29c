"""Reads whole columns of an ORC stripe (also structs, lists, maps and unions) as the Arrow arrays that pyarrow makes.

:mod:`sidecar.orc.decode` decodes the streams and checks that each has enough entries. pyarrow's own reader does not: if
PRESENT or LENGTH is damaged, it reads memory that was never written. A struct, list, map or union takes its own entries
first; they say how many entries its children have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import UnsupportedFeatureError, first_line
from sidecar.orc.decode import STEP, ColumnDecoder, spread
from sidecar.orc.schema import OrcColumn
from sidecar.orc.streams import Content, read_streams
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.storage.source import Source


class ColumnCursor:
    """A reader of one top-level column that goes through the rows of a stripe from its first row.

    ``kind`` is the Arrow type of the result; a struct type may have only some of the struct's fields.
    """

    def __init__(
        self,
        source: Source,
        tail: OrcTail,
        footer: StripeFooter,
        top: OrcColumn,
        kind: pa.DataType,
        ids: set[int],
    ) -> None:
        """``ids`` are the columns to read, with all their parents."""
        columns = {number: tail.columns[number] for number in tail.subtree(top.id) if number in ids}
        for column in columns.values():
            if column.encrypted:
                raise UnsupportedFeatureError("the column is encrypted", file=tail.name, column=column.path)
        contents = read_streams(source, tail, footer, columns, None, 0)
        self._node = _node(tail, footer, columns, contents, top, kind)
        self.row = 0
        """The next row, counted in the stripe."""

    @property
    def step(self) -> int:
        """The number of rows that :meth:`take` can read in little memory."""
        return self._node.step

    def skip_to(self, row: int) -> None:
        """Skip the rows before ``row``, a row of the stripe."""
        while self.row < row:
            self.take(min(self.step, row - self.row))

    def take(self, rows: int) -> Any:
        """Return the next ``rows`` rows as an Arrow array. Raises as :func:`sidecar.orc.decode.read_row_group`."""
        self.row += rows
        return self._node.take(rows)


class _Leaf:
    def __init__(self, decoder: ColumnDecoder, kind: pa.DataType) -> None:
        self._decoder = decoder
        self._kind = kind
        self.step = decoder.step

    def take(self, count: int) -> Any:
        values = self._decoder.take(count)
        try:
            return values if values.type == self._kind else values.cast(self._kind)
        except pa.ArrowException as error:
            raise UnsupportedFeatureError(
                f"values do not fit the type as which pyarrow reads the column: {first_line(error)}",
                file=self._decoder.tail.name,
                column=self._decoder.column.path,
            ) from error


class _Compound:
    def __init__(self, decoder: ColumnDecoder, kind: Any, children: Sequence[_Node]) -> None:
        self._decoder = decoder
        self._kind = kind
        self._children = children
        self.step: int = min((child.step for child in children), default=STEP)


class _Struct(_Compound):
    def take(self, count: int) -> Any:
        present = self._decoder.present(count)
        filled = count if present is None else int(np.count_nonzero(present))
        fields = [child.take(filled) for child in self._children]
        if present is not None:
            fields = [spread(field, present) for field in fields]
        return pa.Array.from_buffers(self._kind, count, [_bitmap(present)], children=fields)


class _List(_Compound):
    """Lists and maps: in Arrow, a map is a list of structs of key and value."""

    def take(self, count: int) -> Any:
        present, lengths = self._decoder.take_lists(count)
        below = int(lengths.sum())
        entries = [child.take(below) for child in self._children]
        offsets = np.zeros(count + 1, np.int32)
        filled = lengths
        if present is not None:
            filled = np.zeros(count, np.int64)
            filled[present] = lengths
        np.cumsum(filled, out=offsets[1:])
        child = entries[0]
        if pa.types.is_map(self._kind):
            pairs = pa.struct([self._kind.key_field, self._kind.item_field])
            child = pa.Array.from_buffers(pairs, below, [None], children=entries)
        buffers = [_bitmap(present), pa.py_buffer(offsets)]  # type: ignore[arg-type]
        return pa.Array.from_buffers(self._kind, count, buffers, children=[child])


class _Union(_Compound):
    """Sparse unions: each member has a slot for every entry. A null entry is a null of the first member."""

    def take(self, count: int) -> Any:
        present, tags = self._decoder.take_tags(count)
        members = tags
        if present is not None:
            members = np.full(count, 255, np.uint8)
            members[present] = tags
        fields = []
        for number, child in enumerate(self._children):
            is_member = members == number
            fields.append(spread(child.take(int(np.count_nonzero(is_member))), is_member))
        types = np.where(members == 255, 0, members).astype(np.int8)
        buffers = [None, pa.py_buffer(types)]  # type: ignore[arg-type]
        return pa.Array.from_buffers(self._kind, count, buffers, children=fields)


_Node = _Leaf | _Struct | _List | _Union
"""A reader of a column and the columns below it."""


def _node(
    tail: OrcTail,
    footer: StripeFooter,
    columns: Mapping[int, OrcColumn],
    contents: Mapping[int, Mapping[str, Content]],
    column: OrcColumn,
    kind: Any,
) -> _Node:
    decoder = ColumnDecoder(tail, footer, column, contents[column.id])
    if not column.is_compound:
        return _Leaf(decoder, kind)
    below = [columns[number] for number in column.children if number in columns]
    if column.kind == "MAP":
        kinds = [kind.key_type, kind.item_type]
    elif column.kind == "LIST":
        kinds = [kind.value_type]
    else:
        kinds = [kind.field(number).type for number in range(kind.num_fields)]
    parts = (tail, footer, columns, contents)
    children = [_node(*parts, child, type_) for child, type_ in zip(below, kinds, strict=True)]
    return _COMPOUND[column.kind](decoder, kind, children)


_COMPOUND: dict[str, type[_Struct | _List | _Union]] = {
    "STRUCT": _Struct,
    "LIST": _List,
    "MAP": _List,
    "UNION": _Union,
}


def _bitmap(present: NDArray[np.bool_] | None) -> Any:
    """Return a validity bitmap; ``None`` if all entries are present."""
    if present is None or present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))  # type: ignore[arg-type]
