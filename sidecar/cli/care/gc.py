"""``sidecar gc``: delete sidecar files that no metadata names."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.care.spans import duration
from sidecar.cli.many.tables import Cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import opened_table
from sidecar.cli.output import announce_dry_run, output
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.maintenance.garbage import GarbageReport


def gc(
    tables: Tables,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="AGE", help="Keep files younger than this by the storage's clock: 3d, 36h."
        ),
    ] = "3d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Make the same checks, print the files, and delete nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete without a question, as a scheduled job does.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow an age below 24 hours. A build that is running may lose its file."),
    ] = False,
) -> None:
    """Delete sidecar files that no metadata names.

    Only files in the table's metadata folder that sidecar wrote for this table are deleted, and temporary files that
    killed runs left. A file stays if the current metadata, a young metadata file or one of another history names it. A
    table with gc.enabled=false is left alone. Many tables (several, a glob) give a line for each table.

    \b
    Examples:
      sidecar gc db.lineitem --dry-run
      sidecar gc 'db.*' --older-than 7d --yes
    """
    out = output()
    collect = partial(_collect, older_than=duration(older_than, "--older-than"), force=force)
    several = are_several_tables(tables)
    if not (dry_run or yes) and (several or out.is_json or not sys.stdin.isatty()):
        raise UsageError("gc deletes files, and nobody can be asked", hint="Add --yes, or --dry-run to see the files.")
    if several:
        run_tables(
            out, tables, partial(collect, dry_run=dry_run), cells, lambda one: bool(one["failed"]), dry_run=dry_run
        )
        return
    table = opened_table(tables[0])
    if not (dry_run or yes):
        preview = collect(table, dry_run=True)
        ask(len(preview.files), preview.bytes, preview.folder)
    report = collect(table, dry_run=dry_run)
    out.warn([*report.warnings, *report.failed])
    out.result(report.to_dict(), draw, failed=bool(report.failed))


def _collect(table: Any, *, force: bool, **options: Any) -> GarbageReport:
    """Do what Python's function does, but never in a table whose properties forbid it: ``--force`` is about age."""
    from sidecar import gc as gc_table
    from sidecar.maintenance.garbage import why_left_alone

    return gc_table(table, force=force and why_left_alone(table) is None, **options)


def ask(files: int, size: int, folder: str) -> None:
    """Ask whether the files may be deleted; end the command if not."""
    if files and not typer.confirm(
        f"Delete {humanize.count(files)} files ({humanize.size(size)}) in {folder}?", err=True
    ):
        raise typer.Exit(1)


def cells(report: Any) -> Cells:
    """The columns of one table's line."""
    done = "to be deleted" if report["dry_run"] else "deleted"
    done = done if report["files"] else report["left_alone"] or "nothing to delete"
    result = report["failed"][0] if report["failed"] else done
    return {"files": len(report["files"]), "size": report["bytes"], "result": result}


def draw(to: Console, report: Any) -> None:
    """Draw the files, their number and their bytes."""
    announce_dry_run(to, report)
    if report["left_alone"] is not None:
        to.print(report["left_alone"])
        return
    for file in report["files"]:
        to.print(f"  {_time(file)}  {humanize.size(file['size'])}  {file['path']}", markup=False, soft_wrap=True)
    count, size = humanize.count(len(report["files"])), humanize.size(report["bytes"])
    done = "would be deleted" if report["dry_run"] else "deleted"
    to.print(f"{done}: {count} {'file' if count == '1' else 'files'}, {size}")


def _time(file: Any) -> str:
    return datetime.fromtimestamp(file["modified"], timezone.utc).strftime("%Y-%m-%d %H:%M")
