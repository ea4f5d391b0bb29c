"""``sidecar repair``: registered statistics that break other readers, mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.options import Catalog, Json, Table
from sidecar.cli.output import Output

if TYPE_CHECKING:
    from rich.console import Console


def repair(
    name: Table,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; exit code 1 if there is something.")
    ] = False,
    catalog: Catalog = None,
    as_json: Json = False,
) -> None:
    """Register statistics anew that break other readers, for all snapshots; drop those whose file is gone.

    Example: sidecar repair db.lineitem --dry-run
    """
    out = Output(as_json=as_json)
    from sidecar import open_table
    from sidecar import repair as mend

    done = mend(open_table(name, catalog), dry_run=dry_run)
    out.warn(done["problems"])
    out.result(done, draw)
    if done["problems"] or (dry_run and done["repairs"]):
        raise typer.Exit(1)


def draw(to: Console, done: Any) -> None:
    """What was done, or would be."""
    if not done["repairs"]:
        to.print(f"[green]fine[/]: {done['entries']} statistics entries, nothing to mend")
        return
    to.print("to be mended" if done["dry_run"] else "mended")
    draw_repairs(to, done["repairs"])


def draw_repairs(to: Console, repairs: Any) -> None:
    """Each statistics file with what becomes of it, and why."""
    for found in repairs:
        to.print(
            f"  snapshot {found['snapshot_id']}, {found['action']}: {found['statistics_path']}",
            markup=False,
            soft_wrap=True,
        )
        for reason in found["reasons"]:
            to.print(f"    {reason}", markup=False, soft_wrap=True)
