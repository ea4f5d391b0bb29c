"""The part of a condition that filters can answer: which of some values a column holds.

Filters answer equalities alone. They cannot answer ranges, prefixes, IS NULL (which NULL or NaN can satisfy in some
engine), IS NAN (other writers' NaNs hash differently) and lists that are too long: there all rows may match. Such a
leaf drops out of an AND and makes a whole OR unanswerable:

    x = 1 AND y > 2            asks x
    x = 1 OR y = 2             asks x and y
    x = 1 OR y > 2             asks nothing: no index is read for it
    x IN (1, 2) AND NOT z = 3  asks x

Two engines that differ on NULL or NaN agree on what is asked here: equality with a value that is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.questions.conditions import MAX_VALUES, AllOf, AnyOf, Condition, HoldsAny, leaf_conditions


@dataclass(frozen=True)
class FilterQuestion:
    """What filters are asked (``None``: they cannot help), and notes on what of it had to be left out.

    The leaves of ``condition`` are all :class:`HoldsAny`.
    """

    condition: Condition | None
    notes: tuple[str, ...]


def filter_question(condition: Condition | None, lost: Sequence[Condition] = ()) -> FilterQuestion:
    """What a condition asks of filters. Notes are on ``lost`` parts too, which no index is asked for."""
    notes: list[str] = []
    found = None if condition is None else _answerable(condition, notes)
    for part in lost:
        _answerable(part, notes)
    return FilterQuestion(found, tuple(notes))


def looked_up(question: Condition) -> Iterator[HoldsAny]:
    """All lookups of a condition, left to right."""
    return (leaf for leaf in leaf_conditions(question) if isinstance(leaf, HoldsAny))


def _answerable(condition: Condition, notes: list[str]) -> Condition | None:
    if isinstance(condition, AllOf):
        parts = [_answerable(part, notes) for part in condition.parts]
        known = [part for part in parts if part is not None]
        return _joined(AllOf, known) if known else None
    if isinstance(condition, AnyOf):
        return _any_of([_answerable(part, notes) for part in condition.parts], notes)
    if not isinstance(condition, HoldsAny) or condition.column.iceberg_type == "boolean":
        return None  # no file has a filter of two values
    return _limited(condition, notes)


def _any_of(parts: Sequence[Condition | None], notes: list[str]) -> Condition | None:
    """An OR; equalities of one column become one list."""
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
        f"{len(leaf.values)} values of {leaf.column.name} are not looked up: beyond {MAX_VALUES}, "
        "false positives would keep every file"
    )
    return None
