"""What a snapshot holds: its manifests and live data files, in manifest order, as a build needs them.

Every manifest of data is read once, entry by entry, so that the units table can carry each entry as its
manifest has it. Manifests of deletes are only counted: deletes take rows away, so a filter over all rows of
a file stays a superset of what is live.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
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
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE, DataFileIdentity
from sidecar.errors import DamagedFileError, UsageError
from sidecar.iceberg.manifests import ManifestContents, RawEntry, read_manifest, read_manifests

INDEXABLE = (FileFormat.PARQUET, FileFormat.ORC)
"""Formats whose files are indexed."""

READERS = 8
"""Manifests read at the same time."""


@dataclass(frozen=True)
class EntryBounds:
    """What a manifest entry says of one column of a file; ``None`` is what it does not say.

    ``lower`` and ``upper`` are single-value serializations and may be truncated (outer bounds).
    """

    lower: bytes | None
    upper: bytes | None
    value_count: int | None
    null_count: int | None
    nan_count: int | None


@dataclass(frozen=True)
class SnapshotManifest:
    """One data manifest of the snapshot: its line in the manifest list and the sum of its live entries."""

    ordinal: int
    path: str
    length: int
    spec_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    live_files: int
    live_rows: int
    first_file: int
    """Ordinal of its first live file in :attr:`Listing.files`; the others follow."""
    avro_schema: str
    """The writer's Avro schema (JSON text), by which :attr:`ListedFile.raw_entry` is decoded."""
    line: ManifestFile
    """The line itself, which entries inherit from."""


@dataclass(frozen=True)
class ListedFile:
    """One live data file: its manifest entry, decoded and as bytes."""

    ordinal: int
    manifest: int
    data_file: DataFile
    raw_entry: bytes
    spec_id: int
    sequence_number: int
    """The data sequence number; after a compaction it is older than the file."""
    known_as: DataFileIdentity
    """The identity by which a sidecar knows the file."""
    partition: tuple[bytes | None, ...]
    """One value for each field of the spec, in its order: the single-value serialization in the type that the
    manifest gives the field, ``None`` for null."""
    identity: Mapping[int, bool]
    """Source field ids of identity partition fields: whether the entry proves that the column, if the file
    stores it, holds nothing but the partition's value."""
    bounds: Mapping[int, EntryBounds]
    not_indexable: str | None
    """Why sidecar indexes nothing of this file (its format), or ``None``."""

    @property
    def path(self) -> str:
        """Location as the manifest spells it."""
        return self.data_file.file_path

    @property
    def file_size(self) -> int:
        """Length in bytes."""
        return self.data_file.file_size_in_bytes

    @property
    def record_count(self) -> int:
        """Rows in the file, deleted ones included."""
        return self.data_file.record_count


@dataclass(frozen=True)
class Listing:
    """All live data files of one snapshot."""

    table_uuid: str
    snapshot_id: int
    sequence_number: int
    schema_id: int | None
    manifests: tuple[SnapshotManifest, ...] = field(repr=False)
    files: tuple[ListedFile, ...] = field(repr=False)
    delete_manifests: int
    delete_files: int


def identity_of(entry: ManifestEntry) -> DataFileIdentity:
    """The identity by which a sidecar knows the data file of a live entry, once it has inherited from its manifest."""
    file = entry.data_file
    return DataFileIdentity(
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        entry.snapshot_id,
        entry.file_sequence_number or UNKNOWN_SEQUENCE,
    )


def snapshot_of(table: Table, snapshot_id: int | None) -> Snapshot:
    """The snapshot with that id, or the current one; :class:`UsageError` if there is none."""
    if snapshot_id is None:
        current = table.metadata.current_snapshot()
        if current is None:
            raise UsageError(f"the table '{'.'.join(table.name())}' has no snapshot yet")
        return current
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise UsageError(f"the table '{'.'.join(table.name())}' has no snapshot {snapshot_id}")
    return snapshot


def list_snapshot(table: Table, snapshot_id: int | None = None) -> Listing:
    """The live data files of a snapshot (the current one by default), in the order of its manifests.

    Raises :class:`UsageError` for an unknown snapshot, :class:`DamagedFileError` or
    :class:`sidecar.errors.StorageError` naming the manifest list or manifest that cannot be read.
    """
    snapshot = snapshot_of(table, snapshot_id)
    lines = read_manifests(table.io, snapshot.manifest_list)
    data_lines = [line for line in lines if line.content == ManifestContent.DATA]
    delete_lines = [line for line in lines if line.content == ManifestContent.DELETES]
    specs = table.metadata.specs()
    manifests: list[SnapshotManifest] = []
    files: list[ListedFile] = []
    with ThreadPoolExecutor(READERS) as pool:
        read = pool.map(lambda line: _read_checked(table.io, line), data_lines)
        for line, contents in zip(data_lines, read, strict=True):
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


def _read_checked(io: FileIO, line: ManifestFile) -> ManifestContents:
    """A manifest with as many entries as the manifest list says (a cut between blocks leaves no trace)."""
    contents = read_manifest(io, line)
    expected = {
        ManifestEntryStatus.ADDED: line.added_files_count,
        ManifestEntryStatus.EXISTING: line.existing_files_count,
        ManifestEntryStatus.DELETED: line.deleted_files_count,
    }
    for status, count in expected.items():
        found = sum(e.entry.status == status for e in contents.entries)
        if count is not None and found != count:
            raise DamagedFileError(
                f"the manifest has another number of {status.name.lower()} files than the manifest list says",
                file=line.manifest_path,
                expected=count,
                found=found,
            )
    return contents


def _list_manifest(
    ordinal: int, first_file: int, line: ManifestFile, contents: ManifestContents, spec: PartitionSpec | None
) -> tuple[SnapshotManifest, list[ListedFile]]:
    if spec is None:
        raise DamagedFileError(
            "the manifest names a partition spec that the table does not have",
            file=line.manifest_path,
            found=line.partition_spec_id,
        )
    live = [e for e in contents.entries if e.entry.status != ManifestEntryStatus.DELETED]
    fields = contents.partition_fields
    files = [_list_file(first_file + i, ordinal, e, line, fields, spec) for i, e in enumerate(live)]
    manifest = SnapshotManifest(
        ordinal=ordinal,
        path=line.manifest_path,
        length=line.manifest_length,
        spec_id=line.partition_spec_id,
        sequence_number=line.sequence_number,
        min_sequence_number=line.min_sequence_number,
        added_snapshot_id=line.added_snapshot_id or 0,
        live_files=len(files),
        live_rows=sum(file.record_count for file in files),
        first_file=first_file,
        avro_schema=contents.avro_schema,
        line=line,
    )
    return manifest, files


def _list_file(
    ordinal: int,
    manifest: int,
    raw: RawEntry,
    line: ManifestFile,
    partition_fields: tuple[NestedField, ...],
    spec: PartitionSpec,
) -> ListedFile:
    data_file = raw.entry.data_file
    if data_file.content != DataFileContent.DATA:
        raise DamagedFileError("a manifest of data lists a delete file", file=line.manifest_path)
    bounds = _bounds(data_file)
    partition = _partition(data_file, partition_fields, spec)
    return ListedFile(
        ordinal=ordinal,
        manifest=manifest,
        data_file=data_file,
        raw_entry=raw.raw,
        spec_id=line.partition_spec_id,
        sequence_number=raw.entry.sequence_number or 0,
        known_as=identity_of(raw.entry),
        partition=partition,
        identity=_identity(partition, bounds, partition_fields, spec),
        bounds=bounds,
        not_indexable=_not_indexable(data_file),
    )


def _not_indexable(data_file: DataFile) -> str | None:
    if data_file.file_format in INDEXABLE:
        return None
    return f"files in {data_file.file_format.value} are not indexed"


def _partition(
    data_file: DataFile, fields: tuple[NestedField, ...], spec: PartitionSpec
) -> tuple[bytes | None, ...]:
    """Partition values by the spec's fields; the record has them in the order of the manifest's struct."""
    values: dict[int, bytes | None] = {}
    for position, nested in enumerate(fields):
        value, kind = data_file.partition[position], nested.field_type
        known = value is not None and isinstance(kind, PrimitiveType)
        values[nested.field_id] = to_bytes(kind, value) if known else None  # type: ignore[arg-type]
    return tuple(values.get(partition_field.field_id) for partition_field in spec.fields)


def _bounds(data_file: DataFile) -> dict[int, EntryBounds]:
    lower, upper = data_file.lower_bounds or {}, data_file.upper_bounds or {}
    values, nulls = data_file.value_counts or {}, data_file.null_value_counts or {}
    nans = data_file.nan_value_counts or {}
    ids = sorted({*lower, *upper, *values, *nulls, *nans})
    return {i: EntryBounds(lower.get(i), upper.get(i), values.get(i), nulls.get(i), nans.get(i)) for i in ids}


def _identity(
    partition: tuple[bytes | None, ...],
    bounds: Mapping[int, EntryBounds],
    fields: tuple[NestedField, ...],
    spec: PartitionSpec,
) -> dict[int, bool]:
    """Engines differ on which value an identity partition column has where the file stores it too: the
    partition's or the file's. Only where both are proven equal may the file's values be indexed."""
    types = {nested.field_id: nested.field_type for nested in fields}
    proven: dict[int, bool] = {}
    for value, partition_field in zip(partition, spec.fields, strict=True):
        if isinstance(partition_field.transform, IdentityTransform):
            known = bounds.get(partition_field.source_id)
            floating = isinstance(types.get(partition_field.field_id), FloatType | DoubleType)  # NaN, zeros
            same = known is not None and not floating and _holds_only(known, value)
            proven[partition_field.source_id] = proven.get(partition_field.source_id, True) and same
    return proven


def _holds_only(bounds: EntryBounds, value: bytes | None) -> bool:
    if value is None:
        return bounds.value_count is not None and bounds.null_count == bounds.value_count
    return bounds.null_count == 0 and bounds.lower == bounds.upper == value
