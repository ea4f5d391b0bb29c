"""Folds over conditions: which rows, units or whole sets may match, and which columns' page indexes could say more.

Used with whatever speaks for the columns: statistics of a chunk or of a whole file, page indexes in a file or in a
sidecar, filters.
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
"""One flag for each unit of a segment."""


class Narrowed(Protocol):
    """A set that conditions narrow down; it is true if anything is in it. A bool is the set of one thing."""

    def __bool__(self) -> bool: ...
    def __or__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=Narrowed)


def evaluate(condition: Condition, wanted: S, ask: Callable[[LeafCondition, S], S], nothing: S) -> S:
    """What of ``wanted`` may meet the condition. ``nothing`` is the empty set.

    ``ask(leaf, wanted)`` answers a leaf by a part of ``wanted``. Parts are asked in their order, and no more once the
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
    """Whether a single set of rows may meet the condition."""
    return evaluate(condition, True, lambda leaf, _: ask(leaf), False)


def narrow(
    condition: Condition, wanted: RowRanges, rows_of: Callable[[LeafCondition, RowRanges], RowRanges]
) -> RowRanges:
    """The rows among ``wanted`` that may meet the condition."""
    return evaluate(condition, wanted, rows_of, RowRanges())


def matching_units(condition: Condition, ask: Callable[[Any], Units], count: int) -> Units:
    """bool[count]: the units that may meet a condition; ``ask`` says of a leaf which units may.

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
    """Flags of units, to be narrowed as rows are."""

    flags: Units

    def __bool__(self) -> bool:
        return bool(self.flags.any())

    def __or__(self, other: _UnitSet) -> _UnitSet:
        return _UnitSet(self.flags | other.flags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UnitSet) and np.array_equal(self.flags, other.flags)

    __hash__ = None  # type: ignore[assignment]


def asks_for_few(condition: Condition) -> bool:
    """Whether only rows with one of some values can match: as a rule few, however many the indexes leave."""
    return not holds(condition, lambda leaf: not isinstance(leaf, HoldsAny))


def helpful(
    condition: Condition, whole: Callable[[int], Bounds], has_pages: Callable[[int], bool]
) -> set[int] | None:
    """Columns, by index, whose page indexes can narrow the condition down; ``None`` if nothing can.

    ``whole`` says what is known of all pages together, as of one page.
    """
    if isinstance(condition, AllOf):
        found = [
            columns for part in condition.parts if (columns := helpful(part, whole, has_pages)) is not None
        ]
        return set().union(*found) if found else None
    if isinstance(condition, AnyOf):
        parts = [helpful(part, whole, has_pages) for part in condition.parts]
        return None if any(p is None for p in parts) else {column for p in parts if p for column in p}
    index = condition.column.index
    if not condition.may_match(whole(index), 0):
        return set()  # nothing is left of it
    if condition.always_matches(whole(index), 0) or not has_pages(index):
        return None
    return {index}
