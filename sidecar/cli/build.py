"""``sidecar build``: index the files of a snapshot and register the sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import build_cells, planned_cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import (
    AllowPlaintext,
    At,
    DryRun,
    Engine,
    KeyPlace,
    Reuse,
    encryption_keys,
    engine_name,
    names,
    opened_table,
    rate,
)
from sidecar.cli.output import announce_dry_run, escaped, facts, output
from sidecar.cli.output import table as table_of
from sidecar.cli.shell.choices import choice

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.bundle.kinds.declared import BuildKind
    from sidecar.indexing.dry_run import PlannedBuild
    from sidecar.indexing.report import BuildReport


SHOWN = 20
"""How many of the files to be indexed the text of a dry run names; JSON names all."""


class Format(str, Enum):
    """Which kind of filter the row groups of ORC files get."""

    auto = "auto"
    parquet = "parquet"
    orc = "orc"


def build(
    tables: Tables,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B",
            help="Columns to index, nested ones with dots, or auto: those that advise names "
            "[those that the table declares, else the last sidecar's].",
        ),
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            metavar="KINDS",
            help="What to build: bloom, theta (distinct counts), page-index [as declared, else bloom,theta].",
        ),
    ] = None,
    fpp: Annotated[
        str | None,
        typer.Option(
            "--fpp",
            metavar="RATE",
            help="False-positive rate [as declared, else auto]. auto: 1 %, or 1 / row groups if that is smaller.",
        ),
    ] = None,
    save: Annotated[
        bool,
        typer.Option("--save", help="Let the table declare these columns, kinds and rates, for build and refresh."),
    ] = False,
    reuse: Annotated[
        Reuse,
        choice("--reuse", Reuse, "Use the filters in the files. good: those of a rate of at most 1 %."),
    ] = Reuse.good,
    as_: Annotated[
        Format,
        choice("--as", Format, "Filters for ORC files. auto: the good ones in the files, else Parquet's kind."),
    ] = Format.auto,
    engine: Engine = None,
    full: Annotated[
        bool, typer.Option("--full", help="Index all files again, also those that a sidecar already covers.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Register the sidecar even if this loses what an unreadable statistics file has."),
    ] = False,
    at: At = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    dry_run: DryRun = False,
) -> None:
    """Build indexes of the files of tables, and register the sidecars.

    A later build indexes only the files that are new, and keeps the rest of the sidecar. Many tables (several, a glob)
    get the same columns, one table after the other; an error in one does not stop the others.

    \b
    Examples:
      sidecar build db.lineitem --columns l_partkey,l_comment --save
      sidecar build db.lineitem --columns l_shipdate --kinds page-index
      sidecar build 'db.*' --columns l_partkey --dry-run
    """
    out = output()
    indexed_columns: Any = None if columns is None else names(columns)
    target_rate = None if fpp is None else rate(fpp)
    chosen_kinds = None if kinds is None else cast("list[BuildKind]", names(kinds))  # build checks the names
    mode: dict[str, Any] = {"dry_run": True} if dry_run else {}  # a dry run has another result
    from sidecar import build as build_index

    def build_table(table: Any) -> BuildReport | PlannedBuild:
        report: BuildReport | PlannedBuild = build_index(
            table,
            "auto" if indexed_columns == ["auto"] else indexed_columns,
            kinds=chosen_kinds,
            fpp=target_rate,
            reuse=reuse.value,
            as_=as_.value,
            engine=engine_name(engine),
            at=at,
            full=full,
            force=force,
            encryption_keys=encryption_keys(keys),
            allow_plaintext=allow_plaintext,
            save=save,
            **mode,
        )
        return report

    def failed(data: Any) -> bool:
        return not dry_run and bool(data["files"]["failed"])

    if are_several_tables(tables):
        cells = planned_cells if dry_run else build_cells
        run_tables(out, tables, build_table, cells, failed=failed, dry_run=dry_run)
        return
    data = build_table(opened_table(tables[0])).to_dict()
    out.warn(data.get("warnings", ()))
    out.result(data, draw_planned if dry_run else draw, failed=failed(data))


def draw(to: Console, data: Any) -> None:
    """Draw the report: what was written, one line for each column, then what failed."""
    if data["snapshot_id"] is None:
        to.print("the table has no snapshot yet: there is nothing to index")
        return
    to.print(facts(_summary(data)))
    drawn = table_of("column", "type", "filters", "size", "false units", "distinct values", right=(3, 4, 5))
    for name, column in data["columns"].items():
        drawn.add_row(escaped(name), *_column(column))
    to.print(drawn)
    for kind, name, reason, count in _uncovered(data):
        to.print(f"not covered: {kind} of {name} in {humanize.count(count)} units: {reason}", markup=False)
    for path, reason in [*data["failed_files"].items(), *data["unsupported_files"].items()]:
        to.print(f"not indexed: {path}: {reason}", markup=False, soft_wrap=True)


def draw_planned(to: Console, data: Any) -> None:
    """Draw what would be done, one line for each column, then the files that would be indexed."""
    announce_dry_run(to, data)
    if data["snapshot_id"] is None:
        to.print("the table has no snapshot yet: there is nothing to index")
        return
    to.print(facts(_planned(data)))
    drawn = table_of("column", "type", "to be built", "")
    for column in data["columns"]:
        sealed = "encrypted" if column["sealed"] else ""
        drawn.add_row(escaped(column["name"]), column["type"], ", ".join(column["kinds"]), sealed)
    to.print(drawn)
    for file in data["files"][:SHOWN]:
        size = humanize.size(file["size"])
        to.print(f"to be indexed: {file['path']} ({size})", markup=False, soft_wrap=True)
    if len(data["files"]) > SHOWN:
        to.print(f"to be indexed: {humanize.count(len(data['files']) - SHOWN)} more")
    for path, reason in data["files_unsupported"].items():
        to.print(f"not indexed: {path}: {reason}", markup=False, soft_wrap=True)


def _summary(data: Any) -> list[tuple[str, str]]:
    files = data["files"]
    failed = f", [red]{humanize.count(files['failed'])} failed[/]" if files["failed"] else ""
    why = f" ({escaped(data['engine_reason'])})" if data["engine_reason"] else ""
    return [
        ("snapshot", str(data["snapshot_id"])),
        ("files", f"{humanize.count(files['indexed'])} of {humanize.count(files['total'])} indexed{failed}"),
        ("units", humanize.count(data["units"])),
        ("engine", escaped(data["engine"]) + why),
        ("sidecar", f"{escaped(data['statistics_path'] or '–')} ({humanize.size(data['file_size'])})"),
        ("target rate", humanize.percent(data["fpp"])),
        (
            "false units",
            f"{data['expected_false_units']:.2g} expected for an absent value, in the worst column",
        ),
        ("read", humanize.size(data["bytes_read"])),
        ("time", humanize.duration(data["seconds"])),
    ]


def _column(column: Any) -> tuple[str, ...]:
    filters = ", ".join(f"{humanize.count(n)} {origin}" for origin, n in column["filters"].items())
    ndv = column["ndv"]
    distinct = "–"
    if ndv is not None:
        exact = ndv["lower"] == ndv["upper"]
        spread = (ndv["upper"] - ndv["lower"]) / 2
        distinct = humanize.distinct(int(ndv["estimate"]), ndv) + ("" if exact else f" ± {spread:,.0f}")
    return (
        column["type"],
        filters or "–",
        humanize.size(column["filter_bytes"]),
        f"{column['expected_false_units']:.2g}",
        distinct,
    )


def _uncovered(data: Any) -> Iterator[tuple[str, str, str, int]]:
    for name, column in data["columns"].items():
        for kind, reasons in column["uncovered"].items():
            for reason, count in reasons.items():
                yield kind, name, reason, count


def _planned(data: Any) -> list[tuple[str, str]]:
    groups = "" if data["row_groups"] is None else f", {humanize.count(data['row_groups'])} row groups"
    kept = f"; {humanize.count(data['files_carried'])} kept" if data["files_carried"] else ""
    total = humanize.count(data["files_total"])
    lines = [
        ("snapshot", str(data["snapshot_id"])),
        ("files", f"{humanize.count(len(data['files']))} of {total} to be indexed{groups}{kept}"),
        ("engine", f"{escaped(data['engine'])} ({escaped(data['engine_reason'])})"),
        ("tasks", humanize.count(data["tasks"])),
        ("target rate", humanize.percent(data["fpp"])),
        ("to be read", f"at most {humanize.size(data['files_size'])}, the size of these files"),
    ]
    if data["bytes_carried"]:
        segments = humanize.count(data["segments_carried"])
        many = "s" * (data["segments_carried"] != 1)
        copied = f"{humanize.size(data['bytes_carried'])} of the earlier sidecar ({segments} segment{many})"
        lines.append(("to be copied", copied))
    place = f"to be written in {escaped(data['folder'])}" if data["commits"] else "already indexed: nothing to do"
    return [*lines, ("sidecar", place), ("time", humanize.duration(data["seconds"]))]
