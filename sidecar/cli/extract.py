"""``sidecar extract``: filters, page indexes and row indexes of data files into one Puffin file."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import AllowPlaintext, Json, KeyPlace, Quiet, encryption_keys, names
from sidecar.cli.output import Output, escaped, facts, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def extract(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE... DST", help="Parquet and ORC files, then the Puffin file to write."),
    ],
    bloom: Annotated[bool, typer.Option("--bloom", help="Bloom filters only.")] = False,
    page_index: Annotated[bool, typer.Option("--page-index", help="Page and row indexes only.")] = False,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="Of these columns only; nested ones with dots."),
    ] = None,
    digest: Annotated[
        bool | None,
        typer.Option(
            "--digest/--no-digest",
            help="Record the digest of all stored pages, by which embed --from knows the file; else of local files.",
        ),
    ] = None,
    witness: Annotated[
        bool | None,
        typer.Option(
            "--witness/--no-witness",
            help="Hold one page of each Parquet column against what is taken; else of local files.",
        ),
    ] = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take Bloom filters and page indexes (of ORC: row indexes) out of data files, bit for bit, into a Puffin file.

    sidecar embed --from DST puts them back; an ORC file has its row index in any case.

    Example: sidecar extract part-0.parquet part-1.parquet indexes.puffin
    """
    out = Output(as_json=as_json, quiet=quiet)
    if len(paths) < 2:
        raise UsageError("name at least one data file, and the Puffin file to write")
    from sidecar import extract_files

    with out.progress() as progress:
        report = extract_files(
            paths[:-1],
            paths[-1],
            bloom=bloom or not page_index,
            page_index=page_index or not bloom,
            columns=names(columns) if columns is not None else None,
            encryption_keys=encryption_keys(keys),
            allow_plaintext=allow_plaintext,
            digest=digest,
            witness=witness,
            progress=progress,
        )
    out.warn(report.warnings)
    out.result(report.to_dict(), draw)
    if report.damaged:
        raise typer.Exit(1)


def draw(to: Console, data: Any) -> None:
    """What was written, then one line for each column, kind and way."""
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("size", humane.size(data["size"])),
                ("files", humane.count(len(data["files"]))),
                ("time", humane.duration(data["seconds"])),
            ]
        )
    )
    draw_units(to, data["units"])


def draw_units(to: Console, units: Any) -> None:
    """One line for each column, kind and way."""
    drawn = table("column", "index", "way", "row groups", "size", "false positives", "", right=(3, 4, 5))
    for key, same in groupby(sorted(units, key=_line), key=_line):
        drawn.add_row(*(escaped(part) for part in key[:3]), *_figures(list(same)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def _line(unit: Any) -> tuple[str, str, str, str]:
    kind = "filter" if unit["kind"] == "bloom" else "page index"
    return unit["column"], kind, unit["way"], unit["reason"]


def _figures(units: list[Any]) -> tuple[str, str, str]:
    size = sum(unit["bytes"] for unit in units)
    rates = [_rate(unit) for unit in units if unit["rate_after"] is not None]
    return humane.count(len(units)), humane.size(size) if size else "", _worst(rates)


def _rate(unit: Any) -> tuple[float, float, float | None]:
    before = unit["rate_after"] if unit["rate_before"] is None else unit["rate_before"]
    return unit["rate_after"], before, unit["measured"]


def _worst(rates: list[tuple[float, float, float | None]]) -> str:
    if not rates:
        return ""
    after, before, measured = max(rates, key=lambda rate: rate[0])
    text = humane.percent(after)
    if before != after:
        text = f"{humane.percent(before)} before, {text} now"
    return text if measured is None else f"{text}, {humane.percent(measured)} measured"
