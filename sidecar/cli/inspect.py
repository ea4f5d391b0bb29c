"""``sidecar inspect``: which indexes files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.many.targets import FileArguments, refuse_tables
from sidecar.cli.options import KeyPlace, encryption_keys, names, storage_for
from sidecar.cli.output import output

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.errors import SidecarError
    from sidecar.results import InspectedFiles

_STATISTICS = ("values", "has_null", "min", "max")
"""The facts of a row index that only ``--statistics`` shows."""


def inspect(
    targets: FileArguments,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B",
            help="Show only these columns [all].",
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
    from sidecar.cli.draw.heavy_filters import heavy_filters
    from sidecar.cli.many import files

    found = sidecar.inspect(
        targets,
        columns=[name for text in columns or () for name in names(text)] or None,
        fill=fill,
        io=storage_for(targets),
        encryption_keys=encryption_keys(keys),
    )
    files.warn_of_each(out, found.files)
    out.warn(heavy_filters(found.files, targets))
    files.show(out, Inspection(found, statistics), draw)


@dataclass(frozen=True)
class Inspection:
    """What was found, and whether the statistics of ORC files are shown."""

    found: InspectedFiles
    statistics: bool

    @property
    def failed(self) -> dict[str, SidecarError]:
        """The files that could not be read."""
        return self.found.failed

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        data = self.found.to_dict()
        return data if self.statistics else {**data, "files": [_without_statistics(file) for file in data["files"]]}


def draw(to: Console, inspected: Inspection) -> None:
    """Draw one file with all its indexes; of several, a line for each."""
    from sidecar.cli.draw.inspect import draw_file
    from sidecar.cli.many.files import draw_inspected

    found = inspected.found
    if len(found) == 1 and not found.failed:
        draw_file(to, found.files[0], statistics=inspected.statistics)
    else:
        draw_inspected(to, found)


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
