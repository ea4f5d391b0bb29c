"""``sidecar verify``: structure and checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import Catalog, Json, Snapshot, Target, is_path, refuse_table_options
from sidecar.cli.output import Output, escaped, table

if TYPE_CHECKING:
    from rich.console import Console


def verify(
    target: Target,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    as_json: Json = False,
) -> None:
    """Check the indexes of a file or a table; exit code 1 if there is a problem.

    Example: sidecar verify db.lineitem
    """
    out = Output(as_json=as_json)
    if is_path(target):
        refuse_table_options(catalog, snapshot)
        from sidecar import verify_file

        found = verify_file(target)
    else:
        from sidecar import open_table, verify_table

        found = verify_table(open_table(target, catalog), snapshot)
    out.result(found, draw)
    if found["problems"]:
        raise typer.Exit(1)


def draw(to: Console, found: Any) -> None:
    """One line a problem, or what was checked."""
    if not found["problems"]:
        to.print(f"[green]fine[/]: {humane.count(found['checked'])} checked")
        return
    drawn = table("file", "unit", "column", "problem")
    for problem in found["problems"]:
        drawn.add_row(*(_cell(problem.get(key)) for key in ("file", "unit", "column", "problem")))
    to.print(drawn)


def _cell(value: Any) -> str:
    return "" if value is None else escaped(str(value))
