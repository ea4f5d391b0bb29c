"""Widens predicates for bounds, because engines round literals that a 32-bit float cannot hold.

``f = 0.1`` on a FLOAT column finds the float32 next to 0.1 in Spark, DuckDB and on pyiceberg's rows, as they round the
literal. pyiceberg's evaluators of partitions and bounds compare the double, and drop a file that has only that value.
So they get a predicate that the neighbours meet too:

| asked | of bounds |
| --- | --- |
| x < v, x <= v | x < above, x <= above |
| x > v, x >= v | x > below, x >= below |
| x = v, x IN (v, ...) | x IN (below, v, above, ...) |
| x != v, x NOT IN (v, ...) | the same: bounds and partitions are compared with v itself, which no float32 equals |

A DOUBLE column is treated alike, since files from before its promotion hold 32-bit floats, and pyiceberg rounds the
literal for them. Literals that a float32 equals stay as they are.

Partitions of NaN differ: NaN is greater than every number in Spark and DuckDB, and pyiceberg's evaluator of
partitions finds it greater than none. So of partitions, ``x > v`` is asked as ``x > v OR x IS NAN``. Of files it is
not: bounds say nothing of NaN, counts of NaN are rarely there, and all engines that prune by bounds drop such files.

The result is met by more rows than the predicate. It is for inclusive evaluators, which say that a file *may* match,
and never for strict ones or for rows.
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
    """``expression`` widened for inclusive evaluators. It may be bound or not; its literals have their columns' types.

    NOT is pushed down to the leaves first, because a widened leaf must not be negated afterwards.
    """
    return _widened(rewrite_not(expression))


def for_partitions(expression: BooleanExpression) -> BooleanExpression:
    """``expression`` widened for evaluators of partition values: as :func:`for_bounds`, with NaN above any float."""
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
    given = leaf.literals if isinstance(expression, In | BoundIn) else [leaf.literal]
    literals = [own for literal in given for own in _candidates(literal)]
    if literals == [*given]:
        return expression
    if isinstance(expression, _EQUAL):
        return remade(leaf.term, set(literals))  # type: ignore[no-any-return]
    return remade(leaf.term, literals[-1 if isinstance(expression, _BELOW_V) else 0])  # type: ignore[no-any-return]


def _candidates(literal: Literal[Any]) -> list[Literal[Any]]:
    """The literal and its neighbours in 32 bits, rising; a FLOAT column cannot hold the literal itself."""
    value = literal.value
    if not isinstance(literal, FloatLiteral | DoubleLiteral) or value != value or abs(value) >= LIMIT:
        return [literal]
    below, above = float32_neighbours(value)
    if below == above:
        return [literal]
    if isinstance(literal, FloatLiteral):
        return [FloatLiteral(below), FloatLiteral(above)]
    return [DoubleLiteral(below), literal, DoubleLiteral(above)]
