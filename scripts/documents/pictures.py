"""The pictures of README as SVG, drawn from what ``scripts/demo`` printed: ``python -m scripts.documents.pictures``.

``.github/pictures/demo.txt`` is that output, copied. A code host shows the pictures on light and on dark pages, so each
has a background of its own, and the colours that the reader's system asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, tostring

from sidecar.reports.page.elements import element

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "pictures"
OUTPUT = FOLDER / "demo.txt"
WIDTH, LABEL, BAR, ROW = 560, 196, 176, 22
STYLE = """
.back { fill: #fff; stroke: #d0d7de; } text { fill: #1f2328; font: 13px system-ui, sans-serif; }
.title { font-weight: 600; } .dim { fill: #57606a; } .ours { fill: #1a7f56; } .peer { fill: #2f6fb3; }
.track { fill: #eef1f4; }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; } .dim { fill: #9ba5b0; }
.ours { fill: #3fb883; } .peer { fill: #5b9bd8; } .track { fill: #1c232c; } }
"""


class Run(NamedTuple):
    """A lookup as one reader did it."""

    lookup: str
    predicate: str
    reader: str
    files: int
    time: str
    """As it was printed, with its unit."""

    @property
    def seconds(self) -> float:
        """The time."""
        figure, unit = self.time.split()
        return float(figure) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]


def tables(text: str) -> tuple[list[Run], list[Run], list[Run]]:
    """What the demo printed: lookups by themselves, those of engines with own plans, and with the server's plans."""
    first, second = text.split("\n\n")
    alone = [
        Run(lookup, predicate, reader, int(files), time)
        for lookup, predicate, reader, (files, *_, time) in _lines(first)
    ]
    own, served = [], []
    for lookup, predicate, reader, (files, time, files_served, time_served) in _lines(second):
        own.append(Run(lookup, predicate, reader, int(files), time))
        served.append(Run(lookup, predicate, reader, int(files_served), time_served))
    return alone, own, served


def _lines(table: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """The lookup, its predicate, who read, and the figures up to the number of rows, for each line of a table."""
    lookup = ""
    lines = table.splitlines()[2:]
    for number, line in enumerate(lines):
        name, reader, *figures = re.split(r"  +", line.strip())
        lookup = name if number % 2 == 0 else lookup
        predicate = re.split(r"  +", lines[number | 1].strip())[0]
        yield lookup, predicate, reader, [figure for figure in figures[:-1] if figure != "–"]


def funnel(run: Run, before: int) -> str:
    """Draw what is left of the files of a lookup after each step."""
    steps = [
        ("in the snapshot", before, f"{before} data files"),
        ("after bounds", before, f"{before}: bounds rule out none"),
        ("after Bloom filters", run.files, f"{run.files}: these are read"),
    ]
    parts = [_text(16, 30, f"{run.lookup}: {run.predicate}", "title")]
    for number, (name, left, words) in enumerate(steps):
        parts += _bar(50 + number * ROW, name, left / before, "ours" if number == 2 else "peer", words)
    return _svg(50 + len(steps) * ROW + 12, f"{run.lookup}: {run.files} of {before} files are read", parts)


def demo(alone: Sequence[Run], own: Sequence[Run], served: Sequence[Run]) -> str:
    """Draw the time of each lookup, by itself and with a sidecar."""
    parts: list[Element] = []
    top = 16.0
    for lookup in dict.fromkeys(run.lookup for run in alone):
        pairs = [(run.reader, run, run.reader == "sidecar") for run in alone if run.lookup == lookup]
        for mine, others in zip(own, served, strict=True):
            if mine.lookup == lookup and mine.reader == "Spark SQL":
                pairs += [(mine.reader, mine, False), ("Spark SQL, sidecar serve", others, True)]
        longest = max(run.seconds for _, run, _ in pairs)
        parts.append(_text(16, top + 15, f"{lookup}: {pairs[0][1].predicate}", "title"))
        for number, (reader, run, is_ours) in enumerate(pairs, 1):
            words = f"{run.time}, {run.files} {'file' if run.files == 1 else 'files'}"
            parts += _bar(top + number * ROW, reader, run.seconds / longest, "ours" if is_ours else "peer", words)
        top += (len(pairs) + 1.5) * ROW
    return _svg(top, "Time and opened files of the demo's lookups, with and without a sidecar", parts)


def _bar(y: float, name: str, share: float, kind: str, words: str) -> list[Element]:
    return [
        _text(28, y + 15, name),
        _rect(LABEL, y + 3, BAR, kind="track"),
        _rect(LABEL, y + 3, max(2.0, BAR * share), kind),
        _text(LABEL + BAR + 8, y + 15, words, "dim"),
    ]


def _text(x: float, y: float, text: str, kind: str = "") -> Element:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", class_=kind)


def _rect(x: float, y: float, width: float, kind: str) -> Element:
    return element("rect", x=f"{x:g}", y=f"{y:g}", width=f"{width:.1f}", height="14", rx="2", class_=kind)


def _svg(height: float, title: str, parts: Sequence[Element]) -> str:
    back = element("rect", x="0.5", y="0.5", width=f"{WIDTH - 1}", height=f"{height - 1:g}", rx="6", class_="back")
    root = element("svg", element("title", title), element("style", STYLE), back, *parts)
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {WIDTH} {height:g}",
        "width": str(WIDTH),
        "height": f"{height:g}",
        "role": "img",
    }
    return tostring(root, encoding="unicode") + "\n"


def drawn() -> dict[Path, str]:
    """Return each picture's file with its content."""
    alone, own, served = tables(OUTPUT.read_text("utf-8"))
    without, found = (run for run in alone if run.lookup == "a comment")
    return {
        FOLDER / "funnel.svg": funnel(found, without.files),
        FOLDER / "demo.svg": demo(alone, own, served),
    }


if __name__ == "__main__":
    for path, text in drawn().items():
        path.write_text(text, "utf-8")
