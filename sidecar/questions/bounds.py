"""What is certain about the values of a column in some sets of rows: pages, row groups, stripes or whole files."""

from __future__ import annotations

from dataclasses import dataclass

Comparable = int | float | bytes | tuple[int, int]
"""A decoded bound: int (integers, decimals without their scale, booleans), float, bytes, or for INT96 (days, nanos)."""


@dataclass(frozen=True)
class Bounds:
    """What is certain about each of some sets of rows, such as the pages of a chunk; a list has an entry a set.

    ``lower`` and ``upper``: every value that is neither null nor NaN lies between them, both included; ``None``
    is unknown. ``all_null``: the set has no value. ``null_counts``: nulls, empty lists and absent
    parents; ``None`` is unknown. ``may_have_nan``: never true for types without NaN. ``reason`` says why
    bounds are unknown, if they are.
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
        """Bounds of a single set: a row group, a stripe, a file."""
        return cls([lower], [upper], [all_null], [null_count], [may_have_nan], reason)


def contradicts(pages: Bounds, whole: Bounds) -> str:
    """Why bounds of pages and of the whole cannot both be right. Strings are cut, so they may lie outside."""
    low, high = whole.lower[0], whole.upper[0]
    if low is None or high is None or isinstance(low, bytes):
        return ""
    if any(bound is not None and bound < low for bound in pages.lower) or any(  # type: ignore[operator]
        bound is not None and bound > high  # type: ignore[operator]
        for bound in pages.upper
    ):
        return "bounds of a page lie outside those of the whole"
    return ""
