"""A plain Parquet file's columns as an Iceberg schema, so that predicates mean for a file what they mean for a table.

Field ids are given in the order of the schema; those in the file, if any, need not be unique. A column has the
Iceberg type that its Parquet leaf stands for (:attr:`sidecar.filters.leaf.Leaf.iceberg_type`), with two
differences: nanoseconds are asked in microseconds, which is what literals can say, and what Arrow reads as
something else altogether (durations, decimals beyond 38 digits) can be asked IS NULL alone.

For the residual, Arrow columns are brought into the types that pyiceberg's expressions compare: dictionaries
decoded, halves widened, times in microseconds or nanoseconds, decimals in 128 bits, UUIDs as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimeType,
    UnknownType,
    UUIDType,
)

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.leaf import ComparedColumn, Leaf
from sidecar.parquet.scan.schema_parts import FileShape, Node

_PRIMITIVES: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "timestamp_ns": TimestampType(),
    "timestamptz_ns": TimestamptzType(),
    "string": StringType(),
    "binary": BinaryType(),
    "uuid": UUIDType(),
}

_t: Any = pa.types
_FITS: dict[str, Callable[[Any], bool]] = {
    "boolean": _t.is_boolean,
    "int": _t.is_integer,
    "long": _t.is_integer,
    "float": _t.is_floating,
    "double": _t.is_floating,
    "date": _t.is_date,
    "time": _t.is_time,
    "timestamp": lambda kind: _t.is_timestamp(kind) and kind.tz is None,
    "timestamptz": lambda kind: _t.is_timestamp(kind) and kind.tz is not None,
    "timestamp_ns": lambda kind: _t.is_timestamp(kind) and kind.tz is None,
    "timestamptz_ns": lambda kind: _t.is_timestamp(kind) and kind.tz is not None,
    "string": lambda kind: _t.is_string(kind) or _t.is_large_string(kind),
    "binary": lambda kind: _t.is_binary(kind) or _t.is_large_binary(kind),
    "uuid": _t.is_fixed_size_binary,
    "fixed": _t.is_fixed_size_binary,
    "decimal": _t.is_decimal,
}
"""Arrow types that are compared as the Iceberg type of that name."""


@dataclass(frozen=True, eq=False)
class FileColumn:
    """A column that a predicate can speak of; ``leaf`` is ``None`` for a struct."""

    path: tuple[str, ...]
    enough: tuple[str, ...]
    """The path to what has to be read to know the column: of a struct, where it is null."""
    leaf: Leaf | None

    def of(self, table: pa.Table) -> Any:
        """The column, null where a parent is null."""
        column = table[self.path[0]]
        return pc.struct_field(column, list(self.path[1:])) if len(self.path) > 1 else column


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The Iceberg schema of a file, and by field id the columns outside of lists and maps."""

    schema: Schema
    columns: dict[int, FileColumn]

    def compared(self, field_id: int) -> ComparedColumn | None:
        """What the bounds of a column are compared as; ``None`` for a struct."""
        leaf = self.columns[field_id].leaf
        return None if leaf is None else leaf.compared


def residual_name(field_id: int) -> str:
    """The name of a column in the table that the residual is evaluated on."""
    return f"field_{field_id}"


def file_columns(shape: FileShape, file: str) -> FileColumns:
    """The columns of a file. Raises :class:`UnsupportedFeatureError` where two have one dotted name."""
    reader = _Columns()
    fields = [reader.node(node, ()) for node in shape.nodes]
    try:
        schema = Schema(*fields)
        schema.find_column_name(1)  # names are indexed now
    except ValueError as error:
        raise UnsupportedFeatureError(f"the columns' names are not unique: {error}", file=file) from error
    return FileColumns(schema, reader.columns)


class _Columns:
    """Gives ids to the fields of a file and remembers where each column is."""

    def __init__(self) -> None:
        self.columns: dict[int, FileColumn] = {}
        self._ids = count(1)

    def node(self, node: Node, above: tuple[str, ...]) -> NestedField:
        field_id, path = next(self._ids), (*above, node.field.name)
        if node.part is None:
            self.columns[field_id] = FileColumn(path, (*above, *node.first_path()), None)
            kind: IcebergType = StructType(*(self.node(child, path) for child in node.children))
        else:
            leaf = node.part.leaves[0]
            if len(node.part.leaves) == 1 and not leaf.max_rep and len(leaf.parts) == len(path):
                self.columns[field_id] = FileColumn(path, path, leaf)
            kind = self._type(node.field.type, iter(node.part.leaves))
        return NestedField(field_id, node.field.name, kind, required=not node.field.nullable)

    def _type(self, kind: Any, leaves: Iterator[Leaf]) -> IcebergType:
        """The Iceberg type of an Arrow type whose leaves come next."""
        if _t.is_struct(kind):
            fields = [(next(self._ids), f, self._type(f.type, leaves)) for f in kind]
            return StructType(*(NestedField(i, f.name, t, required=not f.nullable) for i, f, t in fields))
        if _t.is_map(kind):
            key, value = next(self._ids), next(self._ids)
            return MapType(key, self._type(kind.key_type, leaves), value, self._type(kind.item_type, leaves))
        if _t.is_nested(kind):
            return ListType(next(self._ids), self._type(kind.value_type, leaves))
        leaf = next(leaves)
        return primitive_type(kind, leaf)


def primitive_type(kind: Any, leaf: Leaf) -> PrimitiveType:
    """The type that a leaf is compared as; unknown where Arrow makes something else of it."""
    stored = _compared(kind)
    base = leaf.iceberg_type.partition("(")[0].partition("[")[0]
    return UnknownType() if stored is None or not _FITS[base](stored) else _primitive(leaf.iceberg_type)


def _primitive(name: str) -> PrimitiveType:
    base, _, rest = name.partition("(")
    if base == "decimal":
        precision, scale = rest.rstrip(")").split(",")
        return DecimalType(int(precision), int(scale))
    if name.startswith("fixed"):
        return FixedType(int(name[6:-1]))
    return _PRIMITIVES[name]


def _compared(kind: Any) -> Any | None:
    """The Arrow type that a column of type ``kind`` is compared as; ``None`` if it cannot be."""
    t = _t
    if isinstance(kind, pa.BaseExtensionType):
        return _compared(kind.storage_type)
    if t.is_dictionary(kind):
        return _compared(kind.value_type)
    if t.is_uint64(kind):
        return pa.decimal128(20, 0)
    if t.is_float16(kind):
        return pa.float32()
    if t.is_date64(kind):
        return pa.date32()
    if t.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else None
    if t.is_string_view(kind):
        return pa.large_string()
    if t.is_binary_view(kind):
        return pa.large_binary()
    if t.is_nested(kind) or t.is_duration(kind) or t.is_null(kind) or t.is_interval(kind):
        return None
    return kind


def comparable_column(column: Any) -> Any:
    """An Arrow column in the type that pyiceberg's expressions compare; others as they are."""
    if isinstance(column.type, pa.BaseExtensionType):
        storage: Any = column.type.storage_type
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
    kind = _compared(column.type)
    return column if kind is None or kind == column.type else column.cast(kind)
