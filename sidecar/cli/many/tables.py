"""Runs a command for many tables, and shows what became of each in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import typer

from sidecar.cli import humanize
from sidecar.cli.output import Output, OutputFormat, announce_dry_run, escaped, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


class PlainResult(Protocol):
    """A result of any kind; its plain data is what JSON shows."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        ...


Cells = dict[str, Any]
"""The columns of one table's line."""

RESULT = "result"
NO_SNAPSHOT = "no snapshot yet"
LONGEST_CELL = 60
"""Characters of a result that is in its table's line; a longer one is below the lines."""


def run_tables(
    out: Output,
    names: Sequence[str],
    work: Callable[[Any], PlainResult],
    cells: Callable[[Any], Cells],
    failed: Callable[[Any], bool] = lambda data: False,
    *,
    dry_run: bool = False,
) -> None:
    """Do ``work`` for each table and print a summary. ``cells`` are the columns of a table's line, from its result.

    The exit code is 1 if a table had an error, or if a result ``failed``, and 2 if the usage is wrong for all tables.
    ``dry_run`` says that nothing is written. Lines of JSON have the exit code of the table, and come when it is done.
    """
    from sidecar.iceberg.many_tables import each_table
    from sidecar.iceberg.table_names import name_of

    def work_by_name(opened: Any) -> PlainResult:
        with out.about(name_of(opened)):
            return work(opened)

    tables: list[dict[str, Any]] = []
    exits: list[int] = []
    for outcome in each_table(names, work_by_name, out.choices.catalog_or_variable):
        if outcome.error is not None:
            tables.append({"table": outcome.table, "error": outcome.error.to_dict()})
        else:
            found = outcome.result.to_dict() if outcome.result is not None else {}
            out.warn(f"{outcome.table}: {text}" for text in found.get("warnings", ()))
            tables.append({**found, "table": outcome.table})
        is_usage = isinstance(outcome.error, UsageError)
        exits.append(2 if is_usage else int(outcome.error is not None or failed(tables[-1])))
        if out.form is OutputFormat.jsonl:
            out.document_of_table(tables[-1], exits[-1])
    exit_code = 2 if set(exits) == {2} else int(any(exits))
    if out.form is OutputFormat.jsonl:
        raise typer.Exit(exit_code)
    summary = {"tables": len(tables), "failed": sum(map(bool, exits))}
    mode = {"dry_run": True} if dry_run else {}
    data = {"tables": tables, "summary": summary, **mode}
    out.result(data, lambda to, shown: draw_tables(to, shown, cells), failed=exit_code)


def draw_tables(to: Console, data: Any, cells: Callable[[Any], Cells]) -> None:
    """Draw a line for each table, and how many tables there are."""
    announce_dry_run(to, data)
    lines = [_line(one, cells) for one in data["tables"]]
    headings = _headings(lines)
    numbers = [n for n, name in enumerate(headings) if name not in ("table", RESULT)]
    drawn = table(*headings, right=numbers)
    long: list[str] = []
    for line in lines:
        shown = [_cell(name, line.get(name)) for name in headings if name != RESULT]
        text, style = (line["error"], "red") if "error" in line else (line[RESULT], "none")
        if len(text) > LONGEST_CELL:  # a path in it would be folded
            long.append(f"{line['table']}: {text}")
            text = "see below"
        drawn.add_row(*shown, f"[{style}]{escaped(text)}[/]")
    to.print(drawn)
    for text in long:
        to.print(text, markup=False, soft_wrap=True)
    total = data["summary"]
    others = "".join(
        f", [red]{humanize.count(count)} {name.replace('_', ' ')}[/]"
        for name, count in total.items()
        if count and name != "tables"
    )
    to.print(f"{humanize.count(total['tables'])} {'table' if total['tables'] == 1 else 'tables'}{others}")


def _line(one: Any, cells: Callable[[Any], Cells]) -> Cells:
    if "error" not in one:
        return {"table": one["table"], **cells(one)}
    error = one["error"]
    known = [
        error["message"],
        *(f"{k} {error[k]}" for k in ("file", "column", "expected", "found") if k in error),
    ]
    return {
        "table": one["table"],
        "error": "; ".join(known) + (f". {error['hint']}" if "hint" in error else ""),
    }


def _headings(lines: Sequence[Cells]) -> list[str]:
    """The columns of all lines; the result is the last one."""
    names = dict.fromkeys(name for line in lines for name in line)
    return [*(name for name in names if name not in ("error", RESULT)), RESULT]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in _UNITS:
        return _UNITS[name](value)
    return humanize.count(value) if isinstance(value, int) else escaped(str(value))


_UNITS: dict[str, Callable[[Any], str]] = {
    "sidecar": humanize.size,
    "to read": humanize.size,
    "unreferenced": humanize.size,
    "size": humanize.size,
    "time": humanize.duration,
}
"""How numbers of bytes and seconds are drawn."""


def build_cells(data: Any) -> Cells:
    """The line of ``build``, with the first file that failed."""
    files = data["files"]
    new = files["indexed"] - data["carried"]["files"]
    done = "built" if new else "nothing new"
    for path, reason in list(data["failed_files"].items())[:1]:
        done = f"not indexed: {path}: {reason}"
    return {
        "files": files["total"],
        "indexed": new,
        "kept": data["carried"]["files"],
        "failed": files["failed"],
        "sidecar": data["file_size"] or None,
        "time": data["seconds"],
        "result": f"nothing to index: {NO_SNAPSHOT}" if data["snapshot_id"] is None else done,
    }


def planned_cells(data: Any) -> Cells:
    """The line of ``build --dry-run``."""
    no_snapshot = f"nothing to index: {NO_SNAPSHOT}" if data["snapshot_id"] is None else ""
    return {
        "files": data["files_total"],
        "to index": len(data["files"]),
        "kept": data["files_carried"],
        "to read": data["files_size"],
        "result": no_snapshot or _planned_result(data),
    }


def _planned_result(data: Any) -> str:
    if not data["commits"]:
        return "already indexed"
    return "to be built" if data["files"] else "to be registered"


def verify_cells(data: Any) -> Cells:
    """The line of ``verify``, with the first problem."""
    counts = data.get("looked_up", {})
    first = data["problems"][0]["problem"] if data["problems"] else "fine" if data["checked"] else data["scope"]
    return {
        "checked": data["checked"],
        "values looked up": counts.get("values"),
        "problems": len(data["problems"]),
        "result": first,
    }
