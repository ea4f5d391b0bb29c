"""Comparisons of a column with literals, including numbers outside of the range of the column's type.

A FLOAT column may be compared with 1e39, which exceeds every float32. pyiceberg decides such a comparison when it
binds, as true or false for all rows, even for NULL and NaN. Here it becomes a comparison with infinity. Under SQL's
rules the same rows match it, and the same rows match its negation:

| predicate | becomes |
| --- | --- |
| f < 1e39, f <= 1e39 | f < inf |
| f > 1e39, f >= 1e39 | f >= inf |
| f < -1e39, f <= -1e39 | f <= -inf |
| f > -1e39, f >= -1e39 | f > -inf |
| f = 1e39, f = -1e39 | f < -inf AND f IS NOT NAN: never true |
| f != 1e39, f != -1e39 | f >= -inf OR f IS NAN: true for every value |
| f IN (1e39, 2) | f IN (2) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNaN,
    Or,
)
from pyiceberg.expressions.literals import FloatLiteral, Literal

from sidecar.iceberg.literals import PredicateColumn, is_beyond

_below: Callable[..., BooleanExpression] = LessThan
_not_above: Callable[..., BooleanExpression] = LessThanOrEqual
_above: Callable[..., BooleanExpression] = GreaterThan
_not_below: Callable[..., BooleanExpression] = GreaterThanOrEqual
_is_nan: Callable[..., BooleanExpression] = IsNaN
_is_not_nan: Callable[..., BooleanExpression] = NotNaN


def comparison(kind: Any, column: PredicateColumn, literal: Literal[Any]) -> BooleanExpression:
    """Compare a column with a literal of its type; ``kind`` is :class:`EqualTo`, :class:`LessThan`, ..."""
    if not is_beyond(literal, column):
        compared: BooleanExpression = kind(column.name, literal)
        return compared
    bound = FloatLiteral(math.copysign(math.inf, literal.value))
    least = literal.value < 0
    if kind in (LessThan, LessThanOrEqual):
        return _not_above(column.name, bound) if least else _below(column.name, bound)
    if kind in (GreaterThan, GreaterThanOrEqual):
        return _above(column.name, bound) if least else _not_below(column.name, bound)
    if kind not in (EqualTo, NotEqualTo):
        raise ValueError(f"{kind} is not a comparison")
    return _never(column) if kind is EqualTo else _always(column)


def membership(kind: Any, column: PredicateColumn, literals: Sequence[Literal[Any]]) -> BooleanExpression:
    """Test whether a column is in a list of literals of its type; ``kind`` is :class:`In` or :class:`NotIn`."""
    held = [literal for literal in literals if not is_beyond(literal, column)]
    if literals and not held:
        return _never(column) if kind is In else _always(column)
    listed: BooleanExpression = kind(column.name, held)
    return listed


def _never(column: PredicateColumn) -> BooleanExpression:
    return And(_below(column.name, FloatLiteral(-math.inf)), _is_not_nan(column.name))


def _always(column: PredicateColumn) -> BooleanExpression:
    return Or(_not_below(column.name, FloatLiteral(-math.inf)), _is_nan(column.name))
