"""Estimates which files have a value, from the few row groups in which it was looked for.

Each example value was found in some of the other row groups that were asked. Its share of row groups is what was found,
and one row group more that has the mean share of all examples: a handful of row groups says little about one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Presence:
    """An example value of a column, and where it was looked for."""

    admitting: int
    """The files whose bounds admit it, its own included."""
    files_admitting_next_value: int
    """The files whose bounds admit a value just above it."""
    asked: int
    """The sampled row groups of other files that could have it (if files are sampled whole: files)."""
    found: int
    """Row groups (or files) of :attr:`asked` that have the value."""
    asked_near: int
    """The sampled row groups of a neighbour of its file that could have it."""
    found_near: int
    """Row groups of :attr:`asked_near` that have the value."""
    own_row_groups_with_it: int
    """The other sampled row groups of its own file that have it."""


class Shares:
    """The shares of row groups that have a value."""

    def __init__(self, presences: Sequence[Presence]) -> None:
        asked, near = sum(one.asked for one in presences), sum(one.asked_near for one in presences)
        self.near = sum(one.found_near for one in presences) / near if near else None
        """The mean share in neighbours; ``None`` if no neighbours were asked."""
        if asked:
            self.mean = sum(one.found for one in presences) / asked
        else:  # files far apart never overlap, so all that overlap are near
            self.mean = 1.0 if self.near is None else self.near

    def of(self, one: Presence) -> float:
        """Return the expected share of row groups that have a value."""
        return (one.found + self.mean) / (one.asked + 1)

    def in_file(self, one: Presence, row_groups: float) -> float:
        """Return the chance that a file of ``row_groups`` row groups has a value."""
        return float(1 - (1 - self.of(one)) ** row_groups)

    def in_neighbour(self, row_groups: float) -> float | None:
        """Return the chance that a neighbouring file of ``row_groups`` row groups has a value; ``None`` if it is not
        known."""
        return None if self.near is None else 1 - (1 - self.near) ** row_groups
