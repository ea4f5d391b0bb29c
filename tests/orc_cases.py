"""ORC files as Iceberg's writers make them, written by pyarrow: ids and Iceberg's types in attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, StructType, TimeType, UUIDType

STRIDE = 1_000


def orc_schema(schema: Schema, ids: bool = True) -> pa.Schema:
    """The Arrow schema whose ORC file an Iceberg table of ``schema`` would have."""
    return pa.schema([_field(field, ids) for field in schema.fields])


def _field(field: Any, ids: bool) -> pa.Field:
    attributes = {"iceberg.id": str(field.field_id), "iceberg.required": "false"} if ids else {}
    kind = field.field_type
    if isinstance(kind, UUIDType):
        attributes["iceberg.binary-type"] = "UUID"
    elif isinstance(kind, FixedType):
        attributes |= {"iceberg.binary-type": "FIXED", "iceberg.length": str(len(kind))}
    elif isinstance(kind, TimeType):
        attributes["iceberg.long-type"] = "TIME"
    return pa.field(field.name, _type(kind, ids), metadata=attributes)


def _type(kind: IcebergType, ids: bool) -> pa.DataType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    if isinstance(kind, StructType):
        return pa.struct([_field(field, ids) for field in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_field(kind.element_field, ids))
    if isinstance(kind, MapType):
        key = _field(kind.key_field, ids)
        return pa.map_(key.with_nullable(False), _field(kind.value_field, ids))
    if isinstance(kind, (UUIDType, FixedType)):
        return pa.binary()
    if isinstance(kind, TimeType):
        return pa.int64()
    made = schema_to_pyarrow(kind)
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(made, made)


def to_orc(table: pa.Table, schema: Schema, ids: bool = True) -> pa.Table:
    """A table in Parquet's types as the one that goes into the ORC file."""
    target = orc_schema(schema, ids)
    columns = []
    for field, column in zip(target, table.columns, strict=True):
        column = column.cast(pa.int64()) if pa.types.is_time(column.type) else column
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks])
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=target)


def write_orc(path: Path, table: pa.Table, schema: Schema, ids: bool = True, **options: Any) -> Path:
    """Write ``table`` (Parquet's types) to ``path``."""
    settings = {"row_index_stride": STRIDE, "compression": "zlib"} | options
    po.write_table(to_orc(table, schema, ids), str(path), **settings)
    return path
