"""Widens predicates for bounds, because engines round literals that a 32-bit float cannot hold.

``f = 0.1`` on a FLOAT column finds the float32 next to 0.1 in Spark, in DuckDB and in pyiceberg's rows, because they
round the literal. pyiceberg's evaluators of partitions and bounds compare the double, and drop a file that has only
that float32. So they get a predicate that the neighbours of the literal meet too:

| predicate | widened for bounds |
| --- | --- |
| x < v, x <= v | x < above, x <= above |
| x > v, x >= v | x > below, x >= below |
| x = v, x IN (v, ...) | x IN (below, v, above, ...) |
| x != v, x NOT IN (v, ...) | unchanged: bounds and partitions are compared with v itself, which no float32 equals |

A DOUBLE column gets the same treatment, because files from before its promotion hold 32-bit floats and pyiceberg
rounds the literal for them. A literal that a float32 equals stays as it is.

NaN partitions need more. NaN is greater than every number in Spark and DuckDB, but greater than none for pyiceberg's
evaluator of partitions. So partitions are asked ``x > v OR x IS NAN`` instead of ``x > v``. Bounds of files are not:
they do not include NaN, counts of NaN are rarely there, and all engines that prune by bounds drop such files.

More rows meet the widened predicate than the original one. Use it for inclusive evaluators, which say that a file
*may* match, and never for strict ones or for rows.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundLessThan,
    BoundLessThanOrEqual,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.literals import DoubleLiteral, FloatLiteral, Literal
from pyiceberg.expressions.visitors import rewrite_not

from sidecar.filters.float32 import LIMIT, float32_neighbours

_BELOW_V = (LessThan, LessThanOrEqual, BoundLessThan, BoundLessThanOrEqual)
_ABOVE_V = (GreaterThan, GreaterThanOrEqual, BoundGreaterThan, BoundGreaterThanOrEqual)
_EQUAL = (EqualTo, In, BoundEqualTo, BoundIn)
_LISTS: dict[type[BooleanExpression], Any] = {EqualTo: In, BoundEqualTo: BoundIn}


def for_bounds(expression: BooleanExpression) -> BooleanExpression:
    """Widen ``expression`` for inclusive evaluators. It may be bound or not; its literals have their columns' types.

    NOT is pushed down to the leaves first, because a widened leaf must not be negated afterwards.
    """
    return _widened(rewrite_not(expression))


def for_partitions(expression: BooleanExpression) -> BooleanExpression:
    """Widen ``expression`` for evaluators of partition values: as :func:`for_bounds` does, with NaN above any float."""
    return _with_nan(for_bounds(expression))


def _with_nan(expression: BooleanExpression) -> BooleanExpression:
    if isinstance(expression, And | Or):
        return type(expression)(_with_nan(expression.left), _with_nan(expression.right))
    if not isinstance(expression, GreaterThan | GreaterThanOrEqual):
        return expression
    is_nan: Any = IsNaN
    is_float = isinstance(expression.literal, FloatLiteral | DoubleLiteral)
    return Or(expression, is_nan(expression.term)) if is_float else expression


def _widened(expression: BooleanExpression) -> BooleanExpression:
    if isinstance(expression, And | Or):
        return type(expression)(_widened(expression.left), _widened(expression.right))
    if not isinstance(expression, (*_BELOW_V, *_ABOVE_V, *_EQUAL)):
        return expression
    leaf: Any = expression
    remade: Any = _LISTS.get(type(expression), type(expression))
    original = leaf.literals if isinstance(expression, In | BoundIn) else [leaf.literal]
    literals = [candidate for literal in original for candidate in _candidates(literal)]
    if literals == [*original]:
        return expression
    if isinstance(expression, _EQUAL):
        return remade(leaf.term, set(literals))  # type: ignore[no-any-return]
    # The candidates rise: x < v needs the highest one to be wide enough, x > v the lowest.
    return remade(leaf.term, literals[-1 if isinstance(expression, _BELOW_V) else 0])  # type: ignore[no-any-return]


def _candidates(literal: Literal[Any]) -> list[Literal[Any]]:
    """Return the literal and its float32 neighbours, rising; without the literal for FLOAT, which cannot hold it."""
    value = literal.value
    if not isinstance(literal, FloatLiteral | DoubleLiteral) or value != value or abs(value) >= LIMIT:
        return [literal]
    below, above = float32_neighbours(value)
    if below == above:
        return [literal]
    if isinstance(literal, FloatLiteral):
        return [FloatLiteral(below), FloatLiteral(above)]
    return [DoubleLiteral(below), literal, DoubleLiteral(above)]
