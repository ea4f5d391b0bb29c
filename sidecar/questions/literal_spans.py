"""Converts literals to the unit of a column's bounds.

In the unit of the file, a literal may be between two values (microseconds in a file of milliseconds, 0.1 in a FLOAT).
So it becomes a *span*: the two nearest values, both included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import float32_neighbours
from sidecar.filters.leaf import ComparedColumn
from sidecar.filters.literals import LiteralValue

Span = tuple[Any, Any]
"""The nearest values of the file's type at or below and at or above a literal; equal if the type can hold it."""


def span_of(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Return the span of a literal of the column's ``iceberg_type``; ``None`` if it is not certain."""
    if column.encoding.physical == "INT96" or column.encoding.name == "interval":
        return None
    convert = _SPANS.get(ColumnType.parse(column.iceberg_type).family)
    return None if convert is None else convert(value, column)


def _point(value: Any) -> Span:
    return value, value


def _boolean(value: LiteralValue, column: ComparedColumn) -> Span | None:
    return _point(int(value)) if isinstance(value, bool) else None


def _integer(value: LiteralValue, column: ComparedColumn) -> Span | None:
    return _point(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _decimal(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Return the span of the unscaled number; the bounds have the scale of the type."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    number = Fraction(value) * 10 ** (ColumnType.parse(column.iceberg_type).scale or 0)
    return math.floor(number), math.ceil(number)


def _units(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Return the span of microseconds (nanoseconds for the ``_ns`` types) in the unit of the bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = column.encoding.name.rpartition("-")[2]
    if unit == "ms":
        return value // 1000, -(-value // 1000)
    if unit == "ns" and ColumnType.parse(column.iceberg_type).unit != "ns":
        return _point(value * 1000)
    return _point(value) if unit in ("us", "ns") else None


def _float(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Return the span of a number. Engines may round it to 32 bits for a FLOAT or not, so the span covers both."""
    if not isinstance(value, float) or math.isnan(value):
        return None
    return _point(value) if column.encoding.physical == "DOUBLE" else float32_neighbours(value)


def _bytes(value: LiteralValue, column: ComparedColumn) -> Span | None:
    if isinstance(value, str):
        try:
            return _point(value.encode())
        except UnicodeEncodeError:
            return None
    return _point(bytes(value)) if isinstance(value, bytes) else None


_SPANS: dict[str, Callable[[LiteralValue, ComparedColumn], Span | None]] = {
    "boolean": _boolean,
    "integer": _integer,
    "date": _integer,
    "float": _float,
    "decimal": _decimal,
    "time": _units,
    "timestamp": _units,
    "string": _bytes,
    "binary": _bytes,
    "uuid": _bytes,
}
