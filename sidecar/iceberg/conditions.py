"""What a bound expression asks of the indexes of a file: conditions on the leaves that hold its columns.

The same for plain files and for data files of tables, and for page indexes in a file and in a sidecar. A column that
no leaf is known to hold, and a leaf whose type is not one that the column's values are certainly compared in, make
no condition: rows may match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotNull,
    BoundPredicate,
    BoundStartsWith,
    Or,
)

from sidecar.filters.leaf import Leaf
from sidecar.questions.conditions import (
    AllOf,
    AnyOf,
    Compares,
    Condition,
    HasNaN,
    HasNull,
    HasValue,
    HoldsAny,
    Operator,
    StartsWith,
)

LeafOf = Callable[[int], Leaf | None]
"""The leaf that holds the column of a field id, if it is known."""

_PROMOTED = {("long", "int"), ("double", "float"), ("string", "binary"), ("binary", "string")}
"""Column and leaf types whose values are the same numbers or bytes."""

_OPERATORS: dict[type[BoundLiteralPredicate], Operator] = {
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}
_UNARY: dict[type[BoundPredicate], Callable[[Leaf], Condition]] = {
    BoundIsNull: HasNull,
    BoundNotNull: HasValue,
    BoundIsNaN: HasNaN,
}


def condition_of(bound: BooleanExpression, leaf_of: LeafOf) -> Condition | None:
    """What indexes can be asked about an expression without NOT; ``None`` if nothing."""
    if isinstance(bound, AlwaysFalse):
        return AnyOf(())
    if isinstance(bound, And):
        parts = [condition_of(part, leaf_of) for part in chain(bound, And)]
        asked = tuple(part for part in parts if part is not None)
        return AllOf(asked) if asked else None
    if isinstance(bound, Or):
        parts = [condition_of(part, leaf_of) for part in chain(bound, Or)]
        return None if any(part is None for part in parts) else AnyOf(tuple(p for p in parts if p))
    if not isinstance(bound, BoundPredicate):
        return None
    field = bound.term.ref().field
    leaf = leaf_of(field.field_id)
    return None if leaf is None else _leaf_condition(bound, leaf, str(field.field_type))


def predicates(expression: BooleanExpression) -> Iterator[BoundPredicate]:
    """All leaves of an expression; chains of thousands are no problem."""
    open_ = [expression]
    while open_:
        top = open_.pop()
        if isinstance(top, And | Or):
            open_ += [top.right, top.left]
        elif isinstance(top, BoundPredicate):
            yield top


def asked_fields(expression: BooleanExpression) -> list[int]:
    """The field ids that a bound expression without NOT speaks of, rising."""
    return sorted({predicate.term.ref().field.field_id for predicate in predicates(expression)})


def chain(expression: BooleanExpression, operator: type[And] | type[Or]) -> list[BooleanExpression]:
    """The parts of a chain of one operator, however it is nested."""
    parts, open_ = [], [expression]
    while open_:
        top = open_.pop()
        if isinstance(top, operator):
            open_ += [top.right, top.left]
        else:
            parts.append(top)
    return parts


def _leaf_condition(bound: BoundPredicate, leaf: Leaf, column_type: str) -> Condition | None:
    unary = _UNARY.get(type(bound))
    if unary is not None:
        return unary(leaf)
    if not _comparable(column_type, leaf.iceberg_type):
        return None
    factor = 1000 if leaf.iceberg_type.endswith("_ns") and not column_type.endswith("_ns") else 1

    def value(literal: Any) -> Any:
        """In the leaf's own type: predicates speak of microseconds where a file counts nanoseconds."""
        return literal.value * factor if factor > 1 else literal.value

    if isinstance(bound, BoundEqualTo):
        return HoldsAny(leaf, (value(bound.literal),))
    if isinstance(bound, BoundIn):
        return HoldsAny(leaf, tuple(map(value, bound.literals)))
    if isinstance(bound, BoundStartsWith):
        return StartsWith(leaf, str(bound.literal.value).encode())
    if type(bound) in _OPERATORS and isinstance(bound, BoundLiteralPredicate):
        return Compares(leaf, _OPERATORS[type(bound)], value(bound.literal))
    return None


def _comparable(column: str, leaf: str) -> bool:
    """Whether literals of the column's type compare with the leaf's values as the column's values do."""
    if column == leaf or (column, leaf) in _PROMOTED or f"{column}_ns" == leaf:
        return True
    return column.startswith("decimal") and leaf.startswith("decimal")
