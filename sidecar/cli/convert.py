"""``sidecar convert``: convert indexes to another form or size."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.extract import draw_units
from sidecar.cli.many import files
from sidecar.cli.many.targets import SkipBad, expanded
from sidecar.cli.options import Engine, engine_fact, engine_name, fixed_rate, names, not_on_spark
from sidecar.cli.output import escaped, facts, output
from sidecar.cli.shell.choices import choice
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


class FilterKind(str, Enum):
    """The format whose kind of filter is built."""

    parquet = "parquet"
    orc = "orc"


def convert(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC... DST",
            help="The files to convert (paths, URLs, folders, globs), then the file to write.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="The data file that gets the indexes of a sidecar, or filters on the same columns as SRC.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="A,B",
            help="Convert only the indexes of these columns; write nested ones with dots.",
        ),
    ] = None,
    fpp: Annotated[
        str | None,
        typer.Option("--fpp", metavar="RATE", help="Make filters smaller, up to this false-positive rate."),
    ] = None,
    widen: Annotated[
        bool, typer.Option("--widen", help="Make all filters of a column as large as its largest one.")
    ] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="To .puffin: merge the filters of a file's row groups into one.")
    ] = False,
    merge_all: Annotated[
        bool, typer.Option("--merge-all", help="To .puffin: merge the filters of all files into one.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the false-positive rates with random values, too.")
    ] = False,
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            metavar="FILE:COLUMN",
            help="For a historical filter: the Parquet column that it was built from.",
        ),
    ] = None,
    kind: Annotated[
        FilterKind | None,
        choice("--as", FilterKind, "To .puffin: build the filters again, as this format has them."),
    ] = None,
    skip_bad: SkipBad = False,
    engine: Engine = None,
) -> None:
    """Convert indexes to another form or size.

    The files and the ending of DST decide what is done:

    \b
      SRC                  DST        result
      Parquet, ORC files   .puffin    their indexes in one Puffin file
      Puffin files         .puffin    one Puffin file with the indexes of all
      Puffin, --data FILE  .parquet,  FILE with the indexes of the Puffin file
                           .orc
      Parquet              .parquet   the file with filters of another size
      ORC                  .orc       the file with filters that all readers use
      Parquet, --data ORC  .orc       the ORC file with filters as in SRC
      ORC, --data Parquet  .parquet   the Parquet file with filters as in SRC
      historical filter    any        the filter with XXH64 instead of MurmurHash3

    A filter of another hash cannot be computed from the bits of the old one. With --as, with SRC of the other format
    and for a historical filter, it is built again: from a dictionary, from the integers between the bounds of the
    column, or from the values.

    \b
    Examples:
      sidecar convert part-0.parquet part-1.parquet merged.puffin --merge
      sidecar convert events.orc split.puffin --as parquet
      sidecar convert old.bin new.bin --values part-0.parquet:l_partkey
    """
    out = output()
    if len(paths) < 2:
        raise UsageError("convert needs a file to convert, and the file to write")
    target_rate = fixed_rate(fpp) if fpp is not None else None
    from sidecar import convert_files, convert_filter
    from sidecar.embedding.convert import is_filter_file
    from sidecar.filters.sizing import DEFAULT_FPP
    from sidecar.many_files.find import ENDINGS

    found = expanded(paths[:-1], skip_bad, ENDINGS)
    sources = found.files
    if values is not None or (len(sources) == 1 and is_filter_file(sources[0])):
        if len(sources) != 1 or data or columns or widen or merge or merge_all or measure or kind:
            raise UsageError("a historical filter takes only --values and --fpp")
        out.warn(not_on_spark(engine, {"engine": "local", "engine_reason": "there is one filter"}))
        filter_rate = DEFAULT_FPP if target_rate is None else target_rate
        filter_report = convert_filter(sources[0], paths[-1], values=values, fpp=filter_rate)
        out.result(filter_report.to_dict(), draw)
        return
    report = convert_files(
        sources,
        paths[-1],
        data=data,
        columns=names(columns) if columns is not None else None,
        fpp=target_rate,
        widen=widen,
        merge=merge,
        merge_all=merge_all,
        measure=measure,
        kind=None if kind is None else kind.value,
        engine=engine_name(engine),
    )
    result = {**report.to_dict(), **files.skipped_of(found)}
    out.warn(not_on_spark(engine, result))
    files.show(out, result, draw_files, each=None, failed=bool(report.damaged))


def draw_files(to: Console, data: Any) -> None:
    """Draw what was written, then one line for each column, kind and way."""
    lines = [
        ("written", escaped(data["target"])),
        ("conversion", escaped(data["conversion"])),
        ("size", humanize.size(data["size"])),
        *engine_fact(data),
        ("time", humanize.duration(data["seconds"])),
    ]
    to.print(facts(lines))
    draw_units(to, data["units"])
    files.draw_skipped(to, data)


def draw(to: Console, data: Any) -> None:
    """Draw what the filter was rebuilt from, and its rates."""
    rates = [humanize.percent(data[name]) for name in ("rate_before", "rate_after")]
    lines = [
        ("written", escaped(data["target"])),
        ("before", escaped(data["form_before"])),
        ("now", escaped(data["form_after"])),
        ("rebuilt from", f"{_WAYS[data['way']]} {escaped(data['column'])} in {escaped(data['values'])}"),
        ("false positives", f"{rates[0]} before, {rates[1]} now"),
        ("size", f"{humanize.size(data['size_before'])} before, {humanize.size(data['size'])} now"),
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
