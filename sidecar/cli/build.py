"""``sidecar build``: indexes the files of a snapshot and registers the sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sidecar.cli import humanize
from sidecar.cli.many.tables import NO_SNAPSHOT, Cells, View, show_tables
from sidecar.cli.many.targets import Tables
from sidecar.cli.options import (
    AllowPlaintext,
    At,
    DryRun,
    EngineOption,
    KeyPlace,
    encryption_keys,
    names,
    rate,
)
from sidecar.cli.output import SHOWN, announce_dry_run, escaped, facts
from sidecar.cli.output import table as table_of
from sidecar.cli.shell.choices import choice
from sidecar.results.choices import FilterFormat, ReuseRule

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.bundle.kinds.declared import BuildKind
    from sidecar.indexing.report import BuildReport, ColumnReport


IndexedColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="A,B",
        help="Columns to index, nested ones with dots, or auto: those that advise names "
        "[those that the table declares, else the last sidecar's].",
    ),
]
BuiltKinds = Annotated[
    str | None,
    typer.Option(
        "--kinds",
        metavar="KINDS",
        help="What to build: bloom, theta (distinct counts), page-index [as declared, else bloom,theta].",
    ),
]
WantedRate = Annotated[
    str | None,
    typer.Option(
        "--fpp",
        metavar="RATE",
        help="False-positive rate [as declared, else auto]. auto: 1 %, or 1 / row groups if that is smaller.",
    ),
]
KeysOfPlan = Annotated[
    int | None,
    typer.Option(
        "--for-keys",
        min=1,
        metavar="N",
        help="Choose the rate for plans with N keys (plan --keys): each expects a tenth of a false positive in a "
        "row group.",
    ),
]
SaveDeclaration = Annotated[
    bool,
    typer.Option("--save", help="Let the table declare these columns, kinds and rates, for build and refresh."),
]
ReusedFilters = Annotated[
    ReuseRule,
    choice("--reuse", ReuseRule, "Use the filters in the files. good: those of a rate of at most 1 %."),
]
OrcFilterFormat = Annotated[
    FilterFormat,
    choice("--as", FilterFormat, "Filters for ORC files. auto: the good ones in the files, else Parquet's kind."),
]
IndexAll = Annotated[
    bool, typer.Option("--full", help="Index all files again, also those that a sidecar already covers.")
]
ForceRegistration = Annotated[
    bool,
    typer.Option("--force", help="Register the sidecar even if this loses what an unreadable statistics file has."),
]


def build(
    tables: Tables,
    columns: IndexedColumns = None,
    kinds: BuiltKinds = None,
    fpp: WantedRate = None,
    for_keys: KeysOfPlan = None,
    save: SaveDeclaration = False,
    reuse: ReusedFilters = "good",
    as_: OrcFilterFormat = "auto",
    engine: EngineOption = None,
    full: IndexAll = False,
    force: ForceRegistration = False,
    at: At = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    dry_run: DryRun = False,
) -> None:
    """Build indexes of the files of tables, and register the sidecars.

    A later build indexes only the files that are new, and keeps the rest of the sidecar. Many tables (several, a glob)
    get the same columns, one table after the other; an error in one does not stop the others.

    sidecar build 'db.**' keeps distinct counts as ANALYZE does, without a cluster, incremental. Trino gains by them,
    with the files' bounds; Spark for text; status, report and people. Joins in Spark gain nothing. Counts of numbers
    and dates are registered for engines only where --kinds names theta: Spark's optimiser misreads them.

    \b
    Examples:
      sidecar build db.lineitem --columns l_partkey,l_comment --save
      sidecar build db.lineitem --columns l_shipdate --kinds page-index
      sidecar build 'db.*' --columns l_partkey --dry-run
    """
    indexed_columns = None if columns is None else names(columns)
    target_rate = None if fpp is None else rate(fpp)
    chosen_kinds = None if kinds is None else cast("list[BuildKind]", names(kinds))  # build checks the names
    from sidecar import build as build_index

    work = partial(
        build_index,
        columns="auto" if indexed_columns == ["auto"] else indexed_columns,
        kinds=chosen_kinds,
        fpp=target_rate,
        for_keys=for_keys,
        reuse=reuse,
        as_=as_,
        engine=engine,
        at=at,
        full=full,
        force=force,
        encryption_keys=encryption_keys(keys),
        allow_plaintext=allow_plaintext,
        save=save,
        dry_run=dry_run,
    )
    show_tables(tables, work, View(cells, lambda report: bool(report.files_failed), draw), dry_run)


def cells(report: BuildReport) -> Cells:
    """The columns of one table's line, with the first file that failed; in a dry run what would be done."""
    result = f"nothing to index: {NO_SNAPSHOT}" if report.snapshot_id is None else ""
    if report.dry_run:
        todo = "already indexed" if not report.commits else "to be built" if report.files else "to be registered"
        return {
            "files": report.files_total,
            "to index": len(report.files),
            "kept": report.files_carried,
            "to read": report.files_size,
            "result": result or todo,
        }
    done = "built" if report.files_indexed else "nothing new"
    for path, reason in list(report.files_failed.items())[:1]:
        done = f"not indexed: {path}: {reason}"
    return {
        "files": report.files_total,
        "indexed": report.files_indexed,
        "kept": report.files_carried,
        "failed": len(report.files_failed),
        "sidecar": report.file_size or None,
        "time": report.seconds,
        "result": result or done,
    }


def draw(to: Console, report: BuildReport) -> None:
    """Draw the report: what was or would be written, one line for each column, then what failed."""
    announce_dry_run(to, report.dry_run)
    if report.snapshot_id is None:
        to.print("the table has no snapshot yet: there is nothing to index")
        return
    if report.dry_run:
        _draw_planned(to, report)
        return
    to.print(facts(_summary(report)))
    drawn = table_of("column", "type", "filters", "size", "false positives", "distinct values", right=(3, 4, 5))
    for column in report.columns:
        drawn.add_row(escaped(column.name), *_column(column))
    to.print(drawn)
    for kind, name, reason, count in _uncovered(report):
        to.print(f"not covered: {kind} of {name} in {humanize.count(count)} units: {reason}", markup=False)
    for path, reason in [*report.files_failed.items(), *report.files_unsupported.items()]:
        to.print(f"not indexed: {path}: {reason}", markup=False, soft_wrap=True)


def _draw_planned(to: Console, report: BuildReport) -> None:
    """Draw what would be done, one line for each column, then the files that would be indexed."""
    to.print(facts(_planned(report)))
    drawn = table_of("column", "type", "to be built", "")
    for column in report.columns:
        drawn.add_row(
            escaped(column.name), column.type, ", ".join(column.kinds), "encrypted" if column.encrypted else ""
        )
    to.print(drawn)
    for file in report.files[:SHOWN]:
        to.print(f"to be indexed: {file.path} ({humanize.size(file.size)})", markup=False, soft_wrap=True)
    if len(report.files) > SHOWN:
        to.print(f"to be indexed: {humanize.count(len(report.files) - SHOWN)} more")
    for path, reason in report.files_unsupported.items():
        to.print(f"not indexed: {path}: {reason}", markup=False, soft_wrap=True)


def _summary(report: BuildReport) -> list[tuple[str, str]]:
    failed = f", [red]{humanize.count(len(report.files_failed))} failed[/]" if report.files_failed else ""
    indexed = f"{humanize.count(report.files_indexed)} of {humanize.count(report.files_total)} indexed"
    if report.files_covered != report.files_indexed:
        indexed += f" in this run, {humanize.count(report.files_covered)} covered"
    why = f" ({escaped(report.engine_reason)})" if report.engine_reason else ""
    return [
        ("snapshot", str(report.snapshot_id)),
        ("files", indexed + failed),
        ("units", humanize.count(report.units)),
        ("engine", escaped(report.engine) + why),
        ("sidecar", f"{escaped(report.statistics_path or '–')} ({humanize.size(report.file_size)})"),
        ("target rate", humanize.percent(report.fpp)),
        (
            "false positives",
            f"{report.expected_false_units:.2g} row groups per lookup of an absent value (worst column)",
        ),
        ("read", humanize.size(report.bytes_read)),
        ("time", humanize.duration(report.seconds)),
    ]


def _column(column: ColumnReport) -> tuple[str, ...]:
    filters = ", ".join(f"{humanize.count(n)} {origin}" for origin, n in column.filters.items())
    ndv = column.ndv
    distinct = "–"
    if ndv is not None:
        spread = "" if ndv.lower == ndv.upper else f" ± {(ndv.upper - ndv.lower) / 2:,.0f}"
        distinct = humanize.distinct(int(ndv.estimate), ndv) + spread
    return (
        column.type,
        filters or "–",
        humanize.size(column.filter_bytes),
        f"{column.expected_false_units:.2g}",
        distinct,
    )


def _uncovered(report: BuildReport) -> Iterator[tuple[str, str, str, int]]:
    for column in report.columns:
        for kind, reasons in column.uncovered.items():
            for reason, count in reasons.items():
                yield kind, column.name, reason, count


def _planned(report: BuildReport) -> list[tuple[str, str]]:
    groups = "" if report.row_groups is None else f", {humanize.count(report.row_groups)} row groups"
    kept = f"; {humanize.count(report.files_carried)} kept" if report.files_carried else ""
    total = humanize.count(report.files_total)
    lines = [
        ("snapshot", str(report.snapshot_id)),
        ("files", f"{humanize.count(len(report.files))} of {total} to be indexed{groups}{kept}"),
        ("engine", f"{escaped(report.engine)} ({escaped(report.engine_reason)})"),
        ("tasks", humanize.count(report.tasks)),
        ("target rate", humanize.percent(report.fpp)),
        ("to be read", f"at most {humanize.size(report.files_size)}, the size of these files"),
    ]
    if report.bytes_carried:
        segments = humanize.count(report.segments_carried)
        many = "s" * (report.segments_carried != 1)
        copied = f"{humanize.size(report.bytes_carried)} of the earlier sidecar ({segments} segment{many})"
        lines.append(("to be copied", copied))
    place = f"to be written in {escaped(report.folder or '')}" if report.commits else "already indexed: nothing to do"
    return [*lines, ("sidecar", place), ("time", humanize.duration(report.seconds))]
