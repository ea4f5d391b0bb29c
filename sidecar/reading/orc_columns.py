"""The columns of a plain ORC file as an Iceberg schema, so that predicates mean the same for a file and a table.

Field ids are the column ids of the file. A column has the Iceberg type of its ORC kind, as pyarrow reads it: times
are longs and UUIDs are bytes, even if an Iceberg table wrote the file. Predicates cannot name members of unions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UnknownType,
)

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.leaf import ComparedColumn
from sidecar.orc.schema import MAX_DIGITS, OrcColumn
from sidecar.orc.statistics.bounds import compared_column
from sidecar.orc.tail import OrcTail
from sidecar.reading.file_columns import FileColumn, FileColumns

_PRIMITIVES: dict[str, PrimitiveType] = {
    "BOOLEAN": BooleanType(),
    **dict.fromkeys(("BYTE", "SHORT", "INT"), IntegerType()),
    "LONG": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_INSTANT": TimestamptzType(),
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR"), StringType()),
    "BINARY": BinaryType(),
}


def orc_columns(tail: OrcTail) -> FileColumns:
    """Return the columns of a file. Raises :class:`UnsupportedFeatureError` if two have the same dotted name."""
    columns: dict[int, FileColumn] = {}
    fields = [_field(tail, child, (), columns, True) for child in tail.columns[0].children]
    try:
        schema = Schema(*fields)
        schema.find_column_name(1)  # builds the index of names, which raises for duplicates
    except ValueError as error:
        raise UnsupportedFeatureError(f"the column names are not unique: {error}", file=tail.name) from error
    return FileColumns(schema, columns)


def _field(
    tail: OrcTail, number: int, above: tuple[str, ...], columns: dict[int, FileColumn], askable: bool
) -> NestedField:
    column = tail.columns[number]
    name = column_name(tail, column)
    path = (*above, name)
    if askable and column.kind not in ("LIST", "MAP", "UNION"):
        columns[number] = FileColumn(path, path, None)
    below = askable and column.kind == "STRUCT"
    return NestedField(number, name, _type(tail, column, path, columns, below), required=False)


def _type(
    tail: OrcTail, column: OrcColumn, path: tuple[str, ...], columns: dict[int, FileColumn], askable: bool
) -> IcebergType:
    children = column.children
    if column.kind == "STRUCT":
        return StructType(*(_field(tail, child, path, columns, askable) for child in children))
    if column.kind == "LIST":
        return ListType(children[0], _type(tail, tail.columns[children[0]], path, columns, False))
    if column.kind == "MAP":
        key, value = (_type(tail, tail.columns[child], path, columns, False) for child in children)
        return MapType(children[0], key, children[1], value)
    if column.kind == "DECIMAL" and 0 < (column.precision or 0) <= MAX_DIGITS:
        return DecimalType(column.precision or 0, column.scale or 0)
    return _PRIMITIVES.get(column.kind, UnknownType())


def column_name(tail: OrcTail, column: OrcColumn) -> str:
    """Return the name of a column below its parent; the name itself may contain dots."""
    above = tail.columns[column.parent or 0]
    return column.path[len(above.path) + 1 :] if above.id else column.path


def compared_orc_column(tail: OrcTail, columns: FileColumns, number: int) -> ComparedColumn | None:
    """Return what statistics of a column are compared as; ``None`` if they cannot be used."""
    column = tail.columns[number]
    if column.is_compound or column.encrypted or number not in columns.columns:
        return None
    iceberg_type = str(columns.schema.find_field(number).field_type)
    try:
        return compared_column(column.kind, column.scale or 0, number, iceberg_type)
    except UnsupportedFeatureError:
        return None


def selected_schema(tail: OrcTail, schema: pa.Schema, chosen: set[int] | None) -> pa.Schema:
    """Return pyarrow's schema of the file cut down to the columns ``chosen`` (ids); ``None`` chooses all."""
    if chosen is None:
        return schema
    kept = []
    for field, number in zip(schema, tail.columns[0].children, strict=True):
        found = _selected(tail, field, number, chosen)
        if found is not None:
            kept.append(found)
    return pa.schema(kept)


def _selected(tail: OrcTail, field: Any, number: int, chosen: set[int]) -> Any | None:
    if number in chosen:
        return field
    if not chosen.intersection(tail.subtree(number)):
        return None
    parts = [
        found
        for child, below in zip(field.type, tail.columns[number].children, strict=True)
        if (found := _selected(tail, child, below, chosen)) is not None
    ]
    return field.with_type(pa.struct(parts))
