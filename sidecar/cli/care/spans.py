"""Shares and spans of time as options give them: ``1%``, ``0.01``, ``90s``, ``30m``, ``1h``, ``5d``."""

from __future__ import annotations

import re
from datetime import timedelta

from sidecar.errors import UsageError

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
    """A share from 0 to 1, written as ``0.01`` or ``1%``. Raises :class:`UsageError` that names the option."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 2.0
    if value > 1:
        raise UsageError(f"{option} is a share from 0 to 1, such as 1% or 0.01, not '{text}'")
    return value
