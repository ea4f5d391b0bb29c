"""An ORC file for stage 1: its units are the row groups (strides) of its stripes, numbered over the whole file.

Stripe by stripe, the index streams of all columns are read together, and trusted filters that are good enough
taken as they are. What is left is decoded through pyarrow, one column of a stripe at a time, and cut into row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sidecar.bundle.model import UnitEntry
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.indexing.columns import ColumnWork, Options, SplitBlockMaker
from sidecar.indexing.data_file import IndexedUnit, WantedColumn
from sidecar.indexing.faults import fault_of, reason_of
from sidecar.indexing.orc_types import OrcValues, orc_values, zone_doubt
from sidecar.indexing.sketches import TaskSketches
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import MAX_ROW_GROUPS, OrcTail, Stripe
from sidecar.orc.values import OrcValueReader
from sidecar.source import CountingSource, Source

DATA_STREAMS = frozenset({"PRESENT", "DATA", "LENGTH", "DICTIONARY_DATA", "SECONDARY"})


@dataclass(frozen=True)
class OrcLeaf:
    """A leaf column of the file, its path as Parquet would have it: ``a.list.element``, ``m.key_value.key``.

    So a column is found in files of both formats by the same names, and its filters share groups.
    """

    column: OrcColumn
    path: str

    @property
    def field_id(self) -> int | None:
        """Field id in the file, if it has one."""
        return self.column.field_id


class _StripeColumn:
    """One column of a stripe at work: a :class:`ColumnWork` for each row group."""

    def __init__(
        self, field_id: int, wanted: WantedColumn, stripe: Stripe, writer: int, options: Options
    ) -> None:
        self.column: OrcColumn = wanted.leaf.column
        self.values = orc_values(self.column, wanted.type, writer)
        name = self.values.encoding.name if isinstance(self.values, OrcValues) else ""
        self.groups = [ColumnWork(field_id, wanted.type, name, options) for _ in stripe.row_groups]

    @property
    def wanted(self) -> bool:
        """Whether anything is still missing."""
        return any(work.wanted for work in self.groups)

    def fail(self, reason: str, fault: str = "") -> None:
        """Leave uncovered what is still wanted."""
        for work in self.groups:
            if work.wanted:
                work.fail(reason, fault)


class OrcDataFile:
    """See :class:`sidecar.indexing.data_file.DataFile`."""

    def __init__(self, source: Source, tail: OrcTail, options: Options, sketches: TaskSketches) -> None:
        self._source = CountingSource(source)
        self._tail = tail
        self._options = options
        self._sketches = sketches
        self._reader: OrcValueReader | None = None
        self.leaves = leaves_of(tail)
        groups = [stripe.num_row_groups for stripe in tail.stripes]
        if max(groups, default=0) > MAX_ROW_GROUPS:
            raise UnsupportedFeatureError("a stripe has too many row groups", found=max(groups))
        self._first = list(accumulate(groups, initial=0))

    def index(self, start: int, stop: int, columns: Mapping[int, WantedColumn]) -> Iterator[IndexedUnit]:
        """See :class:`sidecar.indexing.data_file.DataFile`; a row group belongs to where its stripe begins."""
        for stripe in self._tail.stripes:
            if start <= min(stripe.offset, self._source.size - 1) < stop:
                work = self._index_stripe(stripe, columns)
                for group in stripe.row_groups:
                    entry = UnitEntry(
                        self._first[stripe.ordinal] + group.ordinal, group.first_row, group.rows
                    )
                    results = {field_id: one.groups[group.ordinal].result for field_id, one in work.items()}
                    yield IndexedUnit(entry, results)

    def close(self) -> None:
        """See :class:`sidecar.indexing.data_file.DataFile`."""
        if self._reader is not None:
            self._reader.close()

    def _index_stripe(self, stripe: Stripe, columns: Mapping[int, WantedColumn]) -> dict[int, _StripeColumn]:
        work = {
            field_id: _StripeColumn(field_id, wanted, stripe, self._tail.writer, self._options)
            for field_id, wanted in columns.items()
        }
        if not stripe.row_groups:
            return work
        before = self._source.bytes_read
        try:
            footer = read_stripe_footer(self._source, self._tail, stripe)
        except SidecarError as error:
            for one in work.values():
                one.fail(reason_of(error), fault_of(error))
            return work
        for one in work.values():
            if one.column.encrypted:
                one.fail("the column is encrypted")
        for one in work.values():
            if one.wanted:
                self._scan(stripe, footer, one)
        first = next(iter(work.values()), None)
        if first is not None:
            first.groups[0].result.bytes_read += self._source.bytes_read - before
        return work

    def _scan(self, stripe: Stripe, footer: StripeFooter, one: _StripeColumn) -> None:
        """Decode a column of the stripe, and gather what its row groups still want."""
        values = one.values
        if not isinstance(values, OrcValues):
            one.fail(values)
            return
        if doubt := zone_doubt(one.column, footer.writer_timezone):
            one.fail(doubt)
            return
        if values.encoding.not_indexable is not None:
            for work in one.groups:
                if work.bloom:
                    work.result.reason, work.bloom = values.encoding.not_indexable, False
        try:
            if self._reader is None:
                self._reader = OrcValueReader(self._source.inner, self._tail)
            for work, array in zip(one.groups, self._reader.row_groups(stripe, one.column), strict=True):
                if work.wanted:
                    self._gather(work, values, array)
            one.groups[0].result.bytes_read += sum(
                stream.length for stream in footer.streams_of(one.column.id) if stream.kind in DATA_STREAMS
            )
        except SidecarError as error:
            one.fail(reason_of(error), fault_of(error))

    def _gather(self, work: ColumnWork, values: OrcValues, array: object) -> None:
        try:
            converted = values.of(array)  # type: ignore[arg-type]
        except UsageError as error:
            work.fail(reason_of(error))
            return
        count = self._options.ndv.get(work.field_id, len(converted) - converted.null_count)
        maker = SplitBlockMaker(values.encoding, count, self._options) if work.bloom else None
        work.start(maker, self._sketches)
        work.add(converted)
        work.finish("scanned")


def leaves_of(tail: OrcTail) -> Sequence[OrcLeaf]:
    """The leaf columns of a file, in the order of their ids."""
    paths: dict[int, str] = {}
    for column in tail.columns[1:]:
        above = tail.columns[column.parent or 0]
        name = column.path[len(above.path) + 1 :] if above.id else column.path
        between = {"LIST": "list.", "MAP": "key_value."}.get(above.kind, "")
        paths[column.id] = f"{paths[above.id]}.{between}{name}" if above.id else name
    return [OrcLeaf(column, paths[column.id]) for column in tail.columns[1:] if not column.is_compound]
