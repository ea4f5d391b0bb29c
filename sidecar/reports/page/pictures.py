"""The pictures of a page, as inline SVG. Colours come from the page's style, so that they fit light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from sidecar.reports.page.elements import element, safe
from sidecar.reports.page.facts import ColumnFill, ExampleLookup, SnapshotInfo

WIDTH = 640
LABEL = 190
ROW = 24


def _svg(height: float, title: str, *parts: Element) -> Element:
    return element(
        "svg",
        element("title", title),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        width=WIDTH,
        height=f"{height:g}",
    )


def _text(x: float, y: float, text: str, kind: str = "label") -> Element:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", class_=kind)


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Element:
    parts = [element("title", title)] if title else []
    sizes = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(width, 0):.2f}", "height": f"{height:g}"}
    return element("rect", *parts, **sizes, class_=kind)


def _short(text: str, longest: int = 26) -> str:
    shown = safe(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def bars(title: str, lines: Sequence[tuple[str, float, str]], most: float | None = None) -> Element:
    """Draw horizontal bars: label, value and the text beside the bar. ``most`` is the value of the longest bar."""
    longest = max([value for _, value, _ in lines], default=0) if most is None else most
    room = WIDTH - LABEL - 130
    parts = []
    for at, (label, value, shown) in enumerate(lines):
        y = at * ROW + 4
        length = room * value / longest if longest else 0
        parts += [
            _text(0, y + 13, _short(label)),
            _rect(LABEL, y, room, 16, "track"),
            _rect(LABEL, y, length, 16, "bar", f"{label}: {shown}"),
            _text(LABEL + room + 8, y + 13, shown, "value"),
        ]
    return _svg(len(lines) * ROW + 6, title, *parts)


def funnel(lookup: ExampleLookup) -> Element:
    """Draw how many files are left after each step of a lookup."""
    steps = [
        ("data files", lookup.files),
        ("after bounds", lookup.after_bounds),
        ("after filters", lookup.after_filters),
        ("read", lookup.kept),
    ]
    room, parts = WIDTH - LABEL - 130, []
    for at, (label, count) in enumerate(steps):
        width = room * count / lookup.files if lookup.files else 0
        y = at * ROW + 4
        parts += [
            _text(0, y + 13, label),
            _rect(LABEL + (room - width) / 2, y, width, 18, "bar" if at < len(steps) - 1 else "bar last"),
            _text(LABEL + room + 8, y + 13, f"{count:,}", "value"),
        ]
    return _svg(len(steps) * ROW + 6, f"{lookup.column}: {lookup.of}", *parts)


def fill_map(fill: ColumnFill) -> Element:
    """Draw a cell for each file, the stronger its colour the fuller its filters are."""
    count = max(len(fill.files), 1)
    columns = min(count, 80)
    size = WIDTH / max(columns, 40)
    parts = []
    for at, share in enumerate(fill.files):
        x, y = at % columns * size, at // columns * size
        shade = "none" if share is None else str(min(int(share * 10), 9))
        title = "no filter was read" if share is None else f"{share * 100:.0f} % of the bits are set"
        parts.append(_rect(x, y, size - 1, round(size - 1, 2), f"cell fill-{shade}", title))
    return _svg(-(-count // columns) * size + 2, f"fill of the filters of {fill.column} by file", *parts)


def history(snapshots: Sequence[SnapshotInfo]) -> Element:
    """Draw a bar for each snapshot, as high as it has files, and a dot where statistics are registered for it."""
    height, most = 120, max([one.files or 0 for one in snapshots], default=0)
    step = WIDTH / max(len(snapshots), 12)
    parts = []
    for at, one in enumerate(snapshots):
        tall = (height - 24) * (one.files or 0) / most if most else 0
        x = at * step
        parts.append(_rect(x, height - tall, step - 2, round(tall, 2), "bar", _snapshot_title(one)))
        if one.statistics_bytes is not None:
            parts.append(element("circle", cx=f"{x + step / 2 - 1:.2f}", cy="8", r="4", class_="dot"))
    return _svg(height + 2, "data files by snapshot", *parts)


def _snapshot_title(one: SnapshotInfo) -> str:
    files = "unknown" if one.files is None else f"{one.files:,}"
    return f"snapshot {one.snapshot_id}: {one.operation or 'unknown operation'}, files {files}"
