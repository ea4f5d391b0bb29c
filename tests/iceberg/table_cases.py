"""Tables with a past: columns promoted, renamed, dropped and added again, other partitions, deleted rows."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType
from pyroaring import BitMap

from sidecar.iceberg.manifests import LATEST
from sidecar.puffin.writer import PuffinWriter
from tests.iceberg.cases import SCHEMA, _DeleteManifestWriter, append

ASKED = ["i", "renamed", "f", "d", "dec9", "dec18", "s", "b", "fx", "day", "t", "ts", "tz", "st.x", "st.y"]
"""Columns that predicates ask; literals of ``renamed`` are those of ``l``."""
SMALL_PAGES = {
    "write.parquet.row-group-limit": "32",
    "write.parquet.page-size-bytes": "16",
    "write.parquet.page-row-limit": "8",
    "write.parquet.dict-size-bytes": "64",
}


def with_a_past(catalog: Any, name: str, count: int = 70) -> Table:
    """Three files as they were, then three after every kind of change to the schema, in other partitions."""
    table: Table = catalog.create_table(name, SCHEMA, properties=SMALL_PAGES)
    for n in range(3):
        append(table, n * count, count)
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("dec9", DecimalType(20, 2))
        update.rename_column("l", "renamed")
        update.delete_column("s")
        update.delete_column("u")  # pyarrow cannot compare UUIDs
    with table.update_schema() as update:
        update.add_column("s", StringType())
        update.add_column("fresh", LongType())
        update.add_column(("st", "z"), LongType())
    with table.update_spec() as spec:
        spec.add_identity("part")
    append(table, 3 * count, count)
    with table.update_spec() as spec:
        spec.remove_field("part")
        spec.add_identity("bo")
    append(table, 4 * count, count)
    return table


def with_default(table: Table, name: str, value: Any) -> Table:
    """The table as if ``name`` had been added with an initial default, which takes version 3."""
    schema = table.schema()
    fields = [
        NestedField(f.field_id, f.name, f.field_type, f.required, f.doc, initial_default=value) if f.name == name else f
        for f in schema.fields
    ]
    changed = Schema(*fields, schema_id=schema.schema_id)
    schemas = [changed if s.schema_id == schema.schema_id else s for s in table.metadata.schemas]
    metadata = table.metadata.model_copy(update={"schemas": schemas})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def delete_by_position(
    table: Table, positions: dict[str, list[int]], spec_id: int = 0, partition: Record | None = None
) -> None:
    """Commit a position delete file for files of one partition: pyiceberg cannot write one, but its parts can."""
    io = table.io
    pairs = sorted((path, at) for path, places in positions.items() for at in places)
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    snapshot_id = uuid.uuid4().int >> 66
    path = f"{table.location()}/data/position-delete-{snapshot_id}.parquet"
    with io.new_output(path).create() as stream:
        columns = [list(column) for column in zip(*pairs, strict=True)]
        pq.write_table(pa.table(columns, schema=schema), stream, compression="none")  # paths can be changed in place
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=len(pairs),
        file_size_in_bytes=len(io.new_input(path)),
    )
    commit_files(table, file, table.specs()[spec_id], snapshot_id)


def delete_by_values(
    table: Table, rows: pa.Table, field_ids: list[int], spec: PartitionSpec, partition: Record, **statistics: Any
) -> str:
    """Commit an equality delete file of a partition, with any statistics in its manifest; returns its path."""
    path = f"{table.location()}/data/equality-delete-{uuid.uuid4()}.parquet"
    schema = Schema(*(field for field in table.schema().fields if field.name in rows.column_names))
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows.cast(schema_to_pyarrow(schema)), stream)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=field_ids,
        **statistics,
    )
    commit_files(table, file, spec, uuid.uuid4().int >> 66)
    table.refresh()
    return path


def deletion_vectors(
    table: Table, positions: Mapping[str, list[int]], partition: Record | None = None, **names: str
) -> list[DataFile]:
    """The vectors of some data files, in one Puffin file: length, magic, one 32-bit bitmap, checksum.

    ``names`` may have what the blobs say of paths: what is replaced (``old``) and by what (``new``).
    """
    path, blobs = f"{table.location()}/data/{uuid.uuid4()}.puffin", []
    with table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream)
        for target, places in positions.items():
            bitmap = (1).to_bytes(8, "little") + bytes(4) + BitMap(places).serialize()
            content = bytes.fromhex("d1d33964") + bitmap
            blob = len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")
            named = target.replace(names["old"], names["new"]) if names else target
            of = {"referenced-data-file": named, "cardinality": str(len(places))}
            blobs.append(writer.add_blob("deletion-vector-v1", [2147483645], -1, -1, blob, properties=of))
        writer.finish()
    return [
        DataFile.from_args(
            _table_format_version=LATEST,
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PUFFIN,
            partition=partition or Record(),
            record_count=len(places),
            file_size_in_bytes=len(table.io.new_input(path)),
            referenced_data_file=target,
            content_offset=blob.offset,
            content_size_in_bytes=blob.length,
        )
        for (target, places), blob in zip(positions.items(), blobs, strict=True)
    ]


class _LatestDeleteManifestWriter(_DeleteManifestWriter):
    """Entries of version 3, which say for which data file a deletion vector is."""

    def new_writer(self) -> Any:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(LATEST),
            record_schema=self._with_partition(LATEST),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def commit_files(table: Table, files: DataFile | Sequence[DataFile], spec: PartitionSpec, snapshot_id: int) -> None:
    """One more snapshot, with a manifest of delete files, or of data files, written with any spec."""
    files = [files] if isinstance(files, DataFile) else files
    are_latest = len(files[0]) == len(DATA_FILE_TYPE[LATEST].fields)
    kind: Any = _LatestDeleteManifestWriter if are_latest else _DeleteManifestWriter
    if files[0].content == DataFileContent.DATA:
        kind = ManifestWriterV2
    snapshot, metadata, io = table.current_snapshot(), table.metadata, table.io
    assert snapshot is not None
    folder = f"{table.location()}/metadata"
    output = io.new_output(f"{folder}/deletes-{snapshot_id}.avro")
    with kind(spec, table.schema(), output, snapshot_id, "null") as writer:
        for file in files:
            status = ManifestEntryStatus.ADDED
            writer.add(ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=file))
    manifest, sequence = writer.to_manifest_file(), metadata.last_sequence_number + 1
    path = f"{folder}/list-{snapshot_id}.avro"
    with write_manifest_list(2, io.new_output(path), snapshot_id, snapshot.snapshot_id, sequence, "null") as lines:
        lines.add_manifests([manifest, *snapshot.manifests(io)])
    made = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=snapshot.snapshot_id,
        sequence_number=sequence,
        manifest_list=path,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    head = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    with table.transaction() as transaction:
        transaction._apply((AddSnapshotUpdate(snapshot=made), head), ())
