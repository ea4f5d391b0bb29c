"""Rules out many files at once by their bounds: pyiceberg's metrics evaluator, over columns instead of files.

A units table records the bounds of a field as one Arrow table with a row for each file. A predicate is evaluated over
these columns as :class:`pyiceberg.expressions.visitors._InclusiveMetricsEvaluator` does it file by file, but with more
caution: a case that is not certain here is left to that evaluator, which sees all files that are left. So this
module never drops a file that pyiceberg would read. Both get the same widened predicate
(:mod:`sidecar.planning.bound_literals`).

Serialized numbers have four or eight bytes (a promoted column has both) and are compared as numbers. A timestamp of
four bytes was a date when its file was written, and is not compared. Strings and binaries are compared as bytes, which
gives strings the order of their code points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNull,
    BoundPredicate,
    BoundReference,
    BoundStartsWith,
    Or,
)
from pyiceberg.expressions.visitors import IN_PREDICATE_LIMIT
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from sidecar.filters.arrays import Flags
from sidecar.iceberg.predicates.conditions import predicates
from sidecar.planning.bound_literals import for_bounds

Columns = Callable[[int], pa.Table | None]
"""Returns the bounds of a field by its id: columns lower, upper (binary), value_count, null_count, nan_count."""

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType)
_WHOLE = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
_NANOS = (TimestampNanoType, TimestamptzNanoType)
_REAL = (FloatType, DoubleType)
_TEXT = (StringType, BinaryType)
_COMPARED = (BoundEqualTo, BoundLessThan, BoundLessThanOrEqual, BoundGreaterThan, BoundGreaterThanOrEqual)


def helpful_fields(bound: BooleanExpression) -> set[int]:
    """Return the field ids whose bounds :func:`may_match` looks at."""
    return {leaf.term.ref().field.field_id for leaf in predicates(for_bounds(bound)) if _is_helpful(leaf)}


def asks_bounds_alone(bound: BooleanExpression) -> bool:
    """Return whether :func:`may_match` rules out all that pyiceberg's evaluator rules out by bounds.

    That one never rules anything out by ``!=`` and NOT IN.
    """
    leaves = predicates(for_bounds(bound))
    return all(_is_helpful(leaf) or isinstance(leaf, BoundNotEqualTo | BoundNotIn) for leaf in leaves)


def may_match(bound: BooleanExpression, columns: Columns, count: int) -> Flags:
    """Return bool[count]: False for files whose bounds prove that no row meets a bound expression."""
    return _evaluate(for_bounds(bound), columns, count)


def _is_helpful(leaf: BoundPredicate) -> bool:
    kind = leaf.term.ref().field.field_type
    if not isinstance(leaf.term, BoundReference):
        return False
    if isinstance(leaf, BoundIsNull | BoundNotNull):
        return isinstance(kind, PrimitiveType)
    if isinstance(leaf, BoundIn):
        return len(leaf.literals) <= IN_PREDICATE_LIMIT and isinstance(kind, _WHOLE + _NANOS + _REAL + _TEXT)
    if isinstance(leaf, BoundStartsWith):
        return isinstance(kind, StringType)
    return isinstance(leaf, _COMPARED) and isinstance(kind, _WHOLE + _NANOS + _REAL + _TEXT)


def _evaluate(expression: BooleanExpression, columns: Columns, count: int) -> Flags:
    everything = np.ones(count, np.bool_)
    if isinstance(expression, And):
        return _evaluate(expression.left, columns, count) & _evaluate(expression.right, columns, count)
    if isinstance(expression, Or):
        return _evaluate(expression.left, columns, count) | _evaluate(expression.right, columns, count)
    if isinstance(expression, AlwaysFalse):
        return ~everything
    if not isinstance(expression, BoundPredicate) or not _is_helpful(expression):
        return everything
    column = columns(expression.term.ref().field.field_id)
    if column is None:
        return everything  # no bounds are recorded for this field
    return everything & ~_ruled_out(expression, column)


def _ruled_out(leaf: BoundPredicate, column: pa.Table) -> Flags:
    nulls, values = _numbers(column["null_count"]), _numbers(column["value_count"])
    no_nulls: Flags = nulls == 0
    only_nulls: Flags = (values == nulls) & (values > 0)
    if isinstance(leaf, BoundIsNull):
        return no_nulls
    if isinstance(leaf, BoundNotNull):
        return only_nulls
    kind: Any = leaf.term.ref().field.field_type
    if isinstance(kind, _TEXT):
        return only_nulls | _text_ruled_out(leaf, column)
    only_nans: Flags = (_numbers(column["nan_count"]) == values) & (values > 0)
    return only_nulls | only_nans | _numbers_ruled_out(leaf, kind, column)


def _numbers(column: Any) -> npt.NDArray[np.int64]:
    """Return int64 counts, -1 where none is recorded; no real count equals it, so it proves nothing."""
    filled: npt.NDArray[np.int64] = pc.fill_null(column, -1).to_numpy()
    return filled


def _numbers_ruled_out(leaf: BoundPredicate, kind: PrimitiveType, column: pa.Table) -> Flags:
    lower, has_lower, nan_lower = _decoded(column["lower"], kind)
    upper, has_upper, nan_upper = _decoded(column["upper"], kind)
    # NaN as a bound marks the bounds of the file as unreliable, so = and IN rule nothing out by the other bound.
    certain = ~nan_lower & ~nan_upper
    out: Flags
    if isinstance(leaf, BoundIn):
        # The file is out if no literal is in [lower, upper]; without a bound, that side is open.
        literals = np.sort(np.array([_number(literal.value, kind) for literal in leaf.literals], lower.dtype))
        first = np.where(has_lower, np.searchsorted(literals, lower, "left"), 0)
        end = np.where(has_upper, np.searchsorted(literals, upper, "right"), len(literals))
        out = (first >= end) & certain
        return out
    assert isinstance(leaf, BoundLiteralPredicate)
    value = _number(leaf.literal.value, kind)
    if isinstance(leaf, BoundLessThan):
        out = has_lower & (lower >= value)
    elif isinstance(leaf, BoundLessThanOrEqual):
        out = has_lower & (lower > value)
    elif isinstance(leaf, BoundGreaterThan):
        out = has_upper & (upper <= value)
    elif isinstance(leaf, BoundGreaterThanOrEqual):
        out = has_upper & (upper < value)
    else:
        out = (has_lower & (lower > value) | has_upper & (upper < value)) & certain
    return out


def _number(value: Any, kind: PrimitiveType) -> Any:
    return float(value) if isinstance(kind, _REAL) else int(value)


def _decoded(column: Any, kind: PrimitiveType) -> tuple[npt.NDArray[Any], Flags, Flags]:
    """Decode serialized values: the values, flags of those that are known (and not NaN), flags of NaN.

    A number has 4 or 8 bytes, a date 4, a time or timestamp 8. A value of any other length stays unknown.
    """
    real = isinstance(kind, _REAL)
    values = np.zeros(len(column), np.float64 if real else np.int64)
    lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    known = np.zeros(len(column), np.bool_)
    for width in (4, 8) if isinstance(kind, _NUMBERS) else (4,) if isinstance(kind, DateType) else (8,):
        chosen = lengths == width
        if chosen.any():
            joined = b"".join(column.filter(pa.array(chosen)).to_pylist())
            values[chosen] = np.frombuffer(joined, f"<{'f' if real else 'i'}{width}")
        known |= chosen
    nan = np.isnan(values) if real else np.zeros(len(column), np.bool_)
    return values, known & ~nan, nan


def _text_ruled_out(leaf: BoundPredicate, column: pa.Table) -> Flags:
    lower: Any = column["lower"]
    upper: Any = column["upper"]
    if isinstance(leaf, BoundIn):
        out = np.ones(len(column), np.bool_)
        for literal in leaf.literals:
            out &= _beyond(lower, upper, _bytes(literal.value))
        return out
    assert isinstance(leaf, BoundLiteralPredicate)
    value = _bytes(leaf.literal.value)
    if isinstance(leaf, BoundStartsWith):
        # A lower bound that starts with the prefix is greater than it, but its file may match.
        above = _certainly(pc.greater(lower, value)) & ~_certainly(pc.starts_with(lower, value))
        return above | _certainly(pc.less(upper, value))
    if isinstance(leaf, BoundLessThan):
        return _certainly(pc.greater_equal(lower, value))
    if isinstance(leaf, BoundLessThanOrEqual):
        return _certainly(pc.greater(lower, value))
    if isinstance(leaf, BoundGreaterThan):
        return _certainly(pc.less_equal(upper, value))
    if isinstance(leaf, BoundGreaterThanOrEqual):
        return _certainly(pc.less(upper, value))
    return _beyond(lower, upper, value)


def _beyond(lower: Any, upper: Any, value: Any) -> Flags:
    return _certainly(pc.greater(lower, value)) | _certainly(pc.less(upper, value))


def _bytes(value: Any) -> Any:
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def _certainly(flags: Any) -> Flags:
    """Return the flags, False for null: an unknown bound rules nothing out."""
    known: Flags = pc.fill_null(flags, False).to_numpy()
    return known
