"""Whether statistics exclude a value: minimum and maximum are asked before any filter.

A literal of an Iceberg type is compared with the bounds of a column's kind only for the pairs below, in which both are
values of one order; every other pair says nothing.
"""

from __future__ import annotations

import math
from decimal import Decimal

from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import float32_neighbours
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import Bound, ColumnStatistics

_NUMBERS = frozenset({"BYTE", "SHORT", "INT", "LONG"})
_PAIRS: dict[str, frozenset[str]] = {
    "boolean": frozenset({"BOOLEAN"}),
    "int": _NUMBERS,
    "long": _NUMBERS,
    "time": frozenset({"LONG"}),
    "float": frozenset({"FLOAT"}),
    "double": frozenset({"FLOAT", "DOUBLE"}),
    "string": frozenset({"STRING", "VARCHAR"}),  # CHAR: with or without its blanks, nobody knows
    "decimal": frozenset({"DECIMAL"}),
    "date": frozenset({"DATE"}),
    **dict.fromkeys(("timestamp", "timestamp_ns"), frozenset({"TIMESTAMP"})),
    **dict.fromkeys(("timestamptz", "timestamptz_ns"), frozenset({"TIMESTAMP_INSTANT"})),
}


def cannot_hold(
    statistics: ColumnStatistics | None, value: object, iceberg_type: str, column: OrcColumn
) -> str:
    """Why no row of the row group or stripe has a value equal to ``value``; empty where one may.

    ``value`` is what a bound literal of ``iceberg_type`` holds.
    """
    if statistics is None or column.encrypted:
        return ""
    if statistics.num_values == 0:
        return "no values, only nulls"
    bound = as_bound(value, iceberg_type, column)
    if bound is None or statistics.min is None or statistics.max is None:
        return ""
    low, high = bound, bound
    if column.kind == "FLOAT" and isinstance(bound, float):
        low, high = float32_neighbours(bound)  # some engines round the literal
    if high < statistics.min:  # type: ignore[operator]
        return f"below the minimum {statistics.min}"
    return f"above the maximum {statistics.max}" if low > statistics.max else ""  # type: ignore[operator]


def as_bound(value: object, iceberg_type: str, column: OrcColumn) -> Bound | None:
    """The literal in the unit of the column's bounds; ``None`` where they cannot be compared."""
    kind = ColumnType.parse(iceberg_type)
    if column.kind not in _PAIRS.get(kind.base, ()):
        return None
    if column.kind in ("FLOAT", "DOUBLE"):
        return value if isinstance(value, float) and not math.isnan(value) else None
    if column.kind == "DECIMAL":
        return value if isinstance(value, Decimal) and value.is_finite() else None
    if column.kind in ("STRING", "VARCHAR"):
        return value if isinstance(value, str) and _is_text(value) else None
    if column.kind == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value * 1000 if kind.family == "timestamp" and kind.unit == "us" else value


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: the order of code points is then that of the bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
