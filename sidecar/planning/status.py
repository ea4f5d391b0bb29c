"""Reports the state of a table's sidecars: coverage, the sidecar of each branch and tag, and necessary repairs."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table

from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.partial_loading import state_of_registrations
from sidecar.iceberg.refs import generations, lineage
from sidecar.iceberg.repair import repair
from sidecar.planning.inspect import inspect_table


def status_table(table: Table, snapshot_id: int | None = None, *, ref: str | None = None) -> dict[str, Any]:
    """Return the result of :func:`sidecar.inspect_table`, with two things about the table as a whole.

    ``refs``: for each branch and tag its ``type`` and ``snapshot_id``, and the nearest ancestor snapshot with a
    statistics file: ``statistics_snapshot_id`` (``None`` if there is none) and ``snapshots_behind``. ``repairs``: what
    :func:`sidecar.repair` would do. Raises the errors of :func:`sidecar.inspect_table`.
    """
    data = inspect_table(table, snapshot_id, ref=ref)
    planned = repair(table, dry_run=True)
    warnings = [*data["warnings"], *state_of_registrations(table), *planned["problems"]]
    return {
        **data,
        "refs": [_ref(table, name) for name in sorted(table.metadata.refs)],
        "repairs": planned["repairs"],
        "warnings": list(dict.fromkeys(warnings)),
    }


def _ref(table: Table, name: str) -> dict[str, Any]:
    ref, entries = table.metadata.refs[name], statistics_of(table)
    nearest = next((id for id in lineage(table, ref.snapshot_id) if id in entries), None)
    return {
        "name": name,
        "type": str(ref.snapshot_ref_type),
        "snapshot_id": ref.snapshot_id,
        "statistics_snapshot_id": nearest,
        "snapshots_behind": None if nearest is None else generations(table, ref.snapshot_id, nearest),
    }
