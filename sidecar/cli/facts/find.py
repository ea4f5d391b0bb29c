"""``sidecar find``: which data files hold a value, with evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import Cells, draw_lines, warn_of_tables
from sidecar.cli.many.targets import are_several_tables
from sidecar.cli.options import (
    At,
    KeyPlace,
    chosen_catalog,
    encryption_keys,
    is_path,
    opened_table,
    storage_for,
    storage_options,
)
from sidecar.cli.output import SHOWN, error_text, escaped, facts, output
from sidecar.cli.output import table as table_of
from sidecar.cli.shell.forms import ResultRows, rows_of

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import FindReport, FoundInTables


FindTarget = Annotated[
    str,
    typer.Argument(
        metavar="PATH|TABLE",
        help="A table or a glob of tables (db.*, db.** for all below), or a file, a folder, or a glob of files.",
    ),
]
ValuesFile = Annotated[
    Path | None,
    typer.Option(
        "--values",
        metavar="FILE",
        help="Look for the values of a CSV file (UTF-8), whose first line names the columns; if a column is named "
        "before, for each line.",
    ),
]

Strict = Annotated[
    bool, typer.Option("--strict", help="Let bounds that are the value count as found, and all sidecars be readable.")
]


def find(
    table: FindTarget,
    conditions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMN=VALUE...",
            help="What to look for: mail=ann@example.com, user_id=42; 'mail|email=...' for a column of two names.",
        ),
    ] = None,
    values: ValuesFile = None,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Ask every snapshot that the table retains, not only one."),
    ] = False,
    read_all: Annotated[
        bool,
        typer.Option("--read-all", help="Read the column in every data file; believe no bounds and no filters."),
    ] = False,
    orphans: Annotated[
        bool,
        typer.Option("--orphans", help="Read data files in the table's folders too that no retained snapshot names."),
    ] = False,
    strict: Strict = False,
    at: At = None,
    keys: KeyPlace = None,
) -> None:
    """Find the data files that hold a value, with evidence.

    Files that bounds and filters do not rule out are read. The exit code is 0 if the values are proven to be absent, 1
    if one was found, and 3 if nothing was found but something could not be asked. --json prints the evidence.

    \b
    Examples:
      sidecar find hr.users mail=ann@example.com
      sidecar find hr.users mail=ann@example.com user_id=42 --all-snapshots --json
      sidecar find 'hr.**' --values people.csv --all-snapshots --orphans --json
      sidecar find './*.parquet' l_orderkey=700005
    """
    out = output()
    from sidecar.reports.finding.evidence import FindOptions
    from sidecar.reports.finding.find import find_with
    from sidecar.reports.finding.given_values import conditions_from
    from sidecar.reports.finding.plain_files import find_in_files

    wanted = conditions_from(conditions or [], None if values is None else str(values))
    is_file = is_path(table) and not table.endswith(".metadata.json")
    place = storage_for(table) if is_file else None
    options = FindOptions(at, all_snapshots, read_all, orphans, encryption_keys(keys), None, place)
    if is_file or not are_several_tables([table]):
        report = find_in_files(table, wanted, options) if is_file else find_with(opened_table(table), wanted, options)
        out.warn(report.warnings)
        out.result(report, draw, rows=_rows([report]), failed=report.exit_code(strict=strict))
        return
    from sidecar.reports.finding.many import find_in_tables

    storage = storage_options(out.choices.storage)
    many = find_in_tables([table], wanted, replace(options, may_lack=True), chosen_catalog(), **storage)
    warn_of_tables((one.table, text) for one in many.tables for text in one.warnings)
    out.result(many, draw_many, each="tables", rows=_rows(many.tables, "table"), failed=many.exit_code(strict=strict))


def _rows(reports: Sequence[FindReport], first: str = "") -> ResultRows:
    """A row for each value, and for each table if ``first`` names it."""
    columns = f"{first} column value answer files rows delete_files traces impossible"
    return rows_of(columns, ({"table": each.table, **one.to_dict()} for each in reports for one in each.conditions))


def draw_many(to: Console, found: FoundInTables) -> None:
    """Draw a line for each table, then what each of those that are not clean has."""
    lines: list[Cells] = [
        {
            "table": one.table,
            "files": len({hit.file for hit in one.files}),
            "rows": sum(hit.rows for hit in one.files),
            "files read": len({read.file for read in one.files_read}),
            "orphans": one.orphans,
            "not asked": len(one.not_asked),
            "result": one.answer,
        }
        for one in found.tables
    ]
    errors: list[Cells] = [
        {"table": name, "error": error_text(error, hint=True)} for name, error in found.failed.items()
    ]
    to.print(f"answer  [bold]{found.answer}[/]")
    draw_lines(to, [*lines, *errors], {"tables": len(lines) + len(errors), "failed": len(errors)})
    for one in found.tables:
        if one.files or one.not_asked:
            to.print()
            to.print(one.table, markup=False, style="bold")
            _draw_files(to, one)
            _draw_missed(to, one)


def draw(to: Console, found: FindReport) -> None:
    """Draw the answers, then where the values are, then what could not be asked."""
    to.print(facts(_facts(found)))
    _draw_conditions(to, found)
    _draw_files(to, found)
    _draw_traces(to, found)
    _draw_missed(to, found)


def _draw_missed(to: Console, found: FindReport) -> None:
    for missed in found.not_asked:
        text = f"not asked: {missed.what} {missed.file}: {missed.reason}"
        to.print(text, markup=False, soft_wrap=True)


def _facts(found: FindReport) -> list[tuple[str, str]]:
    snapshots = found.snapshots
    staged = sum(one.staged for one in snapshots)
    refs = sorted({name for one in snapshots for name in (*one.branches, *one.tags)})
    asked = f"{humanize.count(len(snapshots))} asked"
    if refs:
        asked += f", of {', '.join(refs)}"
    if staged:
        asked += f", {humanize.count(staged)} that no branch or tag reaches"
    orphans = [] if found.orphans is None else [("orphans", f"{humanize.count(found.orphans)} read")]
    ruled_out = [("ruled out", f"{humanize.count(n)} by {by}") for by, n in found.ruled_out_by.items()]
    files = len({one.file for one in found.files_read})
    return [
        ("answer", f"[bold]{found.answer}[/]"),
        *([("snapshots", escaped(asked))] if found.metadata_file else []),
        ("data files read", humanize.count(files)),
        *orphans,
        *ruled_out,
    ]


def _draw_conditions(to: Console, found: FindReport) -> None:
    order = ("found", "not proven", "absent")
    answers = sorted(found.conditions, key=lambda one: order.index(one.answer))
    drawn = table_of("column", "value", "answer", "files", "rows", right=(3, 4))
    for one in answers[:SHOWN]:
        cells = (one.column, one.value, one.answer)
        drawn.add_row(*map(escaped, cells), humanize.count(one.files), humanize.count(one.rows))
    to.print()
    to.print(drawn)
    _count_the_rest(to, len(answers))
    for one in answers[:SHOWN]:
        if one.impossible is not None:
            to.print(f"{one.column}: {one.impossible}", markup=False, soft_wrap=True)


def _draw_files(to: Console, found: FindReport) -> None:
    for one in found.files[:SHOWN]:
        rows_ = f"{humanize.count(one.rows)} row{'s' * (one.rows != 1)}"
        to.print()
        to.print(f"{one.column}={one.value}: {rows_} in {one.file}", markup=False, soft_wrap=True)
        if not one.snapshots and found.metadata_file:
            to.print("  no retained snapshot names it")
        for shown in one.snapshots:
            counts = {"live": shown.live, "deleted": shown.deleted, "live or deleted": shown.in_doubt}
            parts = ", ".join(f"{humanize.count(count)} {name}" for name, count in counts.items() if count)
            to.print(f"  snapshot {shown.snapshot_id}: {parts}", markup=False, soft_wrap=True)
    _count_the_rest(to, len(found.files))
    for deletes in found.equality_deletes:
        if deletes.rows:
            to.print()
            to.print(f"equality-delete file with the value: {deletes.file}", markup=False, soft_wrap=True)


def _draw_traces(to: Console, found: FindReport) -> None:
    if found.traces:
        to.print()
        to.print("bounds that are the value, or begin as it does")
        for (kind, file), count in list(Counter((one.kind, one.file) for one in found.traces).items())[:SHOWN]:
            to.print(f"  {humanize.count(count)} in {kind}: {file}", markup=False, soft_wrap=True)
    for one in found.sidecars:
        state = "registered" if one.registered_for else "left over"
        admits = humanize.count(len(one.admits))
        of_files = f"{admits} of {humanize.count(one.files)} files: {one.file}"
        to.print()
        to.print(f"sidecar ({state}) admits a value in {of_files}", markup=False, soft_wrap=True)
        if one.problem is not None:
            to.print(f"  {one.problem}", markup=False, soft_wrap=True)


def _count_the_rest(to: Console, count: int) -> None:
    if count > SHOWN:
        to.print(f"[dim]and {humanize.count(count - SHOWN)} more: --json names all[/]")
