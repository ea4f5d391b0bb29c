"""Comparisons of a column with literals, including numbers outside of the range of the column's type.

A predicate may compare a FLOAT column with such a number. And a file from before a promotion has columns of the
narrower type, which are compared with literals of the wider one (:mod:`sidecar.reading.file_predicate`). pyiceberg
decides such a comparison when it binds, as true or false for all rows, even for NULL, NaN and infinity; from lists of
literals it takes the greatest value of the type instead. Here it becomes a comparison that the same rows meet under
SQL's rules, and the same rows meet its negation.

A FLOAT column may be compared with 1e39, which exceeds every float32 but infinity:

| predicate | becomes |
| --- | --- |
| f < 1e39, f <= 1e39 | f < inf |
| f > 1e39, f >= 1e39 | f >= inf |
| f < -1e39, f <= -1e39 | f <= -inf |
| f > -1e39, f >= -1e39 | f > -inf |
| f = 1e39, f = -1e39 | f < -inf AND f IS NOT NAN: never true |
| f != 1e39, f != -1e39 | f >= -inf OR f IS NAN: true for every value |
| f IN (1e39, 2) | f IN (2) |

An INT column may be compared with 3e9, which exceeds every int. Decimals are compared likewise:

| predicate | becomes |
| --- | --- |
| i < 3e9, i <= 3e9 | i <= 2147483647 |
| i > 3e9, i >= 3e9 | i > 2147483647 |
| i = 3e9, i = -3e9 | i < -2147483648: never true |
| i != 3e9, i != -3e9 | i >= -2147483648: true for every value |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    Or,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.types import DecimalType, FloatType, IntegerType

from sidecar.iceberg.predicates.literals import PredicateColumn, ends_of, is_beyond
from sidecar.iceberg.predicates.unbound import above, below, is_nan, not_above, not_below, not_nan


def comparison(kind: Any, column: PredicateColumn, literal: Literal[Any]) -> BooleanExpression:
    """Compare a column with a number; ``kind`` is :class:`EqualTo`, :class:`LessThan`, ...

    The literal has the column's type, or is beyond it.
    """
    if not is_beyond(literal, column):
        compared: BooleanExpression = kind(column.name, literal)
        return compared
    is_low, is_float = literal.value < 0, isinstance(column.type, FloatType)
    end = _ends(column)[0 if is_low else 1]
    # The ends of FLOAT, the infinities, are beyond the literal. Those of other types are not.
    if kind in (LessThan, LessThanOrEqual):
        return not_above(column.name, end) if is_low == is_float else below(column.name, end)
    if kind in (GreaterThan, GreaterThanOrEqual):
        return above(column.name, end) if is_low == is_float else not_below(column.name, end)
    if kind not in (EqualTo, NotEqualTo):
        raise ValueError(f"{kind} is not a comparison")
    return _never(column) if kind is EqualTo else _always(column)


def membership(kind: Any, column: PredicateColumn, literals: Sequence[Literal[Any]]) -> BooleanExpression:
    """Test whether a column is in a list of numbers, as in :func:`comparison`; ``kind`` is :class:`In` or
    :class:`NotIn`."""
    held = [literal for literal in literals if not is_beyond(literal, column)]
    if literals and not held:
        return _never(column) if kind is In else _always(column)
    listed: BooleanExpression = kind(column.name, held)
    return listed


def _ends(column: PredicateColumn) -> tuple[Literal[Any], Literal[Any]]:
    assert isinstance(column.type, FloatType | IntegerType | DecimalType)  # others have no literal beyond them
    return ends_of(column.type)


def _never(column: PredicateColumn) -> BooleanExpression:
    no_number = below(column.name, _ends(column)[0])
    return And(no_number, not_nan(column.name)) if isinstance(column.type, FloatType) else no_number


def _always(column: PredicateColumn) -> BooleanExpression:
    any_number = not_below(column.name, _ends(column)[0])
    return Or(any_number, is_nan(column.name)) if isinstance(column.type, FloatType) else any_number
