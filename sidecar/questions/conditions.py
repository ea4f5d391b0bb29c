"""Conditions on the columns of a Parquet file, and what bounds say of them.

A condition asks whether some row of a set (a row group, a page) *may match* under any engine's rules: NULL and NaN
are read in favour of the row. What is false is certain, what is true is not. Conditions are composed by AND and
OR alone, negation has been pushed down before; whatever bounds and filters can never decide is no condition
and stands for "may match":

| asked | may match if the set may hold |
| --- | --- |
| x < v, x <= v, x > v, x >= v | a value on that side, or NaN |
| x = v, x IN (...) | one of the values |
| x LIKE 'v%' | a string that begins so |
| x IS NULL | a null, or NaN |
| x IS NOT NULL | a value |
| x IS NAN | NaN |
| x != v, NOT IN, NOT LIKE, IS NOT NAN | no condition: NULL may match |

A literal is compared with bounds in the unit of the file, in which it may lie between two values (microseconds in
a file of milliseconds, 0.1 in a FLOAT): it becomes a *span* of the neighbours, both included.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from sidecar.filters.float32 import float32_neighbours
from sidecar.filters.leaf import Leaf
from sidecar.filters.literals import LiteralValue
from sidecar.filters.values import decimal_scale
from sidecar.questions.bounds import Bounds, Comparable

Span = tuple[Any, Any]
"""A literal among the file's values: the nearest ones below and above, the same twice where it is one of them."""

Operator = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True)
class Compares:
    """A value on one side of a literal; ``value`` is of the leaf's ``iceberg_type``."""

    leaf: Leaf
    operator: Operator
    value: LiteralValue

    @cached_property
    def span(self) -> Span | None:
        """The literal in the file's unit, ``None`` where it has no certain place."""
        return span_of(self.value, self.leaf)

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row."""
        if page.all_null[at]:
            return False
        lower, upper, span = page.lower[at], page.upper[at], self.span
        if page.may_have_nan[at] or span is None:
            return True
        low, high = span
        if self.operator == "<":
            return lower is None or _below(lower, low) if low == high else _not_above(lower, high)
        if self.operator == "<=":
            return _not_above(lower, high)
        if self.operator == ">":
            return upper is None or _below(high, upper) if low == high else _not_above(low, upper)
        return _not_above(low, upper)

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Whether every value lies on that side, so that parts of the page can do no better."""
        lower, upper, span = page.lower[at], page.upper[at], self.span
        if span is None:
            return True
        if lower is None or upper is None or page.null_counts[at] != 0:
            return False
        low, high = span
        inside = upper if self.operator in ("<", "<=") else lower
        first, second = (inside, low) if self.operator in ("<", "<=") else (high, inside)
        return _below(first, second) if len(self.operator) == 1 else _not_above(first, second)


@dataclass(frozen=True)
class HoldsAny:
    """One of some values; ``values`` are of the leaf's ``iceberg_type``."""

    leaf: Leaf
    values: tuple[LiteralValue, ...]

    @cached_property
    def spans(self) -> tuple[list[Any], list[Any]] | None:
        """Lower and upper ends of the literals, sorted; ``None`` where one has no certain place."""
        spans = [span_of(value, self.leaf) for value in self.values]
        if any(span is None for span in spans):
            return None
        return sorted(span[0] for span in spans if span), sorted(span[1] for span in spans if span)

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row. NaN equals no literal in any engine."""
        if page.all_null[at]:
            return False
        lower, upper = page.lower[at], page.upper[at]
        if self.spans is None or lower is None or upper is None:
            return True
        lows, highs = self.spans
        first = bisect_left(highs, lower)  # the first literal that does not lie below the page
        return first < len(lows) and _not_above(lows[first], upper)

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Whether the page has that value alone."""
        lower, upper = page.lower[at], page.upper[at]
        if self.spans is None:
            return True
        return lower is not None and lower == upper and page.null_counts[at] == 0 and self.may_match(page, at)


@dataclass(frozen=True)
class StartsWith:
    """A string or bytes that begin with ``prefix``."""

    leaf: Leaf
    prefix: bytes

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row."""
        if page.all_null[at]:
            return False
        lower, upper = page.lower[at], page.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes):
            return True
        return lower[: len(self.prefix)] <= self.prefix <= upper

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Whether every value begins so."""
        lower, upper = page.lower[at], page.upper[at]
        if not isinstance(lower, bytes) or not isinstance(upper, bytes) or page.null_counts[at] != 0:
            return False
        return lower.startswith(self.prefix) and upper.startswith(self.prefix)


@dataclass(frozen=True)
class HasNull:
    """No value; NaN counts, since in some engines it does."""

    leaf: Leaf

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row."""
        return page.null_counts[at] != 0 or page.may_have_nan[at]

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Whether there is nothing else."""
        return page.all_null[at]


@dataclass(frozen=True)
class HasValue:
    """A value."""

    leaf: Leaf

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row."""
        return not page.all_null[at]

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Whether there is nothing else."""
        return page.null_counts[at] == 0


@dataclass(frozen=True)
class HasNaN:
    """A NaN."""

    leaf: Leaf

    def may_match(self, page: Bounds, at: int) -> bool:
        """Whether page ``at`` may have such a row."""
        return page.may_have_nan[at]

    def always_matches(self, page: Bounds, at: int) -> bool:
        """Never known: no count of NaN is asked for the number of values."""
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


def evaluate(condition: Condition, ask: Callable[[LeafCondition], bool]) -> bool:
    """AND and OR of the leaves' answers; ``ask`` is called no more than is needed."""
    if isinstance(condition, AllOf):
        return all(evaluate(part, ask) for part in condition.parts)
    if isinstance(condition, AnyOf):
        return any(evaluate(part, ask) for part in condition.parts)
    return ask(condition)


def _below(a: Comparable, b: Comparable) -> bool:
    return a < b  # type: ignore[operator]  # both are bounds of one leaf


def _not_above(a: Comparable | None, b: Comparable | None) -> bool:
    """Whether a <= b is possible; an unknown bound is possible."""
    return a is None or b is None or a <= b  # type: ignore[operator]


def span_of(value: LiteralValue, leaf: Leaf) -> Span | None:
    """Where a literal of the leaf's ``iceberg_type`` lies among decoded bounds; ``None`` if that is not certain."""
    base = leaf.iceberg_type.partition("(")[0].partition("[")[0]
    if leaf.physical == "INT96" or leaf.encoding.name == "interval":
        return None
    place = _PLACES.get(base)
    return None if place is None else place(value, leaf)


def _same(value: Any) -> Span:
    return value, value


def _integer(value: LiteralValue, leaf: Leaf) -> Span | None:
    return _same(int(value)) if isinstance(value, int) else None


def _decimal(value: LiteralValue, leaf: Leaf) -> Span | None:
    """The unscaled number; leaf and column have the same scale."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        return None
    number = Fraction(value) * 10 ** decimal_scale(leaf.iceberg_type)
    return math.floor(number), math.ceil(number)


def _units(value: LiteralValue, leaf: Leaf) -> Span | None:
    """Microseconds (nanoseconds for the ``_ns`` types) in the unit of the file."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = leaf.annotation.unit
    if unit == "ms":
        return value // 1000, -(-value // 1000)
    if unit == "ns" and not leaf.iceberg_type.endswith("_ns"):
        return _same(value * 1000)
    return _same(value) if unit in ("us", "ns") else None


def _float(value: LiteralValue, leaf: Leaf) -> Span | None:
    """In narrower columns a literal may be rounded to 32 bits or not: the span covers both."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    if math.isnan(number) or number != value:
        return None
    if leaf.physical == "DOUBLE":
        return _same(number)
    return float32_neighbours(number)


def _bytes(value: LiteralValue, leaf: Leaf) -> Span | None:
    if isinstance(value, str):
        try:
            return _same(value.encode())
        except UnicodeEncodeError:
            return None
    return _same(bytes(value)) if isinstance(value, bytes) else None


_PLACES: dict[str, Callable[[LiteralValue, Leaf], Span | None]] = {
    "boolean": _integer,
    "int": _integer,
    "long": _integer,
    "date": _integer,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "time": _units,
    "timestamp": _units,
    "timestamptz": _units,
    "timestamp_ns": _units,
    "timestamptz_ns": _units,
    "string": _bytes,
    "binary": _bytes,
    "fixed": _bytes,
    "uuid": _bytes,
}
