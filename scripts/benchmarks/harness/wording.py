"""Figures and rows as text."""

from __future__ import annotations

from typing import Any

from scripts.benchmarks.harness.results import BenchmarkResult, Row


def shown(value: float) -> str:
    """Return a count as it is, and any other figure with three significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}" if abs(value) >= 0.01 else f"{value:.2g}"


def cell(row: Row) -> str:
    """Return the figure of a row with its unit."""
    return "not measured" if row.figure is None else f"{shown(row.figure)} {row.unit}".strip()


def row_line(row: Row) -> str:
    """Return a row as a line for a terminal."""
    against = f" against {row.against}" if row.against else ""
    spread = f" (spread {row.spread:.0%})" if row.spread else ""
    verdict = f"; target {row.target}: {row.verdict}" if row.target else ""
    note = f"; {row.note}" if row.note else ""
    return f"  {row.what}{against}: {cell(row)}{spread}{verdict}{note}"


def markdown(results: list[BenchmarkResult]) -> str:
    """Return the page of all results: the machine, one table, and the pictures."""
    lines = ["# What `scripts/bench` measured", "", *_machine(results), ""]
    lines += [
        "`x` is how many times as much sidecar takes as who is named under *against*; `x faster` is the reverse.",
        "",
    ]
    lines += [
        "| benchmark | what | against | figure | spread | target | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        lines += [_row(result.name, row) for row in result.rows]
        if result.failure:
            lines.append(f"| {result.name} | failed: {_escaped(result.failure)} | | | | | failed |")
    lines += ["", "*Spread* is the distance between the quartiles of the turns, as a share of the figure.", ""]
    for result in results:
        pictures = [name for name, _ in picture_names(result)]
        if pictures:
            lines += [
                f"## {result.name}",
                "",
                result.title,
                "",
                *(f"![{result.name}]({name})" for name in pictures),
                "",
            ]
    return "\n".join(lines)


def picture_names(result: BenchmarkResult) -> list[tuple[str, int | None]]:
    """Return the files of a result's pictures, each with the number of its curve, ``None`` for the bars."""
    bars: list[tuple[str, int | None]] = [(f"{result.name}.svg", None)] if result.comparisons else []
    return bars + [(f"{result.name}-{at + 1}.svg", at) for at in range(len(result.curves))]


def _row(name: str, row: Row) -> str:
    spread = f"{row.spread:.0%}" if row.spread else ""
    note = f" ({row.note})" if row.note else ""
    target = "" if row.target is None else str(row.target)
    cells = [name, row.what + note, row.against, cell(row), spread, target, row.verdict]
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _machine(results: list[BenchmarkResult]) -> list[str]:
    """Return the facts that all results share, and apart from them when and how busy each was."""
    if not results:
        return ["Nothing was measured."]
    last: dict[str, Any] = results[-1].machine
    packages = ", ".join(f"{name} {version}" for name, version in last.get("packages", {}).items())
    lines = [
        f"{last.get('cores')} cores of {last.get('processor')}, {last.get('memory_gib')} GiB, {last.get('kernel')}, "
        f"Python {last.get('python')}, Java {last.get('java') or 'none'}; {packages}.",
        "",
    ]
    took = ", ".join(f"{one.name} {one.seconds:.0f} s" for one in results)
    loads = ", ".join(f"{one.name} {one.machine.get('load')}" for one in results)
    commits = sorted({f"{one.machine.get('commit')} ({one.machine.get('date', '')[:10]})" for one in results})
    scales = sorted({str(one.machine.get("scale")) for one in results} - {"normal", "None"})
    if scales:
        lines += [f"Some sizes are not the usual ones ({', '.join(scales)}), so figures say less.", ""]
    return [
        *lines,
        f"Commit {', '.join(commits)}. It took {sum(one.seconds for one in results) / 60:.1f} minutes: {took}.",
        f"The load of the machine in the minute before each: {loads}.",
    ]
