"""An open ORC file. Its units are the row groups (strides) of its stripes, its parts are the stripes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.rules import IndexRule, OrcRule
from sidecar.bundle.indexes.row_indexes import EntryKind, RowIndexKind, row_index_kind
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import UnitEntry
from sidecar.data_files.open_file import OwnIndex, PartValues
from sidecar.data_files.orc_column import OrcColumnPart
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, reason_at
from sidecar.filters.column_types import ColumnType
from sidecar.filters.leaf import ComparedColumn
from sidecar.filters.orc.values import GREGORIAN_DAY
from sidecar.orc.decode import read_row_groups
from sidecar.orc.embed import FILTER_STREAMS, check_embeddable
from sidecar.orc.iceberg_values import DAY, orc_values, zone_doubt
from sidecar.orc.identity import data_digest, data_fingerprint, is_distinctive
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.inspect import find_column
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.bounds import compared_column, row_group_bounds, statistics_bounds
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.streams import DATA_STREAMS
from sidecar.orc.stripe import INDEX_STREAMS, StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.puffin.types import ROW_INDEX
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.storage.source import Source

_STREAMS = {BLOOM: FILTER_STREAMS, PAGE_INDEX: frozenset({"ROW_INDEX"})}
"""The streams in which an index of each kind is."""


@dataclass(frozen=True)
class OrcLeaf:
    """A leaf column of the file, with its path in Parquet's style: ``a.list.element``, ``m.key_value.key``.

    With these paths a column has the same name in files of both formats, and its filters share groups.
    """

    column: OrcColumn
    path: str

    @property
    def index(self) -> int:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.id

    @property
    def own_path(self) -> str:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.path

    @property
    def parts(self) -> tuple[str, ...]:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.names

    @property
    def iceberg_type(self) -> str:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.iceberg_type or ""

    @property
    def field_id(self) -> int | None:
        """Field id in the file, if it has one."""
        return self.column.field_id


def first_units(tail: OrcTail) -> list[int]:
    """Return the number of row groups before each stripe; the last entry counts all of them."""
    return list(accumulate((stripe.num_row_groups for stripe in tail.stripes), initial=0))


def leaves_of(tail: OrcTail) -> Sequence[OrcLeaf]:
    """Return the leaf columns of a file in the order of their ids."""
    paths: dict[int, str] = {}
    for column in tail.columns[1:]:
        above = tail.columns[column.parent or 0]
        name = column.path[len(above.path) + 1 :] if above.id else column.path
        between = {"LIST": "list.", "MAP": "key_value."}.get(above.kind, "")
        paths[column.id] = f"{paths[above.id]}.{between}{name}" if above.id else name
    return [OrcLeaf(column, paths[column.id]) for column in tail.columns[1:] if not column.is_compound]


class OpenOrc:
    """See :class:`sidecar.data_files.open_file.OpenFile`. No key opens a column of an ORC file."""

    format: Final = "orc"
    index_blobs: Final = ROW_INDEX

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self.source, self.tail = source, tail
        self.name, self.size, self.num_rows = tail.name, tail.size, tail.num_rows
        self.leaves: Sequence[Any] = leaves_of(tail)
        self.page_sizes: list[int] = []
        self._footers: dict[int, StripeFooter] = {}
        self.first_units = first_units(tail)
        """The number of row groups before each stripe; the last entry counts all of them."""

    @cached_property
    def statistics(self) -> FileStatistics:
        """The statistics of the file and of its stripes."""
        return FileStatistics(self.source, self.tail)

    @cached_property
    def units(self) -> Sequence[UnitEntry]:
        """See :class:`.OpenFile`."""
        return [
            UnitEntry(self.first_units[stripe.ordinal] + group.ordinal, group.first_row, group.rows)
            for stripe in self.tail.stripes
            for group in stripe.row_groups
        ]

    @property
    def parts(self) -> int:
        """See :class:`.OpenFile`."""
        return len(self.tail.stripes)

    def part_units(self, part: int) -> range:
        """See :class:`.OpenFile`."""
        return range(self.first_units[part], self.first_units[part + 1])

    def is_encrypted(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`."""
        return bool(leaf.column.encrypted)

    is_locked = is_encrypted

    def filter_bytes(self, part: int, leaf: Any) -> int | None:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        lengths = [stream.length for stream in streams if stream.kind in FILTER_STREAMS]
        return sum(lengths) if lengths else None

    def part_size(self, part: int) -> int:
        """See :class:`.OpenFile`."""
        stripe = self.tail.stripes[part]
        return stripe.end - stripe.offset

    def cost(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        return sum(stream.length for stream in streams if stream.kind in DATA_STREAMS)

    def values(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[PartValues]:
        """See :class:`.OpenFile`."""
        stripe, footer = self.tail.stripes[part], self.footer(part)
        values = orc_values(leaf.column, iceberg_type, self.tail.writer)
        reason = values.reason if isinstance(values, Unknown) else zone_doubt(leaf.column, footer.writer_timezone)
        if reason or isinstance(values, Unknown):
            raise UnsupportedFeatureError(reason, file=self.tail.name, column=leaf.path)
        for unit, array in enumerate(read_row_groups(self.source, self.tail, stripe, footer, leaf.column)):
            yield PartValues(unit, values.from_file(array), False)

    def number_of(self, path: str) -> int:
        """See :class:`.OpenFile`."""
        return find_column(self.tail, path).id

    def check_embeddable(self) -> None:
        """See :class:`.OpenFile`."""
        check_embeddable(self.tail)

    def can_hold(self, rule: IndexRule) -> bool:
        """See :class:`.OpenFile`."""
        return isinstance(rule, OrcRule)

    def may_have_new_filters(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`. Which columns may have some depends on the stripe, too."""
        return True

    def values_size(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        return sum(stream.length for stream in streams if stream.kind not in INDEX_STREAMS)

    def fits(self, leaf: Any, made: StoredGroup | EntryKind) -> bool:
        """See :class:`.OpenFile`. Filters of both kinds are made of ORC's values, in any encoding."""
        return True

    def column_part(self, part: int, leaf: Any) -> OrcColumnPart:
        """See :class:`.OpenFile`."""
        return OrcColumnPart(self, part, leaf)

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """See :class:`.OpenFile`. Row indexes of ORC are not looked at."""
        return None

    def compared(self, leaf: Any, iceberg_type: str) -> ComparedColumn:
        """See :class:`.OpenFile`."""
        return compared_column(leaf.column.kind, leaf.column.scale or 0, leaf.column.id, iceberg_type)

    def stated_bounds(self, leaf: Any) -> Iterator[tuple[str, Bounds | Unknown]]:
        """See :class:`.OpenFile`."""
        column, statistics = leaf.column, self.statistics
        yield "file statistics", statistics_bounds(statistics.of_file(column), column, self.num_rows)
        for part, stripe in enumerate(self.tail.stripes):
            footer = self.footer(part)
            whole = statistics.of_stripe(stripe, column, footer.writer_timezone)
            yield "stripe statistics", statistics_bounds(whole, column, stripe.num_rows)
            index = read_indexes(self.source, self.tail, footer, [column.id], statistics, bloom=False)[column.id]
            for group in stripe.row_groups:
                yield "row index", row_group_bounds(index, group)

    def doubt(self, leaf: Any, iceberg_type: str, values: Iterable[Any]) -> str:
        """See :class:`.OpenFile`.

        Some readers cut the blanks of a CHAR, have another rule for the writer's time zone, or another calendar.
        """
        read, family = orc_values(leaf.column, iceberg_type, self.tail.writer), ColumnType.parse(iceberg_type).family
        reasons = [read.reason] if isinstance(read, Unknown) else []
        if leaf.column.kind == "TIMESTAMP":
            reasons += [zone_doubt(leaf.column, self.footer(part).writer_timezone) for part in range(self.parts)]
        day = {"date": 1, "timestamp": DAY}.get(family)
        if day is not None and any(value < GREGORIAN_DAY * day for value in values):
            reasons.append("readers disagree on the calendar of days before 1582-10-15")
        return next(filter(None, reasons), "")

    def close(self) -> None:
        """See :class:`.OpenFile`."""

    def has_index(self, part: int, leaf: Any, kind: IndexKind) -> bool:
        """See :class:`.OpenFile`."""
        return any(stream.kind in _STREAMS[kind] for stream in self.footer(part).streams_of(leaf.index))

    def own_indexes(self, part: int, leaves: Sequence[Any], kinds: Collection[IndexKind]) -> Iterator[OwnIndex]:
        """See :class:`.OpenFile`."""
        if not self.tail.stripes[part].num_rows:
            return
        self.statistics.compare([leaf.column for leaf in leaves])
        ids = [leaf.index for leaf in leaves]
        indexes = read_indexes(self.source, self.tail, self.footer(part), ids, self.statistics, bloom=BLOOM in kinds)
        for leaf in leaves:
            if BLOOM in kinds:
                yield from self._own_filters(part, leaf, indexes[leaf.index])
            if PAGE_INDEX in kinds:
                yield from self._own_row_indexes(part, leaf, indexes[leaf.index])

    def _own_filters(self, part: int, leaf: OrcLeaf, index: StripeIndex) -> Iterator[OwnIndex]:
        if index.filters_problem is not None:
            yield from self._unindexed(part, leaf, BLOOM, index.filters_problem)
        for unit, found in zip(self.part_units(part), index.filters or (), strict=False):
            is_sound = found.filter is not None and found.encoding is not None and found.trusted
            encoding = "" if found.encoding is None else found.encoding.name
            yield OwnIndex(unit, leaf, BLOOM, is_sound, found.filter, encoding, reason=found.reason)

    def _own_row_indexes(self, part: int, leaf: OrcLeaf, index: StripeIndex) -> Iterator[OwnIndex]:
        if index.row_index_problem is not None:
            yield from self._unindexed(part, leaf, PAGE_INDEX, index.row_index_problem)
        entries = () if index.row_index is None else index.row_index.parts
        for group, (unit, entry) in enumerate(zip(self.part_units(part), entries, strict=False)):
            doubt = index.contradictions.of(group)
            reason = doubt or ("" if entry else "its entry is empty")
            yield OwnIndex(unit, leaf, PAGE_INDEX, not reason, pieces=(entry,), reason=reason, damaged=bool(doubt))

    def _unindexed(self, part: int, leaf: OrcLeaf, kind: IndexKind, problem: SidecarError) -> Iterator[OwnIndex]:
        """Yield each unit of a part: one problem cost all of them their index."""
        for unit in self.part_units(part):
            yield OwnIndex(
                unit, leaf, kind, False, reason=reason_at(problem), damaged=isinstance(problem, DamagedFileError)
            )

    def index_kind(self, part: int, leaf: Any, resolution: str) -> RowIndexKind:
        """See :class:`.OpenFile`."""
        return row_index_kind(self.tail, self.footer(part), leaf.column, resolution)

    is_unique = False

    def fingerprint(self) -> bytes:
        """See :class:`.OpenFile`."""
        return data_fingerprint(self.source, self.tail)

    def is_distinctive(self) -> bool:
        """See :class:`.OpenFile`."""
        return is_distinctive(self.source, self.tail)

    @cached_property
    def _digest(self) -> bytes:
        return data_digest(self.source, self.tail)

    def digest(self, *, check: bool) -> bytes:
        """See :class:`.OpenFile`. Data of ORC has no checksums."""
        return self._digest

    def footer(self, part: int) -> StripeFooter:
        """Return the footer of a stripe."""
        if part not in self._footers:
            self._footers[part] = read_stripe_footer(self.source, self.tail, self.tail.stripes[part])
        return self._footers[part]
