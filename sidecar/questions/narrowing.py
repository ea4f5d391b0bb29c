"""Conditions over sets of rows: which rows may match, and which columns' page indexes could say more.

Used with whatever speaks for the leaves: statistics of a chunk or of a whole file, page indexes in a file or in a
sidecar, filters.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.filters.leaf import Leaf
from sidecar.questions.bounds import Bounds
from sidecar.questions.conditions import AllOf, AnyOf, Condition, HoldsAny, LeafCondition, leaf_conditions
from sidecar.questions.row_ranges import RowRanges


def narrow(
    condition: Condition, wanted: RowRanges, rows_of: Callable[[LeafCondition, RowRanges], RowRanges]
) -> RowRanges:
    """The rows among ``wanted`` that may meet the condition; filters are asked last, and only if it matters."""
    if not wanted or not isinstance(condition, AllOf | AnyOf):
        return rows_of(condition, wanted) if wanted else wanted  # type: ignore[arg-type]
    parts = sorted(condition.parts, key=_asks_filters)
    if isinstance(condition, AllOf):
        for part in parts:
            wanted = narrow(part, wanted, rows_of)
        return wanted
    found = RowRanges()
    for part in parts:
        if found != wanted:
            found = found | narrow(part, wanted, rows_of)
    return found


def _asks_filters(condition: Condition) -> bool:
    return any(isinstance(leaf, HoldsAny) for leaf in leaf_conditions(condition))


def asks_for_few(condition: Condition) -> bool:
    """Whether only rows with one of some values can match: as a rule few, however many the indexes leave."""
    if isinstance(condition, AllOf):
        return any(map(asks_for_few, condition.parts))
    if isinstance(condition, AnyOf):
        return all(map(asks_for_few, condition.parts))
    return isinstance(condition, HoldsAny)


def helpful(
    condition: Condition, whole: Callable[[Leaf], Bounds], has_pages: Callable[[Leaf], bool]
) -> set[int] | None:
    """Leaves, by index, whose page indexes can narrow the condition down; ``None`` if nothing can.

    ``whole`` says what is known of all pages together, as of one page.
    """
    if isinstance(condition, AllOf):
        found = [
            leaves for part in condition.parts if (leaves := helpful(part, whole, has_pages)) is not None
        ]
        return set().union(*found) if found else None
    if isinstance(condition, AnyOf):
        parts = [helpful(part, whole, has_pages) for part in condition.parts]
        return None if any(p is None for p in parts) else {leaf for p in parts if p for leaf in p}
    bounds = whole(condition.leaf)
    if not condition.may_match(bounds, 0):
        return set()  # nothing is left of it
    if condition.always_matches(bounds, 0) or not has_pages(condition.leaf):
        return None
    return {condition.leaf.index}
