"""``sidecar scan``: the rows for a predicate, read from the surviving files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sidecar.cli.options import Catalog, Predicate, Snapshot, Table, names
from sidecar.cli.output import Output, console


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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the rows as JSON, one a line; with --output, what was done.")
    ] = False,
) -> None:
    """Read the rows for a predicate, from the files that can hold them.

    Example: sidecar scan db.lineitem "l_partkey = 42" --columns l_orderkey,l_comment
    """
    from sidecar.cli import rows

    out = Output(as_json=as_json)
    chosen = None if columns is None else names(columns)
    if output is not None:
        rows.check_output(output)
    from sidecar import open_table, plan, read

    found = plan(open_table(table, catalog), predicate, snapshot_id=snapshot)
    out.warn(found.warnings)
    result = read(found, chosen, limit)
    if output is not None:
        rows.write_rows(result, output)
        done = {"rows": result.num_rows, "output": str(output), "files": found.to_dict()["files"]}
        out.result(
            done, lambda to, data: to.print(f"{data['rows']:,} rows written to {output}", markup=False)
        )
    elif as_json:
        out.lines(rows.json_rows(result))
    else:
        rows.draw_rows(console(), result)
