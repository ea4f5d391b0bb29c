"""Log lines of runs: one line at INFO with what was done, and each warning of a report at WARNING.

The loggers are those of the modules, under ``sidecar``. Lines have no values of predicates and no secrets. If a level
is off, its lines are not made. Here are also quantities as text, for all who print some.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping


def log_run(log: logging.Logger, line: Callable[[], str], warnings: Iterable[str] = ()) -> None:
    """Log ``line`` at INFO, if that is on, and each of ``warnings`` once."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s", line())
    for warning in dict.fromkeys(warnings):
        log.warning("%s", warning)


def quantity(number: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: float | None) -> str:
    """Bytes in three significant digits: ``16.8 MB`` (decimal units)."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


def counted(counts: Mapping[str, int]) -> str:
    """``3 this, 1 that``, or ``none``."""
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "none"
