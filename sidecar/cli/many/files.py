"""The text of results of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sidecar.cli import humanize
from sidecar.cli.output import Output, escaped, facts, shown, table, without_folder
from sidecar.cli.shell.choices import OutputFormat
from sidecar.run_log import quantity

if TYPE_CHECKING:
    from rich.console import Console


def draw_inspected(to: Console, data: Any) -> None:
    """Draw one line for each file, one for each column over all files, then the totals."""
    folder, names = without_folder([line["file"] for line in data["lines"]])
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
    for name, line in zip(names, data["lines"], strict=True):
        drawn.add_row(
            escaped(name),
            line["format"],
            humanize.size(line["size"]),
            humanize.count(line["rows"]),
            humanize.count(line["row_groups"]),
            humanize.count(line["columns_with_filter"]),
            humanize.count(line["columns_with_page_index"]),
            humanize.size(line["filter_bytes"]) if line["filters"] else "–",
        )
    to.print(drawn)
    if data["columns"]:
        to.print(_columns(data["columns"]))
    amounts = f"{humanize.size(data['size'])}, {humanize.count(data['rows'])} rows"
    filters = f"{quantity(data['filters'], 'filter')}, {humanize.size(data['filter_bytes'])}"
    to.print(facts([("files", f"{humanize.count(len(data['lines']))}, {amounts}"), ("indexes", filters)]))
    draw_failed(to, data)


def _columns(columns: Iterable[Any]) -> Any:
    headings = ("column", "files", "rows", "with filter", "filters", "size", "each", "false positives")
    drawn = table(*headings, "with page index", "size", "", right=range(1, 10))
    for column in columns:
        sizes, rates, pages = column["filter_bytes"], column["false_positives"], column["page_index_bytes"]
        bad = column["filters_not_trusted"]
        drawn.add_row(
            escaped(column["column"]),
            humanize.count(column["files"]),
            humanize.count(column["rows"]),
            humanize.count(column["files_with_filter"]),
            humanize.count(column["filters"]),
            "–" if sizes is None else humanize.size(sizes["sum"]),
            "–" if sizes is None else _between(humanize.size, sizes),
            "–" if rates is None else _between(humanize.percent, rates),
            humanize.count(column["files_with_page_index"]),
            "–" if pages is None else humanize.size(pages["sum"]),
            f"[yellow]{humanize.count(bad)} not trusted[/]" if bad else "",
        )
    return drawn


def _between(text: Any, spread: Any) -> str:
    low, high = text(spread["min"]), text(spread["max"])
    return low if low == high else f"{low} to {high}"


def draw_verified(to: Console, data: Any) -> None:
    """Draw one line for each file, the problems, then the totals."""
    folder, names = without_folder([file["file"] for file in data["files"]])
    _title(to, folder)
    drawn = table("file", "", "values looked up", "indexes compared", right=(2, 3))
    for name, file in zip(names, data["files"], strict=True):
        counts, problems = file.get("looked_up", {}), len(file["problems"])
        state = f"[red]{humanize.count(problems)} problem{'s' * (problems > 1)}[/]" if problems else "[green]fine[/]"
        drawn.add_row(escaped(name), state, humanize.count(counts.get("values")), humanize.count(counts.get("indexes")))
    to.print(drawn)
    for problem in data["problems"]:
        place = [f"row group {problem['unit']}"] if problem["unit"] is not None else []
        place += [problem["column"]] if problem["column"] else []
        where = ", ".join([str(problem["file"]), *place])
        to.print(f"problem: {where}: {problem['problem']}", markup=False, soft_wrap=True)
    bad = sum(bool(file["problems"]) for file in data["files"])
    found = f", {humanize.count(bad)} with problems" if bad else ""
    scope = f" ({data['scope']})" if "scope" in data else ""
    to.print(f"{quantity(data['checked'], 'file')} checked{found}{scope}")
    draw_failed(to, data)


def draw_probed(to: Console, data: Any) -> None:
    """Draw how many files may hold the value, then these, then what the answer cost."""
    lines = [
        ("files", f"{humanize.count(len(data['files'])):>8}"),
        ("cannot hold it", f"{humanize.count(data['cannot_hold']):>8}"),
        ("may hold it", f"[bold]{humanize.count(data['may_hold']):>8}[/]"),
        ("unknown: kept", f"{humanize.count(data['unknown']):>8}"),
        ("to read", f"{humanize.size(data['kept_size'])} of {humanize.size(data['size'])}"),
        ("index", f"{humanize.size(data['bytes_read'])} in {quantity(data['reads'], 'read')}"),
    ]
    to.print(facts(lines))
    kept = [file for file in data["files"] if file["might_contain"] is not False]
    if kept:
        folder, names = without_folder([file["file"] for file in kept])
        to.print()
        _title(to, folder, "files to read")
        drawn = table("file", "size", "row groups", "", right=(1, 2))
        for name, file in zip(names, kept, strict=True):
            drawn.add_row(escaped(name), humanize.size(file["size"]), _units_to_read(file), escaped(_answer(file)))
        to.print(drawn)
    draw_failed(to, data)


def _units_to_read(file: Any) -> str:
    units = [unit for unit in file["units"] if unit["might_contain"] is not False]
    return f"{humanize.count(len(units))} of {humanize.count(len(file['units']))}" if file["units"] else "–"


def _answer(file: Any) -> str:
    if file["might_contain"]:
        return "may hold it"
    reasons = dict.fromkeys(unit["reason"] for unit in file["units"] if unit["might_contain"] is None)
    return f"unknown: {file['reason'] or '; '.join(reasons)}"


def draw_failed(to: Console, data: Any) -> None:
    """Draw the files that could not be read, each with its error, and how many others the folders have."""
    for file, error in data["failed"].items():
        known = [
            error["message"],
            *(f"{k} {error[k]}" for k in ("offset", "expected", "found") if k in error),
        ]
        to.print(f"failed: {file}: {'; '.join(known)}", markup=False, soft_wrap=True)
    if data.get("others"):
        others = f"{humanize.count(data['others'])} other file{'s' * (data['others'] > 1)}"
        to.print(f"[dim]left out, for their endings: {others} of the folders[/]")


def only_file(data: dict[str, Any]) -> Any:
    """The result of the one file, as it is drawn; ``None`` if there are more files."""
    return shown(data["files"][0]) if len(data["files"]) == 1 and not data["failed"] else None


def warn_of_each(out: Output, data: dict[str, Any]) -> None:
    """Print the warnings of all files; of more than one file with its path."""
    is_one = len(data["files"]) == 1
    for file in data["files"]:
        out.warn(text if is_one else f"{file['file']}: {text}" for text in file.get("warnings", ()))


def show(
    out: Output,
    data: dict[str, Any],
    draw: Callable[[Console, Any], None],
    *,
    each: str | None = "files",
    failed: bool = False,
) -> None:
    """Print a result of files; ``each`` as in :meth:`Output.result`. A file that failed has a line, and exit code 1."""
    errors = data.get("failed", {})
    if out.form is OutputFormat.jsonl:
        lines = [{"file": file, "error": error} for file, error in errors.items()]
        if each is None:
            out.warn(f"failed: {line['file']}: {line['error']['message']}" for line in lines)
        else:
            data = {**data, each: [*data[each], *lines]}
    out.result(data, draw, each=each, failed=failed or bool(errors))


def _title(to: Console, folder: str, what: str = "files") -> None:
    if folder:
        to.print(f"{what} in {folder}", markup=False, soft_wrap=True)
