"""Numbers, sizes and times of a page, as text."""

from __future__ import annotations

from datetime import datetime, timezone

from sidecar.run_log import quantity as quantity
from sidecar.run_log import size as size


def count(number: int | None) -> str:
    """A number with separators."""
    return "–" if number is None else f"{number:,}"


def share(number: float | None) -> str:
    """A share, rounded down: it is 100 % only if it is whole."""
    return "–" if number is None else f"{int(number * 1000) / 10:g} %"


def rate(number: float | None) -> str:
    """A rate in two significant digits."""
    if number is None:
        return "–"
    percent = number * 100
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:,.0f} %"


def span(seconds: float) -> str:
    """A span of time in words, in its largest units: ``2 days 4 hours``, ``3 minutes``, ``0.8 seconds``."""
    if seconds < 10:
        return f"{seconds:.1f} seconds"
    left, found = round(seconds), list[str]()
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        number, left = divmod(left, length)
        found += [quantity(number, unit)] if number else []
    return " ".join(found[:2])


def moment(when: float | str) -> str:
    """A moment, of seconds since 1970 or of a text that runs have, in UTC."""
    try:
        at = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when, timezone.utc)
    except ValueError:
        return str(when)
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
