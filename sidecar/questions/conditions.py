"""Conditions on columns, and what bounds say of them.

A condition asks whether some row of a set (a file, a row group, a page) *may match* under any engine's rules: NULL
and NaN are read in favour of the row. What is false is certain, what is true is not. Conditions are composed by AND
and OR alone, negation has been pushed down before (:mod:`sidecar.iceberg.conditions` makes conditions of predicates).
Whatever bounds and filters can never decide is no condition, and rows may match:

| asked | may match if the set may hold |
| --- | --- |
| x < v, x <= v, x > v, x >= v | a value on that side, or NaN |
| x = v, x IN (...) | one of the values |
| x LIKE 'v%' | a string that begins so |
| x IS NULL | a null, or NaN |
| x IS NOT NULL | a value |
| x IS NAN | NaN |
| x != v, NOT IN, NOT LIKE, IS NOT NAN | no condition: NULL may match |

Filters answer the second line alone, :class:`HoldsAny`: :mod:`sidecar.questions.filter_questions` takes that part out
of a condition.

To add a kind of condition, add a class with ``may_match`` and ``always_matches`` to this file and to ``LeafCondition``.
Row ranges, row groups, stripes and files of all formats are then narrowed by it, as :mod:`sidecar.questions.narrowing`
asks nothing else. Extend ``tests/questions/test_conditions.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from sidecar.filters.leaf import ComparedColumn
from sidecar.filters.literals import LiteralValue
from sidecar.questions.bounds import Bounds, Comparable
from sidecar.questions.literal_spans import Span, span_of

Operator = Literal["<", "<=", ">", ">="]

MAX_VALUES = 100
"""Values of one column that filters are asked for at once. Each is a lookup and another chance of a false positive: at
the usual rate of 1 % a row group is expected to pass one of 100 by chance, so filters cannot help."""


@dataclass(frozen=True)
class Compares:
    """A value on one side of a literal; ``value`` is of the column's ``iceberg_type``."""

    column: ComparedColumn
    operator: Operator
    value: LiteralValue

    @cached_property
    def span(self) -> Span | None:
        """The literal in the unit of the bounds, ``None`` where it has no certain place."""
        return span_of(self.value, self.column)

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row."""
        if bounds.all_null[at]:
            return False
        lower, upper, span = bounds.lower[at], bounds.upper[at], self.span
        if bounds.may_have_nan[at] or span is None:
            return True
        low, high = span
        if self.operator == "<":
            return lower is None or _below(lower, low) if low == high else _not_above(lower, high)
        if self.operator == "<=":
            return _not_above(lower, high)
        if self.operator == ">":
            return upper is None or _below(high, upper) if low == high else _not_above(low, upper)
        return _not_above(low, upper)

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Whether every value lies on that side, so that parts of the set can do no better."""
        lower, upper, span = bounds.lower[at], bounds.upper[at], self.span
        if span is None:
            return True
        if lower is None or upper is None or bounds.null_counts[at] != 0:
            return False
        low, high = span
        inside = upper if self.operator in ("<", "<=") else lower
        first, second = (inside, low) if self.operator in ("<", "<=") else (high, inside)
        return _below(first, second) if len(self.operator) == 1 else _not_above(first, second)


@dataclass(frozen=True)
class HoldsAny:
    """One of some values; ``values`` are of the column's ``iceberg_type``."""

    column: ComparedColumn
    values: tuple[LiteralValue, ...]

    @property
    def is_for_filters(self) -> bool:
        """Whether filters are asked for the values: not for more than :data:`MAX_VALUES`."""
        return len(self.values) <= MAX_VALUES

    @cached_property
    def spans(self) -> tuple[list[Any], list[Any]] | None:
        """Lower and upper ends of the literals, sorted; ``None`` where one has no certain place."""
        spans = [span_of(value, self.column) for value in self.values]
        if any(span is None for span in spans):
            return None
        return sorted(span[0] for span in spans if span), sorted(span[1] for span in spans if span)

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row. NaN equals no literal in any engine."""
        if bounds.all_null[at]:
            return False
        lower, upper = bounds.lower[at], bounds.upper[at]
        if self.spans is None or lower is None or upper is None:
            return True
        lows, highs = self.spans
        first = bisect_left(highs, lower)  # the first literal that does not lie below the set
        return first < len(lows) and _not_above(lows[first], upper)

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Whether the set has that value alone."""
        lower, upper = bounds.lower[at], bounds.upper[at]
        if self.spans is None:
            return True
        return (
            lower is not None
            and lower == upper
            and bounds.null_counts[at] == 0
            and self.may_match(bounds, at)
        )


@dataclass(frozen=True)
class StartsWith:
    """A string or bytes that begin with ``prefix``."""

    column: ComparedColumn
    prefix: bytes

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row."""
        if bounds.all_null[at]:
            return False
        lower, upper = bounds.lower[at], bounds.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes):
            return True
        return lower[: len(self.prefix)] <= self.prefix <= upper

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Whether every value begins so."""
        lower, upper = bounds.lower[at], bounds.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes) or bounds.null_counts[at] != 0:
            return False
        return lower.startswith(self.prefix) and upper.startswith(self.prefix)


@dataclass(frozen=True)
class HasNull:
    """No value; NaN counts, since in some engines it does."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row."""
        return bounds.null_counts[at] != 0 or bounds.may_have_nan[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Whether there is nothing else."""
        return bounds.all_null[at]


@dataclass(frozen=True)
class HasValue:
    """A value."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row."""
        return not bounds.all_null[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Whether there is nothing else."""
        return bounds.null_counts[at] == 0


@dataclass(frozen=True)
class HasNaN:
    """A NaN."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Whether set ``at`` may have such a row."""
        return bounds.may_have_nan[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Always False: counts of NaN are not compared with the number of values."""
        return False


@dataclass(frozen=True)
class AllOf:
    """Every part."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """One part is enough; without parts, no row."""

    parts: tuple[Condition, ...]


LeafCondition = Compares | HoldsAny | StartsWith | HasNull | HasValue | HasNaN
Condition = LeafCondition | AllOf | AnyOf


def leaf_conditions(condition: Condition) -> Iterator[LeafCondition]:
    """All leaves of a condition, left to right."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from leaf_conditions(part)
    else:
        yield condition


def _below(a: Comparable, b: Comparable) -> bool:
    return a < b  # type: ignore[operator]  # both are bounds of one column


def _not_above(a: Comparable | None, b: Comparable | None) -> bool:
    """Whether a <= b is possible; an unknown bound is possible."""
    return a is None or b is None or a <= b  # type: ignore[operator]
