"""``sidecar probe``: looks one value up in the filters of a column."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import check_order, refuse_tables
from sidecar.cli.options import KeyPlace, encryption_keys, storage_for
from sidecar.cli.output import SHOWN, escaped, facts, output, without_folder
from sidecar.cli.output import table as table_of

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import ProbedFiles, ProbedRowGroup


def probe(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Parquet, ORC and Puffin files (paths, URLs, folders, globs), or a file that is one filter.",
        ),
    ],
    column: Annotated[
        str,
        typer.Argument(
            metavar="COLUMN",
            help="The column (nested: with dots); in a Puffin file its id or name; of a single filter, the type.",
        ),
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value to look up: -5, 1.5, 2024-01-01.")],
    keys: KeyPlace = None,
) -> None:
    """Look one value up in the filters of a column of files.

    Many files (several, a folder, a glob) give the files that may hold the value.

    \b
    Examples:
      sidecar probe ./part-0.parquet l_partkey -5
      sidecar probe data/ l_partkey 42
      sidecar probe ./indexes.puffin l_partkey 42
    """
    out = output()
    check_order(targets, column, value)
    refuse_tables("probe", targets, "For a table: sidecar plan {} '" + f"{column} = {value}'")
    import sidecar
    from sidecar.cli.many import files

    found = sidecar.probe(targets, column, value, io=storage_for(targets), encryption_keys=encryption_keys(keys))
    files.warn_of_each(out, found.files)
    files.show(out, found, draw if len(found) == 1 and not found.failed else files.draw_probed)


def draw(to: Console, found: ProbedFiles) -> None:
    """Draw how many row groups of one file can hold the value, then those that can or whose filters do not say."""
    (probed,) = found.files
    answers = Counter(unit.might_contain for unit in probed.units)
    to.print(
        facts(
            [
                ("units", f"{humanize.count(len(probed.units)):>8}"),
                ("cannot hold it", f"{humanize.count(answers[False]):>8}"),
                ("may hold it", f"[bold]{humanize.count(answers[True]):>8}[/]"),
                ("unknown: kept", f"{humanize.count(answers[None]):>8}"),
            ]
        )
    )
    kept = [unit for unit in probed.units if unit.might_contain is not False]
    if kept:
        folder, files = without_folder([unit.file or probed.file for unit in kept])
        to.print()
        to.print(f"units to read, in {folder}" if folder else "units to read", markup=False, soft_wrap=True)
        drawn = table_of("file", "row group", "", right=(1,))
        for unit, file in zip(kept[:SHOWN], files, strict=False):
            drawn.add_row(escaped(file), _place(unit), escaped(_answer(unit)))
        to.print(drawn)
    if len(kept) > SHOWN:
        to.print(f"[dim]and {humanize.count(len(kept) - SHOWN)} more: --json names all[/]")


def _place(unit: ProbedRowGroup) -> str:
    """The row group; in an ORC file, the stripe and the row group in it."""
    place = "–" if unit.row_group is None else str(unit.row_group)
    return place if unit.stripe is None else f"stripe {unit.stripe}, {place}"


def _answer(unit: ProbedRowGroup) -> str:
    return "may hold it" if unit.might_contain else f"unknown: {unit.reason}"
