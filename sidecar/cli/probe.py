"""``sidecar probe``: one filter lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.options import Catalog, Json, Snapshot, Target, is_path, refuse_table_options
from sidecar.cli.output import Output

if TYPE_CHECKING:
    from rich.console import Console


def probe(
    target: Target,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="The column; nested ones with dots.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="The value as a person writes it: -5, 1.5, 2024-01-01.")
    ],
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    as_json: Json = False,
) -> None:
    """Ask the filters of one column for one value.

    Example: sidecar probe db.lineitem l_partkey 42
    """
    out = Output(as_json=as_json)
    if is_path(target):
        refuse_table_options(catalog, snapshot)
        from sidecar import probe_file

        data = probe_file(target, column, value)
    else:
        from sidecar import open_table, probe_table

        data = probe_table(open_table(target, catalog), column, value, snapshot)
    out.warn(data.get("warnings", ()))
    out.result(data, draw)


def draw(to: Console, data: Any) -> None:
    """How many units can hold the value, and which."""
    to.print(humane.count(len(data["units"])))
