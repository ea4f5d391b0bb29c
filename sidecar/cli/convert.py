"""``sidecar convert``: an index in another form."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.extract import draw_units
from sidecar.cli.options import Json, Quiet, names, rate
from sidecar.cli.output import Output, escaped, facts
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


class FilterKind(str, Enum):
    """Kinds of filters."""

    parquet = "parquet"
    orc = "orc"


def convert(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="SRC... DST", help="What to convert, then the file to write."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="The file that a sidecar's indexes, or filters as SRC has them, go into.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="Of these columns only; nested ones with dots."),
    ] = None,
    fpp: Annotated[
        str | None,
        typer.Option("--fpp", metavar="RATE", help="Fold filters as far as this false-positive rate allows."),
    ] = None,
    widen: Annotated[
        bool, typer.Option("--widen", help="Make the filters of a column as large as its largest.")
    ] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Into Puffin: one filter for all row groups of a file.")
    ] = False,
    merge_all: Annotated[
        bool, typer.Option("--merge-all", help="Into Puffin: one filter for all files together.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure false positives, with random values.")
    ] = False,
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            metavar="FILE:COLUMN",
            help="Of a historical filter: the Parquet column that it is of.",
        ),
    ] = None,
    kind: Annotated[
        FilterKind | None,
        typer.Option("--as", help="Into Puffin: rebuild filters as those of the other format."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert indexes to another form; what is meant follows from the files and the ending of DST.

    Parquet and ORC files to .puffin: extract, with --as split-block filters of ORC files or ORC filters of Parquet
    files. Puffin files to .puffin: one sidecar, sliced anew. A Puffin file and --data to .parquet or .orc: embed.
    Parquet to .parquet: filters of another size. ORC to .orc: Java's older filter stream as the one that all readers
    ask. Parquet and --data to .orc, ORC and --data to .parquet: the data file with filters on the same columns, at the
    same rates, of its own values. A historical filter (MurmurHash3) to the present
    form (XXH64): its bits say nothing about another hash, so this is a rebuild from the values of its column.

    Example: sidecar convert part-0.parquet part-1.parquet merged.puffin --merge --fpp 0.02
    """
    out = Output(as_json=as_json, quiet=quiet)
    if len(paths) < 2:
        raise UsageError("name what to convert, and the file to write")
    target_rate = rate(fpp) if fpp is not None else None
    if isinstance(target_rate, str):
        raise UsageError("--fpp is a rate between 0 and 1 here, not 'auto'")
    from sidecar import convert_files, convert_filter
    from sidecar.embedding.convert import is_filter_file
    from sidecar.filters.sizing import DEFAULT_FPP

    if values is not None or (len(paths) == 2 and is_filter_file(paths[0])):
        if len(paths) != 2 or data or columns or widen or merge or merge_all or measure or kind:
            raise UsageError("a historical filter is converted with --values and --fpp alone")
        filter_rate = DEFAULT_FPP if target_rate is None else target_rate
        out.result(convert_filter(paths[0], paths[1], values=values, fpp=filter_rate).to_dict(), draw)
        return
    with out.progress() as progress:
        report = convert_files(
            paths[:-1],
            paths[-1],
            data=data,
            columns=names(columns) if columns is not None else None,
            fpp=target_rate,
            widen=widen,
            merge=merge,
            merge_all=merge_all,
            measure=measure,
            kind=None if kind is None else kind.value,
            progress=progress,
        )
    out.result(report.to_dict(), draw_files)
    if report.damaged:
        raise typer.Exit(1)


def draw_files(to: Console, data: Any) -> None:
    """What was written, then one line for each column, kind and way."""
    lines = [
        ("written", escaped(data["target"])),
        ("conversion", escaped(data["conversion"])),
        ("size", humane.size(data["size"])),
        ("time", humane.duration(data["seconds"])),
    ]
    to.print(facts(lines))
    draw_units(to, data["units"])


def draw(to: Console, data: Any) -> None:
    """That it was a rebuild, from what, and the rates."""
    rates = [humane.percent(data[name]) for name in ("rate_before", "rate_after")]
    lines = [
        ("written", escaped(data["target"])),
        ("before", escaped(data["form_before"])),
        ("now", escaped(data["form_after"])),
        ("rebuilt from", f"{_WAYS[data['way']]} {escaped(data['column'])} in {escaped(data['values'])}"),
        ("false positives", f"{rates[0]} before, {rates[1]} now"),
        ("size", f"{humane.size(data['size_before'])} before, {humane.size(data['size'])} now"),
    ]
    if data["way"] == "domain":
        extras = f"about {round(data['expected_false_extras']):,} of them were never stored"
        lines.append(("integers", f"{data['admitted']:,} of {data['domain_size']:,} admitted; {extras}"))
    lines += [("not possible", escaped(f"{way}: {reason}")) for way, reason in data["closed"].items()]
    to.print(facts(lines))


_WAYS = {
    "dictionary": "the dictionary of",
    "domain": "the integers between the bounds of",
    "values": "the values of",
}
