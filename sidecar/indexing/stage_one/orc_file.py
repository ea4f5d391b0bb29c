"""Indexes an ORC file for stage 1. Its units are the row groups (strides) of its stripes, numbered over the file.

For each stripe, the index streams of all columns are read together, and trusted filters that are good enough are
reused. The remaining columns are decoded one at a time and divided into row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import UnitEntry, UnitState
from sidecar.conversion.outcome import EXACT, VALUES, IndexPlace
from sidecar.conversion.reuse import NEVER
from sidecar.data_files.open_orc import OpenOrc
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.indexing.columns import (
    ColumnWork,
    FilterBuilder,
    Options,
    OrcFilterBuilder,
    SplitBlockBuilder,
)
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.data_file import IndexedUnit, PagesResult, WantedColumn
from sidecar.indexing.stage_one.fault import fault_of, reason_of
from sidecar.indexing.stage_one.page_indexes import no_row_indexes, row_indexes
from sidecar.orc.decode import read_row_groups
from sidecar.orc.iceberg_values import OrcValues, orc_values, type_doubt, zone_doubt
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.streams import DATA_STREAMS
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import CountingSource


class _IndexedStripeColumn:
    """One column of a stripe while it is indexed: a :class:`ColumnWork` for each row group.

    ``first`` is the number of row groups before the stripe.
    """

    def __init__(
        self,
        field_id: int,
        wanted: WantedColumn,
        tail: OrcTail,
        stripe: Stripe,
        first: int,
        options: Options,
    ) -> None:
        self.column: OrcColumn = wanted.leaf.column
        self.values = orc_values(self.column, wanted.type, tail.writer)
        self.type_doubt = type_doubt(self.column, wanted.type)
        name = self.values.encoding.name if isinstance(self.values, OrcValues) else ""
        self.resolution = wanted.resolution
        self.groups = [
            ColumnWork(
                IndexPlace(tail.name, first + group.ordinal, self.column.path, BLOOM),
                field_id,
                wanted.type,
                name,
                options,
            )
            for group in stripe.row_groups
        ]
        self.wants_row_indexes = options.of(field_id).page_index
        self.row_indexes: list[PagesResult] = []
        """One for each row group, if requested."""

    @property
    def wanted(self) -> bool:
        """Whether anything is still missing."""
        return any(work.wanted for work in self.groups)

    @property
    def wants_filters(self) -> bool:
        """Whether filters are missing and the file's own filters could be reused."""
        return not self.type_doubt and any(work.bloom for work in self.groups)

    def fail(self, reason: str, fault: str = "") -> None:
        """Give up everything that is still missing, for a reason."""
        for work in self.groups:
            if work.wanted:
                work.fail(reason, fault)


class OrcDataFile:
    """See :class:`sidecar.indexing.stage_one.data_file.DataFile`."""

    def __init__(self, file: OpenOrc, options: Options, sketches: TaskSketches) -> None:
        self._source = CountingSource(file.source)
        self._tail = file.tail
        self._statistics = FileStatistics(self._source, file.tail)
        self._options = options
        self._sketches = sketches
        self._first = file.first_units

    def index(self, start: int, stop: int, columns: Mapping[int, WantedColumn]) -> Iterator[IndexedUnit]:
        """See :class:`sidecar.indexing.stage_one.data_file.DataFile`. A row group begins where its stripe begins."""
        for stripe in self._tail.stripes:
            if start <= min(stripe.offset, self._source.size - 1) < stop:
                work = self._index_stripe(stripe, columns)
                for group in stripe.row_groups:
                    entry = UnitEntry(self._first[stripe.ordinal] + group.ordinal, group.first_row, group.rows)
                    results = {field_id: column.groups[group.ordinal].result for field_id, column in work.items()}
                    pages = {
                        field_id: column.row_indexes[group.ordinal]
                        for field_id, column in work.items()
                        if column.row_indexes
                    }
                    yield IndexedUnit(entry, results, pages)

    def close(self) -> None:
        """See :class:`sidecar.indexing.stage_one.data_file.DataFile`."""

    def _index_stripe(self, stripe: Stripe, columns: Mapping[int, WantedColumn]) -> dict[int, _IndexedStripeColumn]:
        first = self._first[stripe.ordinal]
        work = {
            field_id: _IndexedStripeColumn(field_id, wanted, self._tail, stripe, first, self._options)
            for field_id, wanted in columns.items()
        }
        if not stripe.row_groups:
            return work
        before = self._source.bytes_read
        try:
            footer = read_stripe_footer(self._source, self._tail, stripe)
        except SidecarError as error:
            for column in work.values():
                column.fail(reason_of(error), fault_of(error))
                if column.wants_row_indexes:
                    column.row_indexes = no_row_indexes(stripe, column.resolution, reason_of(error), fault_of(error))
            return work
        for column in work.values():
            if column.column.encrypted:
                column.fail(UnitState.ENCRYPTED)
        self._read_indexes(stripe, footer, list(work.values()))
        for column in work.values():
            if column.wanted:
                self._scan(stripe, footer, column)
        counted = next(iter(work.values()), None)
        if counted is not None:
            counted.groups[0].result.bytes_read += self._source.bytes_read - before
        return work

    def _read_indexes(self, stripe: Stripe, footer: StripeFooter, columns: Sequence[_IndexedStripeColumn]) -> None:
        """Reuse the stripe's own filters and row indexes. A filter in doubt is only not reused."""
        options = self._options
        reuse = options.filter_format != "parquet" and options.reuse != NEVER
        filters = [column for column in columns if reuse and column.wants_filters]
        indexed = [column for column in columns if column.wants_row_indexes]
        wanted = [column for column in columns if column in indexed or column in filters]
        try:
            self._statistics.compare([column.column for column in indexed])
            ids = [column.column.id for column in wanted]
            found = read_indexes(self._source, self._tail, footer, ids, self._statistics, bloom=bool(filters))
        except SidecarError as error:
            for column in indexed:
                column.row_indexes = no_row_indexes(stripe, column.resolution, reason_of(error), fault_of(error))
            return
        for column in filters:
            self._reuse(column, found[column.column.id])
        for column in indexed:
            column.row_indexes = row_indexes(self._tail, footer, found[column.column.id], column.resolution)

    def _reuse(self, column: _IndexedStripeColumn, index: StripeIndex) -> None:
        for work, found in zip(column.groups, index.filters or (), strict=False):
            if found.filter is None or found.encoding is None or not found.trusted:
                continue
            if self._options.takes(found.filter):
                work.result.take(found.filter, found.encoding.name, EXACT)
                work.bloom = False

    def _scan(self, stripe: Stripe, footer: StripeFooter, column: _IndexedStripeColumn) -> None:
        """Decode a column of the stripe, and build what its row groups still miss."""
        values = column.values
        if isinstance(values, Unknown):
            column.fail(values.reason)
            return
        if doubt := zone_doubt(column.column, footer.writer_timezone):
            column.fail(doubt)
            return
        if values.encoding.not_indexable is not None:
            for work in column.groups:
                if work.bloom:
                    work.refuse_filter(values.encoding.not_indexable)
        arrays = read_row_groups(self._source.inner, self._tail, stripe, footer, column.column)
        try:
            for work, array in zip(column.groups, arrays, strict=True):
                if work.wanted:
                    self._gather(work, values, array)
            column.groups[0].result.bytes_read += sum(
                stream.length for stream in footer.streams_of(column.column.id) if stream.kind in DATA_STREAMS
            )
        except UnsupportedFeatureError as error:
            column.fail(reason_of(error))
        except SidecarError as error:
            column.fail(reason_of(error), fault_of(error))

    def _gather(self, work: ColumnWork, values: OrcValues, array: Any) -> None:
        try:
            converted = values.from_file(array)
        except UsageError as error:
            work.fail(reason_of(error))
            return
        work.start(self._maker(work, values, converted) if work.bloom else None, self._sketches)
        work.add(converted)
        work.finish(VALUES)

    def _maker(self, work: ColumnWork, values: OrcValues, array: Any) -> FilterBuilder:
        if self._options.filter_format == "orc" and values.orc_encoding is not None:
            stride = self._tail.row_index_stride or len(array)
            return OrcFilterBuilder(values.orc_encoding, stride, self._options.of(work.field_id))
        count = len(array) - array.null_count
        return SplitBlockBuilder(values.encoding, count, self._options.of(work.field_id))
