"""The pictures of results as SVG files: bars of comparisons, and curves in log-log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, tostring

from scripts.benchmarks.harness.results import BenchmarkResult, Comparison, Curve
from scripts.benchmarks.harness.wording import shown
from sidecar.reports.page.elements import element

WIDTH, LABEL, ROW = 760, 250, 20
PLOT = (70, 40, 720, 340)
"""Left, top, right and bottom of a curve's plot."""
STYLE = """
svg { background: #fff; font: 13px system-ui, sans-serif; }
text { fill: #1d2430; } .title { font-weight: 600; } .dim { fill: #5d6675; font-size: 12px; }
.ours { fill: #1d8a5f; } .peer { fill: #2f6fb3; } .cpu { fill: #1d2430; fill-opacity: .35; }
.grid { stroke: #d8dce3; } .law { stroke: #2f6fb3; stroke-dasharray: 5 4; fill: none; }
.points { stroke: #1d8a5f; stroke-width: 2; fill: none; } .dot { fill: #1d8a5f; }
"""


def bars(result: BenchmarkResult) -> str:
    """Draw each comparison: a bar of wall time for each side, and within it a thin one of CPU time."""
    parts: list[Element] = []
    y = 8.0
    for comparison in result.comparisons:
        parts += _bars_of(comparison, y)
        y += (len(comparison.sides) + 2) * ROW
    parts.append(_text(0, y + 4, "bars: wall time; dark: CPU time of all threads and processes; medians", "dim"))
    return _svg(y + 16, result.title, parts)


def _bars_of(comparison: Comparison, top: float) -> Iterator[Element]:
    yield _text(0, top + 14, comparison.what, "title")
    room = WIDTH - LABEL - 180
    longest = max(max(side.wall, side.cpu) for side in comparison.sides) or 1.0
    for at, side in enumerate(comparison.sides, 1):
        y = top + at * ROW + 2
        kind = "ours" if side.name.startswith("sidecar") else "peer"
        yield _text(0, y + 12, side.name)
        yield _rect(LABEL, y, room * side.wall / longest, ROW - 6, kind)
        yield _rect(LABEL, y + 5, room * side.cpu / longest, 4, "cpu")
        yield _text(LABEL + room + 8, y + 12, f"{_seconds(side.wall)}, CPU {_seconds(side.cpu)}", "dim")


def curve(shape: Curve) -> str:
    """Draw the points of a curve in log-log, and the power law that fits them best, dashed."""
    left, top, right, bottom = PLOT
    law = shape.law
    xs = _Axis([x for x, _ in shape.points], left, right)
    ys = _Axis([value for x, y in shape.points for value in (y, law.at(x))], bottom, top)
    parts = [
        _text(0, 18, f"{shape.what}: exponent {law.exponent:.2f}, last decade {shape.last_law.exponent:.2f}", "title")
    ]
    for power in xs.powers:
        x = xs.at(10.0**power)
        parts += [_line([(x, top), (x, bottom)], "grid"), _text(x - 10, bottom + 18, _power(power), "dim")]
    for power in ys.powers:
        y = ys.at(10.0**power)
        parts += [_line([(left, y), (right, y)], "grid"), _text(8, y + 4, _power(power), "dim")]
    at = [(xs.at(x), ys.at(y)) for x, y in shape.points]
    parts += [_line([(xs.at(x), ys.at(law.at(x))) for x, _ in shape.points], "law"), _line(at, "points")]
    for (x, y), (size, value) in zip(at, shape.points, strict=True):
        title = element("title", f"{size:,.0f} {shape.x}: {shown(value)} {shape.y}")
        parts.append(element("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_="dot"))
    parts += [_text(right - 60, bottom + 36, shape.x, "dim"), _text(8, top - 8, shape.y, "dim")]
    return _svg(bottom + 44, shape.what, parts)


class _Axis:
    """Logarithmic places between ``start`` and ``end``, whole decades wide."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        logs = [math.log10(value) for value in values]
        low, high = math.floor(min(logs)), math.ceil(max(logs))
        self._low, self._high = low, max(high, low + 1)
        self._start, self._end = start, end

    @property
    def powers(self) -> range:
        return range(self._low, self._high + 1)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 5 else f"1e{power}"


def _seconds(value: float) -> str:
    return f"{shown(value)} s" if value >= 1 else f"{shown(value * 1000)} ms"


def _svg(height: float, title: str, parts: Sequence[Element]) -> str:
    root = element("svg", element("title", title), element("style", STYLE), *parts)
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"-8 0 {WIDTH + 16} {height:g}",
        "width": str(WIDTH + 16),
        "height": f"{height:g}",
        "role": "img",
    }
    return tostring(root, encoding="unicode") + "\n"


def _text(x: float, y: float, text: str, kind: str = "") -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=kind)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Element:
    return element("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:g}", class_=kind)


def _line(points: Sequence[tuple[float, float]], kind: str) -> Element:
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=kind)
