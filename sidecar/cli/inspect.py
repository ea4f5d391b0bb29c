"""``sidecar inspect``: which indexes files have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sidecar.cli.many.targets import Files, refuse_tables
from sidecar.cli.options import KeyPlace, encryption_keys, names
from sidecar.cli.output import output

_STATISTICS = ("values", "has_null", "min", "max")
"""The facts of a row index that only ``--statistics`` shows."""


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
        data["files"] = [_without_statistics(file) for file in data["files"]]
    files.warn_of_each(out, data)
    one = files.only_file(data)
    files.show(out, data, files.draw_inspected if one is None else lambda to, _: drawing_for(one)(to, one))


def _without_statistics(data: dict[str, Any]) -> dict[str, Any]:
    """The inspection of an ORC file without the values in its row indexes; other files as they are."""
    if "stripes" not in data:
        return data
    return {**data, "units": [_without_values(unit) for unit in data["units"]]}


def _without_values(unit: Mapping[str, Any]) -> dict[str, Any]:
    columns = {}
    for path, column in unit["columns"].items():
        index = column["row_index"]
        kept = index and {name: value for name, value in index.items() if name not in _STATISTICS}
        columns[path] = {**column, "row_index": kept}
    return {**unit, "columns": columns}
