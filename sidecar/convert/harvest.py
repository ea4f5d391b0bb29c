"""The one rule for filters that a data file has already: which of them are taken as they are.

Builds and embedding ask it. Only a trusted filter is asked about: one that is not trusted is never taken.
"""

from __future__ import annotations

HARVEST_RULES = GOOD, ALWAYS, NEVER = "good", "always", "never"
"""``good`` takes filters that are good enough by their bits, ``always`` takes all of them, ``never`` none."""

TOLERANCE = 1.05
"""A full ORC filter of the size that writers choose for 1 % has 1.002 %, so a rate may be a little over the target."""


def why_not_harvested(harvest: str, rate: float, target: float) -> str:
    """Why a filter whose bits show the false-positive rate ``rate`` is not taken; empty if it is.

    ``harvest`` is one of :data:`HARVEST_RULES`, ``target`` the rate that was asked for.
    """
    if harvest == NEVER:
        return "to be built anew"
    if harvest == GOOD and rate > TOLERANCE * target:
        return f"its rate is more than {target}"
    return ""
