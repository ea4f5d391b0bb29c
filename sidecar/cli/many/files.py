"""The text of results of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from sidecar.cli import humanize
from sidecar.cli.output import Output, error_text, escaped, facts, table, without_folder
from sidecar.cli.shell.choices import OutputFormat
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sidecar.cli.inspect import Inspection
    from sidecar.errors import SidecarError
    from sidecar.results import (
        ColumnSummary,
        ExtractReport,
        FileInfo,
        InspectedFiles,
        ProbedFile,
        ProbedFiles,
        Spread,
        Verification,
        WrittenFiles,
    )


R = TypeVar("R", bound="Inspection | ProbedFiles | Verification | WrittenFiles | ExtractReport")


def draw_inspected(to: Console, found: InspectedFiles) -> None:
    """Draw one line for each file, one for each column over all files, then the totals."""
    lines, columns = found.lines, found.columns
    folder, names = without_folder([line.file for line in lines])
    _title(to, folder)
    headings = (
        "file",
        "format",
        "size",
        "rows",
        "row groups",
        "columns with filter",
        "with page index",
        "filters",
    )
    drawn = table(*headings, right=(2, 3, 4, 5, 6, 7))
    for name, line in zip(names, lines, strict=True):
        drawn.add_row(
            escaped(name),
            line.format,
            humanize.size(line.size),
            humanize.count(line.rows),
            humanize.count(line.row_groups),
            humanize.count(line.columns_with_filter),
            humanize.count(line.columns_with_page_index),
            humanize.size(line.filter_bytes) if line.filters else "–",
        )
    to.print(drawn)
    if columns:
        to.print(_columns(columns))
    size, rows = sum(line.size for line in lines), sum(line.rows or 0 for line in lines)
    filters = quantity(sum(line.filters for line in lines), "filter")
    indexes = f"{filters}, {humanize.size(sum(line.filter_bytes for line in lines))}"
    amounts = f"{humanize.count(len(lines))}, {humanize.size(size)}, {humanize.count(rows)} rows"
    to.print(facts([("files", amounts), ("indexes", indexes)]))
    draw_failed(to, found.failed, found.others)


def _columns(columns: Iterable[ColumnSummary]) -> Table:
    headings = ("column", "files", "rows", "with filter", "filters", "size", "each", "false positives")
    drawn = table(*headings, "with page index", "size", "", right=range(1, 10))
    for column in columns:
        sizes, rates, pages = column.filter_bytes, column.false_positives, column.page_index_bytes
        bad = column.filters_not_trusted
        drawn.add_row(
            escaped(column.column),
            humanize.count(column.files),
            humanize.count(column.rows),
            humanize.count(column.files_with_filter),
            humanize.count(column.filters),
            "–" if sizes is None else humanize.size(sizes.sum),
            "–" if sizes is None else _between(humanize.size, sizes),
            "–" if rates is None else _between(humanize.percent, rates),
            humanize.count(column.files_with_page_index),
            "–" if pages is None else humanize.size(pages.sum),
            f"[yellow]{humanize.count(bad)} not trusted[/]" if bad else "",
        )
    return drawn


def _between(text: Callable[[float], str], spread: Spread) -> str:
    low, high = text(spread.min), text(spread.max)
    return low if low == high else f"{low} to {high}"


def draw_verified(to: Console, found: Verification) -> None:
    """Draw one line for each file, the problems, then the totals."""
    folder, names = without_folder([file.file for file in found.files])
    _title(to, folder)
    drawn = table("file", "", "values looked up", "indexes compared", right=(2, 3))
    for name, file in zip(names, found.files, strict=True):
        counts, problems = file.looked_up, len(file.problems)
        state = f"[red]{humanize.count(problems)} problem{'s' * (problems > 1)}[/]" if problems else "[green]fine[/]"
        values, indexes = (None, None) if counts is None else (counts.values, counts.indexes)
        drawn.add_row(escaped(name), state, humanize.count(values), humanize.count(indexes))
    to.print(drawn)
    for problem in found.problems:
        place = [f"row group {problem.unit}"] if problem.unit is not None else []
        place += [problem.column] if problem.column else []
        where = ", ".join([str(problem.file), *place])
        to.print(f"problem: {where}: {problem.problem}", markup=False, soft_wrap=True)
    bad = sum(bool(file.problems) for file in found.files)
    problems_in = f", {humanize.count(bad)} with problems" if bad else ""
    scope = f" ({found.scope})" if found.scope is not None else ""
    to.print(f"{quantity(found.checked, 'file')} checked{problems_in}{scope}")
    draw_failed(to, found.failed, found.others)


def draw_probed(to: Console, found: ProbedFiles) -> None:
    """Draw how many files may hold the value, then these, then what the answer cost."""
    answers = [file.might_contain for file in found.files]
    sizes = [sum(file.size for file in files) for files in (found.kept, found.files)]
    reads, read = sum(file.reads for file in found.files), sum(file.bytes_read for file in found.files)
    lines = [
        ("files", f"{humanize.count(len(answers)):>8}"),
        ("cannot hold it", f"{humanize.count(answers.count(False)):>8}"),
        ("may hold it", f"[bold]{humanize.count(answers.count(True)):>8}[/]"),
        ("unknown: kept", f"{humanize.count(answers.count(None)):>8}"),
        ("to read", f"{humanize.size(sizes[0])} of {humanize.size(sizes[1])}"),
        ("index", f"{humanize.size(read)} in {quantity(reads, 'read')}"),
    ]
    to.print(facts(lines))
    if found.kept:
        folder, names = without_folder([file.file for file in found.kept])
        to.print()
        _title(to, folder, "files to read")
        drawn = table("file", "size", "row groups", "", right=(1, 2))
        for name, file in zip(names, found.kept, strict=True):
            drawn.add_row(escaped(name), humanize.size(file.size), _units_to_read(file), escaped(_answer(file)))
        to.print(drawn)
    draw_failed(to, found.failed, found.others)


def _units_to_read(file: ProbedFile) -> str:
    units = [unit for unit in file.units if unit.might_contain is not False]
    return f"{humanize.count(len(units))} of {humanize.count(len(file.units))}" if file.units else "–"


def _answer(file: ProbedFile) -> str:
    if file.might_contain:
        return "may hold it"
    reasons = dict.fromkeys(unit.reason for unit in file.units if unit.might_contain is None)
    return f"unknown: {file.reason or '; '.join(reasons)}"


def draw_failed(to: Console, failed: Mapping[str, SidecarError], others: int = 0) -> None:
    """Draw the files that could not be read, each with its error, and how many others the folders have."""
    for file, error in failed.items():
        text = error_text(error, "offset", "expected", "found")
        to.print(f"failed: {file}: {text}", markup=False, soft_wrap=True)
    if others:
        files = f"{humanize.count(others)} other file{'s' * (others > 1)}"
        to.print(f"[dim]left out, for their endings: {files} of the folders[/]")


def warn_of_each(out: Output, files: Sequence[FileInfo | ProbedFile]) -> None:
    """Print the warnings of all files; of more than one file with its path."""
    for file in files:
        warnings = getattr(file, "warnings", None) or ()
        out.warn(text if len(files) == 1 else f"{file.file}: {text}" for text in warnings)


def show(
    out: Output, found: R, draw: Callable[[Console, R], None], *, each: str | None = "files", failed: bool = False
) -> None:
    """Print a result of files; ``each`` as in :meth:`Output.result`. A file that failed has a line, and exit code 1."""
    if each is None and out.form is OutputFormat.jsonl:
        out.warn(f"failed: {file}: {error.what}" for file, error in found.failed.items())
    out.result(found, draw, each=each, failed=failed or bool(found.failed))


def _title(to: Console, folder: str, what: str = "files") -> None:
    if folder:
        to.print(f"{what} in {folder}", markup=False, soft_wrap=True)
