"""Turns statistics of ORC files into bounds for conditions, and checks whether they exclude a literal.

:mod:`sidecar.orc.statistics.column_statistics` decides which statistics are trusted,
:mod:`sidecar.orc.statistics.contradictions` finds false ones. This module also ignores bounds of CHAR, because some
readers cut its blanks and others keep them, and of BINARY. Bounds are values of the encoding in
:func:`compared_column`: timestamps in nanoseconds, decimals without their scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import ComparedColumn
from sidecar.filters.literals import LiteralValue
from sidecar.orc.index_streams import StripeIndex
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.column_statistics import Bound, ColumnStatistics
from sidecar.orc.tail import OrcRowGroup
from sidecar.questions.bounds import Bounds, Comparable, Unknown
from sidecar.questions.literal_spans import Span, span_of

_COMPARED = {
    "BOOLEAN": ("boolean", "boolean"),
    **dict.fromkeys(("BYTE", "SHORT", "INT"), ("int", "int32")),
    "LONG": ("long", "int64"),
    "FLOAT": ("float", "float"),
    "DOUBLE": ("double", "double"),
    "DATE": ("date", "int32/date"),
    "TIMESTAMP": ("timestamp", "int64/timestamp-ns"),
    "TIMESTAMP_INSTANT": ("timestamptz", "int64/timestamp-ns"),
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR", "BINARY"), ("binary", "byte_array")),
}
"""Kind -> the Iceberg type and the encoding of its bounds."""
_NOT_BOUNDED = ("CHAR", "BINARY")


def compared_column(kind: str, scale: int, number: int, iceberg_type: str) -> ComparedColumn:
    """Return how literals of ``iceberg_type`` are compared with bounds of an ORC column of ``kind``.

    ``number`` is the column's id. Raises :class:`UnsupportedFeatureError` if they cannot be compared.
    """
    own, encoding = _COMPARED.get(kind, ("", ""))
    column, bound = ColumnType.parse(iceberg_type), ColumnType.parse(own)
    if kind == "DECIMAL":
        own, encoding = f"decimal(38, {scale})", f"byte_array/decimal:{scale}"
    elif kind == "LONG" and column.family == "time":
        own, encoding = "time", "int64/time-us"
    elif bound.family == "timestamp":
        own = iceberg_type if (column.family, column.zoned) == ("timestamp", bound.zoned) else ""
    elif (own, iceberg_type) == ("binary", "string"):
        own = "string"
    if not own:
        raise UnsupportedFeatureError(f"bounds of {kind} cannot be compared with a {iceberg_type}")
    return ComparedColumn(number, own, Encoding.parse(encoding))


def statistics_bounds(statistics: ColumnStatistics | None, column: OrcColumn, rows: int) -> Bounds | Unknown:
    """Return the bounds that ``statistics`` prove for ``rows`` rows, or the reason why they prove none."""
    if statistics is None:
        return Unknown("it has no statistics")
    if statistics.contradiction:
        return Unknown(statistics.contradiction)
    count = statistics.num_values
    is_counted = count is not None and (count > 0 or statistics.all_null) and not column.nested_in_repeated
    bounded = column.kind not in _NOT_BOUNDED
    return Bounds.of_one(
        _comparable(statistics.min, column, math.floor) if bounded else None,
        _comparable(statistics.max, column, math.ceil) if bounded else None,
        all_null=statistics.all_null,
        null_count=rows - count if is_counted and count is not None else None,
        may_have_nan=statistics.may_hold_nan,
        reason=statistics.reason,
    )


def row_group_bounds(index: StripeIndex, group: OrcRowGroup) -> Bounds | Unknown:
    """Return the bounds of a column in a row group from its row index, or the reason why there are none."""
    if index.row_index is None:
        return Unknown("no row index")
    try:
        return statistics_bounds(index.statistics(group.ordinal), index.column, group.rows)
    except SidecarError as error:
        return Unknown(error.what)


def _comparable(bound: Bound | None, column: OrcColumn, outwards: Callable[[Fraction], int]) -> Comparable | None:
    """Return a bound as a value of the encoding; a decimal of another scale is rounded with ``outwards``."""
    if isinstance(bound, Decimal):
        return outwards(Fraction(bound) * 10 ** (column.scale or 0))
    if isinstance(bound, str):
        return bound.encode()
    return int(bound) if isinstance(bound, bool) else bound


def cannot_hold(statistics: ColumnStatistics | None, value: LiteralValue, iceberg_type: str, column: OrcColumn) -> str:
    """Return the reason why no row of the row group or stripe has a value equal to ``value``; empty if one may.

    ``value`` is the value of a bound literal of ``iceberg_type``.
    """
    if statistics is None or column.encrypted:
        return ""
    if statistics.all_null:
        return "no values, only nulls"
    span = literal_span(value, iceberg_type, column)
    lower = _comparable(statistics.min, column, math.floor)
    upper = _comparable(statistics.max, column, math.ceil)
    if span is None or lower is None or upper is None:
        return ""
    if span[1] < lower:
        return f"below the minimum {statistics.min}"
    return f"above the maximum {statistics.max}" if span[0] > upper else ""


def literal_span(value: LiteralValue, iceberg_type: str, column: OrcColumn) -> Span | None:
    """Return the position of a literal among the bounds of a column; ``None`` if they cannot be compared."""
    if column.kind in _NOT_BOUNDED:
        return None
    try:
        compared = compared_column(column.kind, column.scale or 0, column.id, iceberg_type)
    except UnsupportedFeatureError:
        return None
    return span_of(value, compared) if compared.compares_with(iceberg_type) else None
