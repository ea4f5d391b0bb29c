"""The figures in README and the guides, out of the committed results: no page has one that was not measured.

``scripts/bench --guides`` writes them, and a test compares. A :class:`Passage` is what a page has from one text up to
another; its function makes it of the results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.benchmarks.harness.data import ROOT
from scripts.benchmarks.harness.results import BenchmarkResult, Curve, Row, read_results

RESULTS = ROOT / "scripts" / "bench-results"
FILES = ("results.json", "scaling/results.json", "others/results.json")
GUIDES = "sidecar/guide"
MANY = 10_000_000
"""Files, for which curves of the guide about limits go on."""


class Measured:
    """The rows and curves of all committed results."""

    def __init__(self, results: Mapping[str, BenchmarkResult]) -> None:
        self._rows = {(name, row.what, row.against): row for name, one in results.items() for row in one.rows}
        self._curves = {(name, curve.what): curve for name, one in results.items() for curve in one.curves}

    def row(self, benchmark: str, what: str, against: str = "") -> Row:
        """Return a row. Raises ``KeyError``."""
        return self._rows[benchmark, what, against]

    def figure(self, benchmark: str, what: str, against: str = "") -> float:
        """Return the figure of a row. Raises ``KeyError``, and ``ValueError`` if it was not measured."""
        found = self.row(benchmark, what, against).figure
        if found is None:
            raise ValueError(f"{benchmark}: {what} was not measured")
        return found

    def noted(self, benchmark: str, what: str, pattern: str) -> str:
        """Return what the first group of a pattern finds in a row's note. Raises ``ValueError``."""
        found = re.search(pattern, self.row(benchmark, what).note)
        if found is None:
            raise ValueError(f"the note of {benchmark}: {what} has no {pattern}")
        return found[1]

    def curve(self, what: str) -> Curve:
        """Return a curve of the benchmark of scaling. Raises ``KeyError``."""
        return self._curves["scaling", what]


@dataclass(frozen=True)
class Passage:
    """A part of a page that has figures."""

    page: str
    """A path in the repository."""
    start: str
    """The text that it begins with."""
    end: str
    """The text that follows it."""
    made_of: Callable[[Measured], str]

    def replaced(self, text: str, measured: Measured) -> str:
        """Return the page's text with this passage anew. Raises ``ValueError`` if the page does not have it."""
        first = text.index(self.start)
        return text[:first] + self.made_of(measured) + text[text.index(self.end, first) :]


def committed() -> Measured:
    """Return the committed results. Raises ``OSError``."""
    results: dict[str, BenchmarkResult] = {}
    for name in FILES:
        results |= read_results(RESULTS / name)
    return Measured(results)


def rewritten(measured: Measured) -> dict[Path, str]:
    """Return the pages whose figures are not those that were measured, with the text that they should have."""
    texts: dict[Path, str] = {}
    for passage in PASSAGES:
        path = ROOT / passage.page
        text = texts.get(path) or path.read_text("utf-8")
        texts[path] = passage.replaced(text, measured)
    return {path: text for path, text in texts.items() if text != path.read_text("utf-8")}


def write_guides() -> list[Path]:
    """Write the committed figures into the pages; return the pages that changed."""
    pages = rewritten(committed())
    for path, text in pages.items():
        path.write_text(text, "utf-8")
    return list(pages)


def rounded(value: float, digits: int = 2) -> str:
    """Return a figure with so many significant digits."""
    if not value:
        return "0"
    short = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{short:,.0f}" if abs(short) >= 100 else f"{short:g}"


def plans(measured: Measured) -> str:
    def line(what: str, shown: str) -> str:
        name = f"{what}, 100,000 files"
        faster = measured.figure("plan", name, "pyiceberg")
        size = measured.figure("plan", f"{name}: bytes of the index")
        reads = measured.noted("plan", f"{name}: bytes of the index", r"(\d+) reads")
        return f"| {shown} | {rounded(faster)} times | {rounded(size, 3 if size > 10 else 2)} MB in {reads} reads |\n"

    few = measured.noted("plan", "range that leaves few, 100,000 files: bytes of the index", r"([\d,]+) files kept")
    units = "point, 1,000,000 row groups"
    return (
        "Measured over 100,000 files in manifests of 5,000 (`scripts/bench plan`, first plan of a process):\n\n"
        "| predicate | as fast as pyiceberg's `plan_files` | read of the index |\n| --- | --- | --- |\n"
        + line("point", "a point lookup")
        + line("range that leaves few", f"a range that leaves {few} files")
        + line("range that leaves all", "a range that leaves all files")
        + "\nA point lookup over ten times as many row groups, a million, takes "
        f"{rounded(measured.figure('plan', f'{units} (CPU)'), 1)} s of CPU and reads "
        f"{rounded(measured.figure('plan', f'{units}: bytes of the index'))} MB.\n\n"
    )


def refreshes(measured: Measured) -> str:
    one = "refresh after one file more than 10,000"
    copied = int(measured.noted("refresh", f"{one}: data files opened", r"sidecar \d+ in ([\d,]+)").replace(",", ""))
    tail = int(measured.noted("refresh", "refresh with nothing to do (CPU)", r"sidecar 2 in ([\d,]+)").replace(",", ""))
    nothing = measured.figure("refresh", "refresh with nothing to do (CPU)")
    return (
        "**What it costs,** on a table of 10,000 files (`scripts/bench refresh`):\n\n"
        "| refresh | reads | CPU time |\n| --- | --- | --- |\n"
        f"| nothing to do | the sidecar's tail: 2 reads, {tail / 1e3:.0f} kB | "
        f"{nothing * 1e3:.0f} ms after the table is loaded |\n"
        "| one file more | that file, the manifest list, the manifest that is new, "
        f"{copied / 1e6:.1f} MB of the old sidecar | "
        f"{rounded(measured.figure('refresh', f'{one}: CPU beyond copying'), 1)} s beyond copying |\n"
        "| one file removed | no data file | |\n\n"
    )


def served_plans(measured: Measured) -> str:
    def cpu(client: str, what: str) -> float:
        return measured.figure("serve", f"plan request of {client}: {what} (CPU)")

    def against_own(what: str) -> float:
        return measured.figure("serve", f"{what} (CPU)", "its own plans")

    lookup, kinds = "lookup in 658 files", ("no filter", "a range that keeps all", "an indexed value in all")
    before = f"{lookup}, before sidecar serve"
    spark, pyiceberg = ([cpu(client, f"{kind}, 20,000 files") for kind in kinds] for client in ("Spark", "pyiceberg"))
    memory = measured.figure("serve", "memory of the server after 2,000 lookups")
    return (
        "`scripts/bench serve` measures it:\n\n| plan | CPU of the server |\n| --- | --- |\n"
        "| a value that each request has anew, 658 files, `--catalog`, for Spark / pyiceberg | "
        f"{cpu('Spark', lookup):.1f} / {cpu('pyiceberg', lookup):.1f} ms |\n"
        "| the same with `--upstream`, without the catalog's own time | "
        f"{cpu('Spark', before):.1f} / {cpu('pyiceberg', before):.1f} ms |\n"
        "| all of 20,000 files with no filter, a range, or an indexed value in all, for Spark | "
        f"{', '.join(f'{ms:.0f}' for ms in spark)} ms |\n"
        f"| the same for pyiceberg | {', '.join(f'{ms:.0f}' for ms in pyiceberg)} ms |\n\n"
        "| query | CPU of client and server, against the client that plans by itself |\n| --- | --- |\n"
        f"| Spark, a value in 1 of 658 files | 1/{against_own('Spark, a value in 1 of 658 files'):.0f} |\n"
        f"| Spark, a value in none of 658 files | 1/{against_own('Spark, a value in none of 658 files'):.0f} |\n"
        f"| Spark, plan that keeps 20,000 files | {against_own('Spark, plan that keeps all'):.1f} times |\n"
        f"| pyiceberg, plan that keeps 20,000 files | {against_own('pyiceberg, plan that keeps all'):.2f} times |\n\n"
        f"The process takes {memory / 1e3:.2f} GB after 2,000 different lookups, and "
    )


def growth(measured: Measured) -> str:
    def line(shown: str, what: str, unit: str, things: str, later: tuple[str, float] | None = None) -> str:
        curve = measured.curve(what)
        (count, value), law = curve.points[-1], curve.last_law
        cell = ""
        if later is not None:
            name, seconds = later
            ends = sorted((value * MANY / count / seconds, law.at(MANY) / seconds))
            cell = f"{rounded(ends[0])} to {rounded(ends[1])} {name}"
        return f"| {shown} | {rounded(value)} {unit}, {count:,.0f} {things} | {law.exponent:.2f} | {cell} |\n"

    return (
        "| what | last measured, of so many | exponent | at ten million |\n| --- | --- | --- | --- |\n"
        + line("build, two columns, tiny files", "build in files", "s", "files", ("hours", 3600))
        + line("refresh after one file more", "refresh in files", "s", "files", ("minutes", 60))
        + line("plan of a key", "plan of a key in files", "s", "files", ("s", 1))
        + line("lookup in the filters of a column", "lookup in units", "ms", "row groups", ("ms", 1))
        + line("plan that keeps all", "plan that keeps all in files", "s", "files", ("minutes", 60))
        + line(
            "memory that a build takes more, three columns", "memory that units add", "MB", "row groups", ("GB", 1000)
        )
        + line("the same in columns, 100 row groups", "memory that columns add", "MB", "columns")
        + line("build, two columns of longs, eight files", "build in rows", "s", "rows")
        + "\n"
    )


def ratios_on_spark(measured: Measured) -> str:
    points = measured.curve("build on Spark, local[2], against a build in process").points
    first, last = points[0], points[-1]
    return (
        f"On two cores Spark takes {first[1]:.1f} times as long as a build in process\n"
        f"   for {first[0] / 1e6:.0f} million rows, and {last[1]:.1f} times for {last[0] / 1e6:.0f} million"
    )


def memory(measured: Measured) -> str:
    def most(role: str, *whats: str) -> str:
        return f"{max(measured.figure('memory', f'memory, {what}: {role}') for what in whats):.2f} GB"

    bundle = "of a bundle of 4.2 GB"
    builds = (f"build {bundle}, spark", f"build {bundle}, local")
    drivers = most("driver", *builds, f"refresh {bundle}")
    worker, java = most("worker", builds[0]), most("java", builds[0])
    units = most("driver", *(f"build of 100,000 units x 3 columns, {engine}" for engine in ("local", "spark")))
    return (
        f"- For 4.2 GB of filters, the driver of a build or refresh took at most {drivers}, and a Python worker "
        f"{worker}.\n"
        f"- Java took {java} with Spark's usual heap. A heap of 512 MB was too small for that build.\n"
        f"- A build of 100,000 row groups and three columns took {units}.\n"
    )


def lookups_in_files(measured: Measured) -> str:
    def line(predicate: str, what: str, file: str, more: str = "") -> str:
        name = f"a lookup of {what}, file {file}"
        groups, share = (measured.noted("embed", name, pattern) for pattern in (r"(\d+ of \d+) row", r"([\d.]+%)"))
        size = rounded(measured.figure("embed", name), 3)
        return f"| {predicate} | {file} | {groups}{more} | {size} MB, {share.replace('%', ' %')} |\n"

    comment, key = "`l_comment = '…'`", "`l_orderkey = …`"
    return (
        "| predicate | file | row groups read | bytes read |\n| --- | --- | --- | --- |\n"
        + line(comment, "a comment", "as written")
        + line(comment, "a comment", "with indexes")
        + line(key, "a sorted key", "as written")
        + line(key, "a sorted key", "with indexes", ", one page of each column")
        + "\n"
    )


def as_fast(measured: Measured) -> str:
    return f"a point lookup is planned {rounded(measured.figure('plan', 'point, 100,000 files', 'pyiceberg'))} times"


def sketches(measured: Measured) -> str:
    faster = measured.figure("kernels", "update a theta sketch with 500,000 int64", "datasketches")
    return f"hashes to a sketch, where it is {faster:.0f} times"


PASSAGES = [
    Passage("README.md", "a point lookup is planned ", " as fast as pyiceberg", as_fast),
    Passage(".github/design/decisions.md", "hashes to a sketch, where", " as fast. Tests compare", sketches),
    Passage(f"{GUIDES}/plan-and-scan.md", "Measured over 100,000 files in", "## Keys of a join", plans),
    Passage(f"{GUIDES}/upkeep.md", "**What it costs,**", "A hundred files one after", refreshes),
    Passage(f"{GUIDES}/serve.md", "`scripts/bench serve` measures it:", "no more after the second", served_plans),
    Passage(f"{GUIDES}/limits.md", "| what | last measured", "Times are CPU time", growth),
    Passage(f"{GUIDES}/limits.md", "- For 4.2 GB of filters", "\n## What to do with ten", memory),
    Passage(f"{GUIDES}/limits.md", "On two cores Spark takes", ": its start", ratios_on_spark),
    Passage(
        f"{GUIDES}/embedding.md", "| predicate | file | row groups read", "## All files of a table", lookups_in_files
    ),
]
