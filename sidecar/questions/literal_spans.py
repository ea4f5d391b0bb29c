"""Where a literal lies among the bounds of a column.

A literal is compared with bounds in the unit of the file, in which it may lie between two values (microseconds in
a file of milliseconds, 0.1 in a FLOAT): it becomes a *span* of the neighbours, both included.
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
"""A literal among the file's values: the nearest ones below and above, the same twice where it is one of them."""


def span_of(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Where a literal of the column's ``iceberg_type`` lies among decoded bounds; ``None`` if that is not certain."""
    if column.encoding.physical == "INT96" or column.encoding.name == "interval":
        return None
    place = _PLACES.get(ColumnType.parse(column.iceberg_type).family)
    return None if place is None else place(value, column)


def _same(value: Any) -> Span:
    return value, value


def _boolean(value: LiteralValue, column: ComparedColumn) -> Span | None:
    return _same(int(value)) if isinstance(value, bool) else None


def _integer(value: LiteralValue, column: ComparedColumn) -> Span | None:
    return _same(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _decimal(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """The unscaled number; the bounds have the scale of the type."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    number = Fraction(value) * 10 ** (ColumnType.parse(column.iceberg_type).scale or 0)
    return math.floor(number), math.ceil(number)


def _units(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """Microseconds (nanoseconds for the ``_ns`` types) in the unit of the bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = column.encoding.name.rpartition("-")[2]
    if unit == "ms":
        return value // 1000, -(-value // 1000)
    if unit == "ns" and ColumnType.parse(column.iceberg_type).unit != "ns":
        return _same(value * 1000)
    return _same(value) if unit in ("us", "ns") else None


def _float(value: LiteralValue, column: ComparedColumn) -> Span | None:
    """In narrower columns a literal may be rounded to 32 bits or not: the span covers both."""
    if not isinstance(value, float) or math.isnan(value):
        return None
    return _same(value) if column.encoding.physical == "DOUBLE" else float32_neighbours(value)


def _bytes(value: LiteralValue, column: ComparedColumn) -> Span | None:
    if isinstance(value, str):
        try:
            return _same(value.encode())
        except UnicodeEncodeError:
            return None
    return _same(bytes(value)) if isinstance(value, bytes) else None


_PLACES: dict[str, Callable[[LiteralValue, ComparedColumn], Span | None]] = {
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
