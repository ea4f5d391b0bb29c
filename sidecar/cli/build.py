"""``sidecar build``: index the files of a snapshot and register the sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import (
    AllowPlaintext,
    Catalog,
    Json,
    KeyPlace,
    Quiet,
    Ref,
    Snapshot,
    Table,
    encryption_keys,
    names,
    rate,
)
from sidecar.cli.output import Output, escaped, facts
from sidecar.cli.output import table as table_of

if TYPE_CHECKING:
    from rich.console import Console


class Harvest(str, Enum):
    """Which filters that the files carry are taken as they are."""

    good = "good"
    always = "always"
    never = "never"


class Format(str, Enum):
    """Which filters units of ORC files get."""

    auto = "auto"
    parquet = "parquet"
    orc = "orc"


class EngineName(str, Enum):
    """Who does the work."""

    auto = "auto"
    spark = "spark"
    local = "local"


def build(
    table: Table,
    columns: Annotated[
        str, typer.Option("--columns", "-c", metavar="A,B", help="Columns to index; nested ones with dots.")
    ],
    kinds: Annotated[
        str, typer.Option("--kinds", metavar="KINDS", help="What to build: bloom, theta, page-index.")
    ] = "bloom,theta",
    fpp: Annotated[
        str,
        typer.Option(
            "--fpp", metavar="RATE", help="False-positive rate; auto: the smaller of 1 % and 1/units."
        ),
    ] = "auto",
    harvest: Annotated[
        Harvest, typer.Option("--harvest", help="Filters that files carry: good ones are at most 1 % false.")
    ] = Harvest.good,
    filter_format: Annotated[
        Format,
        typer.Option(
            "--as", help="Filters of ORC files; auto: good ones that they carry, else as of Parquet."
        ),
    ] = Format.auto,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="auto: Spark, or in-process for small tables or without Java."),
    ] = EngineName.auto,
    full: Annotated[
        bool, typer.Option("--full", help="Index all files again, those too that the sidecar answers for.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Register even if an existing statistics file is lost by it.")
    ] = False,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Index a snapshot of a table and register the sidecar.

    Example: sidecar build db.lineitem --columns l_partkey,l_comment
    """
    out = Output(as_json=as_json, quiet=quiet)
    wanted, chosen, target = names(columns), names(kinds), rate(fpp)
    from sidecar import build as build_index
    from sidecar import open_table

    with out.progress() as progress:
        report = build_index(
            open_table(table, catalog),
            wanted,
            kinds=chosen,
            fpp=target,
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
    """The report: what was written, then one line a column, then what failed."""
    to.print(facts(_summary(data)))
    drawn = table_of("column", "type", "filters", "size", "false units", "distinct values", right=(3, 4, 5))
    for name, column in data["columns"].items():
        drawn.add_row(escaped(name), *_column(column))
    to.print(drawn)
    for kind, name, reason, count in _uncovered(data):
        to.print(f"not covered: {kind} of {name} in {humane.count(count)} units: {reason}", markup=False)
    for path, reason in [*data["failed_files"].items(), *data["unsupported_files"].items()]:
        to.print(f"not indexed: {path}: {reason}", markup=False, soft_wrap=True)


def _summary(data: Any) -> list[tuple[str, str]]:
    files = data["files"]
    failed = f", [red]{humane.count(files['failed'])} failed[/]" if files["failed"] else ""
    why = f" ({escaped(data['engine_reason'])})" if data["engine_reason"] else ""
    return [
        ("snapshot", str(data["snapshot_id"])),
        ("files", f"{humane.count(files['indexed'])} of {humane.count(files['total'])} indexed{failed}"),
        ("units", humane.count(data["units"])),
        ("engine", escaped(data["engine"]) + why),
        ("sidecar", f"{escaped(data['statistics_path'] or '–')} ({humane.size(data['file_size'])})"),
        ("target rate", humane.percent(data["fpp"])),
        (
            "false units",
            f"{data['expected_false_units']:.2g} expected for an absent value, in the worst column",
        ),
        ("read", humane.size(data["bytes_read"])),
        ("time", humane.duration(data["seconds"])),
    ]


def _column(column: Any) -> tuple[str, ...]:
    filters = ", ".join(f"{humane.count(n)} {origin}" for origin, n in column["filters"].items())
    ndv = column["ndv"]
    distinct = "–"
    if ndv is not None:
        exact = ndv["lower"] == ndv["upper"]
        spread = (ndv["upper"] - ndv["lower"]) / 2
        distinct = humane.count(int(ndv["estimate"])) + ("" if exact else f" ± {spread:,.0f}")
    return (
        column["type"],
        filters or "–",
        humane.size(column["filter_bytes"]),
        f"{column['expected_false_units']:.2g}",
        distinct,
    )


def _uncovered(data: Any) -> Iterator[tuple[str, str, str, int]]:
    for name, column in data["columns"].items():
        for kind, reasons in column["uncovered"].items():
            for reason, count in reasons.items():
                yield kind, name, reason, count
