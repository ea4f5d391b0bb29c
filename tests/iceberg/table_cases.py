"""Tables with a past: columns promoted, renamed, dropped and added again, other partitions, deleted rows."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType

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
    commit_deletes(table, file, table.specs()[spec_id], snapshot_id)


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
    commit_deletes(table, file, spec, uuid.uuid4().int >> 66)
    table.refresh()
    return path


def commit_deletes(table: Table, file: DataFile, spec: PartitionSpec, snapshot_id: int) -> None:
    snapshot, metadata, io = table.current_snapshot(), table.metadata, table.io
    assert snapshot is not None
    folder = f"{table.location()}/metadata"
    output = io.new_output(f"{folder}/deletes-{snapshot_id}.avro")
    with _DeleteManifestWriter(spec, table.schema(), output, snapshot_id, "null") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file))
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
