"""``sidecar compact``: merge the segments of a table's sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import Cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import (
    At,
    Engine,
    KeyPlace,
    encryption_keys,
    engine_name,
    not_on_spark,
    opened_table,
)
from sidecar.cli.output import announce_dry_run, facts, output

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.maintenance.compacting import CompactReport


def compact(
    tables: Tables,
    at: At = None,
    keys: KeyPlace = None,
    engine: Engine = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be compacted, and write nothing.")
    ] = False,
) -> None:
    """Merge the segments of a table's sidecar into one.

    Indexes of data files and columns that are gone are left out. No data file is read. Builds keep a sidecar at two
    segments by themselves, so this is for a sidecar that older versions wrote, or after many deletes. It runs in this
    process with any --engine: its work is to read and write one file. Many tables (several, a glob) give a line for
    each table.

    \b
    Examples:
      sidecar compact db.lineitem --dry-run
      sidecar compact 'db.*'
    """
    out = output()
    from sidecar import compact as compact_table

    def compact_one(table: Any) -> CompactReport:
        return compact_table(
            table,
            at=at,
            encryption_keys=encryption_keys(keys),
            dry_run=dry_run,
            engine=engine_name(engine),
        )

    if are_several_tables(tables):
        run_tables(out, tables, compact_one, cells, dry_run=dry_run)
        return
    report = compact_one(opened_table(tables[0]))
    data = report.to_dict()
    out.warn([*report.warnings, *not_on_spark(engine, data)])
    out.result(data, draw)


def cells(report: Any) -> Cells:
    """The columns of one table's line."""
    done = "to be compacted" if report["dry_run"] else "compacted"
    nothing = "no sidecar" if report["statistics_path"] is None else "nothing to compact"
    return {
        "segments": len(report["segments"]),
        "after": report["segments_after"],
        "files left out": sum(segment["files_gone"] for segment in report["segments"]),
        "size": report["bytes_before"],
        "time": report["seconds"],
        "result": done if report["commits"] else nothing,
    }


def draw(to: Console, report: Any) -> None:
    """Draw what was merged, or would be."""
    segments = report["segments"]
    if report["statistics_path"] is None:
        to.print("nothing to compact: the table has no sidecar")
        return
    if not report["commits"]:
        to.print(f"nothing to compact: {len(segments)} segment{'' if len(segments) == 1 else 's'}")
        return
    announce_dry_run(to, report)
    gone = sum(segment["files_gone"] for segment in segments)
    size = humanize.size(report["bytes_before"])
    lines = [
        ("segments", f"{len(segments)} -> {report['segments_after']}"),
        ("files left out", humanize.count(gone)),
        ("size", size if report["dry_run"] else f"{size} -> {humanize.size(report['bytes_after'])}"),
        ("sidecar", report["statistics_path"]),
        ("time", humanize.duration(report["seconds"])),
    ]
    kept = [segment for segment in segments if segment["kept_because"]]
    lines += [("stays as it is", f"{segment['id']}: {segment['kept_because']}") for segment in kept]
    to.print(facts(lines))
