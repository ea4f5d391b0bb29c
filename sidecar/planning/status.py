"""Reports the state of a table's sidecars: coverage, the sidecar of each branch and tag, and necessary repairs."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.partial_loading import state_of_registrations
from sidecar.iceberg.refs import generations, lineage
from sidecar.iceberg.repair import RepairInfo, repair
from sidecar.planning.inspect import TableInfo, inspect_table
from sidecar.results import Result


@dataclass(frozen=True, repr=False, slots=True)
class RefInfo(Result):
    """A branch or a tag, and the nearest statistics file."""

    name: str
    """The name of the branch or tag."""
    type: str
    """``branch`` or ``tag``."""
    snapshot_id: int
    """Its snapshot."""
    statistics_snapshot_id: int | None
    """The nearest ancestor snapshot with a statistics file; ``None`` if there is none."""
    snapshots_behind: int | None
    """How many commits this ancestor is older; ``None`` if there is none."""


@dataclass(frozen=True, repr=False)
class TableStatus(TableInfo):
    """The indexes of a table, its branches and tags, and necessary repairs."""

    refs: list[RefInfo]
    """The branches and tags."""
    repairs: list[RepairInfo]
    """What :func:`sidecar.repair` would do."""


def status_table(table: Table, snapshot_id: int | None = None, *, ref: str | None = None) -> TableStatus:
    """Return the result of :func:`sidecar.inspect_table`, with the branches and tags of ``table`` and its repairs.

    The indexes are those of the snapshot ``snapshot_id``, that of the branch or tag ``ref``, or the current one.
    Raises the errors of :func:`sidecar.inspect_table`.
    """
    found = inspect_table(table, snapshot_id, ref=ref)
    planned = repair(table, dry_run=True)
    warnings = [*found.warnings, *state_of_registrations(table), *planned.problems]
    return TableStatus(
        **{**vars(found), "warnings": list(dict.fromkeys(warnings))},
        refs=[_ref(table, name) for name in sorted(table.metadata.refs)],
        repairs=planned.repairs,
    )


def _ref(table: Table, name: str) -> RefInfo:
    ref, entries = table.metadata.refs[name], statistics_of(table)
    nearest = next((id for id in lineage(table, ref.snapshot_id) if id in entries), None)
    return RefInfo(
        name=name,
        type=str(ref.snapshot_ref_type),
        snapshot_id=ref.snapshot_id,
        statistics_snapshot_id=nearest,
        snapshots_behind=None if nearest is None else generations(table, ref.snapshot_id, nearest),
    )
