"""``sidecar repair``: repair registered statistics that break other readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.options import Table, opened_table
from sidecar.cli.output import output

if TYPE_CHECKING:
    from rich.console import Console


def repair(
    name: Table,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be repaired, and change nothing. Exit code 1 if there is something.",
        ),
    ] = False,
) -> None:
    """Repair registered statistics that break other readers.

    This looks at all snapshots. Entries whose file is gone are removed. No file is changed.

    \b
    Examples:
      sidecar repair db.lineitem --dry-run
      sidecar repair db.lineitem
    """
    out = output()
    from sidecar import repair as repair_table

    report = repair_table(opened_table(name), dry_run=dry_run)
    out.warn(report.problems)
    failed = bool(report.problems or (dry_run and report.repairs))
    out.result(report.to_dict(), draw, failed=failed)


def draw(to: Console, report: Any) -> None:
    """Draw what was repaired, or would be."""
    if not report["repairs"]:
        to.print(f"[green]fine[/]: {report['entries']} statistics entries, nothing to repair")
        return
    to.print("to be repaired" if report["dry_run"] else "repaired")
    draw_repairs(to, report["repairs"])


def draw_repairs(to: Console, repairs: Any) -> None:
    """Draw what happens to each statistics file, and why."""
    for entry in repairs:
        to.print(
            f"  snapshot {entry['snapshot_id']}, {entry['action']}: {entry['statistics_path']}",
            markup=False,
            soft_wrap=True,
        )
        for reason in entry["reasons"]:
            to.print(f"    {reason}", markup=False, soft_wrap=True)
