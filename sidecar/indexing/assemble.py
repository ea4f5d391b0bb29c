"""Turns the records of stage 1 into the contents of a segment: files with their units, coverage, sketches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sidecar.bundle.kinds.declared import BUILT_KINDS, KINDS
from sidecar.bundle.model import (
    UNLISTED,
    Coverage,
    FileEntry,
    ListedManifest,
    UnitEntry,
    UnitsTable,
)
from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg import listing as iceberg
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.columns import Options
from sidecar.indexing.kinds import PARTS
from sidecar.indexing.stage_one.fault import STORAGE
from sidecar.indexing.stage_one.tasks import StageResult


@dataclass(frozen=True)
class SegmentUnit:
    """An indexed row group: its file ordinal, its entry in the units table, and its records by field id."""

    file: int
    entry: UnitEntry
    columns: Mapping[int, StageResult]
    pages: Mapping[int, StageResult] = field(default_factory=dict)
    """Records of page indexes and row indexes by field id."""

    def records(self, kind: str) -> Mapping[int, StageResult]:
        """Return the records with what the unit has of a kind, by field id."""
        return self.pages if KINDS[kind].takes == "entries" else self.columns


@dataclass(frozen=True)
class Encrypted:
    """The columns that are encrypted in data files, including columns that are not indexed."""

    fields: frozenset[int] = frozenset()
    files: frozenset[int] = frozenset()
    """Ordinals of files whose encrypted columns are not known."""

    def exposes(self, file: SnapshotFile, plaintext: Collection[int]) -> bool:
        """Return whether the file's manifest entry reveals bounds of an encrypted column, or the file's own key."""
        if file.data_file.key_metadata is not None:
            return True
        bounded = {i for i, bounds in file.bounds.items() if (bounds.lower, bounds.upper) != (None, None)}
        return bool((bounded if file.ordinal in self.files else bounded & self.fields).difference(plaintext))


@dataclass
class StageResults:
    """The result of stage 1, checked and in order."""

    units: list[SegmentUnit] = field(default_factory=list)
    """The units by file and row group. The position in this list is the unit's ordinal."""
    failed: dict[int, str] = field(default_factory=dict)
    """Files that could not be indexed at all: the reason by file ordinal."""
    unread: set[int] = field(default_factory=set)
    """Ordinals of the failed files that storage could not read."""
    in_part: set[int] = field(default_factory=set)
    """Ordinals of the failed files of which some row groups were counted in sketches."""
    group_sketches: dict[tuple[int, int], ThetaSketch] = field(default_factory=dict)
    """The sketches by number of the group of files, and field id."""
    sketches: dict[int, ThetaSketch] = field(default_factory=dict)
    """The sketches of the whole table by field id."""
    marks: dict[int, CountMarks] = field(default_factory=dict)
    """Why the count of a field may be too high or too low, by field id."""
    encrypted: Encrypted = Encrypted()

    def count(self, field_id: int, sketch: ThetaSketch) -> None:
        """Add the values of a sketch to the sketch of the table."""
        before = self.sketches.get(field_id)
        self.sketches[field_id] = sketch if before is None else ThetaSketch.union([before, sketch], sketch.lg_k)

    def counted(self, field_id: int) -> set[int]:
        """Return the ordinals of the files of which all units were counted in the sketches of a field."""
        lacking = {unit.file for unit in self.units if unit.columns[field_id].theta_reason}
        return {unit.file for unit in self.units} - lacking

    @property
    def bytes_read(self) -> int:
        """The bytes read from data files."""
        records = (record for unit in self.units for record in (*unit.columns.values(), *unit.pages.values()))
        return sum(record.bytes_read for record in records)


@dataclass(frozen=True)
class Selection:
    """The files that a segment lists, in its order: files of whole manifests first."""

    files: Sequence[SnapshotFile]
    manifests: Sequence[tuple[iceberg.SnapshotManifest, int]]
    """Manifests whose live files are all in ``files``, each with the position of its first file."""
    exposing: frozenset[int] = frozenset()
    """Ordinals of files whose manifest entry is not recorded, because it has bounds of an encrypted column."""


def encrypted_of(records: Sequence[StageResult], options: Options) -> Encrypted:
    """Return what stage 1 found encrypted. Columns with encrypted bundles count as encrypted in all files."""
    encrypted = [record for record in records if record.kind == "encrypted"]
    fields = {record.field_id for record in encrypted if record.field_id >= 0} | options.encrypted
    return Encrypted(frozenset(fields), frozenset(r.file for r in encrypted if r.field_id < 0))


def select(
    listing: Listing, wanted: set[int], encrypted: Encrypted | None = None, plaintext: Collection[int] = ()
) -> Selection:
    """Return the selection of the ``wanted`` file ordinals.

    A manifest with bounds of an encrypted column is not listed, because its entries are not recorded. Planning reads
    that manifest itself, if it has the permission.
    """
    exposing = frozenset(
        ordinal for ordinal in wanted if encrypted is not None and encrypted.exposes(listing.files[ordinal], plaintext)
    )
    return select_files(listing, wanted, exposing)


def select_files(listing: Listing, wanted: Set[int], exposing: frozenset[int]) -> Selection:
    """Return the selection of the ``wanted`` file ordinals; manifests with a file in ``exposing`` are not listed."""
    files: list[SnapshotFile] = []
    manifests = []
    for manifest in listing.manifests:
        own = range(manifest.listed.first_file, manifest.listed.first_file + manifest.listed.live_files)
        if wanted >= set(own) and exposing.isdisjoint(own):
            manifests.append((manifest, len(files)))
            files += listing.files[own.start : own.stop]
    others = wanted - {file.ordinal for file in files}
    files += [file for file in listing.files if file.ordinal in others]
    return Selection(files, manifests, exposing)


def collect(files: Sequence[SnapshotFile], records: Sequence[StageResult]) -> StageResults:
    """Sort the records into units. A file counts as failed if one of its pieces failed or row groups are missing."""
    indexed = StageResults()
    entries: dict[int, dict[int, UnitEntry]] = defaultdict(dict)
    sketches: dict[tuple[int, int], list[ThetaSketch]] = defaultdict(list)
    for record in records:
        if record.kind == "file":
            indexed.failed.setdefault(record.file, record.reason)
            if record.fault == STORAGE:
                indexed.unread.add(record.file)
        elif record.entry is not None:
            entries[record.file][record.row_group] = record.entry
        elif record.kind == "sketch":
            sketches[record.sketch_group, record.field_id].append(ThetaSketch.from_bytes(record.data or b""))
    tried = [file for file in files if file.ordinal not in indexed.failed and not file.not_indexable]
    # A file comes in pieces, so only now it shows whether a row group is missing. Then the whole file fails.
    reasons = {file.ordinal: _why_not_whole(entries[file.ordinal], file.record_count) for file in tried}
    indexed.failed |= {file: reason for file, reason in reasons.items() if reason}
    indexed.units = _units({file: entries[file] for file, reason in reasons.items() if not reason}, records)
    indexed.in_part = {one.file for one in records if one.kind == "column" and one.file in indexed.failed}
    for (group, field_id), parts in sketches.items():
        indexed.group_sketches[group, field_id] = united = ThetaSketch.union(parts)
        indexed.count(field_id, united)
    return indexed


def _units(entries: Mapping[int, Mapping[int, UnitEntry]], records: Sequence[StageResult]) -> list[SegmentUnit]:
    """Return the units of files, whose ``entries`` are by file and row group, with their records."""
    columns: dict[tuple[int, int], dict[int, StageResult]] = defaultdict(dict)
    pages: dict[tuple[int, int], dict[int, StageResult]] = defaultdict(dict)
    for record in records:
        if record.kind == "column":
            columns[record.file, record.row_group][record.field_id] = record
        elif record.kind == "pages":
            pages[record.file, record.row_group][record.field_id] = record
    return [
        SegmentUnit(file, entry, columns[file, row_group], pages[file, row_group])
        for file, found in entries.items()
        for row_group, entry in sorted(found.items())
    ]


def _why_not_whole(found: Mapping[int, UnitEntry], rows: int) -> str:
    """Return why the row groups that were found are not those of a file with so many rows; empty if they are.

    Each piece of a file reports only its own row groups. Without a row group a file would be dropped that has its rows.
    """
    if sorted(found) != list(range(len(found))):
        return "not all row groups of the file were seen"
    if sum(entry.rows for entry in found.values()) != rows:  # one may be missing at the end
        return "the row groups of the file have another number of rows than the table says"
    return ""


def units_table(
    selection: Selection, indexed: StageResults, columns: Sequence[TableColumn], options: Options
) -> UnitsTable:
    """Return the content of the segment's units blob: every selected file, indexed or not."""
    by_file: dict[int, list[UnitEntry]] = defaultdict(list)
    for unit in indexed.units:
        by_file[unit.file].append(unit.entry)
    manifests, schemas, places = listed_manifests(selection)
    return UnitsTable(
        files=[
            file_entry(
                file,
                tuple(by_file[file.ordinal]),
                places.get(file.manifest, UNLISTED),
                hidden=_hidden(file, indexed.encrypted, options),
                exposing=file.ordinal in selection.exposing,
            )
            for file in selection.files
        ],
        manifests=manifests,
        schemas=schemas,
        coverage=[
            Coverage.of(
                column.field_id,
                kind,
                (PARTS[kind].state(unit.records(kind)[column.field_id]) for unit in indexed.units),
            )
            for column in columns
            for kind in kinds_of(options.of(column.field_id))
        ],
    )


def listed_manifests(selection: Selection) -> tuple[list[ListedManifest], list[str], dict[int, int]]:
    """Return the manifests that a selection lists, the Avro schemas of their entries, and ordinals.

    The ordinal of a listed manifest is found by its ordinal in the listing.
    """
    schemas = {manifest.avro_schema: None for manifest, _ in selection.manifests}
    ordinals = {schema: i for i, schema in enumerate(schemas)}
    manifests = [
        replace(manifest.listed, first_file=first_file, schema=ordinals[manifest.avro_schema])
        for manifest, first_file in selection.manifests
    ]
    return manifests, list(schemas), {manifest.ordinal: i for i, (manifest, _) in enumerate(selection.manifests)}


def kinds_of(options: Options) -> list[str]:
    """Return the names of the requested kinds: those of one column if its :meth:`Options.of` are given."""
    return [kind for kind in BUILT_KINDS if kind in options.kinds]


def _hidden(file: SnapshotFile, encrypted: Encrypted, options: Options) -> Collection[int]:
    """Return the fields whose bounds are not recorded, because they are or may be encrypted."""
    if file.ordinal in encrypted.files:
        return file.bounds.keys() - options.plaintext
    return encrypted.fields - options.plaintext


def file_entry(
    file: SnapshotFile, units: tuple[UnitEntry, ...], manifest: int, hidden: Collection[int], exposing: bool
) -> FileEntry:
    """Return a file as a units table has it.

    ``manifest`` is the ordinal of a listed manifest. Bounds of the fields in ``hidden`` are left out, and the manifest
    entry if it is ``exposing``.
    """
    return FileEntry(
        identity=file.known_as,
        spec_id=file.spec_id,
        manifest=manifest,
        entry=b"" if exposing else file.raw_entry,
        units=units,
        partition=file.partition,
        bounds={field_id: one for field_id, one in file.bounds.items() if field_id not in hidden},
    )
