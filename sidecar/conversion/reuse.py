"""Decides which filters of a data file are reused as they are. Builds and embedding share this rule.

It applies to trusted filters only: a filter that is not trusted is never reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.results.choices import ReuseRule

GOOD: Final = "good"
ALWAYS: Final = "always"
NEVER: Final = "never"
REUSE_RULES: tuple[ReuseRule, ...] = (GOOD, ALWAYS, NEVER)
"""``good`` reuses filters whose bits show about the target rate, ``always`` reuses all, ``never`` none."""

TOLERANCE = 1.05
"""A rate may be this factor over the target: a full ORC filter that its writer sizes for 1 % has 1.002 %."""


def why_not_reused(reuse: str, rate: float, target: float) -> str:
    """Return why a filter is not reused; an empty text if it is.

    ``reuse`` is one of :data:`REUSE_RULES`, ``rate`` the false-positive rate that the bits show, ``target`` the
    rate that the caller asks for.
    """
    if reuse == NEVER:
        return "to be built anew"
    if reuse == GOOD and rate > TOLERANCE * target:
        return f"its rate is more than {target}"
    return ""


@dataclass(frozen=True)
class FilterRules:
    """The filters that a file gets: on ``columns``, which are their numbers in it, at ``fpp`` or ``rates[number]``."""

    columns: tuple[int, ...] = ()
    fpp: float = DEFAULT_FPP
    reuse: str = GOOD
    rates: Mapping[int, float] = field(default_factory=dict)

    def rate_of(self, column: int) -> float:
        """Return the target rate of a column's filters."""
        return self.rates.get(column, self.fpp)

    def why_not_reused(self, column: int, rate: float) -> str:
        """Return why a filter that shows ``rate`` is not reused; an empty text if it is."""
        return why_not_reused(self.reuse, rate, self.rate_of(column))
