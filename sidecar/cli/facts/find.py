"""``sidecar find``: which data files hold a value, with evidence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.options import At, KeyPlace, TableArgument, encryption_keys, opened_table
from sidecar.cli.output import escaped, facts, output
from sidecar.cli.output import table as table_of
from sidecar.cli.shell.forms import rows_of

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import FindReport

SHOWN = 20
"""How many values, files and traces the text output names; JSON names all."""


def find(
    table: TableArgument,
    conditions: Annotated[
        list[str],
        typer.Argument(
            metavar="COLUMN=VALUE...",
            help="What to look for: mail=ann@example.com, user_id=42. With --values, the name of one column.",
        ),
    ],
    values: Annotated[
        Path | None,
        typer.Option("--values", metavar="FILE", help="Look for each line of a text file (UTF-8) in one column."),
    ] = None,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Ask every snapshot that the table retains, not only one."),
    ] = False,
    read_all: Annotated[
        bool,
        typer.Option("--read-all", help="Read the column in every data file; believe no bounds and no filters."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Let bounds that are the value count as found, and all sidecars be readable."),
    ] = False,
    at: At = None,
    keys: KeyPlace = None,
) -> None:
    """Find the data files of a table that hold a value, with evidence.

    Files that bounds and filters do not rule out are read. The exit code is 0 if the values are proven to be absent, 1
    if one was found, and 3 if nothing was found but something could not be asked. --json prints the evidence.

    \b
    Examples:
      sidecar find hr.users mail=ann@example.com
      sidecar find hr.users mail=ann@example.com user_id=42 --all-snapshots --json
      sidecar find hr.users mail --values people.txt --all-snapshots
    """
    out = output()
    from sidecar import find as find_values
    from sidecar.reports.finding.values import conditions_from

    wanted = conditions_from(conditions, None if values is None else str(values))
    opened, given_keys = opened_table(table), encryption_keys(keys)
    report = find_values(
        opened,
        wanted,
        at=at,
        all_snapshots=all_snapshots,
        read_all=read_all,
        encryption_keys=given_keys,
    )
    out.warn(report.warnings)
    columns = "column value answer files rows delete_files traces impossible"
    rows = rows_of(columns, (one.to_dict() for one in report.conditions))
    out.result(report, draw, rows=rows, failed=report.exit_code(strict=strict))


def draw(to: Console, found: FindReport) -> None:
    """Draw the answers, then where the values are, then what could not be asked."""
    to.print(facts(_facts(found)))
    _draw_conditions(to, found)
    _draw_files(to, found)
    _draw_traces(to, found)
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
    ruled_out = [("ruled out", f"{humanize.count(n)} by {by}") for by, n in found.ruled_out_by.items()]
    files = len({one.file for one in found.files_read})
    return [
        ("answer", f"[bold]{found.answer}[/]"),
        ("snapshots", escaped(asked)),
        ("data files read", humanize.count(files)),
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
    _more(to, len(answers))
    for one in answers[:SHOWN]:
        if one.impossible is not None:
            to.print(f"{one.column}: {one.impossible}", markup=False, soft_wrap=True)


def _draw_files(to: Console, found: FindReport) -> None:
    for one in found.files[:SHOWN]:
        rows_ = f"{humanize.count(one.rows)} row{'s' * (one.rows != 1)}"
        to.print()
        to.print(f"{one.column}={one.value}: {rows_} in {one.file}", markup=False, soft_wrap=True)
        for shown in one.snapshots:
            counts = {"live": shown.live, "deleted": shown.deleted, "live or deleted": shown.in_doubt}
            parts = ", ".join(f"{humanize.count(count)} {name}" for name, count in counts.items() if count)
            to.print(f"  snapshot {shown.snapshot_id}: {parts}", markup=False, soft_wrap=True)
    _more(to, len(found.files))
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


def _more(to: Console, count: int) -> None:
    if count > SHOWN:
        to.print(f"[dim]and {humanize.count(count - SHOWN)} more: --json names all[/]")
