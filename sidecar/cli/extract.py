"""``sidecar extract``: copies filters, page indexes and row indexes of data files into one Puffin file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.draw.written import column_and_way
from sidecar.cli.many import files
from sidecar.cli.options import (
    AllowPlaintext,
    EngineOption,
    KeyPlace,
    encryption_keys,
    engine_fact,
    names,
    storage_for,
)
from sidecar.cli.output import escaped, facts, output, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import ExtractReport, Outcome


def extract(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... DST",
            help="Parquet and ORC files (paths, URLs, folders, globs), then the Puffin file to write.",
        ),
    ],
    bloom: Annotated[bool, typer.Option("--bloom", help="Copy only Bloom filters.")] = False,
    page_index: Annotated[bool, typer.Option("--page-index", help="Copy only page indexes and row indexes.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B",
            help="Copy only the indexes of these columns; write nested ones with dots.",
        ),
    ] = None,
    keys: KeyPlace = None,
    allow_plaintext: AllowPlaintext = False,
    engine: EngineOption = None,
) -> None:
    """Copy the indexes of data files, bit for bit, into a Puffin file.

    Parquet files give Bloom filters and page indexes, ORC files Bloom filters and row indexes. "sidecar embed --from"
    puts them back.

    \b
    Examples:
      sidecar extract part-0.parquet part-1.parquet indexes.puffin
      sidecar extract events.orc filters.puffin --bloom --columns id,name
    """
    out = output()
    if len(paths) < 2:
        raise UsageError("extract needs at least one data file, and the Puffin file to write")
    import sidecar

    report = sidecar.extract(
        paths[:-1],
        paths[-1],
        bloom=bloom or not page_index,
        page_index=page_index or not bloom,
        columns=names(columns) if columns is not None else None,
        io=storage_for(paths),
        encryption_keys=encryption_keys(keys),
        allow_plaintext=allow_plaintext,
        engine=engine,
    )
    out.warn(report.warnings)
    files.show(out, report, draw, each=None, failed=bool(report.damaged))


def draw(to: Console, report: ExtractReport) -> None:
    """Draw what was written, then one line for each column, kind and way."""
    to.print(
        facts(
            [
                ("written", escaped(report.target)),
                ("size", humanize.size(report.size)),
                ("files", humanize.count(len(report.files))),
                *engine_fact(report),
                ("time", humanize.duration(report.seconds)),
            ]
        )
    )
    draw_units(to, report.units)
    files.draw_failed(to, report.failed)


def draw_units(to: Console, units: Iterable[Outcome]) -> None:
    """Draw one line for each column, kind and way."""
    drawn = table("column", "index", "way", "row groups", "size", "false positives", "", right=(3, 4, 5))
    for key, group in groupby(sorted(units, key=column_and_way), key=column_and_way):
        drawn.add_row(*(escaped(part) for part in key[:3]), *_figures(list(group)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def _figures(units: Sequence[Outcome]) -> tuple[str, str, str]:
    size = sum(unit.bytes for unit in units)
    return humanize.count(len(units)), humanize.size(size) if size else "", _worst_rate(units)


def _worst_rate(units: Sequence[Outcome]) -> str:
    rated = [(unit.rate_after, unit.rate_before) for unit in units if unit.rate_after is not None]
    if not rated:
        return ""
    after, before = max(rated, key=lambda rates: rates[0])
    text = humanize.percent(after)
    return text if before in (None, after) else f"{humanize.percent(before)} before, {text} now"
