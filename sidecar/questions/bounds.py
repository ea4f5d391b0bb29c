"""Defines what is known about the values of a column in sets of rows: pages, row groups, stripes or whole files."""

from __future__ import annotations

from dataclasses import dataclass

Comparable = int | float | bytes | tuple[int, int]
"""A decoded bound: int (integers, decimals without their scale, booleans), float, bytes, or for INT96 (days, nanos)."""


@dataclass(frozen=True)
class Unknown:
    """Returned in place of a value that is not known, with the reason."""

    reason: str


@dataclass(frozen=True)
class Bounds:
    """Certain facts about sets of rows, such as the pages of a chunk; each list has one entry per set.

    ``lower`` and ``upper``: every value that is neither null nor NaN is between them, both included; ``None`` is
    unknown. ``all_null``: the set has no value. ``null_counts``: the number of nulls, empty lists and absent parents;
    ``None`` is unknown. ``may_have_nan``: always false for types without NaN. ``reason``: why bounds are unknown.
    """

    lower: list[Comparable | None]
    upper: list[Comparable | None]
    all_null: list[bool]
    null_counts: list[int | None]
    may_have_nan: list[bool]
    reason: str = ""

    @classmethod
    def of_one(
        cls,
        lower: Comparable | None,
        upper: Comparable | None,
        *,
        all_null: bool = False,
        null_count: int | None = None,
        may_have_nan: bool = True,
        reason: str = "",
    ) -> Bounds:
        """Make the bounds of a single set: a row group, a stripe, a file."""
        return cls([lower], [upper], [all_null], [null_count], [may_have_nan], reason)


def contradicts(pages: Bounds, whole: Bounds) -> str:
    """Return why bounds of pages and of the whole cannot both be right; an empty text if they can.

    Long strings are cut to different lengths, so a bound of a page may be outside of the whole's. But the bounds of
    each page and of the whole enclose the same values, so they overlap.
    """
    low, high = whole.lower[0], whole.upper[0]
    if low is None or high is None:
        return ""
    may_be_cut = isinstance(low, bytes)
    for lower, upper in zip(pages.lower, pages.upper, strict=True):
        below, above = (upper, lower) if may_be_cut else (lower, upper)
        if (below is not None and below < low) or (above is not None and above > high):  # type: ignore[operator]
            return "bounds of a page are outside those of the whole"
    return ""
