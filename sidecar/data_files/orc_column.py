"""A leaf column of a stripe of an ORC file, whose indexes are compared with its values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.indexes.row_indexes import StoredRowIndex, decode_row_index
from sidecar.data_files.open_file import OwnIndex
from sidecar.errors import SidecarError, UsageError, reason_at
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.probes import AnyEncoding
from sidecar.orc.decode import LeafCursor, has_own_values
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.verify.values import count_denied, observed_in
from sidecar.questions.value_check import ValueCheck

if TYPE_CHECKING:
    from sidecar.data_files.open_orc import OpenOrc, OrcLeaf

    Array = pa.Array[Any]


class OrcColumnPart:
    """See :class:`sidecar.data_files.open_file.ColumnPart`. Values inside unions are not compared."""

    def __init__(self, file: OpenOrc, part: int, leaf: OrcLeaf) -> None:
        self._file, self._part, self._leaf, self._column = file, part, leaf, leaf.column
        self._stripe, self._footer = file.tail.stripes[part], file.footer(part)
        self._first = file.first_units[part]
        self._taken = 0
        self._entries: Array | None = None

    @cached_property
    def _cursor(self) -> LeafCursor | None:
        tail, column = self._file.tail, self._column
        return LeafCursor(self._file.source, tail, self._footer, column) if has_own_values(tail, column) else None

    def _entries_of(self, unit: int) -> Array | None:
        """Return the entries of a row group; ``None`` for a column that is not decoded."""
        while self._cursor is not None and self._first + self._taken <= unit:
            self._entries = self._cursor.take(self._stripe.row_groups[self._taken].rows)
            self._taken += 1
        return self._entries

    @cached_property
    def _index(self) -> StripeIndex:
        file, id = self._file, self._column.id
        return read_indexes(file.source, file.tail, self._footer, [id], file.statistics, bloom=False)[id]

    def filter_problems(self, unit: int, found: AnyFilter, encoding: AnyEncoding, check: ValueCheck) -> Iterator[str]:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""
        entries = self._entries_of(unit)
        if entries is None:
            return
        values = entries.drop_null()
        try:
            if isinstance(found, OrcBloomFilter):
                assert isinstance(encoding, OrcEncoding)
                denied = count_denied(found, encoding, self._column, values)
            else:
                assert isinstance(encoding, Encoding)
                hashes = hash_arrow(_in_type_of(encoding, values), encoding, twins=False)
                denied = len(hashes) - int(found.check(hashes).sum())
        except (UsageError, pa.ArrowException) as error:
            yield f"Bloom filter: values could not be looked up: {error}"
            return
        if denied is None:
            return  # no reader can ask for such values, so they are always kept
        check.values += len(values)
        if denied:
            yield f"Bloom filter: denies {denied} of {len(values)} values that the row group has"

    def first_values(self, found: OwnIndex) -> None:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""

    def index_problems(self, unit: int, stored: StoredRowIndex, is_proven: bool, check: ValueCheck) -> Iterator[str]:
        """See :class:`sidecar.data_files.open_file.ColumnPart`."""
        check.indexes += 1
        entries, own, group = self._entries_of(unit), self._index.row_index, unit - self._first
        if own is not None and own.parts[group] != stored.entry:
            yield "row index: it differs from the file's"
        if self._file.index_kind(self._part, self._leaf, stored.kind.resolution) != stored.kind:
            yield "row index: its description does not match the file's column"
        try:
            statistics = decode_row_index(stored, self._stripe.row_groups[group].rows).statistics
        except SidecarError as error:
            yield f"row index: {reason_at(error)}"
            return
        if statistics is not None and entries is not None:
            false = [statistics.contradiction] if statistics.contradiction else []
            yield from (
                f"row index: {text}" for text in false or observed_in(entries).problems(statistics, "row group")
            )


def _in_type_of(encoding: Encoding, values: Array) -> Array:
    """Cast ORC values to the Arrow type that ``encoding`` hashes, if ORC decodes them as a different type."""
    if encoding.name == "int64/time-us":
        return values.cast(pa.time64("us"))
    if encoding.name.startswith("flba:") and pa.types.is_binary(values.type):
        return values.cast(pa.binary(encoding.width or 0))
    return values
