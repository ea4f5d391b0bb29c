"""``sidecar refresh``: bring the sidecars of tables up to date, as a scheduled job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import run_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import AllowPlaintext, DryRun, Engine, KeyPlace, encryption_keys, engine_name
from sidecar.cli.output import output

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
    engine: Engine = None,
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
    out = output()
    from sidecar import refresh as refresh_table

    def refresh_one(table: Any) -> RefreshReport:
        return refresh_table(
            table,
            at=at,
            max_new_files=max_new_files,
            engine=engine_name(engine),
            encryption_keys=encryption_keys(keys),
            allow_plaintext=allow_plaintext,
            dry_run=dry_run,
        )

    run_tables(out, tables, refresh_one, cells, failed=lambda data: bool(data["files_failed"]), dry_run=dry_run)


def cells(data: Any) -> dict[str, Any]:
    """The line of a table."""
    return {
        "files": data["files_total"],
        "indexed": data["files_indexed"],
        "kept": data["files_carried"],
        "left": data["files_left"],
        "failed": len(data["files_failed"]),
        "sidecar": data["file_size"] or None,
        "time": data["seconds"],
        "result": outcome(data),
    }


def outcome(data: Any) -> str:
    """How a refresh ended, in a few words."""
    if data["dry_run"] and data["action"] == "written":
        return f"to be indexed: {humanize.count(data['files_indexed'])}"
    if data["dry_run"] and data["action"] == "registered":
        return "to be registered again"
    if data["dry_run"] and data["action"] == "removed":
        return "to be removed: its columns are gone"
    for path, reason in list(data["files_failed"].items())[:1]:
        return f"not indexed: {path}: {reason}"
    done = {
        "current": "nothing to do",
        "registered": "registered again",
        "removed": "removed: its columns are gone",
        "written": f"{humanize.count(data['files_indexed'])} indexed" if data["files_indexed"] else "written anew",
        "postponed": f"postponed: {data['reason']}",
        "empty": "no snapshot yet",
        "undeclared": "nothing is declared",
    }
    return done[data["action"]]
