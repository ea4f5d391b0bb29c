"""``sidecar expire``: remove registrations of sidecars that no plan needs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.care.spans import duration
from sidecar.cli.many.tables import Cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import opened_table
from sidecar.cli.output import announce_dry_run, output

if TYPE_CHECKING:
    from rich.console import Console


def expire(
    tables: Tables,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Keep the entries of snapshots younger than this: 5d, 36h."),
    ] = "5d",
    retain_last: Annotated[
        int,
        typer.Option("--retain-last", metavar="N", min=1, help="Sidecars to keep for each branch and tag."),
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and change nothing.")
    ] = False,
) -> None:
    """Remove registrations of sidecars that no plan needs.

    The sidecar that plans of a branch or tag use stays, and every entry whose file has blobs of other writers. No file
    is deleted: sidecar gc does that later. Many tables (several, a glob) give a line for each table.

    \b
    Examples:
      sidecar expire db.lineitem --dry-run
      sidecar expire 'db.*' --older-than 2d --retain-last 2
    """
    out = output()
    from sidecar import expire as expire_table

    work = partial(
        expire_table, older_than=duration(older_than, "--older-than"), retain_last=retain_last, dry_run=dry_run
    )
    if are_several_tables(tables):
        run_tables(out, tables, work, cells, dry_run=dry_run)
        return
    report = work(opened_table(tables[0]))
    out.warn(report.warnings)
    out.result(report.to_dict(), draw)


def cells(report: Any) -> Cells:
    """The columns of one table's line."""
    removed = "to be removed" if report["dry_run"] else "removed"
    return {
        "expired": len(report["expired"]),
        "kept": len(report["kept"]),
        "unreferenced": report["unreferenced_bytes"],
        "result": removed if report["expired"] else "nothing to expire",
    }


def draw(to: Console, report: Any) -> None:
    """Draw which entries were removed, or would be, and why the others stay."""
    announce_dry_run(to, report)
    kept = len(report["kept"])
    if not report["expired"]:
        to.print(f"nothing to expire: {kept} {'entry stays' if kept == 1 else 'entries stay'}")
    else:
        to.print("would be removed" if report["dry_run"] else "removed")
    for entry in report["expired"]:
        to.print(f"  snapshot {entry['snapshot_id']}: {entry['statistics_path']}", markup=False, soft_wrap=True)
    for entry in report["kept"]:
        by = f" by {', '.join(entry['used_by'])}" if entry["used_by"] else ""
        line = f"  kept, {entry['kept_because']}{by}: {entry['statistics_path']}"
        to.print(line, markup=False, soft_wrap=True)
    if report["expired"]:
        size = humanize.size(report["unreferenced_bytes"])
        to.print(f"{size} are no longer referenced; sidecar gc deletes them when they are old enough")
