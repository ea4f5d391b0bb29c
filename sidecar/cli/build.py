"""``sidecar build``: index the files of a snapshot and register the sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.options import (
    AllowPlaintext,
    Catalog,
    Json,
    KeyPlace,
    Quiet,
    Ref,
    Snapshot,
    Table,
    choice,
    encryption_keys,
    names,
    rate,
)
from sidecar.cli.output import Output, escaped, facts
from sidecar.cli.output import table as table_of

if TYPE_CHECKING:
    from rich.console import Console


class Harvest(str, Enum):
    """Which of the filters in the files are used as they are."""

    good = "good"
    always = "always"
    never = "never"


class Format(str, Enum):
    """Which kind of filter the row groups of ORC files get."""

    auto = "auto"
    parquet = "parquet"
    orc = "orc"


class EngineName(str, Enum):
    """Where the build runs."""

    auto = "auto"
    spark = "spark"
    local = "local"


def build(
    table: Table,
    columns: Annotated[
        str,
        typer.Option("--columns", "-c", metavar="A,B", help="Columns to index; write nested ones with dots."),
    ],
    kinds: Annotated[
        str,
        typer.Option(
            "--kinds", metavar="KINDS", help="What to build: bloom, theta (distinct counts), page-index."
        ),
    ] = "bloom,theta",
    fpp: Annotated[
        str,
        typer.Option(
            "--fpp",
            metavar="RATE",
            help="False-positive rate. auto: 1 %, or 1 / row groups if that is smaller.",
        ),
    ] = "auto",
    harvest: Annotated[
        Harvest,
        choice("--harvest", Harvest, "Use the filters in the files. good: those of a rate of at most 1 %."),
    ] = Harvest.good,
    filter_format: Annotated[
        Format,
        choice(
            "--as", Format, "Filters for ORC files. auto: the good ones in the files, else Parquet's kind."
        ),
    ] = Format.auto,
    engine: Annotated[
        EngineName,
        choice(
            "--engine",
            EngineName,
            "Where to build. auto: on Spark; in this process if the table is small or Java is missing.",
        ),
    ] = EngineName.auto,
    full: Annotated[
        bool, typer.Option("--full", help="Index all files again, also those that a sidecar already covers.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Register the sidecar even if this loses what an unreadable statistics file has."
        ),
    ] = False,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build the indexes of a table's files, and register the sidecar.

    A later build indexes only the files that are new, and keeps the rest of the sidecar.

    \b
    Examples:
      sidecar build db.lineitem --columns l_partkey,l_comment
      sidecar build db.lineitem --columns l_shipdate --kinds page-index
    """
    out = Output(as_json=as_json, quiet=quiet)
    indexed_columns, chosen_kinds, target_rate = names(columns), names(kinds), rate(fpp)
    from sidecar import build as build_index
    from sidecar import open_table

    with out.progress() as progress:
        report = build_index(
            open_table(table, catalog),
            indexed_columns,
            kinds=chosen_kinds,
            fpp=target_rate,
            harvest=harvest.value,
            filter_format=filter_format.value,
            engine=engine.value,
            snapshot_id=snapshot,
            ref=ref,
            progress=progress,
            full=full,
            force=force,
            encryption_keys=encryption_keys(keys),
            allow_plaintext=allow_plaintext,
        )
    data = report.to_dict()
    out.warn(data.get("warnings", ()))
    out.result(data, draw)
    if data["files"]["failed"]:
        raise typer.Exit(1)


def draw(to: Console, data: Any) -> None:
    """Draw the report: what was written, one line for each column, then what failed."""
    to.print(facts(_summary(data)))
    drawn = table_of("column", "type", "filters", "size", "false units", "distinct values", right=(3, 4, 5))
    for name, column in data["columns"].items():
        drawn.add_row(escaped(name), *_column(column))
    to.print(drawn)
    for kind, name, reason, count in _uncovered(data):
        to.print(f"not covered: {kind} of {name} in {humanize.count(count)} units: {reason}", markup=False)
    for path, reason in [*data["failed_files"].items(), *data["unsupported_files"].items()]:
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
        distinct = humanize.count(int(ndv["estimate"])) + ("" if exact else f" ± {spread:,.0f}")
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
