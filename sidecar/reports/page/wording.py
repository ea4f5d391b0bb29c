"""Numbers, sizes and times of a page, as text."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

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
    """A span of time in whole seconds."""
    return str(timedelta(seconds=round(seconds)))


def moment(seconds: float) -> str:
    """A moment, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
