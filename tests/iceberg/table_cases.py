"""Tables with a past: columns promoted, renamed, dropped and added again, other partitions, deleted rows."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType
from pyroaring import BitMap

from sidecar.iceberg.manifests import LATEST
from sidecar.puffin.writer import PuffinWriter
from tests.iceberg.cases import SCHEMA, append, commit_files, file_in_manifest

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
    file = file_in_manifest(
        path,
        len(pairs),
        len(io.new_input(path)),
        content=DataFileContent.POSITION_DELETES,
        partition=partition or Record(),
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
    file = file_in_manifest(
        path,
        rows.num_rows,
        len(table.io.new_input(path)),
        content=DataFileContent.EQUALITY_DELETES,
        partition=partition,
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
        file_in_manifest(
            path,
            len(places),
            len(table.io.new_input(path)),
            _table_format_version=LATEST,
            content=DataFileContent.POSITION_DELETES,
            file_format=FileFormat.PUFFIN,
            partition=partition or Record(),
            referenced_data_file=target,
            content_offset=blob.offset,
            content_size_in_bytes=blob.length,
        )
        for (target, places), blob in zip(positions.items(), blobs, strict=True)
    ]


def with_rewritten_manifest(catalog: Any, name: str, rows: pa.Table) -> Table:
    """Format version 2, partitioned, several manifests, one of them with existing and deleted entries."""
    table: Table = catalog.create_table(name, rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("part")
    for _ in range(2):
        table.append(rows)
    table.delete("part == 'a' and id < 3")
    return table


def swap(table: Table) -> None:
    """Let ``a`` and ``b`` change names."""
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
