"""Says which sidecars branches and tags use, what they would lose, and which files of sidecar nothing references."""

from __future__ import annotations

import time
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations
from sidecar.iceberg.statistics_files.find_sidecar import is_sidecar, registered_for
from sidecar.maintenance.garbage import OLDER_THAN, find_garbage, why_left_alone
from sidecar.reports.status.results import LosableSidecar, RefInfo, RegisteredSidecars, UnreferencedFiles
from sidecar.run_log import quantity

NOT_LOOKED_FOR = UnreferencedFiles(None, None, None, "they were not looked for")


def describe_refs(table: Table) -> tuple[list[RefInfo], list[LosableSidecar]]:
    """Return the branches and tags with their sidecars, and those that would lose them with old snapshots.

    The sidecars are those that plans use: a statistics file that is no sidecar, or cannot be read, is skipped. Each
    file is opened at most once.
    """
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    known: dict[str, bool | None] = {}

    def is_used(entry: StatisticsFile) -> bool | None:
        if entry.statistics_path not in known:
            known[entry.statistics_path] = is_sidecar(table, entry)
        return known[entry.statistics_path]

    refs, losable = [], []
    for name, ref in sorted(table.metadata.refs.items()):
        entry = next(filter(is_used, registered_for(table, ref.snapshot_id)), None)
        nearest = None if entry is None else entry.snapshot_id
        behind = None if nearest is None else generations(table, ref.snapshot_id, nearest)
        refs.append(RefInfo(name, str(ref.snapshot_ref_type), ref.snapshot_id, nearest, behind))
        if entry is not None and entry.snapshot_id not in heads:  # plans find any registered sidecar
            losable.append(LosableSidecar(name, entry.snapshot_id, entry.statistics_path))
    return refs, losable


def registered_sidecars(table: Table) -> RegisteredSidecars:
    """Count the statistics files that the metadata names."""
    entries = table.metadata.statistics
    sizes = {entry.statistics_path: entry.file_size_in_bytes for entry in entries}
    return RegisteredSidecars(len(entries), len(sizes), sum(sizes.values()))


def several_files(table: Table) -> list[str]:
    """Return a sentence if a snapshot has several statistics files, else an empty list."""
    found = [(one, len(entries)) for one, entries in statistics_of(table).items() if len(entries) > 1]
    if not found:
        return []
    more = f", and {quantity(len(found) - 1, 'other snapshot')} too" if found[1:] else ""
    return [
        f"snapshot {found[0][0]} has {found[0][1]} statistics files{more}: engines that expect one read the first, and "
        "a build that writes a sidecar makes one file of them"
    ]


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
