"""``sidecar refresh``: brings the sidecars of tables up to date, as a scheduled job."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import Cells, View, show_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import AllowPlaintext, DryRun, EngineOption, KeyPlace, encryption_keys

if TYPE_CHECKING:
    from sidecar.maintenance.refresh_report import RefreshReport


def refresh(
    tables: Tables,
    at: Annotated[
        str | None, typer.Option("--at", metavar="BRANCH", help="The branch to refresh [the current snapshot].")
    ] = None,
    max_new_files: Annotated[
        int | None,
        typer.Option("--max-new-files", metavar="N", help="Index at most N data files of a table, and leave the rest."),
    ] = None,
    engine: EngineOption = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    dry_run: DryRun = False,
) -> None:
    """Bring sidecars up to date: index what is new, carry the rest.

    What is indexed is what each table declares ("sidecar build TABLE --columns A,B --save"), else what its last sidecar
    has. A failure of one table does not stop the others; the exit code is then 1. With --format jsonl each table is a
    line as soon as it is done.

    \b
    Examples:
      sidecar refresh db.lineitem
      sidecar refresh 'db.*' --format jsonl
      sidecar refresh db.lineitem --max-new-files 100
    """
    from sidecar import refresh as refresh_table

    work = partial(
        refresh_table,
        at=at,
        max_new_files=max_new_files,
        engine=engine,
        encryption_keys=encryption_keys(keys),
        allow_plaintext=allow_plaintext,
        dry_run=dry_run,
    )
    show_tables(tables, work, View(cells, lambda report: bool(report.files_failed)), dry_run)


def cells(report: RefreshReport) -> Cells:
    """The line of a table."""
    return {
        "files": report.files_total,
        "indexed": report.files_indexed,
        "kept": report.files_carried,
        "left": report.files_left,
        "failed": len(report.files_failed),
        "sidecar": report.file_size or None,
        "time": report.seconds,
        "result": outcome(report),
    }


def outcome(report: RefreshReport) -> str:
    """How a refresh ended, in a few words."""
    if report.dry_run and report.action == "written":
        return f"to be indexed: {humanize.count(report.files_indexed)}"
    if report.dry_run and report.action == "registered":
        return "to be registered again"
    if report.dry_run and report.action == "removed":
        return "to be removed: its columns are gone"
    for path, reason in list(report.files_failed.items())[:1]:
        return f"not indexed: {path}: {reason}"
    done = {
        "current": "nothing to do",
        "registered": "registered again",
        "removed": "removed: its columns are gone",
        "written": f"{humanize.count(report.files_indexed)} indexed" if report.files_indexed else "written anew",
        "postponed": f"postponed: {report.reason}",
        "empty": "no snapshot yet",
        "undeclared": "nothing is declared",
    }
    return done[report.action]
