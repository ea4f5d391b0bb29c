"""What a bound expression asks of the indexes of a file: conditions on the leaves that hold its columns.

The same for plain files and for data files of tables, and for page indexes in a file and in a sidecar. A column that
no leaf is known to hold, and a leaf whose type is not one that the column's values are certainly compared in, make
no condition: rows may match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from sidecar.filters.column_types import ColumnType
from sidecar.parquet.conditions import (
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
from sidecar.parquet.page_bounds import PageBounds
from sidecar.parquet.pruning import asks_for_few, helpful
from sidecar.parquet.schema import Leaf
from sidecar.planning.file_bounds import FileBounds

LeafOf = Callable[[int], Leaf | None]
"""The leaf that holds the column of a field id, if it is known."""

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


class FileQuestion:
    """What a filter, bound to a table's schema, asks of data files: what their bounds say, and what pages may."""

    def __init__(self, bound: BooleanExpression, schema: Schema) -> None:
        self.bound = rewrite_not(bound)
        self.types = {i: str(schema.find_field(i).field_type) for i in asked_fields(self.bound)}
        """Iceberg types of the columns that are asked, by field id."""
        self.bounds = FileBounds(self.types)
        self._condition = condition_of(self.bound, self.bounds.leaf)

    def helpful_fields(
        self, data: DataFile, has_pages: Callable[[int], bool] = lambda field_id: True
    ) -> set[int]:
        """The columns whose indexes may say more of a file than its bounds do."""
        if self._condition is None:
            return set()
        whole = partial(self._whole, data)
        return helpful(self._condition, whole, lambda leaf: has_pages(leaf.index)) or set()

    @property
    def asks_for_few(self) -> bool:
        """Whether rows must have one of some values."""
        return self._condition is not None and asks_for_few(self._condition)

    def _whole(self, data: DataFile, leaf: Leaf) -> PageBounds:
        return self.bounds.of(data, leaf.index)


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
    column, stored = ColumnType.parse(column_type), ColumnType.parse(leaf.iceberg_type)
    if not column.compares_with(stored):
        return None
    factor = 1000 if (column.unit, stored.unit) == ("us", "ns") else 1

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
