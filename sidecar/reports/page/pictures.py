"""The pictures of a page, as inline SVG. Colours come from the page's style, so that they fit light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from sidecar.reports.page.elements import element, safe
from sidecar.reports.page.facts import ColumnFill, ExampleLookup, SnapshotInfo
from sidecar.run_log import quantity

WIDTH = 328
"""Units of a picture. A unit is a pixel or more: pictures stand beside each other, or alone on a telephone."""
ROW = 36
_LETTER = 7.4
"""Units of a letter, as wide as most are."""


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


def _line(at: int, name: str, kind: str, shown: str) -> list[Element]:
    """Draw what stands above a bar: a name and a kind to the left, a value to the right. A long name is cut."""
    y, label = at * ROW + 14, f" {kind}" if kind else ""
    letters = int((WIDTH - 12) / _LETTER) - len(label) - len(shown)
    name = safe(name)
    cut = name if len(name) <= letters else f"{name[: max(letters - 1, 1)]}…"
    return [_text(0, y, cut + label), _text(WIDTH, y, shown, "value")]


def bars(title: str, lines: Sequence[tuple[str, str, float, str]], most: float | None = None) -> Element:
    """Draw horizontal bars: name, kind, value, and the text above the bar. ``most`` is the value of the longest bar."""
    longest = max([value for _, _, value, _ in lines], default=0) if most is None else most
    parts = []
    for at, (name, kind, value, shown) in enumerate(lines):
        y, length = at * ROW + 20, WIDTH * value / longest if longest else 0
        parts += [
            *_line(at, name, kind, shown),
            _rect(0, y, WIDTH, 10, "track"),
            _rect(0, y, length, 10, "bar", f"{name} {kind}: {shown}"),
        ]
    return _svg(len(lines) * ROW, title, *parts)


def funnel(lookup: ExampleLookup) -> Element:
    """Draw how many files are left after each step of a lookup."""
    steps = [
        ("data files", lookup.files),
        ("after bounds", lookup.after_bounds),
        ("after filters", lookup.after_filters),
        ("read", lookup.kept),
    ]
    parts = []
    for at, (label, count) in enumerate(steps):
        width = WIDTH * count / lookup.files if lookup.files else 0
        last = "bar" if at < len(steps) - 1 else "bar last"
        parts += [
            *_line(at, label, "", f"{count:,}"),
            _rect((WIDTH - width) / 2, at * ROW + 20, width, 10, last),
        ]
    return _svg(len(steps) * ROW, f"{lookup.column}: {lookup.of}", *parts)


def fill_map(fill: ColumnFill) -> Element:
    """Draw a cell for each file, the stronger its colour the fuller its filters are, and the scale of colours."""
    count = max(len(fill.files), 1)
    columns = min(count, 40)
    size = WIDTH / max(columns, 20)
    parts = []
    for at, share in enumerate(fill.files):
        x, y = at % columns * size, at // columns * size
        shade = "none" if share is None else str(min(int(share * 10), 9))
        title = "no filter was read" if share is None else f"{share * 100:.0f} % of the bits are set"
        parts.append(_rect(x, y, size - 1, round(size - 1, 2), f"cell fill-{shade}", title))
    below = -(-count // columns) * size + 6
    parts += _scale(below)
    return _svg(below + 16, f"fill of the filters of {fill.column} by file", *parts)


def _scale(y: float) -> list[Element]:
    """Draw the ten colours between the shares that they stand for."""
    cells = [_rect(40 + shade * 16, y, 15, 12, f"cell fill-{shade}") for shade in range(10)]
    return [_text(0, y + 11, "0 %"), *cells, _text(206, y + 11, "100 %")]


def history(snapshots: Sequence[SnapshotInfo]) -> Element:
    """Draw a bar for each snapshot, as high as it has files, and a dot where statistics are registered for it."""
    height, most = 100, max([one.files or 0 for one in snapshots], default=0)
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
    files = "an unknown number of files" if one.files is None else quantity(one.files, "file")
    return f"snapshot {one.snapshot_id}: {one.operation or 'unknown operation'}, {files}"
