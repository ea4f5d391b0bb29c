"""``sidecar embed``: write data files again with filters and page indexes; their data is copied as it is.

``SRC DST`` writes one file, ``TABLE`` the files of a table. With ``--from`` the indexes come out of a sidecar.
"""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import embed_from as from_cli
from sidecar.cli import embed_table as table_cli
from sidecar.cli import humanize
from sidecar.cli.options import (
    Catalog,
    Json,
    KeyPlace,
    Quiet,
    choice,
    encryption_keys,
    fixed_rate,
    is_path,
    names,
)
from sidecar.cli.output import Output, escaped, facts, table
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.embedding.report import EmbedReport
    from sidecar.embedding.table_report import EmbedTableReport

Source = Annotated[str, typer.Argument(metavar="SRC", help="The Parquet or ORC file (path or URL).")]
Destination = Annotated[str, typer.Argument(metavar="DST", help="The file to write; it must not exist yet.")]
SourceOrTable = Annotated[
    str | None, typer.Argument(metavar="SRC|TABLE", help="A Parquet or ORC file (path or URL), or a table.")
]
DestinationOfFile = Annotated[
    str | None, typer.Argument(metavar="DST", help="For a file: the file to write; it must not exist yet.")
]


class Placement(str, Enum):
    """Where the filters are in the file."""

    end = "end"
    row_group = "row-group"


class ReplaceRule(str, Enum):
    """Which of the filters and page indexes in the file are used as they are."""

    good = "good"
    always = "always"
    never = "never"


def embed(
    source: SourceOrTable = None,
    destination: DestinationOfFile = None,
    bloom: Annotated[
        str | None,
        typer.Option(
            "--bloom",
            metavar="A,B",
            help="Columns that get filters; write nested ones with dots (tags.list.element).",
        ),
    ] = None,
    page_index: Annotated[bool, typer.Option("--page-index", help="Give every column a page index.")] = False,
    fpp: Annotated[
        str, typer.Option("--fpp", metavar="RATE", help="False-positive rate of the filters.")
    ] = "0.01",
    ndv: Annotated[
        list[str] | None,
        typer.Option(
            "--ndv",
            metavar="COLUMN=N",
            help="Distinct values of a column in a row group, if you know them; may be repeated.",
        ),
    ] = None,
    placement: Annotated[
        Placement,
        choice("--placement", Placement, "Put filters at the end of the file, or after each row group."),
    ] = Placement.end,
    harvest: Annotated[
        ReplaceRule,
        choice("--harvest", ReplaceRule, "Use the indexes in the file. good: those that meet --fpp."),
    ] = ReplaceRule.good,
    even_if_dictionary: Annotated[
        bool,
        typer.Option(
            "--even-if-dictionary", help="Build a filter even if the dictionary is not larger than it."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="For a table: print what would be replaced, and write nothing.")
    ] = False,
    sidecar: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH|TABLE",
            help="Take the indexes out of a Puffin file, or out of a table's sidecar.",
        ),
    ] = None,
    all_to: Annotated[
        str | None,
        typer.Option(
            "--all-to", metavar="DIR", help="With --from: write all files of the sidecar into a folder."
        ),
    ] = None,
    way: Annotated[
        from_cli.RestoreWay,
        choice(
            "--way",
            from_cli.RestoreWay,
            "With --from: take filters as they are, build them from values, or choose the cheaper way.",
        ),
    ] = from_cli.RestoreWay.auto,
    witness: Annotated[
        from_cli.WitnessRule,
        choice(
            "--witness",
            from_cli.WitnessRule,
            "With --from: how many values to check if the file is proven to be the indexed one.",
        ),
    ] = from_cli.WitnessRule.page,
    keys: KeyPlace = None,
    catalog: Catalog = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write data files again with filters and page indexes.

    The data is copied, not encoded again. SRC DST writes one file. TABLE replaces the files of a table's current
    snapshot in one commit.

    With --from, the indexes come out of a sidecar byte for byte: all of them, or those that --bloom and --page-index
    name. An ORC file always has a row index, so it gets only filters. Encrypted Parquet files keep their keys.

    \b
    Examples:
      sidecar embed part-0.parquet new.parquet --bloom l_partkey --page-index
      sidecar embed db.lineitem --bloom l_partkey,l_comment --dry-run
      sidecar embed bare/part-0.parquet part-0.parquet --from indexes.puffin
    """
    out = Output(as_json=as_json, quiet=quiet)
    columns = names(bloom) if bloom is not None else []
    if sidecar is not None:
        origin = from_cli.SidecarOrigin(
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
        from_cli.run(origin, out)
        return
    if all_to is not None or way is not from_cli.RestoreWay.auto or witness is not from_cli.WitnessRule.page:
        raise UsageError("--all-to, --way and --witness are for --from")
    if source is None:
        raise UsageError("embed needs a file and where to write it, or a table")
    if not columns and not page_index:
        raise UsageError("nothing to embed", hint="Name columns with --bloom, or give --page-index.")
    target_rate, counts = fixed_rate(fpp), dict(_count(text) for text in ndv or ())
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
    """Raise :class:`UsageError` if a file has no destination, or a table has one."""
    if destination is None and is_path(source):
        raise UsageError("a file needs a destination: name DST", file=source)
    if destination is not None and (catalog is not None or dry_run):
        raise UsageError("--catalog and --dry-run belong to a table, which has no destination")


def _count(text: str) -> tuple[str, int]:
    """Column and number of ``column=1000``."""
    name, equals, number = text.rpartition("=")
    if not (name and equals and number.isdecimal()):
        raise UsageError(f"--ndv is COLUMN=N, not '{text}'")
    return name, int(number)


def draw(to: Console, data: Any) -> None:
    """Draw what was written, then one line for each column, kind and way."""
    written = [
        ("filters", data["filter_bytes"]),
        ("page indexes", data.get("page_index_bytes", 0)),
        ("dead bytes", data.get("dead_bytes", 0)),
    ]
    grown = f"{humanize.size(data['size_before'])} before, {humanize.size(data['size'])} now"
    to.print(
        facts(
            [
                ("written", escaped(data["target"])),
                ("size", grown),
                *from_cli.looked_at([data]),
                *((name, humanize.size(size)) for name, size in written if size),
                ("time", humanize.duration(data["seconds"])),
            ]
        )
    )
    drawn = table(
        "column", "index", "taken from", "row groups", "size", "false positives", "", right=(3, 4, 5)
    )
    own = {"exact": "as it was"} if "sidecar" in data else {}
    for key, group in groupby(sorted(data["units"], key=_line), key=_line):
        names = (key[0], key[1], {**_TAKEN_FROM, **own}[key[2]])
        drawn.add_row(*(escaped(part) for part in names), *_figures(list(group)), escaped(key[3]))
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
    worst = humanize.percent(max(rates)) if rates else ""
    size = sum(unit["bytes"] for unit in units)
    return humanize.count(len(units)), humanize.size(size) if size else "", worst
