"""Evaluates conditions over rows, units or whole sets, and finds the columns whose page indexes could rule out more.

The caller answers the leaves: by statistics of a chunk or a file, by page indexes in a file or sidecar, or by filters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.questions.bounds import Bounds
from sidecar.questions.conditions import AllOf, AnyOf, Condition, HoldsAny, LeafCondition, leaf_conditions
from sidecar.questions.row_ranges import RowRanges

Units = npt.NDArray[np.bool_]
"""bool[units of a segment]."""


class Narrowed(Protocol):
    """A set that a condition narrows; it is true if it is not empty. A bool is a set of at most one member."""

    def __bool__(self) -> bool: ...
    def __or__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=Narrowed)


def evaluate(condition: Condition, wanted: S, ask: Callable[[LeafCondition, S], S], nothing: S) -> S:
    """Return the part of ``wanted`` that may meet the condition. ``nothing`` is the empty set.

    ``ask(leaf, wanted)`` returns the part of ``wanted`` that may meet a leaf. Parts are asked in order, until the
    answer is certain.
    """
    if isinstance(condition, AllOf):
        for part in condition.parts:
            if wanted:
                wanted = evaluate(part, wanted, ask, nothing)
        return wanted
    if isinstance(condition, AnyOf):
        found = nothing
        for part in condition.parts:
            if found != wanted:
                found = found | evaluate(part, wanted, ask, nothing)
        return found
    return ask(condition, wanted) if wanted else wanted


def holds(condition: Condition, ask: Callable[[LeafCondition], bool]) -> bool:
    """Return whether a single set of rows may meet the condition."""
    return evaluate(condition, True, lambda leaf, _: ask(leaf), False)


def narrow(
    condition: Condition, wanted: RowRanges, rows_of: Callable[[LeafCondition, RowRanges], RowRanges]
) -> RowRanges:
    """Return the rows of ``wanted`` that may meet the condition."""
    return evaluate(condition, wanted, rows_of, RowRanges())


def matching_units(condition: Condition, ask: Callable[[Any], Units], count: int) -> Units:
    """Return bool[count]: which units may meet a condition. ``ask`` returns the same for a leaf.

    Parts that look up the fewest values are asked first.
    """

    def narrowed(leaf: LeafCondition, wanted: _UnitSet) -> _UnitSet:
        return _UnitSet(ask(leaf) & wanted.flags)

    everything, nothing = _UnitSet(np.ones(count, np.bool_)), _UnitSet(np.zeros(count, np.bool_))
    return evaluate(_fewest_first(condition), everything, narrowed, nothing).flags


def _fewest_first(condition: Condition) -> Condition:
    if not isinstance(condition, AllOf | AnyOf):
        return condition
    return type(condition)(tuple(sorted(map(_fewest_first, condition.parts), key=_lookups)))


def _lookups(condition: Condition) -> int:
    return sum(len(leaf.values) for leaf in leaf_conditions(condition) if isinstance(leaf, HoldsAny))


@dataclass(frozen=True, eq=False)
class _UnitSet:
    """Flags of units as a set, so that :func:`evaluate` can narrow them."""

    flags: Units

    def __bool__(self) -> bool:
        return bool(self.flags.any())

    def __or__(self, other: _UnitSet) -> _UnitSet:
        return _UnitSet(self.flags | other.flags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UnitSet) and np.array_equal(self.flags, other.flags)

    __hash__ = None  # type: ignore[assignment]


def asks_for_few(condition: Condition) -> bool:
    """Return whether only rows with one of some listed values can match, usually few rows."""
    return not holds(condition, lambda leaf: not isinstance(leaf, HoldsAny))


def helpful(condition: Condition, whole: Callable[[int], Bounds], has_pages: Callable[[int], bool]) -> set[int] | None:
    """Return the columns, by index, whose page indexes can rule out rows; ``None`` if none can.

    ``whole`` returns the bounds of all pages of a column together, as those of one set. An empty set of columns means
    that these bounds already rule out everything.
    """
    if isinstance(condition, AllOf):
        helped = [columns for part in condition.parts if (columns := helpful(part, whole, has_pages)) is not None]
        return set().union(*helped) if helped else None
    if isinstance(condition, AnyOf):
        parts = [helpful(part, whole, has_pages) for part in condition.parts]
        # If page indexes cannot narrow one part of an OR, its rows are left in any case.
        return None if any(p is None for p in parts) else {column for p in parts if p for column in p}
    index = condition.column.index
    if not condition.may_match(whole(index), 0):
        return set()  # the bounds rule out every row
    if condition.always_matches(whole(index), 0) or not has_pages(index):
        return None
    return {index}
