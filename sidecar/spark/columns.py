"""Converts Iceberg predicates and keys to Spark columns, which Spark evaluates by its own rules.

Spark's rules for NULL and NaN decide which rows match: IN and NOT IN are NULL for NULL; NaN equals NaN and is greater
than all numbers. Planning keeps every file that may match under the rules of any engine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundSetPredicate,
    BoundStartsWith,
    Not,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from sidecar.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sidecar.iceberg.predicates.literals import PredicateColumn

EPOCH = datetime(1970, 1, 1)
KEY = "sidecar key"
"""Name of the column of :func:`key_frame`."""

_COMPARISONS: dict[type[BoundPredicate], Callable[[Any, Any], Any]] = {
    BoundEqualTo: lambda column, value: column == value,
    BoundNotEqualTo: lambda column, value: column != value,
    BoundLessThan: lambda column, value: column < value,
    BoundLessThanOrEqual: lambda column, value: column <= value,
    BoundGreaterThan: lambda column, value: column > value,
    BoundGreaterThanOrEqual: lambda column, value: column >= value,
    BoundStartsWith: lambda column, value: column.startswith(value),
    BoundNotStartsWith: lambda column, value: ~column.startswith(value),
}
_TESTS: dict[type[BoundPredicate], Callable[[Any], Any]] = {
    BoundIsNull: lambda column: column.isNull(),
    BoundNotNull: lambda column: column.isNotNull(),
}


def spark_column(bound: BooleanExpression, schema: Schema) -> Column:
    """Convert ``bound``, a predicate bound to ``schema``, to a Spark condition.

    Raises :class:`UnsupportedFeatureError` for an unknown predicate and for a literal that Spark cannot express.
    """
    from pyspark.sql import functions as f

    if isinstance(bound, AlwaysTrue | AlwaysFalse):
        return f.lit(isinstance(bound, AlwaysTrue))
    if isinstance(bound, And | Or):
        parts = [spark_column(part, schema) for part in _chain(bound)]
        return reduce(lambda a, b: a & b if isinstance(bound, And) else a | b, parts)
    if isinstance(bound, Not):
        return ~spark_column(bound.child, schema)
    if not isinstance(bound, BoundPredicate):
        raise UnsupportedFeatureError("an unknown kind of predicate", found=type(bound).__name__)
    return _leaf(bound, schema)


def _chain(bound: And | Or) -> list[BooleanExpression]:
    """Return the operands of nested ANDs or ORs as one list; recursion would fail on long chains."""
    parts, open_ = [], [bound.right, bound.left]
    while open_:
        top = open_.pop()
        if type(top) is type(bound):
            open_ += [top.right, top.left]
        else:
            parts.append(top)
    return parts


def _leaf(bound: BoundPredicate, schema: Schema) -> Column:
    from pyspark.sql import functions as f

    field = bound.term.ref().field
    column = f.col(quoted_name(schema, field.field_id))
    condition: Column
    if type(bound) in _TESTS:
        condition = _TESTS[type(bound)](column)
        return condition
    if isinstance(bound, BoundIsNaN | BoundNotNaN):
        return f.isnan(column) if isinstance(bound, BoundIsNaN) else ~f.isnan(column)
    if isinstance(bound, BoundSetPredicate) and isinstance(bound, BoundIn | BoundNotIn):
        condition = column.isin([_literal(literal.value, field.field_type) for literal in bound.literals])
        return condition if isinstance(bound, BoundIn) else ~condition
    if isinstance(bound, BoundLiteralPredicate) and type(bound) in _COMPARISONS:
        condition = _COMPARISONS[type(bound)](column, _literal(bound.literal.value, field.field_type))
        return condition
    raise UnsupportedFeatureError("an unknown kind of predicate", found=type(bound).__name__)


def key_frame(session: Any, column: PredicateColumn, keys: Any) -> DataFrame:
    """Return the keys of a column (:func:`.key_sets.key_array`) as a frame, in Spark's type of it."""
    if isinstance(column.type, UUIDType):
        keys = pa.array([str(UUID(bytes=key)) for key in keys.to_pylist()], pa.string())
    elif isinstance(column.type, FixedType):
        keys = keys.cast(pa.binary())
    frame: DataFrame = session.createDataFrame(pa.table({KEY: keys}))
    return frame


def quoted_name(schema: Schema, field_id: int) -> str:
    """Return the name of a column for Spark: each part of a nested name in backticks."""
    name = schema.find_column_name(field_id) or ""
    whole = any(field.name == name for field in schema.fields)
    return ".".join(f"`{part.replace('`', '``')}`" for part in ([name] if whole else name.split(".")))


def _literal(value: Any, kind: IcebergType) -> Column:
    """Convert a literal of a column of type ``kind`` to a Spark column of the type that Spark reads."""
    from pyspark.sql import functions as f

    if isinstance(kind, DateType):
        # days since 1970: Python has no dates before year 1, Iceberg and Spark do
        return f.date_add(f.lit(date(1970, 1, 1)), f.lit(value))
    if isinstance(kind, TimestamptzType):
        return f.timestamp_micros(f.lit(value).cast("bigint"))
    if isinstance(kind, TimestampType):
        try:
            return f.lit((EPOCH + timedelta(microseconds=value)).isoformat()).cast("timestamp_ntz")
        except OverflowError as error:
            raise UnsupportedFeatureError("timestamps beyond year 9999 cannot be passed to Spark") from error
    if isinstance(kind, UUIDType):
        return f.lit(str(UUID(bytes=value)))  # Spark reads UUID columns as strings
    if isinstance(kind, FixedType | BinaryType):
        return f.lit(bytearray(value)).cast("binary")
    casts = {"int": "int", "long": "bigint", "float": "float", "double": "double"}
    return f.lit(value).cast(casts[str(kind)]) if str(kind) in casts else f.lit(value)
