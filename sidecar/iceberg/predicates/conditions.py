"""Turns a pyiceberg predicate into a condition, for plain files and for data files of tables.

Negation is pushed down first. A predicate on an unknown column, or on one whose bounds may not compare as its values
do, does not become a condition: rows may match.

To add a predicate:

1. Add it to the grammar in the docstring of :mod:`sidecar.iceberg.predicates.predicate_text`, and to ``Parser``, whose
   methods are rules of the grammar. A new word in ``_KEYWORDS`` can no longer be the name of a column without quotes.
2. The text becomes an expression of pyiceberg. If pyiceberg has no such class, add a class and its negation, unbound
   and bound, in a module of this room, and register the bound ones with
   ``pyiceberg.expressions.visitors.visit_bound_predicate``: without that, pyiceberg raises an error when it evaluates
   them. What is registered is called by each of pyiceberg's visitors. Those of bounds and manifests must say that rows
   may match, the strict one that not all rows match. The evaluator of expressions must compare exactly: it decides by
   the values of partitions, and for columns that a file does not have. The translation to Arrow compares rows; its
   collector of nulls and NaN needs no answer. Expressions also come from callers: ``_normalise_predicate`` in
   ``predicate.py`` must read their literals as the text's are read.
3. If indexes can answer it, add the condition that it becomes to ``_UNARY``, ``_OPERATORS`` or ``_leaf_condition``.
   Filters and page indexes are asked only conditions. If there is no fitting condition yet, add one to
   :mod:`sidecar.questions.conditions`. A predicate without a condition needs nothing here: rows may match. Bounds of
   whole files in a table are asked predicates, in :mod:`sidecar.planning.bound_columns`.
4. ``spark/columns.py`` translates predicates for Spark, and ``serving/protocol/filters.py`` reads those of Iceberg's
   REST protocol. Both have tables of the predicates that they know.

Tests to extend: ``tests/questions/test_conditions.py``, ``tests/planning/test_page_pruning.py``, and the forms of
``tests/iceberg/cases.py`` and ``tests/reading/random_predicates.py``, which random plans and scans use.
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
from pyiceberg.expressions.visitors import rewrite_not

from sidecar.filters.column_types import ColumnType
from sidecar.filters.leaf import ComparedColumn
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
    leaf_conditions,
)

ColumnOf = Callable[[int], ComparedColumn | None]
"""Returns what the column of a field id is compared as; ``None`` if it is not known."""

_OPERATORS: dict[type[BoundLiteralPredicate], Operator] = {
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}
_UNARY: dict[type[BoundPredicate], Callable[[ComparedColumn], Condition]] = {
    BoundIsNull: HasNull,
    BoundNotNull: HasValue,
    BoundIsNaN: HasNaN,
}


def condition_of(
    bound: BooleanExpression, column_of: ColumnOf, lost: list[Condition] | None = None
) -> Condition | None:
    """Return the condition that indexes can be asked for a bound expression; ``None`` if there is none.

    If one part of an OR cannot be asked, the answers to its other parts do not matter: these are added to ``lost``.
    """
    return _condition(rewrite_not(bound), column_of, [] if lost is None else lost)


def predicates(expression: BooleanExpression) -> Iterator[BoundPredicate]:
    """Yield all leaves of an expression without NOT. Works without recursion, for chains of thousands of parts."""
    open_ = [expression]
    while open_:
        top = open_.pop()
        if isinstance(top, And | Or):
            open_ += [top.right, top.left]
        elif isinstance(top, BoundPredicate):
            yield top


def _condition(bound: BooleanExpression, column_of: ColumnOf, lost: list[Condition]) -> Condition | None:
    if isinstance(bound, AlwaysFalse):
        return AnyOf(())  # matches no row
    if isinstance(bound, And | Or):
        operator = And if isinstance(bound, And) else Or
        parts = [_condition(part, column_of, lost) for part in _chain(bound, operator)]
        asked = sorted((part for part in parts if part is not None), key=_asks_filters)
        if operator is And:
            return AllOf(tuple(asked)) if asked else None
        if len(asked) == len(parts):
            return AnyOf(tuple(asked))
        lost += asked
        return None
    if not isinstance(bound, BoundPredicate):
        return None
    field = bound.term.ref().field
    column = column_of(field.field_id)
    return None if column is None else _leaf_condition(bound, column, str(field.field_type))


def _chain(expression: BooleanExpression, operator: type[And] | type[Or]) -> list[BooleanExpression]:
    """Return the parts of a chain of one operator, however they are nested."""
    parts, open_ = [], [expression]
    while open_:
        top = open_.pop()
        if isinstance(top, operator):
            open_ += [top.right, top.left]
        else:
            parts.append(top)
    return parts


def _asks_filters(condition: Condition) -> bool:
    """Return whether a part asks filters. Such parts come last, so filters are read only if the others leave rows."""
    return any(isinstance(leaf, HoldsAny) for leaf in leaf_conditions(condition))


def _leaf_condition(bound: BoundPredicate, column: ComparedColumn, column_type: str) -> Condition | None:
    unary = _UNARY.get(type(bound))
    if unary is not None:
        return unary(column)
    if not column.compares_with(column_type):
        return None
    # Literals count microseconds where a file may count nanoseconds.
    units = ColumnType.parse(column_type).unit, ColumnType.parse(column.iceberg_type).unit
    factor = 1000 if units == ("us", "ns") else 1

    def value(literal: Any) -> Any:
        """Return the value of a literal in the unit of the stored values."""
        return literal.value * factor if factor > 1 else literal.value

    if isinstance(bound, BoundEqualTo):
        return HoldsAny(column, (value(bound.literal),))
    if isinstance(bound, BoundIn):
        return HoldsAny(column, tuple(sorted({*map(value, bound.literals)})))
    if isinstance(bound, BoundStartsWith):
        return StartsWith(column, str(bound.literal.value).encode())
    if type(bound) in _OPERATORS and isinstance(bound, BoundLiteralPredicate):
        return Compares(column, _OPERATORS[type(bound)], value(bound.literal))
    return None
