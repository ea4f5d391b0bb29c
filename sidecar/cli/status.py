"""``sidecar status``: how much of a table its sidecars cover, and what needs repair."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.cli import repair
from sidecar.cli.many.tables import coverage_cells, run_tables
from sidecar.cli.many.targets import Tables, are_several_tables
from sidecar.cli.options import Ref, Snapshot, opened_table
from sidecar.cli.output import escaped, output, table

if TYPE_CHECKING:
    from rich.console import Console


def status(
    tables: Tables,
    snapshot: Snapshot = None,
    ref: Ref = None,
) -> None:
    """Show a table's coverage, and the sidecar of each branch and tag.

    It also lists the registered statistics that "sidecar repair" would repair. Many tables (several, a glob) give a
    line for each table.

    \b
    Examples:
      sidecar status db.lineitem
      sidecar status 'db.*'
      sidecar status db.lineitem --ref main --json
    """
    out = output()
    from sidecar import status_table
    from sidecar.cli.draw import inspect

    if are_several_tables(tables):
        run_tables(out, tables, partial(status_table, snapshot_id=snapshot, ref=ref), coverage_cells)
        return
    data = status_table(opened_table(tables[0]), snapshot, ref=ref)
    out.warn(data.warnings)
    out.result(data.to_dict(), draw, inspect.coverage_rows)


def draw(to: Console, data: Any) -> None:
    """Draw the coverage, a line for each branch and tag, then the repairs."""
    from sidecar.cli.draw import inspect

    inspect.table_coverage(to, data)
    if data["refs"]:
        drawn = table("branch or tag", "", "snapshot", "statistics of", "behind", right=(4,))
        for ref in data["refs"]:
            cells = (ref["name"], ref["type"], ref["snapshot_id"], ref["statistics_snapshot_id"])
            drawn.add_row(*map(_cell, cells), _cell(ref["snapshots_behind"]))
        to.print()
        to.print(drawn)
    if data["repairs"]:
        to.print("\nto be repaired by sidecar repair")
        repair.draw_repairs(to, data["repairs"])


def _cell(value: Any) -> str:
    return "–" if value is None else escaped(str(value))
