"""Loads everything that Puffin sidecars have into a collection, which is then sliced anew, merged or folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.extract import extract_filters
from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE, DataFileIdentity
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.indexes.page_indexes import StoredPageIndex
from sidecar.bundle.indexes.row_indexes import StoredRowIndex
from sidecar.bundle.kinds.declared import BLOOM, FILE_KINDS, PAGE_INDEX
from sidecar.bundle.model import UNLISTED, FileEntry, StoredColumn, UnitState
from sidecar.bundle.segment import named_columns
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.conversion.collection import BY_NAME, Collection, Key
from sidecar.conversion.matching.match import is_plain
from sidecar.conversion.outcome import EXACT, IndexPlace, Outcome
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

S = TypeVar("S", StoredPageIndex, StoredRowIndex)

_PAGE_INDEXES_AT_ONCE = 4096


_KnownAs = tuple[DataFileIdentity, bytes]
"""A file's identity and, for a plain file, the fingerprint of its data: a path may have been rewritten since."""


class Loader:
    """Loads one sidecar after the other; several segments may list a file. Call :meth:`finish` after the last one."""

    def __init__(self, collection: Collection, columns: Sequence[str] | None = None) -> None:
        self.units: list[Outcome] = []
        self._collection = collection
        self._columns = columns
        self._names = NamedColumns({}, {})
        """The columns of the sidecar that is loaded now."""
        self._named: dict[int, StoredColumn] = {}
        """Those whose names no segment of it withholds."""
        self._wanted: set[int] | None = None
        """The field ids that are wanted of it; ``None``: all."""
        self._first: dict[_KnownAs, int] = {}
        self._unread: dict[_KnownAs, FileEntry] = {}

    def load(self, sidecar: SidecarFile) -> None:
        """Load everything in the sidecar.

        Raises :class:`DamagedFileError` for the first damage, because an incomplete copy would look complete, and
        :class:`UsageError` if the Puffin file is not a sidecar.
        """
        if not sidecar.segments:
            raise UsageError("the Puffin file is not a sidecar", file=sidecar.source.name)
        self._names, self._named = NamedColumns.of(sidecar.segments), named_columns(sidecar.segments)
        if self._columns is not None:
            self._wanted = {i for column in self._columns for i in self._names.matching(column)}
        for segment in sidecar.segments:
            places = self._add_files(segment)
            self._filters(segment, places)
            self._pages(segment, places)
            self._rows(segment, places)
            self._reasons(segment, places)
        if sidecar.warnings:
            raise DamagedFileError(f"the sidecar is damaged: {sidecar.warnings[0]}", file=sidecar.source.name)

    def _add_files(self, segment: Segment) -> list[tuple[str, int, int]]:
        """Add the files of a segment; return for each unit its path, row group and ordinal in the collection."""
        places: list[tuple[str, int, int]] = []
        for entry in segment.files(range(segment.num_files)):
            if entry is None:
                raise DamagedFileError("the list of files cannot be read", found=segment.id)
            plain = _plain(segment, entry)
            known_as = entry.identity, plain.entry
            if not entry.units:
                self._unread.setdefault(known_as, plain)
                continue
            first = self._first.get(known_as)
            if first is None:
                first = self._first[known_as] = self._collection.add_file(plain)
            places += [(entry.path, unit.row_group, first + i) for i, unit in enumerate(entry.units)]
        return places

    def finish(self) -> None:
        """List the files that no segment has row groups for: they could not be read when they were indexed."""
        for known_as, plain in self._unread.items():
            if known_as not in self._first:
                self._collection.add_file(plain)

    def _filters(self, segment: Segment, places: Sequence[tuple[str, int, int]]) -> None:
        for field_id in sorted(segment.fields):
            for bundle in segment.bundles_of(field_id):
                if bundle.toc.doubts:
                    raise UnsupportedFeatureError(bundle.toc.doubts[0])
                for group in bundle.toc.groups:
                    self._group(segment, field_id, group, places)

    def _group(
        self, segment: Segment, field_id: int, group: StoredGroup, places: Sequence[tuple[str, int, int]]
    ) -> None:
        if not self._is_wanted(field_id):
            return
        key, name = self._key(field_id, group.resolution)
        for unit, bitset in extract_filters(segment, field_id, group):
            found = group.rule.filter_from(bitset)
            path, row_group, ordinal = places[unit]
            self._collection.add_filter(key, ordinal, group.encoding, found)
            rate = found.estimated_fpp()
            self.units.append(Outcome(path, row_group, name, BLOOM, EXACT, len(bitset), rate, rate))

    def _rows(self, segment: Segment, places: Sequence[tuple[str, int, int]]) -> None:
        """Load the row indexes of ORC units."""
        for field_id, unit, stored in self._wanted_indexes(segment, segment.row_index_blobs, segment.row_indexes):
            key, name = self._key(field_id, stored.kind.resolution)
            path, row_group, ordinal = places[unit]
            kind = stored.kind._replace(resolution=key.resolution)
            self._collection.add_row_index(key, ordinal, kind, stored.entry)
            self.units.append(Outcome(path, row_group, name, PAGE_INDEX, EXACT, len(stored.entry)))

    def _pages(self, segment: Segment, places: Sequence[tuple[str, int, int]]) -> None:
        for field_id, unit, stored in self._wanted_indexes(segment, segment.page_index_blobs, segment.page_indexes):
            key, name = self._key(field_id, stored.kind.resolution)
            column, offset = stored.column_index or b"", stored.offset_index or b""
            path, row_group, ordinal = places[unit]
            kind = stored.kind._replace(resolution=key.resolution)
            self._collection.add_page_index(key, ordinal, kind, column, offset)
            self.units.append(Outcome(path, row_group, name, PAGE_INDEX, EXACT, len(column) + len(offset)))

    def _wanted_indexes(
        self, segment: Segment, fields: Iterable[int], read: Callable[[int, Iterable[int]], dict[int, S]]
    ) -> Iterator[tuple[int, int, S]]:
        """Yield field id, unit and index of the wanted columns, and read some thousand indexes at once."""
        for field_id in filter(self._is_wanted, sorted(fields)):
            for first in range(0, segment.num_units, _PAGE_INDEXES_AT_ONCE):
                units = range(first, min(first + _PAGE_INDEXES_AT_ONCE, segment.num_units))
                for unit, stored in read(field_id, units).items():
                    yield field_id, unit, stored

    def _reasons(self, segment: Segment, places: Sequence[tuple[str, int, int]]) -> None:
        reasons: dict[Key, dict[tuple[str, int], str]] = defaultdict(dict)
        for coverage in segment.coverages:
            kind = next((kind for kind in FILE_KINDS if kind == coverage.kind), None)
            if kind is None:
                continue
            for unit, code in enumerate(coverage.codes.tolist()):
                state = coverage.states[code]
                if state.state != UnitState.INDEXED and self._is_wanted(coverage.field_id):
                    key, name = self._key(coverage.field_id, state.resolution or "id")
                    path, row_group, ordinal = places[unit]
                    reasons[key][kind, ordinal] = state.state
                    place: IndexPlace = (path, row_group, name, kind)
                    self.units.append(Outcome(*place, reason=state.state))
        for key, found in reasons.items():
            self._collection.columns[key].reasons.update(found)

    def _is_wanted(self, field_id: int) -> bool:
        return self._wanted is None or field_id in self._wanted

    def _key(self, field_id: int, resolution: str) -> tuple[Key, str]:
        """Return the key of a column, whose name it gets, and its name for the report."""
        key = Key(0, resolution.split("|")[0]) if resolution.startswith(BY_NAME) else Key(field_id, resolution)
        self._collection.name_column(key, self._named.get(field_id))
        return key, self._names.name(field_id) or key.name


def _plain(segment: Segment, entry: FileEntry) -> FileEntry:
    """Return the entry without the facts from the table's manifest."""
    own = entry.entry if is_plain(segment) else b""
    return replace(
        entry,
        entry=own,
        manifest=UNLISTED,
        spec_id=0,
        partition=(),
        bounds={},
        added_snapshot_id=None,
        file_sequence_number=UNKNOWN_SEQUENCE,
    )
