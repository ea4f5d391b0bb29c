"""Takes out of a condition the part that filters can answer: equalities with one or some values.

Filters cannot answer ranges, prefixes, IS NULL (which NULL or NaN can meet, depending on the engine), IS NAN (writers
hash NaN differently) and lists that are too long: for these, all rows may match. Such a leaf drops out of an AND and
makes a whole OR unanswerable:

    x = 1 AND y > 2            filters of x are asked
    x = 1 OR y = 2             filters of x and y are asked
    x = 1 OR y > 2             no filter is read
    x IN (1, 2) AND NOT z = 3  filters of x are asked

Engines differ on NULL and NaN, but agree on equality with a value that is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.questions.conditions import MAX_VALUES, AllOf, AnyOf, Condition, HoldsAny, leaf_conditions


@dataclass(frozen=True)
class FilterQuestion:
    """The condition for filters (``None`` if they cannot help), and notes on parts that were left out.

    All leaves of ``condition`` are :class:`HoldsAny`.
    """

    condition: Condition | None
    notes: tuple[str, ...]


def filter_question(condition: Condition | None, lost: Sequence[Condition] = ()) -> FilterQuestion:
    """Return the part of a condition that filters can answer. ``lost`` are parts that only get notes."""
    notes: list[str] = []
    answerable = None if condition is None else _answerable(condition, notes)
    for part in lost:
        _answerable(part, notes)
    return FilterQuestion(answerable, tuple(notes))


def looked_up(question: Condition) -> Iterator[HoldsAny]:
    """Yield all lookups of a condition, left to right."""
    return (leaf for leaf in leaf_conditions(question) if isinstance(leaf, HoldsAny))


def _answerable(condition: Condition, notes: list[str]) -> Condition | None:
    if isinstance(condition, AllOf):
        parts = [_answerable(part, notes) for part in condition.parts]
        known = [part for part in parts if part is not None]
        return _joined(AllOf, known) if known else None
    if isinstance(condition, AnyOf):
        return _any_of([_answerable(part, notes) for part in condition.parts], notes)
    if not isinstance(condition, HoldsAny) or not condition.column.may_have_filters:
        return None
    return _limited(condition, notes)


def _any_of(parts: Sequence[Condition | None], notes: list[str]) -> Condition | None:
    """Make an OR of the parts; ``None`` if one of them is unanswerable. Equalities of one column become one list."""
    lists: dict[int, HoldsAny] = {}
    others: list[Condition] = []
    for part in parts:
        if part is None:
            return None
        if isinstance(part, HoldsAny):
            before = lists.get(part.column.index)
            values = part.values if before is None else tuple(sorted({*before.values, *part.values}))
            lists[part.column.index] = replace(part, values=values)
        else:
            others.append(part)
    for leaf in lists.values():
        limited = _limited(leaf, notes)
        if limited is None:
            return None
        others.append(limited)
    return _joined(AnyOf, others)


def _joined(operator: type[AllOf] | type[AnyOf], parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else operator(tuple(parts))


def _limited(leaf: HoldsAny, notes: list[str]) -> HoldsAny | None:
    if leaf.is_for_filters:
        return leaf
    notes.append(
        f"{len(leaf.values)} values of {leaf.column.name} are not looked up: with more than {MAX_VALUES}, "
        "false positives would keep every file"
    )
    return None
