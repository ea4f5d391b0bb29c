"""``sidecar embed``: data files with filters and page indexes, their data copied as it is.

With a destination it is one file (``SRC DST``), without one the files of a table (``TABLE``). With ``--from`` the
indexes come out of a sidecar.
"""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import embed_from as from_cli
from sidecar.cli import embed_table as table_cli
from sidecar.cli import humane
from sidecar.cli.options import Catalog, Json, KeyPlace, Quiet, encryption_keys, is_path, names, rate
from sidecar.cli.output import Output, escaped, facts, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.embedding.report import EmbedReport
    from sidecar.embedding.table_report import EmbedTableReport

Source = Annotated[str, typer.Argument(metavar="SRC", help="The Parquet or ORC file, local or by URL.")]
Destination = Annotated[
    str, typer.Argument(metavar="DST", help="The file to write; nothing may be there yet.")
]
SourceOrTable = Annotated[
    str | None,
    typer.Argument(metavar="SRC|TABLE", help="A Parquet or ORC file, local or by URL, or a table."),
]
DestinationOfFile = Annotated[
    str | None, typer.Argument(metavar="DST", help="Of a file: the one to write; nothing may be there yet.")
]


class Placement(str, Enum):
    """Where filters stand."""

    end = "end"
    row_group = "row-group"


class ReplaceRule(str, Enum):
    """Which filters and page indexes that the file has are taken as they are."""

    good = "good"
    always = "always"
    never = "never"


def embed(
    source: SourceOrTable = None,
    destination: DestinationOfFile = None,
    bloom: Annotated[
        str | None,
        typer.Option("--bloom", metavar="A,B", help="Columns to give filters; nested ones with dots."),
    ] = None,
    page_index: Annotated[bool, typer.Option("--page-index", help="Give every column a page index.")] = False,
    fpp: Annotated[
        str, typer.Option("--fpp", metavar="RATE", help="False-positive rate of the filters.")
    ] = "0.01",
    ndv: Annotated[
        list[str] | None,
        typer.Option(
            "--ndv", metavar="COLUMN=N", help="Distinct values a row group, if known; may be repeated."
        ),
    ] = None,
    placement: Annotated[
        Placement, typer.Option("--placement", help="Filters at the end, or after each row group.")
    ] = Placement.end,
    harvest: Annotated[
        ReplaceRule, typer.Option("--harvest", help="Indexes that the file has: good ones meet --fpp.")
    ] = ReplaceRule.good,
    even_if_dictionary: Annotated[
        bool, typer.Option("--even-if-dictionary", help="A filter even where the dictionary is no larger.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of a table: print what would be replaced, and write nothing.")
    ] = False,
    sidecar: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH|TABLE", help="Take indexes out of a Puffin file, or a table's."),
    ] = None,
    all_to: Annotated[
        str | None,
        typer.Option("--all-to", metavar="DIR", help="With --from: write all files that it speaks of."),
    ] = None,
    way: Annotated[
        from_cli.RestoreWay,
        typer.Option("--way", help="With --from: filters as they are, from values, or the cheaper."),
    ] = from_cli.RestoreWay.auto,
    witness: Annotated[
        from_cli.WitnessRule,
        typer.Option(
            "--witness", help="With --from: values looked at where a proof says that it is the file."
        ),
    ] = from_cli.WitnessRule.page,
    keys: KeyPlace = None,
    catalog: Catalog = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write data files again with filters and page indexes; their data is copied, not re-encoded.

    SRC DST writes one file. TABLE replaces the files of a table's current snapshot, in one commit. With --from,
    indexes come out of a sidecar byte for byte: all of them, or those that --bloom and --page-index name. An ORC file
    always has its row index, and gets filters alone. Encrypted Parquet files keep their keys.

    Example: sidecar embed part-0.parquet indexed/part-0.parquet --bloom l_partkey --page-index
    """
    out = Output(as_json=as_json, quiet=quiet)
    columns = names(bloom) if bloom is not None else []
    if sidecar is not None:
        asked = from_cli.SidecarOrigin(
            sidecar,
            source,
            destination,
            all_to,
            columns,
            page_index,
            placement.value,
            way,
            witness,
            catalog,
            keys,
        )
        from_cli.run(asked, out)
        return
    if all_to is not None or way is not from_cli.RestoreWay.auto or witness is not from_cli.WitnessRule.page:
        raise UsageError("--all-to, --way and --witness belong to --from")
    if source is None:
        raise UsageError("name a file and where to write it, or a table")
    if not columns and not page_index:
        raise UsageError("nothing to embed", hint="Name columns with --bloom, or ask for --page-index.")
    target_rate, counts = rate(fpp), dict(_count(text) for text in ndv or ())
    if isinstance(target_rate, str):
        raise UsageError("--fpp is a rate between 0 and 1 here, not 'auto'")
    _check_target(source, destination, catalog, dry_run)
    from sidecar import embed_file, embed_table, open_table

    with out.progress() as progress:
        options: dict[str, Any] = {
            "bloom": columns,
            "page_index": page_index,
            "fpp": target_rate,
            "ndv": counts,
            "placement": placement.value,
            "harvest": harvest.value,
            "even_if_dictionary": even_if_dictionary,
            "encryption_keys": encryption_keys(keys),
            "progress": progress,
        }
        report: EmbedReport | EmbedTableReport
        if destination is not None:
            report = embed_file(source, destination, **options)
        else:
            report = embed_table(open_table(source, catalog), dry_run=dry_run, **options)
    out.warn(report.warnings())
    out.result(report.to_dict(), draw if destination is not None else table_cli.draw)
    if report.damaged:
        raise typer.Exit(1)


def _check_target(source: str, destination: str | None, catalog: str | None, dry_run: bool) -> None:
    """One file has a destination; a table has none."""
    if destination is None and is_path(source):
        raise UsageError("a file is written to another one: name DST", file=source)
    if destination is not None and (catalog is not None or dry_run):
        raise UsageError("--catalog and --dry-run belong to a table, which has no destination")


def _count(text: str) -> tuple[str, int]:
    """``column=1000``."""
    name, equals, number = text.rpartition("=")
    if not (name and equals and number.isdecimal()):
        raise UsageError(f"--ndv is COLUMN=N, not '{text}'")
    return name, int(number)


def draw(to: Console, data: Any) -> None:
    """What was written, then one line for each column, kind and way."""
    written = [
        ("filters", data["filter_bytes"]),
        ("page indexes", data.get("page_index_bytes", 0)),
        ("dead bytes", data.get("dead_bytes", 0)),
    ]
    grown = f"{humane.size(data['size_before'])} before, {humane.size(data['size'])} now"
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("size", grown),
                *from_cli.looked_at([data]),
                *((name, humane.size(size)) for name, size in written if size),
                ("time", humane.duration(data["seconds"])),
            ]
        )
    )
    drawn = table(
        "column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5)
    )
    own = {"exact": "as it was"} if "sidecar" in data else {}
    for key, units in groupby(sorted(data["units"], key=_line), key=_line):
        names = (key[0], key[1], {**_TAKEN_FROM, **own}[key[2]])
        drawn.add_row(*(escaped(part) for part in names), *_figures(list(units)), escaped(key[3]))
    if drawn.row_count:
        to.print(drawn)


def _line(unit: Any) -> tuple[str, str, str, str]:
    kind = {"bloom": "filter"}.get(unit["kind"], "page index")
    return unit["column"], kind, unit["way"], unit["reason"]


_TAKEN_FROM = {
    "exact": "the file's own",
    "converted": "the older form",
    "dictionary": "dictionary",
    "values": "values",
    "none": "none",
}


def _figures(units: list[Any]) -> tuple[str, str, str]:
    rates = [unit["rate_after"] for unit in units if unit["rate_after"] is not None]
    worst = humane.percent(max(rates)) if rates else ""
    size = sum(unit["bytes"] for unit in units)
    return humane.count(len(units)), humane.size(size) if size else "", worst
