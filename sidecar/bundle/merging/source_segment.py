"""Check a segment before it is merged: which of its filters and indexes are sound.

Every piece is read and verified once before the first byte is written, because the positions of the merged filters are
fixed before their bits are read again. A damaged piece of filters hits all filters of its group. A damaged entry of
page or row indexes hits one unit, a damaged piece of their table the units in it. What is damaged is left out of the
merged segment, which keeps these units.

A segment that cannot be read as a whole is not merged: one with a key that is missing, with a group or a blob that this
version does not understand, or with a damaged units table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.pages import open_pages, read_own_blocks, read_tails, walk_pages
from sidecar.bundle.filters.rules import RULES
from sidecar.bundle.indexes.index_blob import IndexBlob
from sidecar.bundle.indexes.index_toc import MEMBERS_PER_PIECE, GroupKind
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexBlob
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES
from sidecar.bundle.model import Coverage, FieldBounds, UnitEntry
from sidecar.bundle.sections import FILES_PER_BATCH
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.sketch_blob import LARGEST_LG_K, FieldSketches
from sidecar.bundle.toc import TocEntry
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.filters.theta import ThetaSketch
from sidecar.puffin.types import THETA_GROUPS

INDEX_TYPES = (PAGE_INDEXES.blob_type, ROW_INDEXES.blob_type)
MERGED_TYPES = (*(rule.blob_type for rule in RULES), *INDEX_TYPES, THETA_GROUPS)
"""The types of blobs of fields that merging understands."""

THETA_KIND = "theta"
"""The kind of coverage whose indexes are sketches of groups of files."""

FieldBlob = tuple[str, int]
"""A blob type and a field id."""


def _all(entry: TocEntry) -> bool:
    return True


@dataclass(frozen=True)
class SourceSegment:
    """A segment that is carried to a new file. ``keep`` says which of its blobs of fields are."""

    sidecar: SidecarFile
    segment: Segment
    keep: Callable[[TocEntry], bool] = _all
    sketches: Sequence[FieldSketches] = ()
    """Sketches of groups that were counted again. ``keep`` leaves out the blobs that they replace."""

    @cached_property
    def entries(self) -> list[TocEntry]:
        """The blobs that are carried: those of fields, then the units blob."""
        return [*filter(self.keep, self.segment.entries[1:]), self.segment.entry]

    @property
    def size(self) -> int:
        """Bytes of the blobs that are carried."""
        return sum(entry.length for entry in self.entries)

    @cached_property
    def blobs(self) -> dict[FieldBlob, FilterBundle | IndexBlob[Any, Any]]:
        """The opened blobs of fields that are carried."""
        wanted = {(entry.blob_type, entry.fields[0]) for entry in self.entries[:-1]}
        segment = self.segment
        opened: dict[FieldBlob, FilterBundle | IndexBlob[Any, Any]] = {
            (bundle.toc.rule_type.blob_type, field_id): bundle
            for bundles in (segment.bundles, segment.orc_bundles)
            for field_id, bundle in bundles.items()
        }
        for indexes in (segment.page_index_blobs, segment.row_index_blobs):
            opened |= {(blob.form.blob_type, field_id): blob for field_id, blob in indexes.items()}
        return {key: blob for key, blob in opened.items() if key in wanted}

    @cached_property
    def key_metadata(self) -> dict[int, bytes | None]:
        """The metadata of the key of each field's blobs by field id, ``None`` for plaintext."""
        return {i: None if b.toc.lock is None else b.toc.lock.key_metadata for (_, i), b in self.blobs.items()}

    @property
    def has_its_keys(self) -> bool:
        """Whether all of :attr:`blobs` can be opened with the keys that the sidecar was given."""
        try:
            for blob in self.blobs.values():
                blob.check_key()
        except SidecarError:
            return False
        return True

    @cached_property
    def rates(self) -> dict[int, float | None]:
        """The rate that filters were built for, by field id; ``None`` if it is not known or not the same for all."""
        found: dict[int, float | None] = {}
        for (_, field_id), blob in self.blobs.items():
            if isinstance(blob, FilterBundle):
                found[field_id] = blob.toc.fpp if found.get(field_id, blob.toc.fpp) == blob.toc.fpp else None
        return found

    @property
    def properties(self) -> dict[FieldBlob, Mapping[str, str]]:
        """The properties of each blob of a field in the Puffin footer."""
        stored = {blob.offset: blob.properties for blob in self.sidecar.puffin.metadata.blobs}
        return {(e.blob_type, e.fields[0]): stored.get(e.offset, {}) for e in self.entries[:-1]}

    def damaged_meanwhile(self, what: str, field_id: int) -> DamagedFileError:
        """Return the error for a part of a field's blob that was sound when :func:`check_segment` read it."""
        return DamagedFileError(
            f"{what} came damaged from the storage, and not so a moment ago",
            file=self.sidecar.source.name,
            column=self.sidecar.doubts.known_column(field_id),
            hint="Try again; verify finds what is damaged in the file.",
        )

    @property
    def age(self) -> tuple[int, str]:
        """Sorts segments, oldest first: sequence number of the snapshot, and time."""
        return self.segment.header.sequence_number, self.segment.header.created_at


@dataclass(frozen=True)
class CheckedGroup:
    """A group of filters without damage. ``own_blocks`` and ``tails`` are by position."""

    source: SourceSegment
    bundle: FilterBundle
    group: StoredGroup
    own_blocks: npt.NDArray[np.int64]
    tails: Sequence[bytes]


class CheckedEntry(NamedTuple):
    """A sound entry of page or row indexes: what its group shares, and the lengths of its parts in bytes."""

    kind: GroupKind
    lengths: tuple[int, ...]


@dataclass
class CheckedSegment:
    """What can be taken from a segment. Units are ordinals in the segment."""

    source: SourceSegment
    units: list[tuple[UnitEntry, ...]]
    """The units of each file."""
    recorded: npt.NDArray[np.bool_]
    """bool[files]: whether the file's manifest entry is recorded; not if it has bounds of an encrypted column."""
    first_units: npt.NDArray[np.int64]
    coverage: dict[tuple[int, str], Coverage]
    bounds: dict[int, list[FieldBounds]] = field(default_factory=dict)
    """The bounds of each file, by field id."""
    filters: dict[int, list[CheckedGroup]] = field(default_factory=dict)
    """Groups without damage by field id."""
    entries: dict[FieldBlob, dict[int, CheckedEntry]] = field(default_factory=dict)
    """Sound entries of page and row indexes by unit."""
    damaged: dict[FieldBlob, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """bool[units]: which units have a damaged filter or index. Blobs without damage are not in it."""
    sketches: dict[int, FieldSketches] = field(default_factory=dict)
    """The sound sketches of groups of files by field id. The next build counts the files of the others again."""

    @property
    def segment(self) -> Segment:
        """The segment itself."""
        return self.source.segment

    def uncounted(self) -> dict[int, npt.NDArray[np.bool_]]:
        """Return bool[files] by field id: which files were counted, and no sound sketch counts them any more.

        A field whose sketches are left out on purpose is not in it.
        """
        left_out = {entry.fields[0] for entry in self.segment.entries[1:] if entry.blob_type == THETA_GROUPS}
        left_out -= {entry.fields[0] for entry in self.source.entries[:-1] if entry.blob_type == THETA_GROUPS}
        found = {}
        for (field_id, kind), coverage in self.coverage.items():
            given = self.sketches.get(field_id)
            if kind != THETA_KIND or (given is None and field_id in left_out):
                continue
            files = coverage.files_with_entries(self.first_units)
            for group in () if given is None else given.groups:
                files[group.files] = False
            found[field_id] = files
        return found


def check_segment(source: SourceSegment) -> CheckedSegment:
    """Read and verify everything of a segment. Memory: its units table.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError` or :class:`UsageError` (a key is missing) if the
    segment cannot be merged, and :class:`sidecar.errors.StorageError` if it cannot be read now.
    """
    segment = source.segment
    unknown = {entry.blob_type for entry in segment.entries[1:]}.difference(MERGED_TYPES)
    if unknown:
        raise UnsupportedFeatureError("the segment has blobs that cannot be merged", found=", ".join(sorted(unknown)))
    for blob in source.blobs.values():
        _check_blob(blob)
    reader = segment.units
    files = [
        file
        for batch in range(-(-segment.num_files // FILES_PER_BATCH))
        for file in reader.file_batches([batch])[batch]
    ]
    checked = CheckedSegment(
        source,
        units=[file.units for file in files],
        recorded=np.array([bool(file.entry) for file in files], np.bool_),
        first_units=reader.first_units(),
        coverage={(coverage.field_id, coverage.kind): coverage for coverage in reader.coverage()},
    )
    if np.diff(checked.first_units).tolist() != [len(units) for units in checked.units]:
        raise DamagedFileError("the files of a segment do not have their numbers of units")
    for field_id in reader.bounded_fields:
        table = reader.bounds(field_id)
        if table is not None:
            checked.bounds[field_id] = _bounds_of(table)
    for key, blob in source.blobs.items():
        damaged = np.zeros(segment.num_units, np.bool_)
        if isinstance(blob, FilterBundle):
            checked.filters.setdefault(key[1], []).extend(_sound_groups(source, blob, damaged))
        else:
            checked.entries[key] = _sound_entries(blob, damaged)
        if damaged.any():
            checked.damaged[key] = damaged
    checked.sketches = _sound_sketches(source)
    return checked


def _sound_sketches(source: SourceSegment) -> dict[int, FieldSketches]:
    properties = source.properties
    found = {given.field_id: given for given in source.sketches}
    for field_id in [entry.fields[0] for entry in source.entries[:-1] if entry.blob_type == THETA_GROUPS]:
        try:
            groups = [group for group in source.segment.sketch_blobs[field_id].load() if _is_sketch(group)]
        except DamagedFileError:
            continue
        found[field_id] = FieldSketches(field_id, groups, properties[THETA_GROUPS, field_id])
    return found


def _is_sketch(group: SketchGroup) -> bool:
    try:
        ThetaSketch.from_bytes(group.sketch, LARGEST_LG_K)
    except SidecarError:
        return False
    return True


def _bounds_of(table: pa.Table) -> list[FieldBounds]:
    columns = [table[name].to_pylist() for name in FieldBounds._fields]
    return [FieldBounds(*row) for row in zip(*columns, strict=True)]


def _check_blob(blob: FilterBundle | IndexBlob[Any, Any]) -> None:
    """Raise an error if a blob cannot be opened, or not be understood as a whole."""
    try:
        blob.check_key()
    except StorageError as error:  # the key server does not answer; the segment can stay as it is
        raise UsageError(f"a key cannot be fetched: {error.what}") from error
    for doubt in blob.toc.doubts:
        raise UnsupportedFeatureError(doubt)
    groups = blob.toc.groups
    units = np.concatenate([np.empty(0, np.int64), *(group.ordinals() for group in groups)])
    if len(np.unique(units)) < len(units):
        raise DamagedFileError("a unit is in two groups of a field")
    lengths = [group.layout.length if isinstance(group, StoredGroup) else group.length for group in groups]
    if sum(lengths) > blob.toc.toc_offset:  # reading them would read more than the file has
        raise DamagedFileError("the groups of a field overlap")


def _sound_groups(source: SourceSegment, bundle: FilterBundle, damaged: npt.NDArray[np.bool_]) -> list[CheckedGroup]:
    """Return the groups without damage; set ``damaged`` for the units of the others."""
    sound, place, read = [], bundle.place, bundle.read_ranges
    for group in bundle.toc.groups:
        try:
            own_blocks, tails = read_own_blocks(group, place, read), read_tails(group, place, read)
        except DamagedFileError as error:
            bundle.doubt(error)
            damaged[group.units] = True
            continue
        bad = next((bad for pages in walk_pages(group, read) if (bad := open_pages(group, place, pages).bad)), None)
        if bad is None:
            sound.append(CheckedGroup(source, bundle, group, own_blocks, tails))
        else:
            bundle.doubt(DamagedFileError(f"the filters of group {group.ordinal} are damaged, {bad[0]}"))
            damaged[group.units] = True
    return sound


def _sound_entries(blob: IndexBlob[Any, Any], damaged: npt.NDArray[np.bool_]) -> dict[int, CheckedEntry]:
    """Return the sound entries of a blob by unit; set ``damaged`` for the other members."""
    sound: dict[int, CheckedEntry] = {}
    for group in blob.toc.groups:
        units = group.ordinals().tolist()
        for first in range(0, len(units), MEMBERS_PER_PIECE):
            members = units[first : first + MEMBERS_PER_PIECE]
            found = blob.read_surely(members)
            sound |= {
                unit: CheckedEntry(entry.kind, tuple(map(len, parts_of(blob, entry)))) for unit, entry in found.items()
            }
            damaged[[unit for unit in members if unit not in found]] = True
    return sound


def parts_of(blob: IndexBlob[Any, Any], entry: Any) -> tuple[bytes, ...]:
    """Return the parts of an entry as they are written; empty for a structure that the file lacks."""
    if isinstance(blob, PageIndexBlob):
        return entry.column_index or b"", entry.offset_index or b""
    return (entry.entry,)
