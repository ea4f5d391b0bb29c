"""Lists the manifests and live data files of a snapshot, in manifest order, as a build needs them.

A data manifest is read once, entry by entry, because the units table stores each entry as its manifest has it. What an
earlier sidecar has recorded of a manifest is not read again (:mod:`sidecar.iceberg.recorded_entries`).
Delete manifests are only counted: deletes remove rows, so a filter over all rows of a file covers the live rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import FieldBounds, ListedManifest
from sidecar.errors import DamagedFileError, UsageError
from sidecar.iceberg.manifests import (
    ManifestContents,
    RawEntry,
    identity_of,
    read_live_entries,
    read_manifest,
    read_manifests,
)
from sidecar.iceberg.recorded_entries import recorded_contents
from sidecar.iceberg.table_names import name_of
from sidecar.run import in_turn, without_search_for_cycles
from sidecar.storage.locations import file_at, local_path

if TYPE_CHECKING:
    from sidecar.bundle.segment import Segment

log = logging.getLogger(__name__)

INDEXABLE = (FileFormat.PARQUET, FileFormat.ORC)
"""File formats that sidecar indexes."""

READERS = 8
"""The number of files in stores that are read at once."""


@dataclass(frozen=True)
class SnapshotManifest:
    """A data manifest of the snapshot: its line in the manifest list and the totals of its live entries."""

    ordinal: int
    listed: ListedManifest
    """The manifest as a segment with all files of the listing would list it; the schema is always 0."""
    avro_schema: str
    """The Avro schema of the writer (JSON text), needed to decode :attr:`SnapshotFile.raw_entry`."""
    line: ManifestFile
    """The manifest's line in the manifest list. Entries inherit from it."""


@dataclass(frozen=True)
class SnapshotFile:
    """A live data file with its manifest entry, both decoded and as Avro bytes."""

    ordinal: int
    manifest: int
    data_file: DataFile
    raw_entry: bytes
    spec_id: int
    sequence_number: int
    """The data sequence number. A compacted file keeps an old one: it can be smaller than the file sequence number."""
    known_as: DataFileIdentity
    """The identity under which a sidecar lists the file."""
    partition: tuple[bytes | None, ...]
    """A value for each field of the spec, in order: the single-value serialization in the field's type in the
    manifest, ``None`` for null."""
    identity: Mapping[int, bool]
    """Source field id of each identity partition field -> whether the entry's bounds prove that a column stored in
    the file has only the partition's value."""
    not_indexable: str | None
    """The reason why sidecar does not index this file (its format); ``None`` if it does."""

    @cached_property
    def bounds(self) -> Mapping[int, FieldBounds]:
        """Statistics of the file's columns by field id. Most files of a snapshot are never asked for them."""
        return entry_bounds(self.data_file)

    @property
    def path(self) -> str:
        """Path of the file, spelled as in the manifest."""
        return self.data_file.file_path

    @property
    def file_size(self) -> int:
        """Size of the file in bytes."""
        return self.data_file.file_size_in_bytes

    @property
    def record_count(self) -> int:
        """Number of rows in the file, including deleted ones."""
        return self.data_file.record_count


@dataclass(frozen=True)
class Listing:
    """All live data files of one snapshot, with its manifests."""

    table_uuid: str
    snapshot_id: int
    sequence_number: int
    schema_id: int | None
    manifests: tuple[SnapshotManifest, ...] = field(repr=False)
    files: tuple[SnapshotFile, ...] = field(repr=False)
    delete_manifests: int
    delete_files: int


def snapshot_of(table: Table, snapshot_id: int | None) -> Snapshot:
    """Return the snapshot with this id, or the current one. Raises :class:`UsageError` if it does not exist."""
    if snapshot_id is None:
        current = table.metadata.current_snapshot()
        if current is None:
            raise UsageError(f"the table '{name_of(table)}' has no snapshot yet")
        return current
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise UsageError(f"the table '{name_of(table)}' has no snapshot {snapshot_id}")
    return snapshot


def list_snapshot(table: Table, snapshot_id: int | None = None, segments: Iterable[Segment] = ()) -> Listing:
    """List the live data files of a snapshot (by default the current one), in the order of its manifests.

    Manifests that ``segments`` list unchanged are not read: their entries come from the records in the segments.

    Raises :class:`UsageError` for an unknown snapshot, and :class:`DamagedFileError` or
    :class:`sidecar.errors.StorageError` with the path of the manifest list or manifest that cannot be read.
    """
    snapshot = snapshot_of(table, snapshot_id)
    lines = read_manifests(table.io, snapshot.manifest_list)
    data_lines = [line for line in lines if line.content == ManifestContent.DATA]
    delete_lines = [line for line in lines if line.content == ManifestContent.DELETES]
    specs = table.metadata.specs()
    manifests: list[SnapshotManifest] = []
    files: list[SnapshotFile] = []
    recorded = recorded_contents(segments, data_lines)
    unread = [line for at, line in enumerate(data_lines) if at not in recorded]
    others = in_turn(partial(read_checked, table.io), unread, readers_of(unread))
    with without_search_for_cycles(are_many=True):
        for at, line in enumerate(data_lines):
            contents = recorded[at] if at in recorded else next(others)
            spec = specs.get(line.partition_spec_id)
            listed = _list_manifest(len(manifests), len(files), line, contents, spec)
            manifests.append(listed[0])
            files.extend(listed[1])
    return Listing(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,  # format version 1 has none
        schema_id=snapshot.schema_id,
        manifests=tuple(manifests),
        files=tuple(files),
        delete_manifests=len(delete_lines),
        delete_files=sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in delete_lines),
    )


def readers_of(lines: Sequence[ManifestFile]) -> int:
    """Return how many threads read manifests. Local ones get one thread, because decoding holds the interpreter's
    lock."""
    return 1 if all(local_path(line.manifest_path) is not None for line in lines) else READERS


def read_checked(io: FileIO, line: ManifestFile, version: TableVersion = DEFAULT_READ_VERSION) -> ManifestContents:
    """Read a manifest and compare its number of live files with the manifest list, as :func:`live_entries` does.

    ``version`` is the format version whose fields the entries have.
    """
    contents = read_manifest(io, line, version)
    _check_whole(io, line, sum(e.entry.status != ManifestEntryStatus.DELETED for e in contents.entries))
    return contents


def live_entries(io: FileIO, line: ManifestFile, version: TableVersion = DEFAULT_READ_VERSION) -> list[ManifestEntry]:
    """Return the live entries of a manifest; ``version`` is the format version whose fields they have.

    Raises :class:`DamagedFileError` if the manifest has fewer than its line in the manifest list says, and is cut off.
    """
    entries = read_live_entries(io, line, version)
    _check_whole(io, line, len(entries))
    return entries


def _check_whole(io: FileIO, line: ManifestFile, found: int) -> None:
    """Raise :class:`DamagedFileError` for a manifest that was truncated between two Avro blocks.

    Only the number of its live files reveals the truncation. A manifest may have more live files than the list says:
    other readers read all of them, too. Some writers count wrongly, so a manifest of the stated length is whole, and
    the wrong count is a warning.
    """
    expected = (line.added_files_count or 0) + (line.existing_files_count or 0)
    if found >= expected:
        return
    numbers = f"of {expected} files in the manifest, and it has {found}"
    try:
        is_whole = len(file_at(io, line.manifest_path)) == line.manifest_length
    except Exception:  # the error that matters is that of the manifest
        is_whole = False
    if not is_whole:
        raise DamagedFileError(
            "the manifest has fewer live files than the manifest list says, and another length",
            file=line.manifest_path,
            expected=expected,
            found=found,
        )
    log.warning(f"the manifest list tells {numbers}, which is whole: all of them are read ({line.manifest_path})")


def _list_manifest(
    ordinal: int, first_file: int, line: ManifestFile, contents: ManifestContents, spec: PartitionSpec | None
) -> tuple[SnapshotManifest, list[SnapshotFile]]:
    if spec is None:
        raise DamagedFileError(
            "the manifest names a partition spec that the table does not have",
            file=line.manifest_path,
            found=line.partition_spec_id,
        )
    live = [e for e in contents.entries if e.entry.status != ManifestEntryStatus.DELETED]
    fields = contents.partition_fields
    files = [_list_file(first_file + i, ordinal, e, line, fields, spec) for i, e in enumerate(live)]
    listed = ListedManifest(
        path=line.manifest_path,
        length=line.manifest_length,
        spec_id=line.partition_spec_id,
        sequence_number=line.sequence_number,
        min_sequence_number=line.min_sequence_number,
        added_snapshot_id=line.added_snapshot_id or 0,
        live_files=len(files),
        live_rows=sum(file.record_count for file in files),
        first_file=first_file,
        schema=0,
    )
    return SnapshotManifest(ordinal, listed, contents.avro_schema, line), files


def _list_file(
    ordinal: int,
    manifest: int,
    raw: RawEntry,
    line: ManifestFile,
    partition_fields: tuple[NestedField, ...],
    spec: PartitionSpec,
) -> SnapshotFile:
    data_file = raw.entry.data_file
    if data_file.content != DataFileContent.DATA:
        raise DamagedFileError("a data manifest lists a delete file", file=line.manifest_path)
    partition = partition_values(data_file, partition_fields, spec)
    return SnapshotFile(
        ordinal=ordinal,
        manifest=manifest,
        data_file=data_file,
        raw_entry=raw.raw,
        spec_id=line.partition_spec_id,
        sequence_number=raw.entry.sequence_number or 0,
        known_as=identity_of(raw.entry),
        partition=partition,
        identity=_identity(partition, data_file, partition_fields, spec),
        not_indexable=_not_indexable(data_file),
    )


def _not_indexable(data_file: DataFile) -> str | None:
    if data_file.file_format in INDEXABLE:
        return None
    return f"files in {data_file.file_format.value} are not indexed"


def partition_values(
    data_file: DataFile, fields: tuple[NestedField, ...], spec: PartitionSpec
) -> tuple[bytes | None, ...]:
    """Return the partition values in the order of the spec's fields; the record has them in the manifest's order."""
    values: dict[int, bytes | None] = {}
    for position, nested in enumerate(fields):
        value, kind = data_file.partition[position], nested.field_type
        known = value is not None and isinstance(kind, PrimitiveType)
        values[nested.field_id] = to_bytes(kind, value) if known else None  # type: ignore[arg-type]
    return tuple(values.get(partition_field.field_id) for partition_field in spec.fields)


def entry_bounds(data_file: DataFile) -> dict[int, FieldBounds]:
    """Return the statistics of a file's columns by field id."""
    lower, upper = data_file.lower_bounds or {}, data_file.upper_bounds or {}
    values, nulls = data_file.value_counts or {}, data_file.null_value_counts or {}
    nans = data_file.nan_value_counts or {}
    ids = sorted({*lower, *upper, *values, *nulls, *nans})
    return {i: FieldBounds(lower.get(i), upper.get(i), values.get(i), nulls.get(i), nans.get(i)) for i in ids}


def _identity(
    partition: tuple[bytes | None, ...],
    data_file: DataFile,
    fields: tuple[NestedField, ...],
    spec: PartitionSpec,
) -> dict[int, bool]:
    """Return for each identity partition column whether the file's values are proven equal to the partition's value.

    If a file stores such a column, some engines read the file's values and others the partition's value. So the
    file's values may be indexed only if both are proven equal. Bounds do not prove that for floats (NaN, zeros).
    """
    if not any(isinstance(partition_field.transform, IdentityTransform) for partition_field in spec.fields):
        return {}
    bounds = entry_bounds(data_file)
    types = {nested.field_id: nested.field_type for nested in fields}
    proven: dict[int, bool] = {}
    for value, partition_field in zip(partition, spec.fields, strict=True):
        if isinstance(partition_field.transform, IdentityTransform):
            known = bounds.get(partition_field.source_id)
            floating = isinstance(types.get(partition_field.field_id), FloatType | DoubleType)  # NaN, zeros
            same = known is not None and not floating and _holds_only(known, value)
            proven[partition_field.source_id] = proven.get(partition_field.source_id, True) and same
    return proven


def _holds_only(bounds: FieldBounds, value: bytes | None) -> bool:
    if value is None:
        return bounds.value_count is not None and bounds.null_count == bounds.value_count
    return bounds.null_count == 0 and bounds.lower == bounds.upper == value
