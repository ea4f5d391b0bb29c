"""``sidecar convert``: converts indexes to another form or size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.extract import draw_units
from sidecar.cli.options import EngineOption, engine_fact, fixed_rate, names, not_on_spark, storage_for
from sidecar.cli.output import escaped, facts, output
from sidecar.cli.shell.choices import choice
from sidecar.errors import UsageError
from sidecar.results.choices import RebuiltKind

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import ConvertReport


SourcesAndTarget = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC... DST",
        help="The files to convert (paths, URLs, folders, globs), then the file to write.",
    ),
]
OntoFile = Annotated[
    str | None,
    typer.Option(
        "--onto",
        metavar="FILE",
        help="The data file that gets the indexes or filters of SRC, or that a historical filter was built from.",
    ),
]
ConvertedColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="A,B",
        help="Convert only the indexes of these columns; write nested ones with dots.",
    ),
]
LargestRate = Annotated[
    str | None,
    typer.Option("--fpp", metavar="RATE", help="Make filters smaller, up to this false-positive rate."),
]
MergeFilters = Annotated[
    bool, typer.Option("--merge", help="To .puffin: merge the filters of a file's row groups into one.")
]
RebuiltAs = Annotated[
    RebuiltKind | None,
    choice("--as", RebuiltKind, "To .puffin: build the filters again, as this format has them."),
]
HistoricalColumn = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="For a historical filter: the column that it was built from."),
]


def convert(
    paths: SourcesAndTarget,
    onto: OntoFile = None,
    columns: ConvertedColumns = None,
    fpp: LargestRate = None,
    merge: MergeFilters = False,
    kind: RebuiltAs = None,
    column: HistoricalColumn = None,
    engine: EngineOption = None,
) -> None:
    """Convert the indexes of files to another form or size.

    The files and the ending of DST decide what is done:

    \b
      SRC                  DST        result
      Parquet, ORC files   .puffin    their indexes in one Puffin file
      Puffin files         .puffin    one Puffin file with the indexes of all
      Puffin, --onto FILE  .parquet,  FILE with the indexes of the Puffin file
                           .orc
      Parquet              .parquet   the file with filters of another size
      ORC                  .orc       the file with filters that all readers use
      Parquet, --onto ORC  .orc       the ORC file with filters as in SRC
      ORC, --onto Parquet  .parquet   the Parquet file with filters as in SRC
      historical filter    any        the filter with XXH64 instead of MurmurHash3

    Where the hash changes, and with --as, filters are built again: from a dictionary or from the values.

    \b
    Examples:
      sidecar convert part-0.parquet part-1.parquet merged.puffin --merge
      sidecar convert events.orc split.puffin --as parquet
      sidecar convert old.bin new.bin --onto part-0.parquet --column l_partkey
    """
    out = output()
    if len(paths) < 2:
        raise UsageError("convert needs a file to convert, and the file to write")
    import sidecar

    report = sidecar.convert(
        paths[:-1],
        paths[-1],
        onto=onto,
        columns=names(columns) if columns is not None else None,
        fpp=fixed_rate(fpp) if fpp is not None else None,
        merge=merge,
        as_=kind,
        column=column,
        io=storage_for(paths, onto),
        engine=engine,
    )
    out.warn(not_on_spark(engine, report))
    out.result(report, draw, failed=report.damaged or bool(report.failed))


def draw(to: Console, report: ConvertReport) -> None:
    """Draw what was written, then one line for each column, kind and way."""
    lines = [
        ("written", escaped(report.target)),
        ("conversion", escaped(report.conversion)),
        ("size", humanize.size(report.size)),
        *engine_fact(report),
        ("time", humanize.duration(report.seconds)),
    ]
    to.print(facts(lines))
    draw_units(to, report.units)
    for path, error in report.failed.items():
        to.print(f"failed: {path}: {error.what}", markup=False, soft_wrap=True)
