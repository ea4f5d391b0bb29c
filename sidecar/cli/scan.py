"""``sidecar scan``: the rows for a predicate, read from the surviving files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.options import Catalog, Json, Predicate, Snapshot, Table, names
from sidecar.cli.output import Output
from sidecar.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

SHOWN_ROWS = 20
"""Rows that a terminal is shown without --limit."""


def scan(
    table: Table,
    predicate: Predicate,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="A,B", help="Columns to read [all].")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most N rows.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to .arrow, .csv, .jsonl or .parquet."),
    ] = None,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON, one a line.")] = False,
) -> None:
    """Read the rows for a predicate from the files that can hold them.

    Example: sidecar scan db.lineitem "l_partkey = 42" --columns l_orderkey,l_comment
    """
    from sidecar.cli.rows import check_output, draw_rows, write_rows

    out = Output(as_json=as_json)
    if output is not None:
        check_output(output)
    from sidecar import open_table
    from sidecar import scan as scan_table

    found = scan_table(
        open_table(table, catalog), predicate, columns=names(columns), limit=limit, snapshot_id=snapshot
    )
    if output is not None:
        write_rows(found, output)
