"""What a row index of an ORC unit in a sidecar proves: bounds, as of one page that is the whole row group.

So predicates are asked of row groups of ORC files as they are of pages of Parquet files. A column stands for the
Parquet leaf that has the same values: INT for INT32, TIMESTAMP for nanoseconds, DECIMAL for a number of any width. What
statistics may be believed is for :mod:`sidecar.orc.statistics`; here nothing is believed of CHAR, whose blanks
readers cut or keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from sidecar.bundle.page_index_toc import PageIndexKind
from sidecar.bundle.page_index_use import leaf_of
from sidecar.bundle.row_index_blob import StoredRowIndex
from sidecar.bundle.row_index_toc import RowIndexKind
from sidecar.bundle.row_index_use import decode_row_index
from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.filters.leaf import Leaf
from sidecar.orc.statistics import Bound, ColumnStatistics
from sidecar.questions.bounds import Bounds, Comparable

_ENCODINGS = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("BYTE", "SHORT", "INT"), "int32"),
    "LONG": "int64",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "int32/date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_INSTANT"), "int64/timestamp-ns"),
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR", "BINARY"), "byte_array"),
}
_INSTANTS = {"TIMESTAMP": "timestamp", "TIMESTAMP_INSTANT": "timestamptz"}


def zone_leaf(kind: RowIndexKind, field_id: int, iceberg_type: str) -> Leaf:
    """The leaf that bounds of a group's row indexes are those of, in a column of ``iceberg_type``.

    Raises :class:`UnsupportedFeatureError` for a kind of column that there is no such leaf of.
    """
    encoding = _ENCODINGS.get(kind.type, "")
    if kind.type == "DECIMAL":
        encoding = f"byte_array/decimal:{kind.scale}"
    elif kind.type == "LONG" and iceberg_type == "time":
        encoding = "int64/time-us"
    elif kind.type in _INSTANTS and _INSTANTS[kind.type] != iceberg_type.removesuffix("_ns"):
        encoding = ""
    if not encoding:
        raise UnsupportedFeatureError(f"no bounds of {kind.type} compare with a {iceberg_type}")
    return leaf_of(PageIndexKind(encoding, "", max_def=1, max_rep=int(kind.repeated)), field_id, iceberg_type)


def zone_bounds(stored: StoredRowIndex, rows: int, leaf: Leaf) -> Bounds | str:
    """What the row index of a unit of ``rows`` rows proves, or why it proves nothing."""
    kind = stored.kind
    try:
        statistics = decode_row_index(stored).statistics
    except SidecarError as error:
        return error.what
    if statistics is None:
        return "it has no statistics"
    return statistics_bounds(statistics, kind.type, kind.repeated, rows, leaf)


def statistics_bounds(
    statistics: ColumnStatistics, kind: str, repeated: bool, rows: int, leaf: Leaf
) -> Bounds | str:
    """What statistics of a column of ``kind`` prove of ``rows`` rows, or why they prove nothing.

    ``repeated``: whether the column is inside a list or map, so that its values are not one a row.
    """
    count, nulls = statistics.num_values, None
    if count is not None and not repeated:
        nulls = rows - count
        if nulls < 0:
            return f"it counts {count} values in {rows} rows"
    bounded = kind != "CHAR"
    lower = _comparable(statistics.min, leaf, math.floor) if bounded else None
    upper = _comparable(statistics.max, leaf, math.ceil) if bounded else None
    return Bounds([lower], [upper], [count == 0], [nulls], [statistics.may_hold_nan], statistics.reason)


def _comparable(bound: Bound | None, leaf: Leaf, outwards: Callable[[Fraction], int]) -> Comparable | None:
    """A bound as the leaf's bounds are."""
    if isinstance(bound, Decimal):
        return outwards(Fraction(bound) * 10 ** (leaf.encoding.scale or 0))
    if isinstance(bound, str):
        return bound.encode()
    return int(bound) if isinstance(bound, bool) else bound
