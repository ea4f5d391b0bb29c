"""Loads everything that Puffin sidecars have into a collection, which is then sliced anew, merged or folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.extract import extract_filters
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.kinds.declared import BLOOM, FILE_KINDS, PAGE_INDEX
from sidecar.bundle.model import UNLISTED, FileEntry, StoredColumn, UnitState
from sidecar.bundle.numbered_files import NOT_RECORDED
from sidecar.bundle.segment import named_columns
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.collection import BY_NAME, Collection, Key
from sidecar.conversion.outcome import EXACT, IndexPlace, Outcome
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.puffin.types import PAGE_INDEX as PAGE_INDEX_BLOB
from sidecar.puffin.types import ROW_INDEX as ROW_INDEX_BLOB

_INDEXES_AT_ONCE = 4096


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
        """Columns whose names no segment of the file withholds."""
        self._wanted: set[int] | None = None
        """The field ids to load of that sidecar; ``None``: all."""
        self._first: dict[_KnownAs, int] = {}
        self._unread: dict[_KnownAs, FileEntry] = {}

    def load(self, sidecar: SidecarFile) -> None:
        """Load everything in the sidecar.

        Raises :class:`DamagedFileError` for the first damage, because an incomplete copy would look complete, and
        :class:`UsageError` if the Puffin file is not a sidecar.
        """
        if not sidecar.is_sidecar:
            raise UsageError("the Puffin file is not a sidecar", file=sidecar.source.name)
        self._names, self._named = NamedColumns.of(sidecar.segments), named_columns(sidecar.segments)
        if self._columns is not None:
            self._wanted = {i for column in self._columns for i in self._names.matching(column)}
        places = self._add_files(sidecar)
        self._filters(sidecar, places)
        self._indexes(sidecar, places)
        self._reasons(sidecar, places)
        if sidecar.warnings:
            raise DamagedFileError(f"the sidecar is damaged: {sidecar.warnings[0]}", file=sidecar.source.name)

    def _add_files(self, sidecar: SidecarFile) -> list[tuple[str, int, int]]:
        """Add the files of a sidecar; return for each unit its path, row group and ordinal in the collection."""
        places: list[tuple[str, int, int]] = []
        for number, entry in enumerate(sidecar.entries(range(sidecar.num_files))):
            if entry is None or len(places) != sidecar.unit_ranges[number]:
                raise DamagedFileError("the list of files cannot be read", file=sidecar.source.name)
            plain = _without_table_facts(entry, sidecar.is_plain(number))
            known_as = entry.identity, plain.entry
            if not entry.units:
                self._unread.setdefault(known_as, plain)
                continue
            first = self._first.get(known_as)
            if first is None:
                first = self._first[known_as] = self._collection.add_file(plain)
            places += [(entry.path, unit.row_group, first + i) for i, unit in enumerate(entry.units)]
        if len(places) != sidecar.num_units:
            raise DamagedFileError("the list of files has other row groups than the sidecar", file=sidecar.source.name)
        return places

    def finish(self) -> None:
        """List the files that no segment has row groups for: they could not be read when they were indexed."""
        for known_as, plain in self._unread.items():
            if known_as not in self._first:
                self._collection.add_file(plain)

    def _filters(self, sidecar: SidecarFile, places: Sequence[tuple[str, int, int]]) -> None:
        for bundle in sidecar.field_blobs:
            if isinstance(bundle, FilterBundle) and bundle.toc.damage:
                raise UnsupportedFeatureError(bundle.toc.damage[0])
        for field_id in filter(self._is_wanted, sorted(sidecar.filtered_fields)):
            for bundle, group, units in sidecar.groups_of(field_id):
                self._group(bundle, group, [places[unit] for unit in units.tolist()])

    def _group(self, bundle: FilterBundle, group: StoredGroup, places: Sequence[tuple[str, int, int]]) -> None:
        key, name = self._key(bundle.toc.field_id, group.resolution)
        for (path, row_group, ordinal), (_, bitset) in zip(places, extract_filters(bundle, group), strict=True):
            found = group.rule.filter_from(bitset)
            self._collection.add_filter(key, ordinal, group.encoding, found)
            rate = found.estimated_fpp()
            self.units.append(Outcome(path, row_group, name, BLOOM, EXACT, len(bitset), rate, rate))

    def _indexes(self, sidecar: SidecarFile, places: Sequence[tuple[str, int, int]]) -> None:
        """Load page indexes and the row indexes of ORC units, some thousand at once."""
        for field_id in filter(self._is_wanted, sorted(sidecar.fields_of(PAGE_INDEX_BLOB, ROW_INDEX_BLOB))):
            for first in range(0, sidecar.num_units, _INDEXES_AT_ONCE):
                units = range(first, min(first + _INDEXES_AT_ONCE, sidecar.num_units))
                for unit, stored in sidecar.stored_indexes(field_id, units).items():
                    key, name = self._key(field_id, stored.kind.resolution)
                    path, row_group, ordinal = places[unit]
                    kind = stored.kind._replace(resolution=key.resolution)
                    self._collection.add_entry(key, ordinal, kind, stored.pieces)
                    size = sum(map(len, stored.pieces))
                    self.units.append(Outcome(path, row_group, name, PAGE_INDEX, EXACT, size))

    def _reasons(self, sidecar: SidecarFile, places: Sequence[tuple[str, int, int]]) -> None:
        reasons: dict[Key, dict[tuple[str, int], str]] = defaultdict(dict)
        for field_id, recorded in sidecar.recorded:
            kind = next((kind for kind in FILE_KINDS if kind == recorded), None)
            if kind is None or not self._is_wanted(field_id):
                continue
            states, _ = sidecar.coverage(field_id, kind)
            for (path, row_group, ordinal), code in zip(places, states.codes.tolist(), strict=True):
                state = states.states[code]
                if state.state != UnitState.INDEXED and state is not NOT_RECORDED:
                    key, name = self._key(field_id, state.resolution or "id")
                    reasons[key][kind, ordinal] = state.state
                    self.units.append(IndexPlace(path, row_group, name, kind).without_index(state.state))
        for key, found in reasons.items():
            self._collection.columns[key].reasons.update(found)

    def _is_wanted(self, field_id: int) -> bool:
        return self._wanted is None or field_id in self._wanted

    def _key(self, field_id: int, resolution: str) -> tuple[Key, str]:
        """Return the key of a column, whose name it gets, and its name for the report."""
        key = Key(0, resolution.split("|")[0]) if resolution.startswith(BY_NAME) else Key(field_id, resolution)
        self._collection.name_column(key, self._named.get(field_id))
        return key, self._names.name(field_id) or key.name


def _without_table_facts(entry: FileEntry, is_plain: bool) -> FileEntry:
    """Return the entry without the facts from the table's manifest."""
    identity = DataFileIdentity(*entry.identity[:3])
    return FileEntry(identity, 0, UNLISTED, entry.entry if is_plain else b"", entry.units)
