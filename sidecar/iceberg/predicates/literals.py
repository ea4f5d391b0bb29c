"""Finds the columns of a predicate and converts literals exactly to the type of their column.

pyiceberg's parser turns a number into a double or a long before it knows the column. Binding then rounds it (``i =
1.5`` finds 2, ``dec = 1.505`` finds 1.50) or refuses a natural spelling (``dec = 1.5`` on a decimal(9, 2)). Here
every literal goes through :func:`sidecar.filters.literals.literal_from_text` or a conversion without loss, and
becomes a pyiceberg literal that binds to itself. A float literal becomes the nearest double. For a FLOAT column it
cannot be bound if it exceeds the range of 32 bits; :mod:`sidecar.iceberg.predicates.comparisons` handles that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
    literal,
)
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
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from sidecar.errors import UnsupportedFeatureError, UsageError, located
from sidecar.filters.float32 import LIMIT
from sidecar.filters.literals import literal_from_text
from sidecar.iceberg.resolve import find_field

MICROS_PER_DAY = 86_400_000_000
_COUNTED = (DateType, TimeType, TimestampType, TimestamptzType)  # integers count days or microseconds


@dataclass(frozen=True)
class PredicateColumn:
    """A column of a predicate, with its name as in the schema."""

    name: str
    field_id: int
    type: IcebergType


def find_column(schema: Schema, name: str, case_sensitive: bool = True) -> PredicateColumn:
    """Return the primitive or struct column ``name``.

    Raises the errors of :func:`find_field`, and :class:`UsageError` for a list or map and for a column inside of one.
    """
    field = find_field(schema, name, case_sensitive)
    path = schema.find_column_name(field.field_id) or name
    if not isinstance(field.field_type, PrimitiveType | StructType):
        raise UsageError("a predicate cannot name a list or map", column=path)
    try:
        schema.accessor_for_field(field.field_id)
    except ValueError as error:
        raise UsageError("a predicate cannot name a column inside a list or map", column=path) from error
    return PredicateColumn(path, field.field_id, field.field_type)


def literal_of_text(text: str, column: PredicateColumn, *, quoted: bool) -> Literal[Any]:
    """Convert ``text`` to a literal of the column's type. Raises :class:`UsageError` if it does not fit."""
    kind = _comparable(column)
    with located(None, column.name):
        return _literal(literal_from_text(text, str(kind), quoted=quoted), column)


def exact_literal(given: Literal[Any], column: PredicateColumn) -> Literal[Any]:
    """Convert ``given`` to the column's type. Raises :class:`UsageError` if that would round, truncate or guess."""
    kind, value = _comparable(column), given.value
    if isinstance(given, StringLiteral):
        return literal_of_text(value, column, quoted=True)
    if isinstance(given, BooleanLiteral):
        return literal_of_text(str(value).lower(), column, quoted=False)
    if isinstance(given, FloatLiteral | DoubleLiteral):
        is_float = isinstance(kind, FloatType | DoubleType)
        return _literal(value, column) if is_float else literal_of_text(repr(value), column, quoted=False)
    if isinstance(given, DecimalLiteral):
        return literal_of_text(format(value, "f"), column, quoted=False)
    if isinstance(given, LongLiteral) and not isinstance(kind, _COUNTED):
        return literal_of_text(str(value), column, quoted=False)
    return _convert(given, column)


def exact_value(value: object, column: PredicateColumn) -> Any:
    """Convert a text as a person writes it, or a value that pyiceberg accepts, to the value of a bound literal.

    Raises :class:`UsageError` for a value that does not fit the column. A FLOAT column rounds to 32 bits, so a number
    fits if it is finite after rounding.
    """
    return literal_of_value(value, column).value


def literal_of_value(value: object, column: PredicateColumn) -> Literal[Any]:
    """Do the same as :func:`exact_value`, but return the literal."""
    if isinstance(value, str):
        found = literal_of_text(value, column, quoted=True)
    elif getattr(value, "nanosecond", 0):  # a time of pandas, of which pyiceberg takes the microseconds
        raise _misfit(value, column)
    else:
        try:
            made: Literal[Any] = literal(value)
        except (TypeError, ValueError) as error:
            raise _misfit(value, column) from error
        found = exact_literal(made, column)
    if is_beyond(found, column):
        raise _misfit(value, column)
    return found


def is_beyond(found: Literal[Any], column: PredicateColumn) -> bool:
    """Return whether a literal is a finite number beyond the values of the column's type, after rounding to 32 bits."""
    if isinstance(column.type, FloatType):
        return bool(LIMIT <= abs(found.value) < math.inf)
    if not isinstance(column.type, IntegerType | DecimalType):
        return False
    least, most = ends_of(column.type)
    return not least.value <= found.value <= most.value


@cache
def ends_of(kind: FloatType | IntegerType | DecimalType) -> tuple[Literal[Any], Literal[Any]]:
    """Return the least and the greatest value of a type as literals; for FLOAT, the infinities."""
    if isinstance(kind, FloatType):
        return FloatLiteral(-math.inf), FloatLiteral(math.inf)
    if isinstance(kind, IntegerType):
        return LongLiteral(IntegerType.min), LongLiteral(IntegerType.max)
    nines = (9,) * kind.precision
    return DecimalLiteral(Decimal((1, nines, -kind.scale))), DecimalLiteral(Decimal((0, nines, -kind.scale)))


def prefix_literal(text: object, column: PredicateColumn) -> StringLiteral:
    """Return a prefix as a literal. Raises :class:`UsageError` unless column and prefix are strings."""
    if not isinstance(column.type, StringType) or not isinstance(text, str):
        raise UsageError("a prefix needs a string column", column=column.name, expected="string", found=column.type)
    return StringLiteral(text)


_LITERALS: dict[type[IcebergType], Callable[[Any], Literal[Any]]] = {
    BooleanType: BooleanLiteral,
    IntegerType: LongLiteral,
    LongType: LongLiteral,
    FloatType: FloatLiteral,
    DoubleType: DoubleLiteral,
    DecimalType: DecimalLiteral,
    DateType: DateLiteral,
    TimeType: TimeLiteral,
    TimestampType: TimestampLiteral,
    TimestamptzType: TimestampLiteral,
    StringType: StringLiteral,
    UUIDType: UUIDLiteral,
    FixedType: FixedLiteral,
    BinaryType: BinaryLiteral,
}


def _comparable(column: PredicateColumn) -> PrimitiveType:
    if not isinstance(column.type, PrimitiveType):
        raise UsageError("a struct cannot be compared", column=column.name, hint="Name one of its fields.")
    if type(column.type) not in _LITERALS:
        raise UnsupportedFeatureError(
            f"pyiceberg cannot compare a column of type {column.type} with a literal", column=column.name
        )
    return column.type


def _literal(value: Any, column: PredicateColumn) -> Literal[Any]:
    if isinstance(value, float) and value != value:
        raise UsageError("nothing compares equal to NaN", column=column.name, hint="Use IS NAN or IS NOT NAN.")
    if isinstance(column.type, FloatType) and LIMIT <= abs(value) < math.inf:
        return DoubleLiteral(value)
    return _LITERALS[type(column.type)](value)


def _convert(given: Literal[Any], column: PredicateColumn) -> Literal[Any]:
    """Convert without loss, as pyiceberg does. A timestamp without zone fits a date column only at midnight."""
    if isinstance(given, DateLiteral) and isinstance(column.type, TimestampType):
        return TimestampLiteral(given.value * MICROS_PER_DAY)
    if isinstance(given, TimestampLiteral) and isinstance(column.type, DateType):
        if given.value % MICROS_PER_DAY:
            raise _misfit(given.ser_model(), column)
        return DateLiteral(given.value // MICROS_PER_DAY)
    try:
        converted: Literal[Any] = given.to(column.type)
    except (TypeError, ValueError) as error:
        raise _misfit(given.value, column) from error
    if type(converted) is not _LITERALS[type(column.type)]:  # out of the type's range
        raise _misfit(given.value, column)
    return converted


def _misfit(value: object, column: PredicateColumn) -> UsageError:
    return UsageError(
        "the literal does not fit the column", column=column.name, expected=column.type, found=repr(value)
    )
