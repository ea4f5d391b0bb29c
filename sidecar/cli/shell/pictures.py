"""Bars in the terminal: the fill of a filter, and the funnel of a plan. Pipes and files get the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidecar.cli import humanize

if TYPE_CHECKING:
    from rich.console import Console

FILL_WIDTH = 8
"""Characters of the bar of a filter's fill."""
FUNNEL_WIDTH = 40
"""Characters of the longest bar of a funnel."""
_EIGHTHS = "▏▎▍▌▋▊▉█"


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar for a share from 0 to 1, at most ``width`` long. A share above 0 is never empty."""
    if ascii_only:
        return "#" * (max(1, round(share * width)) if share else 0)
    eighths = max(1, round(share * width * 8)) if share else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest - 1] if rest else "")


def has_only_ascii(to: Console) -> bool:
    """Whether the terminal may not show blocks."""
    return not to.encoding.lower().startswith("utf")


def fill(to: Console, share: float | None) -> str:
    """The fill of a filter: on a terminal a bar with the number, else the number."""
    text = humanize.percent(share)
    if share is None or not to.is_terminal:
        return text
    ascii_only = has_only_ascii(to)
    drawn = bar(share, FILL_WIDTH, ascii_only=ascii_only)
    return f"[cyan]{drawn}[/]{('.' if ascii_only else '░') * (FILL_WIDTH - len(drawn))} {text:>6}"


def funnel(to: Console, stages: Sequence[tuple[str, int, str]]) -> list[str]:
    """A line with a bar for each stage: name, count and unit. The first stage of a unit is its whole."""
    ascii_only, names = has_only_ascii(to), max((len(name) for name, _, _ in stages), default=0)
    numbers = max((len(humanize.count(count)) for _, count, _ in stages), default=0)
    lines = []
    wholes: dict[str, int] = {}
    for name, count, unit in stages:
        whole = wholes.setdefault(unit, count)
        drawn = bar(count / whole if whole else 0, FUNNEL_WIDTH, ascii_only=ascii_only)
        padding = " " * (FUNNEL_WIDTH - len(drawn))
        things = unit.removesuffix("s") if count == 1 else unit
        lines.append(f"{name:<{names}}  [cyan]{drawn}[/]{padding}  {humanize.count(count):>{numbers}} {things}")
    return lines
