"""``sidecar probe``: look one value up in the filters of a column."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humanize
from sidecar.cli.options import (
    Catalog,
    Json,
    KeyPlace,
    Ref,
    Snapshot,
    Target,
    encryption_keys,
    is_path,
    refuse_table_options,
)
from sidecar.cli.output import Output, escaped, facts, without_folder
from sidecar.cli.output import table as table_of

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_UNITS = 20
"""How many row groups the text output names; JSON names all."""


def probe(
    target: Target,
    column: Annotated[
        str,
        typer.Argument(
            metavar="COLUMN",
            help="The column; write nested ones with dots. For a file that is one filter: the type of its values.",
        ),
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value to look up: -5, 1.5, 2024-01-01.")],
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    keys: KeyPlace = None,
    as_json: Json = False,
) -> None:
    """Look one value up in the filters of a column.

    \b
    Examples:
      sidecar probe db.lineitem l_partkey 42
      sidecar probe ./part-0.parquet l_partkey -5
    """
    out = Output(as_json=as_json)
    if is_path(target):
        refuse_table_options(catalog, snapshot, ref)
        from sidecar import probe_file

        data = probe_file(target, column, value, encryption_keys=encryption_keys(keys))
    else:
        from sidecar import open_table, probe_table

        opened = open_table(target, catalog)
        data = probe_table(opened, column, value, snapshot, ref=ref, encryption_keys=encryption_keys(keys))
    out.warn(data.get("warnings", ()))
    out.result(data, draw)


def draw(to: Console, data: Any) -> None:
    """Draw how many row groups can hold the value, then those that can or whose filters do not say."""
    answers = Counter(unit["might_contain"] for unit in data["units"])
    to.print(
        facts(
            [
                ("units", f"{humanize.count(len(data['units'])):>8}"),
                ("cannot hold it", f"{humanize.count(answers[False]):>8}"),
                ("may hold it", f"[bold]{humanize.count(answers[True]):>8}[/]"),
                ("unknown: kept", f"{humanize.count(answers[None]):>8}"),
            ]
        )
    )
    kept = [unit for unit in data["units"] if unit["might_contain"] is not False]
    if kept:
        folder, files = without_folder([unit.get("file", data.get("file", "")) for unit in kept])
        to.print(
            f"\nunits to read, in {folder}" if folder else "\nunits to read", markup=False, soft_wrap=True
        )
        drawn = table_of("file", "row group", "", right=(1,))
        for unit, file in zip(kept[:SHOWN_UNITS], files, strict=False):
            drawn.add_row(escaped(file), _place(unit), escaped(_answer(unit)))
        to.print(drawn)
    if len(kept) > SHOWN_UNITS:
        to.print(f"[dim]and {humanize.count(len(kept) - SHOWN_UNITS)} more: --json names all[/]")


def _place(unit: Any) -> str:
    """The row group; in an ORC file, the stripe and the row group in it."""
    stripe, group = unit.get("stripe"), unit["row_group"]
    place = "–" if group is None else str(group)
    return place if stripe is None else f"stripe {stripe}, {place}"


def _answer(unit: Any) -> str:
    return "may hold it" if unit["might_contain"] else f"unknown: {unit['reason']}"
