"""Data files that pyiceberg does not write by itself: of any partition transform, and of a given size.

Without the package pyiceberg-core pyiceberg appends by identity partitions alone; but it computes every transform of a
single value, and writes a file of whichever partition it is told.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
    write_file,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import Table, WriteTask
from pyiceberg.transforms import IdentityTransform

from tests.iceberg.cases import local

PADDING = 3000
"""Bytes in the footer of an imported file, which a later file of the same name may have fewer or more of."""


def has_transforms(table: Table) -> bool:
    """Whether pyiceberg cannot write to the table by itself."""
    return any(not isinstance(f.transform, IdentityTransform) for f in table.spec().fields)


def partitions(table: Table, data: pa.Table) -> list[tuple[PartitionKey, pa.Table]]:
    """The rows of ``data`` by partition."""
    spec, schema = table.spec(), table.schema()
    groups: dict[str, tuple[PartitionKey, list[int]]] = {}
    sources = [schema.find_field(f.source_id).name for f in spec.fields]
    for at, row in enumerate(data.select(sources).to_pylist() if sources else [{}] * data.num_rows):
        fields = zip(spec.fields, sources, strict=True)
        values = [PartitionFieldValue(f, _transformed(schema, f, row[name])) for f, name in fields]
        key = PartitionKey(values, spec, schema)
        groups.setdefault(repr(key.partition), (key, []))[1].append(at)
    return [(key, data.take(pa.array(places, pa.int64()))) for key, places in groups.values()]


def _transformed(schema: Schema, field: PartitionField, value: Any) -> Any:
    return field.transform.transform(schema.find_type(field.source_id))(partition_record_value(field, value, schema))


def data_files(table: Table, data: pa.Table) -> list[DataFile]:
    """``data`` as new data files, one for each partition."""
    if not has_transforms(table):
        return list(_dataframe_to_data_files(table.metadata, data, table.io))
    tasks = [
        WriteTask(uuid.uuid4(), n, table.schema(), part.to_batches(), partition_key=key)
        for n, (key, part) in enumerate(partitions(table, data))
    ]
    return list(write_file(table.io, table.metadata, iter(tasks)))


def remove(table: Table, files: list[DataFile], new: list[DataFile]) -> None:
    """Commit that ``files`` have left the table and ``new`` have come."""
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for file in files:
            update.delete_data_file(file)
        for file in new:
            update.append_data_file(file)


def rows_without(table: Table, start: int, stop: int) -> Iterator[tuple[DataFile, pa.Table]]:
    """Data files with rows of these ids, and their other rows."""
    reader = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for task in table.scan(f"id >= {start} and id < {stop}").plan_files():
        rows = reader.to_table([task])
        left = [not start <= key < stop for key in rows["id"].to_pylist()]
        if not all(left):
            yield task.file, rows.filter(pa.array(left, pa.bool_()))


def imported(table: Table, data: pa.Table, name: str, key: PartitionKey, size: int | None = None) -> DataFile | None:
    """``data`` as the file ``name`` of the table, of just so many bytes; ``None`` if they are too few."""
    path = f"{table.location()}/data/{name}"
    schema = schema_to_pyarrow(table.schema())
    padding, content = PADDING, b""
    for _ in range(8):
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, schema, store_schema=False, write_page_index=True) as writer:
            writer.write_table(data.cast(schema), row_group_size=12)
            writer.add_key_value_metadata({"padding": "x" * padding})
        content = sink.getvalue()
        if size is None or len(content) == size:
            break
        padding += size - len(content)
        if padding < 0:
            return None
    if size not in (None, len(content)):
        return None
    local(path).parent.mkdir(parents=True, exist_ok=True)
    local(path).write_bytes(content)
    return _described(table, path, pq.read_metadata(io.BytesIO(content)), key, len(content))


def _described(table: Table, path: str, footer: Any, key: PartitionKey, size: int) -> DataFile:
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition,
        file_size_in_bytes=size,
        spec_id=table.metadata.default_spec_id,
        **statistics.to_serialized_dict(),
    )
