"""Says which sidecars branches and tags use, what they would lose, and which files of sidecar nothing references."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cache

from pyiceberg.table import Table

from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.find_sidecar import nearest_registered, open_registered
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations
from sidecar.maintenance.garbage import OLDER_THAN, find_garbage, why_left_alone
from sidecar.reports.status_results import LosableSidecar, RefInfo, RegisteredSidecars, UnreferencedFiles

NOT_LOOKED_FOR = UnreferencedFiles(None, None, None, "they were not looked for")


def describe_refs(table: Table) -> tuple[list[RefInfo], list[LosableSidecar]]:
    """Return the branches and tags with their sidecars, and those that would lose them with old snapshots.

    The sidecars are those that plans use: a statistics file that is no sidecar, or cannot be read, is skipped. Each
    file is opened at most once.
    """
    entries = statistics_of(table)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}

    @cache
    def is_sidecar(snapshot_id: int) -> bool:
        sidecar = open_registered(table, entries[snapshot_id], [])
        if sidecar is None:
            return False
        sidecar.close()
        return bool(sidecar.segments)

    refs, losable = [], []
    for name, ref in sorted(table.metadata.refs.items()):
        nearest = next(nearest_registered(table, ref.snapshot_id, is_sidecar), None)
        behind = None if nearest is None else generations(table, ref.snapshot_id, nearest)
        refs.append(RefInfo(name, str(ref.snapshot_ref_type), ref.snapshot_id, nearest, behind))
        if nearest is not None and not _stays(table, ref.snapshot_id, nearest, heads):
            losable.append(LosableSidecar(name, nearest, entries[nearest].statistics_path))
    return refs, losable


def _stays(table: Table, snapshot_id: int, nearest: int, heads: set[int]) -> bool:
    """Return whether a plan would still find the sidecar if only the snapshots ``heads`` were kept.

    Then the walk to ancestors ends where a snapshot is gone, even if an older one is kept.
    """
    current: int | None = snapshot_id
    while current != nearest:
        snapshot = None if current is None else table.metadata.snapshot_by_id(current)
        if snapshot is None or current not in heads:
            return False
        current = snapshot.parent_snapshot_id
    return nearest in heads


def registered_sidecars(table: Table) -> RegisteredSidecars:
    """Count the statistics files that the metadata names."""
    entries = statistics_of(table).values()
    sizes = {entry.statistics_path: entry.file_size_in_bytes for entry in entries}
    return RegisteredSidecars(len(entries), len(sizes), sum(sizes.values()))


def unreferenced_files(table: Table) -> UnreferencedFiles:
    """Count the files of sidecar in the metadata folder that nothing references, as ``gc`` finds them."""
    try:
        found = find_garbage(table, timedelta(0), [])
        # The storage's clock is not ahead of ours, so no file is old by its clock that is not old by ours.
        old = any(file.modified < time.time() - OLDER_THAN.total_seconds() for file in found)
        deletable = find_garbage(table, OLDER_THAN, []) if old and why_left_alone(table) is None else []
    except (UsageError, UnsupportedFeatureError, StorageError) as error:
        return UnreferencedFiles(None, None, None, _short(error))
    return UnreferencedFiles(len(found), sum(file.size for file in found), len(deletable), None)


def _short(error: SidecarError) -> str:
    return error.what
