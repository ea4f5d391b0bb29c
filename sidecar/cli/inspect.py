"""``sidecar inspect``: which indexes files have."""

from __future__ import annotations

from typing import Annotated

import typer

from sidecar.cli.many.targets import Files, refuse_tables
from sidecar.cli.options import KeyPlace, encryption_keys, names
from sidecar.cli.output import output
from sidecar.cli.shell import narrowing


def inspect(
    targets: Files,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B",
            help="Show only these columns [all]. Repeat.",
        ),
    ] = None,
    fill: Annotated[
        bool,
        typer.Option("--fill", help="Read all filters of a Puffin file, and show how full they are."),
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Show minimum and maximum of ORC row groups; they are values of the data."),
    ] = False,
    keys: KeyPlace = None,
) -> None:
    """Show which indexes files have.

    Many files (several, a folder, a glob) give a line for each file and for each column over all of them.

    \b
    Examples:
      sidecar inspect ./part-0.parquet
      sidecar inspect ./indexes.puffin --fill
      sidecar inspect data/
    """
    out = output()
    refuse_tables("inspect", targets, "For the sidecar of a table: sidecar status {}")
    import sidecar
    from sidecar.cli.draw.inspect import drawing_for
    from sidecar.cli.many import files

    found = sidecar.inspect(
        targets,
        columns=[name for text in columns or () for name in names(text)] or None,
        fill=fill,
        encryption_keys=encryption_keys(keys),
    )
    data = found.to_dict()
    if not statistics:
        data["files"] = [narrowing.without_statistics(file) for file in data["files"]]
    files.warn_of_each(out, data)
    one = files.only_file(data)
    files.show(out, data, files.draw_inspected if one is None else lambda to, _: drawing_for(one)(to, one))
