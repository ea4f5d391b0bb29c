"""``sidecar build``: index the files of a snapshot and register the sidecar."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import Catalog, Json, Quiet, Snapshot, Table, names, rate
from sidecar.cli.output import Output, facts

if TYPE_CHECKING:
    from rich.console import Console


class Harvest(str, Enum):
    """Which filters that the files carry are taken as they are."""

    good = "good"
    always = "always"
    never = "never"


class Engine(str, Enum):
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
        str, typer.Option("--kinds", metavar="KINDS", help="What to build: bloom, theta or both.")
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
    engine: Annotated[
        Engine, typer.Option("--engine", help="auto: Spark, or in-process for small tables or without Java.")
    ] = Engine.auto,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
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
            engine=engine.value,
            snapshot_id=snapshot,
            progress=progress,
        )
    data = report.to_dict()
    out.warn(data.get("warnings", ()))
    out.result(data, draw)
    if data["files"]["failed"]:
        raise typer.Exit(1)


def draw(to: Console, data: Any) -> None:
    """The report as text."""
    files = data["files"]
    to.print(facts(_summary(data, files)))


def _summary(data: Any, files: Any) -> list[tuple[str, str]]:
    failed = f", {humane.count(files['failed'])} failed" if files["failed"] else ""
    return [
        ("snapshot", str(data["snapshot_id"])),
        ("files", f"{humane.count(files['indexed'])} of {humane.count(files['total'])} indexed{failed}"),
        ("sidecar", data["statistics_path"]),
        ("time", humane.duration(data["seconds"])),
    ]
