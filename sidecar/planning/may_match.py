"""What a predicate asks of filters, and which units may match.

A predicate is bound and its negations are pushed down first (``rewrite_not``), so that only AND and OR over
*may match* sets are left. Both are monotone, and every predicate that a filter cannot answer stands for "all
units may match": ranges, prefixes, ``!=``, NOT IN, IS NULL (which NULL or NaN can satisfy in some engine), IS
NAN (other writers' NaNs hash differently) and lists that are too long. Such a leaf drops out of an AND and
makes a whole OR unanswerable; what is left is a :data:`Question`:

    x = 1 AND y > 2            asks x
    x = 1 OR y = 2             asks x and y
    x = 1 OR y > 2             asks nothing: no index is read for it
    x IN (1, 2) AND NOT z = 3  asks x

A unit may match a list if it may hold one of its values. Two engines that differ on NULL or NaN agree on what
is asked here: equality with a value that is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundIn,
    BoundTerm,
    Or,
)
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType

from sidecar.iceberg.conditions import chain

MAX_VALUES = 100
"""Values of one column that may be asked for at once. Each is a lookup and another chance of a false
positive: at the usual rate of 1 % a unit is expected to pass one of 100 by chance: filters cannot help."""

Units = npt.NDArray[np.bool_]
"""One flag for each unit of a segment: whether it may match."""


@dataclass(frozen=True)
class HoldsAny:
    """Does a unit hold one of these values of a column?"""

    field_id: int
    column: str
    type: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class AllOf:
    """Every part must be answered yes."""

    parts: tuple[Question, ...]


@dataclass(frozen=True)
class AnyOf:
    """One part answered yes is enough; without parts, none is."""

    parts: tuple[Question, ...]


Question = HoldsAny | AllOf | AnyOf
"""What a predicate asks of filters."""

Ask = Callable[[HoldsAny], Units]
"""Answers a leaf: which units of a segment may hold one of its values."""


@dataclass(frozen=True)
class FilterQuestion:
    """The question of a predicate (``None``: filters cannot help), and what of it had to be left out."""

    question: Question | None
    notes: tuple[str, ...]


def question_of(bound: BooleanExpression, schema: Schema) -> FilterQuestion:
    """What the expression, bound to ``schema``, asks of filters."""
    return _Questioner(schema).ask(bound)


def leaves(question: Question) -> Iterator[HoldsAny]:
    """All leaves of a question, left to right."""
    if isinstance(question, HoldsAny):
        yield question
    else:
        for part in question.parts:
            yield from leaves(part)


def may_match(question: Question, ask: Ask, wanted: Units) -> Units:
    """The units among ``wanted`` that may match; ``ask`` is called no more once the answer is certain."""
    if isinstance(question, HoldsAny):
        return ask(question) & wanted
    if isinstance(question, AllOf):
        for part in sorted(question.parts, key=_lookups):
            if wanted.any():
                wanted = may_match(part, ask, wanted)
        return wanted
    found = np.zeros_like(wanted)
    for part in sorted(question.parts, key=_lookups):
        if not np.array_equal(found, wanted):
            found |= may_match(part, ask, wanted)
    return found


def _lookups(question: Question) -> int:
    return sum(len(leaf.values) for leaf in leaves(question))


class _Questioner:
    """Turns one bound expression into a question, and notes what it leaves out."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._notes: list[str] = []

    def ask(self, bound: BooleanExpression) -> FilterQuestion:
        return FilterQuestion(self._question(rewrite_not(bound)), tuple(self._notes))

    def _question(self, expression: BooleanExpression) -> Question | None:
        if isinstance(expression, And):
            parts = self._parts(expression, And)
            asked = tuple(part for part in parts if part is not None)
            return AllOf(asked) if len(asked) > 1 else (asked[0] if asked else None)
        if isinstance(expression, Or):
            return self._any_of(self._parts(expression, Or))
        if isinstance(expression, AlwaysFalse):
            return AnyOf(())
        if isinstance(expression, BoundEqualTo):
            return self._leaf(expression.term, {expression.literal.value})
        if isinstance(expression, BoundIn):
            return self._leaf(expression.term, {literal.value for literal in expression.literals})
        return None

    def _parts(self, expression: BooleanExpression, operator: type[And] | type[Or]) -> list[Question | None]:
        """The questions of a chain of one operator, however it is nested."""
        return [self._question(part) for part in chain(expression, operator)]

    def _any_of(self, parts: list[Question | None]) -> Question | None:
        """An OR; equalities of one column become one list."""
        lists: dict[int, HoldsAny] = {}
        others: list[Question] = []
        for part in parts:
            if part is None:
                return None
            if isinstance(part, HoldsAny):
                before = lists.get(part.field_id)
                lists[part.field_id] = replace(part, values=part.values + before.values) if before else part
            else:
                others.append(part)
        for leaf in lists.values():
            if (limited := self._limited(leaf)) is None:
                return None
            others.append(limited)
        return others[0] if len(others) == 1 else AnyOf(tuple(others))

    def _leaf(self, term: BoundTerm, values: set[Any]) -> HoldsAny | None:
        field = term.ref().field
        if isinstance(field.field_type, BooleanType):
            return None  # two values: no file has a filter of them
        name = self._schema.find_column_name(field.field_id) or field.name
        return self._limited(HoldsAny(field.field_id, name, str(field.field_type), tuple(values)))

    def _limited(self, leaf: HoldsAny) -> HoldsAny | None:
        values = tuple(sorted(set(leaf.values)))
        if len(values) <= MAX_VALUES:
            return replace(leaf, values=values)
        self._notes.append(
            f"{len(values)} values of {leaf.column} are not looked up: beyond {MAX_VALUES}, "
            "false positives would keep every file"
        )
        return None
