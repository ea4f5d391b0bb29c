"""``sidecar inspect``: which indexes a file or a table has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.many.tables import coverage_cells, run_tables
from sidecar.cli.many.targets import SkipBad, Targets, are_paths, are_several_tables, is_one_path
from sidecar.cli.options import At, KeyPlace, encryption_keys, opened_table
from sidecar.cli.output import output
from sidecar.cli.shell import narrowing
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from sidecar.bundle.columns import ColumnChoice


def inspect(
    targets: Targets,
    at: At = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B|ID=NAME",
            help="Show only these columns [all]. 3=user_id or 3=user_id:long names a column of a Puffin file. Repeat.",
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
    skip_bad: SkipBad = False,
) -> None:
    """Show which indexes files or tables have.

    Many files (several, a folder, a glob) give a line for each file and for each column over all of them.

    \b
    Examples:
      sidecar inspect db.lineitem
      sidecar inspect ./part-0.parquet
      sidecar inspect ./indexes.puffin --fill
      sidecar inspect data/ --skip-bad
      sidecar inspect 'db.*'
    """
    out = output()
    from sidecar.bundle.columns import column_choice
    from sidecar.cli.draw import inspect as drawing

    chosen = column_choice(columns or ())
    if are_paths(targets, at):
        if not is_one_path(targets, skip_bad):
            _inspect_files(targets, chosen, keys, skip_bad, statistics, fill)
            return
        from sidecar import inspect_file

        data = inspect_file(
            targets[0], encryption_keys=encryption_keys(keys), column_names=chosen.names, fill=fill
        ).to_dict()
        if not statistics:
            data = narrowing.without_statistics(data)
        draw = drawing.drawing_for(data)
    else:
        from sidecar import inspect_table

        if keys is not None:
            raise UsageError("--encryption-keys is for a path: inspect of a table reads nothing that is encrypted")
        if chosen.names or fill:
            raise UsageError("--columns ID=NAME and --fill are for the path of a Puffin file")
        if are_several_tables(targets, skip_bad):
            if columns is not None:
                raise UsageError("--columns is for one table, or for files")
            run_tables(out, targets, partial(inspect_table, at=at), coverage_cells)
            return
        data = inspect_table(opened_table(targets[0]), at=at).to_dict()
        draw = drawing.table_coverage
    if chosen.shown:
        data = narrowing.only_columns(data, chosen.shown)
    out.warn(data.get("warnings", ()))
    out.result(data, draw)


def _inspect_files(
    paths: list[str], chosen: ColumnChoice, keys: str | None, skip_bad: bool, statistics: bool, fill: bool
) -> None:
    from sidecar import inspect_files
    from sidecar.cli.many import files
    from sidecar.many_files.columns import with_columns

    out = output()
    found = inspect_files(
        paths,
        columns=chosen.shown or None,
        encryption_keys=encryption_keys(keys),
        column_names=chosen.names,
        fill=fill,
        skip_bad=skip_bad,
    )
    data = found.to_dict()
    if not statistics:
        data["files"] = [narrowing.without_statistics(file) for file in data["files"]]
    if chosen.shown:
        data["files"] = [with_columns(file, chosen.shown) for file in data["files"]]
    files.show(out, data, files.draw_inspected)
