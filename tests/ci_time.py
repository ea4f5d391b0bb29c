"""The seconds of work of a run of the tests, by the shares that CI has time for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LIMITS = {"suite": 450, "services": 240, "kill, storage and life": 270}
"""Seconds for each share, by the clock, if the work is divided evenly among the workers."""
TORTURE = (
    "tests/faults/",
    "tests/life/",
    "tests/test_fuzzing",
    "tests/test_hostile",
    "tests/kernels/test_bounds",
    "tests/spark/test_lost_executors",
)
"""Where things are killed, starved and lied to: the shares of ``scripts/torture``, and what belongs to them."""
MOST = 1200
"""Seconds for all of CI."""


def share_of(report: Any) -> str:
    """The share that a test belongs to: what needs servers is ``services``, wherever it is."""
    if "services" in report.keywords:
        return "services"
    return "kill, storage and life" if report.nodeid.startswith(TORTURE) else "suite"


def shares_line(reports: Iterable[Any], workers: int) -> str | None:
    """Return a line with the seconds that each share took and may take; ``None`` if no test ran.

    Args:
        reports: those of set-ups, calls and tear-downs; others have no duration.
        workers: how many processes the tests were divided among.
    """
    seconds = dict.fromkeys(LIMITS, 0.0)
    for report in reports:
        if hasattr(report, "duration") and hasattr(report, "keywords"):
            seconds[share_of(report)] += report.duration / workers
    if not any(seconds.values()):
        return None
    found = ", ".join(f"{name} {seconds[name]:.0f} of {limit:,}" for name, limit in LIMITS.items())
    by = "1 worker" if workers == 1 else f"each of {workers} workers"
    return f"seconds of {by}: {found}, in all {sum(seconds.values()):.0f} of {MOST:,}"
