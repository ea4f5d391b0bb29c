"""``sidecar find``: which data files hold a value, with evidence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.options import At, KeyPlace, Table, encryption_keys, opened_table
from sidecar.cli.output import escaped, facts, output
from sidecar.cli.output import table as table_of
from sidecar.cli.shell.forms import rows_of

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20
"""How many values, files and traces the text output names; JSON names all."""


def find(
    table: Table,
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
    data = report.to_dict()
    rows = rows_of("column value answer files rows delete_files traces impossible", data["conditions"])
    out.result(data, draw, rows=rows, failed=report.exit_code(strict=strict))


def draw(to: Console, data: Any) -> None:
    """Draw the answers, then where the values are, then what could not be asked."""
    to.print(facts(_facts(data)))
    _draw_conditions(to, data)
    _draw_files(to, data)
    _draw_traces(to, data)
    for missed in data["not_asked"]:
        text = f"not asked: {missed['what']} {missed['file']}: {missed['reason']}"
        to.print(text, markup=False, soft_wrap=True)


def _facts(data: Any) -> list[tuple[str, str]]:
    snapshots = data["snapshots"]
    staged = sum(one["staged"] for one in snapshots)
    refs = sorted({name for one in snapshots for name in (*one["branches"], *one["tags"])})
    asked = f"{humanize.count(len(snapshots))} asked"
    if refs:
        asked += f", of {', '.join(refs)}"
    if staged:
        asked += f", {humanize.count(staged)} that no branch or tag reaches"
    ruled_out = [("ruled out", f"{humanize.count(n)} by {by}") for by, n in data["ruled_out_by"].items()]
    files = len({one["file"] for one in data["files_read"]})
    return [
        ("answer", f"[bold]{data['answer']}[/]"),
        ("snapshots", escaped(asked)),
        ("data files read", humanize.count(files)),
        *ruled_out,
    ]


def _draw_conditions(to: Console, data: Any) -> None:
    order = ("found", "not proven", "absent")
    found = sorted(data["conditions"], key=lambda one: order.index(one["answer"]))
    drawn = table_of("column", "value", "answer", "files", "rows", right=(3, 4))
    for one in found[:SHOWN]:
        cells = (one["column"], one["value"], one["answer"])
        drawn.add_row(*map(escaped, cells), humanize.count(one["files"]), humanize.count(one["rows"]))
    to.print()
    to.print(drawn)
    _more(to, len(found))
    for one in found[:SHOWN]:
        if "impossible" in one:
            to.print(f"{one['column']}: {one['impossible']}", markup=False, soft_wrap=True)


def _draw_files(to: Console, data: Any) -> None:
    for one in data["files"][:SHOWN]:
        rows_ = f"{humanize.count(one['rows'])} row{'s' * (one['rows'] != 1)}"
        to.print(f"\n{one['column']}={one['value']}: {rows_} in {one['file']}", markup=False, soft_wrap=True)
        for shown in one["snapshots"]:
            parts = [
                f"{humanize.count(shown[key])} {name}"
                for key, name in (("live", "live"), ("deleted", "deleted"), ("in_doubt", "live or deleted"))
                if shown[key]
            ]
            to.print(f"  snapshot {shown['snapshot_id']}: {', '.join(parts)}", markup=False, soft_wrap=True)
    _more(to, len(data["files"]))
    for one in data["equality_deletes"]:
        if one["rows"]:
            to.print(f"\nequality-delete file with the value: {one['file']}", markup=False, soft_wrap=True)


def _draw_traces(to: Console, data: Any) -> None:
    if data["traces"]:
        to.print("\nbounds that are the value, or begin as it does")
        for (kind, file), count in list(Counter((one["kind"], one["file"]) for one in data["traces"]).items())[:SHOWN]:
            to.print(f"  {humanize.count(count)} in {kind}: {file}", markup=False, soft_wrap=True)
    for one in data["sidecars"]:
        state = "registered" if one["registered_for"] else "left over"
        admits = humanize.count(len(one["admits"]))
        text = f"\nsidecar ({state}) admits a value in {admits} of {humanize.count(one['files'])} files: {one['file']}"
        if "problem" in one:
            text += f"\n  {one['problem']}"
        to.print(text, markup=False, soft_wrap=True)


def _more(to: Console, count: int) -> None:
    if count > SHOWN:
        to.print(f"[dim]and {humanize.count(count - SHOWN)} more: --json names all[/]")
