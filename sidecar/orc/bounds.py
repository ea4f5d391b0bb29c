"""What statistics of ORC files say of literals: bounds for conditions, and whether they exclude one value.

What of statistics may be believed is for :mod:`sidecar.orc.statistics`. Here nothing is believed of CHAR, whose blanks
readers cut or keep. Bounds are decoded as those of the encoding in :func:`compared_column`: timestamps in nanoseconds,
decimals without their scale.
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
from sidecar.orc.index_streams import StripeIndex, positions_of, statistics_of
from sidecar.orc.protobuf import decode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import Bound, ColumnStatistics, decode_statistics
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcRowGroup, OrcTail, Stripe
from sidecar.questions.bounds import Bounds, Comparable
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
"""The Iceberg type and the encoding of a kind's bounds."""
_NOT_BOUNDED = ("CHAR", "BINARY")


def compared_column(kind: str, scale: int, number: int, iceberg_type: str) -> ComparedColumn:
    """What bounds of a column of ``kind`` are compared as in a column of ``iceberg_type``.

    Raises :class:`UnsupportedFeatureError` where they do not compare.
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
        raise UnsupportedFeatureError(f"no bounds of {kind} compare with a {iceberg_type}")
    return ComparedColumn(number, own, Encoding.parse(encoding))


def statistics_bounds(statistics: ColumnStatistics, column: OrcColumn, rows: int) -> Bounds | str:
    """What statistics of a column prove of ``rows`` rows, or why they prove nothing."""
    count, nulls = statistics.num_values, None
    if count is not None and not column.nested_in_repeated:
        nulls = rows - count
        if nulls < 0:
            return f"it counts {count} values in {rows} rows"
    bounded = column.kind not in _NOT_BOUNDED
    return Bounds.of_one(
        _comparable(statistics.min, column, math.floor) if bounded else None,
        _comparable(statistics.max, column, math.ceil) if bounded else None,
        all_null=count == 0,
        null_count=nulls,
        may_have_nan=statistics.may_hold_nan,
        reason=statistics.reason,
    )


def stripe_bounds(tail: OrcTail, stripe: Stripe, columns: list[bytes], number: int) -> Bounds | str:
    """What the statistics of a stripe, one message a column, prove of a column, or why they prove nothing."""
    column = tail.columns[number]
    return statistics_bounds(
        decode_statistics(decode(columns[number]), column, tail), column, stripe.num_rows
    )


def row_group_bounds(
    tail: OrcTail, footer: StripeFooter, index: StripeIndex, group: OrcRowGroup
) -> Bounds | str:
    """What the row index of a column proves of a row group, or why it proves nothing."""
    if index.row_index is None:
        return "no row index"
    entry = index.row_index, group.ordinal, index.column, tail, footer
    try:
        positions_of(*entry)  # an entry with positions of another column is not believed
        statistics = statistics_of(*entry)
    except SidecarError as error:
        return error.what
    if statistics is None:
        return "it has no statistics"
    return statistics_bounds(statistics, index.column, group.rows)


def _comparable(
    bound: Bound | None, column: OrcColumn, outwards: Callable[[Fraction], int]
) -> Comparable | None:
    """A bound of statistics as the encoding's bounds are."""
    if isinstance(bound, Decimal):
        return outwards(Fraction(bound) * 10 ** (column.scale or 0))
    if isinstance(bound, str):
        return bound.encode()
    return int(bound) if isinstance(bound, bool) else bound


def cannot_hold(
    statistics: ColumnStatistics | None, value: LiteralValue, iceberg_type: str, column: OrcColumn
) -> str:
    """Why no row of the row group or stripe has a value equal to ``value``; empty where one may.

    ``value`` is what a bound literal of ``iceberg_type`` holds.
    """
    if statistics is None or column.encrypted:
        return ""
    if statistics.num_values == 0:
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
    """Where a literal lies among the bounds of a column; ``None`` where they cannot be compared."""
    if column.kind in _NOT_BOUNDED:
        return None
    try:
        compared = compared_column(column.kind, column.scale or 0, column.id, iceberg_type)
    except UnsupportedFeatureError:
        return None
    return span_of(value, compared) if compared.compares_with(iceberg_type) else None
