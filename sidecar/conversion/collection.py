"""Collects the files, units and indexes of one segment before it is written; the indexes wait in a temporary file.

A column is identified by its field id, or by its path if it has no field id. When everything is collected, each column
without a field id gets a number above all field ids, in order of appearance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, AnyFilter, IndexRule, rule_of
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import plan_index_groups, split_entry
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, EntryKind, RowIndexKind
from sidecar.bundle.kinds.declared import BLOOM, FILE_KINDS, KINDS, PAGE_INDEX
from sidecar.bundle.model import (
    BY_ID,
    BY_NAME,
    NO_TABLE,
    Coverage,
    CoverageState,
    FileEntry,
    SegmentHeader,
    StoredColumn,
    UnitsTable,
    UnitState,
)
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.conversion.protection import Protection, properties_of
from sidecar.conversion.spool import Spool
from sidecar.data_files.open_file import DataLeaf
from sidecar.puffin.writer import PuffinWriter, WrittenFile
from sidecar.storage.target import Target

NO_SNAPSHOT, NO_SEQUENCE = -1, 0


class Key(NamedTuple):
    """Identifies a column by its field id, or by its path if ``field_id`` is 0.

    ``resolution`` is the text that a group of the sidecar records: :data:`BY_ID`, or :data:`BY_NAME` and the path.
    """

    field_id: int
    resolution: str

    @property
    def name(self) -> str:
        """A name for reports without the data file at hand: the path, or the field id."""
        return self.resolution.removeprefix(BY_NAME) if not self.field_id else f"field {self.field_id}"


def keys_of(leaves: Sequence[DataLeaf]) -> dict[int, Key]:
    """Return the key of each leaf of a file by its number: its field id if it is positive and unique, else its path."""
    times = Counter(leaf.field_id for leaf in leaves)
    return {
        leaf.index: Key(leaf.field_id, BY_ID)
        if leaf.field_id and leaf.field_id > 0 and times[leaf.field_id] == 1
        else Key(0, BY_NAME + leaf.own_path)
        for leaf in leaves
    }


@dataclass(frozen=True)
class KeptFilter:
    """A filter in the spool. ``tail`` holds the bytes after its last whole block."""

    encoding: str
    offset: int
    blocks: int
    tail: bytes = b""
    rule: IndexRule = SPLIT_BLOCK

    @property
    def num_bytes(self) -> int:
        """Bytes of the filter in a data file."""
        return self.rule.num_bytes(self.blocks, len(self.tail))


@dataclass(frozen=True)
class SpooledEntry:
    """A page index (ColumnIndex, then OffsetIndex) or a RowIndexEntry in the spool, with the lengths of its parts."""

    kind: EntryKind
    offset: int
    lengths: tuple[int, ...]


@dataclass
class CollectedColumn:
    """The indexes of one column, by unit ordinal."""

    filters: dict[int, KeptFilter] = field(default_factory=dict)
    entries: dict[int, SpooledEntry] = field(default_factory=dict)
    """Page indexes of Parquet files, row indexes of ORC files."""
    reasons: dict[tuple[str, int], str] = field(default_factory=dict)
    """Why a unit lacks an index that it had or should have, by (kind, unit ordinal)."""

    def absorb(self, other: CollectedColumn, first: int, at: int) -> None:
        """Add indexes of units that are counted from ``first`` on here; their bytes are from ``at`` on in the spool."""
        self.filters |= {first + i: replace(kept, offset=at + kept.offset) for i, kept in other.filters.items()}
        self.entries |= {first + i: replace(kept, offset=at + kept.offset) for i, kept in other.entries.items()}
        self.reasons |= {(kind, first + i): reason for (kind, i), reason in other.reasons.items()}

    def having(self, kind: str) -> AbstractSet[int]:
        """Return the ordinals of the units that have an index of the kind."""
        return {BLOOM: self.filters.keys(), PAGE_INDEX: self.entries.keys()}[kind]


class Collection:
    """Indexes of plain files, gathered for one Puffin file. Close it to free the temporary file."""

    def __init__(self, protection: Protection | None = None) -> None:
        self.protection = protection or Protection()
        self.paths: dict[str, Key] = {}
        """Keys of columns by path. Encryption keys name columns by path too."""
        self.names: dict[Key, StoredColumn | None] = {}
        """The names of columns in the Puffin file; ``None`` for columns that are encrypted in some file."""
        self.plaintext: set[Key] = set()
        """Columns that are encrypted in some file and in plaintext here."""
        self.spool = Spool()
        self.files: list[FileEntry] = []
        self.columns: dict[Key, CollectedColumn] = defaultdict(CollectedColumn)
        self.num_units = 0

    def close(self) -> None:
        """Drop everything."""
        self.spool.close()

    def absorb(self, other: Collection) -> None:
        """Append the files of another collection with their indexes, as if they had been added here; it is then closed.

        The spool of the other one becomes that of an empty collection.
        """
        first = self.num_units
        if self.files:
            at = self.spool.append_all(other.spool)
            other.close()
        else:
            self.spool.close()
            self.spool, at = other.spool, 0
        self.files += other.files
        self.num_units += other.num_units
        self.paths.update(other.paths)
        for key, name in other.names.items():
            self.name_column(key, name)
        self.plaintext |= other.plaintext
        for key, column in other.columns.items():
            self.columns[key].absorb(column, first, at)

    def __getstate__(self) -> dict[str, object]:
        """Return everything but the keys, which no other process is to get with a result."""
        return {**vars(self), "protection": Protection()}

    def name_column(self, key: Key, column: StoredColumn | None) -> None:
        """Note the name of a column; the last one counts. ``None`` withholds it for good, other types the type."""
        before = self.names.get(key, column)
        if column is not None and before is not None:
            self.names[key] = column if column.type == before.type else column._replace(type="")
        else:
            self.names[key] = None

    def add_file(self, file: FileEntry) -> int:
        """Add a file and return the ordinal of its first unit."""
        first = self.num_units
        self.files.append(file)
        self.num_units += len(file.units)
        return first

    def add_filter(self, key: Key, unit: int, encoding: str, found: AnyFilter) -> None:
        """Keep a filter, including the bytes after its last whole block."""
        rule = rule_of(found)
        blocks, tail = rule.split(found.to_bytes())
        offset = self.spool.append(blocks)
        self.columns[key].filters[unit] = KeptFilter(encoding, offset, len(blocks) // BLOCK_BYTES, tail, rule)

    def add_entry(self, key: Key, unit: int, kind: EntryKind, pieces: Sequence[bytes]) -> None:
        """Keep a page index (both structures, of which either may be empty) or the row index of one row group."""
        at = self.spool.append(b"".join(pieces))
        self.columns[key].entries[unit] = SpooledEntry(kind, at, tuple(map(len, pieces)))

    def filter_of(self, kept: KeptFilter) -> AnyFilter:
        """Read a kept filter."""
        data = self.spool.read(kept.offset, kept.blocks * BLOCK_BYTES)
        return kept.rule.filter_from(kept.rule.join(data, kept.tail))

    def entry_of(self, kept: SpooledEntry) -> list[bytes]:
        """Read the parts of a kept page index or row index."""
        return split_entry(self.spool.read(kept.offset, sum(kept.lengths)), kept.lengths)

    def numbers(self) -> dict[Key, int]:
        """Return the field number of each column: its field id, or a number above all field ids."""
        highest = max((key.field_id for key in self.columns), default=0)
        unnamed = [key for key in self.columns if not key.field_id]
        fresh = {key: highest + 1 + i for i, key in enumerate(unnamed)}
        return {key: key.field_id or fresh[key] for key in self.columns}

    def write(self, target: Target) -> WrittenFile:
        """Write everything as one segment into one Puffin file."""
        header = SegmentHeader(
            NO_TABLE,
            NO_SNAPSHOT,
            NO_SEQUENCE,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
            columns={number: name for key, number in self.numbers().items() if (name := self.names.get(key))},
        )
        place = {"snapshot_id": NO_SNAPSHOT, "sequence_number": NO_SEQUENCE}
        # PuffinWriter expects a BinaryIO. Target.write takes all bytes or raises, so a partial write cannot happen.
        puffin = PuffinWriter(cast(BinaryIO, target))
        numbers = sorted((number, key) for key, number in self.numbers().items())
        units = UnitsTable(files=self.files, coverage=list(self._coverage(numbers)))
        spooled = self.spool.array()
        own = self._field_keys(header)
        bundles = (
            self._bundle(number, key, own.get(number), header.segment_id, spooled)
            for number, key in numbers
            if self.columns[key].filters
        )
        indexes = (
            field_index for number, key in numbers for field_index in self._indexes(number, key, own.get(number))
        )
        entries = write_segment(puffin, header, units, chain(indexes, bundles), **place)
        write_toc(puffin, entries, **place)
        return puffin.finish()

    def _field_keys(self, header: SegmentHeader) -> dict[int, FieldKey]:
        """Make a fresh data key for each column whose bundles are encrypted, by field number."""
        numbers, place = self.numbers(), (header.table_uuid, header.segment_id)
        made = {
            numbers[key]: self.protection.key_for(path, *place, numbers[key])
            for path, key in self.paths.items()
            if key in numbers
        }
        return {number: key for number, key in made.items() if key is not None}

    def _coverage(self, numbers: list[tuple[int, Key]]) -> Iterator[Coverage]:
        for number, key in numbers:
            column = self.columns[key]
            for kind in FILE_KINDS:
                have = column.having(kind)
                if have or any(reason_kind == kind for reason_kind, _ in column.reasons):
                    states = (self._state(have, column, key, kind, unit) for unit in range(self.num_units))
                    yield Coverage.of(number, kind, states)

    def _state(self, have: AbstractSet[int], column: CollectedColumn, key: Key, kind: str, unit: int) -> CoverageState:
        if unit in have:
            return CoverageState(UnitState.INDEXED, key.resolution)
        nothing = f"the file has no {KINDS[kind].what}"
        # The resolution has the path of a column without a field id. It is for units with an index.
        is_withheld = key in self.names and self.names[key] is None
        return CoverageState(column.reasons.get((kind, unit), nothing), "" if is_withheld else key.resolution)

    def _bundle(
        self,
        number: int,
        key: Key,
        own: FieldKey | None,
        segment: bytes,
        spooled: npt.NDArray[np.uint8],
    ) -> FieldBundle:
        filters = self.columns[key].filters
        place = BlobContext(segment, number) if own is None else own.place
        members = [
            GroupMember(unit, kept.encoding, key.resolution, kept.num_bytes, kept.rule)
            for unit, kept in filters.items()
        ]
        groups = plan_groups(members, place.sealing)
        pages, said = self._pages(groups, filters, place, spooled), properties_of(key in self.plaintext)
        return FieldBundle(number, groups, pages, key=own, properties=said)

    def _pages(
        self,
        groups: list[BundleGroup],
        filters: dict[int, KeptFilter],
        place: BlobContext,
        spooled: npt.NDArray[np.uint8],
    ) -> Iterator[bytes]:
        for group in groups:
            kept_filters = [filters[unit] for unit in group.units.tolist()]
            views = [_blocks(spooled, kept_filter.offset, kept_filter.blocks) for kept_filter in kept_filters]
            yield from group_pages(
                group, place, _loader(group, views), [kept_filter.tail for kept_filter in kept_filters]
            )

    def _indexes(self, number: int, key: Key, own: FieldKey | None) -> Iterator[FieldIndexes]:
        entries = self.columns[key].entries
        members: list[tuple[int, Any, tuple[int, ...]]]
        for form, kind in ((PAGE_INDEXES, PageIndexKind), (ROW_INDEXES, RowIndexKind)):
            members = [(unit, one.kind, one.lengths) for unit, one in entries.items() if isinstance(one.kind, kind)]
            if members:
                groups = plan_index_groups(form, members)
                parts = (self.entry_of(entries[unit]) for group in groups for unit in group.units.tolist())
                yield FieldIndexes(form, number, groups, parts, own, properties_of(key in self.plaintext))


def _blocks(spooled: npt.NDArray[np.uint8], offset: int, blocks: int) -> npt.NDArray[np.uint32]:
    return spooled[offset : offset + blocks * BLOCK_BYTES].view("<u4").reshape(-1, 8)


def _loader(group: BundleGroup, views: list[npt.NDArray[np.uint32]]) -> Callable[[int, int], npt.NDArray[np.uint32]]:
    return lambda first, count: gather_blocks(group, views, first, count)


__all__ = ["BY_ID", "BY_NAME", "NO_TABLE", "Collection", "Key", "keys_of"]
