"""Says when the entry of a sidecar goes because a newer one has taken its place."""

from __future__ import annotations

from pyiceberg.table import Table

from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import lineage
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import is_our_blob, is_our_theta


def is_superseded(table: Table, found: FoundSidecar, snapshot_id: int) -> bool:
    """Return whether nothing needs the entry of ``found`` once ``snapshot_id`` has a sidecar.

    It stays if a branch or tag needs it, and if its snapshot is no ancestor: it may have been rolled back, or wait to
    be published. Blobs of others in its file stay registered in any case.
    """
    old = found.snapshot_id
    if old == snapshot_id or found.displaced is not None or old not in lineage(table, snapshot_id):
        return False
    return not _is_needed(table, old, snapshot_id)


def is_removable(table: Table, found: FoundSidecar, snapshot_id: int) -> bool:
    """Return whether the commit that sets the entry of ``snapshot_id`` can remove that of ``found``."""
    is_alone = statistics_of(table).get(found.snapshot_id) == (found.statistics,)
    return is_alone and is_ours_alone(found) and is_superseded(table, found, snapshot_id)


def is_ours_alone(found: FoundSidecar) -> bool:
    """Return whether a sidecar and its entry have no blobs of others."""
    blobs = found.sidecar.puffin.metadata.blobs
    return all(map(is_our_blob, blobs)) and all(map(is_our_theta, found.statistics.blob_metadata))


def _is_needed(table: Table, old: int, new: int) -> bool:
    """Return whether a branch or tag meets the ``old`` entry on its way back, before the ``new`` one.

    Entries between them may be those of other writers, which plans pass over.
    """
    for ref in table.metadata.refs.values():
        for ancestor in lineage(table, ref.snapshot_id):
            if ancestor == new:
                break
            if ancestor == old:
                return True
    return False
