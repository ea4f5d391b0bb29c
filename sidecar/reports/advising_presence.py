"""Estimates which files have a value, from the few row groups in which it was looked for.

Each example value was found in some of the other row groups that were asked. That is a sample of the share of row
groups that have it. Shares differ from value to value, and a handful of row groups says little about a single value. So
all examples together give the distribution of shares, a beta distribution with the mean and the variance that are seen
(beta-binomial model, fitted by its moments). A value's own count then corrects it:

    share ~ Beta(found + mean * weight, asked - found + (1 - mean) * weight)

Equal shares make the weight large, so that all values get the mean. The chance that none of p row groups of a file has
the value is the mean of (1 - share)^p, which the gamma function gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma
from statistics import fmean

_LEAST = 1e-6


@dataclass(frozen=True)
class Presence:
    """An example value of a column, and where it was looked for."""

    admitting: int
    """The files whose bounds admit it, its own included."""
    beside: int
    """The files whose bounds admit a value just above it."""
    asked: int
    """The sampled row groups of other files that could have it (if files are sampled whole: files)."""
    found: int
    """Those that have it."""
    asked_near: int
    """The sampled row groups of a neighbour of its file that could have it."""
    found_near: int
    """Those of a neighbour that have it."""
    again: int
    """The other sampled row groups of its own file that have it."""


class Shares:
    """The distribution of the shares of row groups that have a value."""

    def __init__(self, presences: Sequence[Presence]) -> None:
        asked, near = sum(one.asked for one in presences), sum(one.asked_near for one in presences)
        self.near = sum(one.found_near for one in presences) / near if near else None
        """The mean share in neighbours; ``None`` if no neighbours were asked."""
        if asked:
            self.mean = sum(one.found for one in presences) / asked
        else:  # files far apart never overlap, so all that overlap are near
            self.mean = 1.0 if self.near is None else self.near
        self._weight = self._fitted([one for one in presences if one.asked > 1])

    def _fitted(self, presences: Sequence[Presence]) -> float:
        """Return the weight of the mean against a value's own count, in row groups."""
        spread = self.mean * (1 - self.mean)
        if not presences or spread < _LEAST:
            return 1 / _LEAST
        seen = fmean((one.found / one.asked - self.mean) ** 2 for one in presences)
        by_chance = fmean(1 / one.asked for one in presences)
        correlation = (seen / spread - by_chance) / (1 - by_chance)
        correlation = min(max(correlation, _LEAST), 1 - _LEAST)
        return (1 - correlation) / correlation

    def of(self, one: Presence) -> float:
        """Return the expected share of row groups that have a value."""
        return (one.found + self.mean * self._weight) / (one.asked + self._weight)

    def in_file(self, one: Presence, row_groups: float) -> float:
        """Return the chance that a file of so many row groups has a value."""
        without = one.asked - one.found + (1 - self.mean) * self._weight
        total = one.asked + self._weight
        if without <= 0:
            return 1.0
        none = lgamma(without + row_groups) - lgamma(without) + lgamma(total) - lgamma(total + row_groups)
        return 1 - exp(min(none, 0.0))

    def in_neighbour(self, row_groups: float) -> float | None:
        """Return the chance that a neighbouring file of so many row groups has a value; ``None`` if it is not known."""
        return None if self.near is None else 1 - (1 - self.near) ** row_groups
