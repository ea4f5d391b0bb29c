"""Shares and spans of time as options give them: ``95%``, ``95``, ``0.95``, ``90s``, ``30m``, ``1h``, ``5d``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from sidecar.errors import UsageError

MaxBehind = Annotated[
    str | None,
    typer.Option("--max-behind", metavar="AGE", help="Exit with 1 if a file waits longer for its indexes: 1h, 2d."),
]
MinCoverage = Annotated[
    str | None,
    typer.Option("--min-coverage", metavar="SHARE", help="Exit with 1 if an index covers fewer of the rows: 95%."),
]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", re.ASCII)
_SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(%?)", re.ASCII)


def duration(text: str, option: str) -> timedelta:
    """A span of time: a number and s, m, h, d or w. Raises :class:`UsageError` that names the option."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option} is a span of time such as 90s, 30m, 1h or 5d, not '{text}'")
    return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])


def share(text: str, option: str) -> float:
    """A share from 0 to 1, written as ``95%``, ``95`` or ``0.95``. Raises :class:`UsageError` that names the option."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) if match else 101.0
    if value > 100:
        raise UsageError(f"{option} is a share of rows, such as 95% or 0.95, not '{text}'")
    return value / 100 if match is not None and (match[2] or value > 1) else value
