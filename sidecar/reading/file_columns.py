"""The columns of a plain Parquet file as an Iceberg schema, so that predicates mean the same for a file and a table.

Field ids are numbered in the order of the schema; ids in the file are ignored because they need not be unique. A
column has the Iceberg type of its Parquet leaf (:attr:`sidecar.filters.leaf.Leaf.iceberg_type`), with two
differences. Columns of nanoseconds are compared with literals in microseconds. Columns that Arrow reads as a type
without Iceberg counterpart (durations, decimals of more than 38 digits) accept only IS NULL and IS NOT NULL.

For the residual, Arrow columns are converted to types that pyiceberg's expressions compare: dictionaries are
decoded, half floats widened, dates in days, decimals in 128 bits, UUIDs as bytes, ENUM (to Arrow bytes) as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from sidecar.filters.column_types import ColumnType
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


def _is_bytes(kind: Any) -> bool:
    return bool(_t.is_binary(kind) or _t.is_large_binary(kind))


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
    "string": lambda kind: _t.is_string(kind) or _t.is_large_string(kind) or _is_bytes(kind),
    "binary": _is_bytes,
    "uuid": _t.is_fixed_size_binary,
    "fixed": _t.is_fixed_size_binary,
    "decimal": _t.is_decimal,
}
"""Iceberg type name (without parameters) -> whether an Arrow type can be compared as that type."""


@dataclass(frozen=True, eq=False)
class FileColumn:
    """A column that a predicate can name; ``leaf`` is ``None`` for a struct."""

    path: tuple[str, ...]
    enough: tuple[str, ...]
    """Path of the column to read for the predicate. For a struct it is one leaf, enough to know where it is null."""
    leaf: Leaf | None

    def of(self, table: pa.Table) -> Any:
        """Take this column out of a table; a value is null where a parent struct is null."""
        column = table[self.path[0]]
        return pc.struct_field(column, list(self.path[1:])) if len(self.path) > 1 else column

    def compared_in(self, table: pa.Table) -> Any:
        """The value in the type that pyiceberg's expressions compare."""
        column = _comparable_column(self.of(table))
        is_text = self.leaf is not None and self.leaf.iceberg_type == "string"
        if is_text and _is_bytes(column.type):
            # texts that are no UTF-8 are compared as bytes
            return column.cast(options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True))
        return column


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The Iceberg schema of a file; ``columns`` has the columns outside of lists and maps by field id.

    ``ambiguous`` has the dotted names that several columns have. These columns are not in the schema.
    """

    schema: Schema
    columns: dict[int, FileColumn]
    ambiguous: frozenset[str] = frozenset()

    def check(self, field_ids: Iterable[int]) -> None:
        """Raise :class:`UnsupportedFeatureError` if a predicate names a field of a column that is decoded whole."""
        for field_id in field_ids:
            if field_id not in self.columns:
                name = self.schema.find_column_name(field_id)
                raise UnsupportedFeatureError("a predicate cannot name a field inside this column", column=name)

    def compared(self, field_id: int) -> ComparedColumn | None:
        """What the bounds of a column are compared as; ``None`` for a struct."""
        leaf = self.columns[field_id].leaf
        return None if leaf is None else leaf.compared


def residual_name(field_id: int) -> str:
    """Return the name of a column in the flat table on which the residual is evaluated."""
    return f"field_{field_id}"


def file_columns(shape: FileShape, file: str) -> FileColumns:
    """Return the columns of a file, without those whose dotted names are not unique.

    Raises :class:`UnsupportedFeatureError` if fields in lists or maps have the same name, and for a group without
    columns.
    """
    names = Counter(name for node in shape.nodes for name in _dotted_names(node, ()))
    ambiguous = frozenset(name for name, times in names.items() if times > 1)
    reader = _Columns(file, ambiguous)
    fields = [found for node in shape.nodes if (found := reader.node(node, ())) is not None]
    try:
        schema = Schema(*fields)
        schema.find_column_name(1)  # builds the index of names, which raises for duplicates
    except ValueError as error:
        raise UnsupportedFeatureError(f"the column names are not unique: {error}", file=file) from error
    return FileColumns(schema, reader.columns, ambiguous)


def _dotted_names(node: Node, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the dotted names of a node and of the fields in it, as predicates name them."""
    path = (*above, node.field.name)
    yield ".".join(path)
    for child in node.children:
        yield from _dotted_names(child, path)


class _Columns:
    """Numbers the fields of a file and records the path of each column."""

    def __init__(self, file: str, ambiguous: frozenset[str]) -> None:
        self.columns: dict[int, FileColumn] = {}
        self._file = file
        self._ambiguous = ambiguous
        self._ids = count(1)

    def node(self, node: Node, above: tuple[str, ...]) -> NestedField | None:
        """Return the field of a node; ``None`` if its name, or that of everything in it, is ambiguous."""
        field_id, path = next(self._ids), (*above, node.field.name)
        if ".".join(path) in self._ambiguous:
            return None
        if node.part is None:
            children = [found for child in node.children if (found := self.node(child, path)) is not None]
            if not children:
                return None
            self.columns[field_id] = FileColumn(path, (*above, *node.first_path()), None)
            kind: IcebergType = StructType(*children)
        else:
            leaf = node.part.leaves[0]
            if len(node.part.leaves) == 1 and not leaf.max_rep and len(leaf.parts) == len(path):
                self.columns[field_id] = FileColumn(path, path, leaf)
            kind = self._type(node.field.type, iter(node.part.leaves))
            if isinstance(kind, StructType):  # decoded whole, such as a VARIANT; only its nulls can be asked for
                self.columns[field_id] = FileColumn(path, path, None)
        return NestedField(field_id, node.field.name, kind, required=not node.field.nullable)

    def _type(self, kind: Any, leaves: Iterator[Leaf]) -> IcebergType:
        """Return the Iceberg type of an Arrow type; take its leaves from the iterator."""
        if _t.is_struct(kind):
            if not kind.num_fields:  # pyiceberg takes an empty type for a missing one
                raise UnsupportedFeatureError("a group without columns cannot be read", file=self._file)
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
    """Return the type as which a leaf is compared, or ``UnknownType`` if Arrow reads it as an unrelated type."""
    stored = _compared(kind)
    column = ColumnType.parse(leaf.iceberg_type)
    fits = _FITS.get(column.base)
    if stored is None or fits is None or not fits(stored):
        return UnknownType()
    if column.precision is not None and column.scale is not None:
        return DecimalType(column.precision, column.scale)
    return FixedType(column.width or 0) if column.base == "fixed" else _PRIMITIVES[column.base]


def _compared(kind: Any) -> Any | None:
    """Return the Arrow type as which a column of type ``kind`` is compared; ``None`` if it cannot be compared."""
    if isinstance(kind, pa.BaseExtensionType):
        return _compared(kind.storage_type)
    if _t.is_dictionary(kind):
        return _compared(kind.value_type)
    if _t.is_uint64(kind):
        return pa.decimal128(20, 0)
    if _t.is_float16(kind):
        return pa.float32()
    if _t.is_date64(kind):
        return pa.date32()
    if _t.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")  # Arrow compares those of two zones only in the same unit
    if _t.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else None
    if _t.is_string_view(kind):
        return pa.large_string()
    if _t.is_binary_view(kind):
        return pa.large_binary()
    if _t.is_nested(kind) or _t.is_duration(kind) or _t.is_null(kind) or _t.is_interval(kind):
        return None
    return kind


def _comparable_column(column: Any) -> Any:
    """Convert an Arrow column to the type that pyiceberg's expressions compare; return other columns unchanged."""
    if isinstance(column.type, pa.BaseExtensionType):
        storage: Any = column.type.storage_type
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
    kind = _compared(column.type)
    return column if kind is None or kind == column.type else column.cast(kind)
