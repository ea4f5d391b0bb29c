"""``sidecar status``: how much of a table its sidecars cover, and what needs repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import repair
from sidecar.cli.options import Catalog, Json, Ref, Snapshot, Table
from sidecar.cli.output import Output, table

if TYPE_CHECKING:
    from rich.console import Console


def status(
    name: Table,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    as_json: Json = False,
) -> None:
    """Show a table's coverage, and the sidecar of each branch and tag.

    It also lists the registered statistics that "sidecar repair" would repair.

    \b
    Examples:
      sidecar status db.lineitem
      sidecar status db.lineitem --ref main --json
    """
    out = Output(as_json=as_json)
    from sidecar import open_table, status_table

    data = status_table(open_table(name, catalog), snapshot, ref=ref)
    out.warn(data["warnings"])
    out.result(data, draw)


def draw(to: Console, data: Any) -> None:
    """Draw the coverage, a line for each branch and tag, then the repairs."""
    from sidecar.cli import draw_inspect

    draw_inspect.table_coverage(to, data)
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
    from sidecar.cli.output import escaped

    return "–" if value is None else escaped(str(value))
