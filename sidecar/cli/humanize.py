"""Numbers, sizes and times as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.run_log import size as size

if TYPE_CHECKING:
    from sidecar.results import DistinctValues, KindCoverage, SidecarColumnInfo


def count(number: int | None) -> str:
    """``1,234,567``; a dash if the number is not known."""
    return "–" if number is None else f"{number:,}"


def distinct(number: int, counted: DistinctValues | KindCoverage | SidecarColumnInfo) -> str:
    """A number of distinct values: ``1,234``; ``≤ 1,234`` or ``≥ 1,234`` for a bound, ``≈ 1,234`` if it is neither."""
    upper, lower = counted.upper_bound, counted.lower_bound
    sign = "≈ " if upper and lower else "≤ " if upper else "≥ " if lower else ""
    return f"{sign}{count(number)}"


def duration(seconds: float | None) -> str:
    """``840 µs``, ``12 ms``, ``1.2 s``, ``3 min 20 s``."""
    if seconds is None:
        return "–"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def percent(fraction: float | None) -> str:
    """A share or a rate: ``1 %``, ``0.0042 %``, ``219 %``; zero is ``0 %``."""
    return "–" if fraction is None else f"{fraction * 100:.2g} %" if fraction < 0.995 else f"{fraction * 100:,.0f} %"
