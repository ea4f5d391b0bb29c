"""``sidecar plan``: the files that can hold rows for a predicate, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
from sidecar.cli.options import Catalog, Json, Predicate, Snapshot, Table
from sidecar.cli.output import Output

if TYPE_CHECKING:
    from rich.console import Console


def plan(
    table: Table,
    predicate: Predicate,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    as_json: Json = False,
) -> None:
    """Show which files can hold rows for a predicate, and what dropped the others.

    Example: sidecar plan db.lineitem "l_partkey = 42"
    """
    out = Output(as_json=as_json)
    from sidecar import open_table
    from sidecar import plan as plan_scan

    found = plan_scan(open_table(table, catalog), predicate, snapshot_id=snapshot)
    out.warn(found.warnings)
    out.result(found.to_dict(), draw)


def draw(to: Console, data: Any) -> None:
    """The funnel and the survivors."""
    to.print(humane.count(data["files"]["kept"]))
