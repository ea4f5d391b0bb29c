"""Defines conditions on columns, and how bounds decide them.

A condition asks whether some row of a set (a file, a row group, a page) *may match* under the rules of any engine. If
engines differ on NULL or NaN, the row may match. The answer no is certain, the answer yes is not. Conditions are
composed by AND and OR only, because :mod:`sidecar.iceberg.predicates.conditions` pushes negation down when it makes
conditions of predicates. A predicate that bounds and filters can never decide does not become a condition, and rows may
match:

| predicate | may match if the set may hold |
| --- | --- |
| x < v, x <= v, x > v, x >= v | a value on that side, or NaN |
| x = v, x IN (...) | one of the values |
| x LIKE 'v%' | a string with that prefix |
| x IS NULL | a null, or NaN |
| x IS NOT NULL | a value |
| x IS NAN | NaN |
| x != v, NOT IN, NOT LIKE, IS NOT NAN | (not a condition: NULL may match) |

Filters answer only the second line, :class:`HoldsAny`. :mod:`sidecar.questions.filter_questions` takes that part out of
a condition.

To add a kind of condition, add a class with ``may_match`` and ``always_matches`` to this file and to ``LeafCondition``.
All pruning of rows, row groups and stripes then uses it, because :mod:`sidecar.questions.narrowing` calls only these
two methods. Bounds of a table's files are asked predicates instead, by :mod:`sidecar.planning.bound_columns` and by
pyiceberg. Extend ``tests/questions/test_conditions.py``.
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
"""The most values of one column that filters are asked about at once.

Each value is a lookup and another chance of a false positive. At the usual rate of 1 %, a filter is expected to pass
one of 100 values by chance, so it cannot help."""


@dataclass(frozen=True)
class Compares:
    """A comparison with a literal; ``value`` is of the column's ``iceberg_type``."""

    column: ComparedColumn
    operator: Operator
    value: LiteralValue

    @cached_property
    def span(self) -> Span | None:
        """The literal in the unit of the bounds; ``None`` if its position is not certain."""
        return span_of(self.value, self.column)

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row."""
        if bounds.all_null[at]:
            return False
        lower, upper, span = bounds.lower[at], bounds.upper[at], self.span
        if bounds.may_have_nan[at] or span is None:
            return True  # in some engines NaN meets a comparison
        # A literal that the file cannot hold is between low and high. An engine may round it to either of them, so the
        # set is compared with the one that admits more.
        low, high = span
        if self.operator == "<":
            return lower is None or _below(lower, low) if low == high else _not_above(lower, high)
        if self.operator == "<=":
            return _not_above(lower, high)
        if self.operator == ">":
            return upper is None or _below(high, upper) if low == high else _not_above(low, upper)
        return _not_above(low, upper)

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return whether every value meets the comparison, so that asking parts of the set is of no use."""
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
    """Equality with one of some values; ``values`` are of the column's ``iceberg_type``."""

    column: ComparedColumn
    values: tuple[LiteralValue, ...]

    @property
    def is_for_filters(self) -> bool:
        """Whether filters are asked about the values: at most :data:`MAX_VALUES`."""
        return len(self.values) <= MAX_VALUES

    @cached_property
    def spans(self) -> tuple[list[Any], list[Any]] | None:
        """The lower and the upper ends of the literals' spans, each sorted; ``None`` if a position is not certain."""
        spans = [span_of(value, self.column) for value in self.values]
        if any(span is None for span in spans):
            return None
        return sorted(span[0] for span in spans if span), sorted(span[1] for span in spans if span)

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row. NaN equals no literal in any engine."""
        if bounds.all_null[at]:
            return False
        lower, upper = bounds.lower[at], bounds.upper[at]
        if self.spans is None or lower is None or upper is None:
            return True
        lows, highs = self.spans
        first = bisect_left(highs, lower)  # the first literal that is not below the set
        return first < len(lows) and _not_above(lows[first], upper)

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return whether the set has one value only, and it is one of these."""
        lower, upper = bounds.lower[at], bounds.upper[at]
        if self.spans is None:
            return True
        return lower is not None and lower == upper and bounds.null_counts[at] == 0 and self.may_match(bounds, at)


@dataclass(frozen=True)
class StartsWith:
    """A prefix of strings or bytes."""

    column: ComparedColumn
    prefix: bytes

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row."""
        if bounds.all_null[at]:
            return False
        lower, upper = bounds.lower[at], bounds.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes):
            return True
        return lower[: len(self.prefix)] <= self.prefix <= upper

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return whether every value has the prefix: the lower and the upper bound do, and there are no nulls."""
        lower, upper = bounds.lower[at], bounds.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes) or bounds.null_counts[at] != 0:
            return False
        return lower.startswith(self.prefix) and upper.startswith(self.prefix)


@dataclass(frozen=True)
class HasNull:
    """Null, or NaN, which counts as null in some engines."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row."""
        return bounds.null_counts[at] != 0 or bounds.may_have_nan[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return whether all rows of the set are null."""
        return bounds.all_null[at]


@dataclass(frozen=True)
class HasValue:
    """Not null."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row."""
        return not bounds.all_null[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return whether no row of the set is null."""
        return bounds.null_counts[at] == 0


@dataclass(frozen=True)
class HasNaN:
    """NaN."""

    column: ComparedColumn

    def may_match(self, bounds: Bounds, at: int) -> bool:
        """Return whether set ``at`` may have such a row."""
        return bounds.may_have_nan[at]

    def always_matches(self, bounds: Bounds, at: int) -> bool:
        """Return False: counts of NaN are not compared with the number of values."""
        return False


@dataclass(frozen=True)
class AllOf:
    """AND: every part."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """OR: one part is enough. Without parts, no row matches."""

    parts: tuple[Condition, ...]


LeafCondition = Compares | HoldsAny | StartsWith | HasNull | HasValue | HasNaN
Condition = LeafCondition | AllOf | AnyOf


def leaf_conditions(condition: Condition) -> Iterator[LeafCondition]:
    """Yield all leaves of a condition, left to right."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from leaf_conditions(part)
    else:
        yield condition


def _below(a: Comparable, b: Comparable) -> bool:
    return a < b  # type: ignore[operator]  # both are bounds of one column


def _not_above(a: Comparable | None, b: Comparable | None) -> bool:
    """Return whether a <= b may hold; with an unknown bound it may."""
    return a is None or b is None or a <= b  # type: ignore[operator]
