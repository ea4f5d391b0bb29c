"""Whole columns of an ORC stripe, structs, lists, maps and unions among them, as the Arrow arrays that pyarrow makes.

Everything is decoded by :mod:`sidecar.orc.decode`, which holds each stream against the entries that are asked of it:
pyarrow's own reader believes the streams, and reads memory that was never written where PRESENT or LENGTH is damaged.
A struct, list, map or union takes its own entries first, which say how many its children have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import UnsupportedFeatureError, first_line
from sidecar.orc.decode import STEP, ColumnDecoder, spread
from sidecar.orc.schema import OrcColumn
from sidecar.orc.streams import Content, read_streams
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.source import Source


class ColumnCursor:
    """Goes through the rows of one column at the top of the file, from the first row of a stripe on.

    ``kind`` is the Arrow type of what is read; a struct type may have some of the struct's fields only.
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
        """``ids``: the columns that are read, those above them among them."""
        columns = {number: tail.columns[number] for number in tail.subtree(top.id) if number in ids}
        for column in columns.values():
            if column.encrypted:
                raise UnsupportedFeatureError("the column is encrypted", file=tail.name, column=column.path)
        contents = read_streams(source, tail, footer, columns, None, 0)
        self._node = _node(tail, footer, columns, contents, top, kind)
        self.row = 0
        """The row of the stripe that comes next."""

    @property
    def step(self) -> int:
        """Rows that may be taken at a time in little memory."""
        return self._node.step

    def skip_to(self, row: int) -> None:
        """Pass over all rows in front of ``row``."""
        while self.row < row:
            self.take(min(self.step, row - self.row))

    def take(self, rows: int) -> Any:
        """The next rows. Errors as in :func:`sidecar.orc.decode.read_row_group`."""
        self.row += rows
        return self._node.take(rows)


class _Node(Protocol):
    """A column with all that is read below it."""

    step: int

    def take(self, count: int) -> Any:
        """The next entries."""


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
                f"values do not fit the type that pyarrow reads the column as: {first_line(error)}",
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
    """Lists, and maps: Arrow has a map as a list of structs of key and value."""

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
    """A sparse union: each member has a place for every entry. An entry that is null is a null of the first member."""

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
    """A validity bitmap; none where all are present."""
    if present is None or present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))  # type: ignore[arg-type]
