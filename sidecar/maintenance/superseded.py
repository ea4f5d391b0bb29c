"""Removes the entry of a sidecar that a newer one has taken the place of, so that old copies do not stay registered."""

from __future__ import annotations

from pyiceberg.table import Table

from sidecar.iceberg.refs import lineage
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import is_our_blob, is_our_theta
from sidecar.iceberg.statistics_files.registering import register_others_alone, unregister


def unregister_superseded(table: Table, found: FoundSidecar, snapshot_id: int) -> list[int]:
    """Remove the entry of ``found`` after the sidecar of ``snapshot_id`` has taken its place.

    Return the snapshots whose entries were removed. Blobs of others stay registered, in a file of their own. The entry
    stays if a branch or tag needs it, and if its snapshot is no ancestor: it may have been rolled back, or wait to be
    published. Raises the errors of :func:`sidecar.iceberg.statistics_files.registering.register_others_alone`.
    """
    if (
        found.snapshot_id == snapshot_id
        or found.displaced is not None
        or found.snapshot_id not in lineage(table, snapshot_id)
        or _is_needed(table, found.snapshot_id, snapshot_id)
    ):
        return []
    if not is_ours_alone(found):
        register_others_alone(table, found.statistics)
        return []
    return [entry.snapshot_id for entry in unregister(table, [found.statistics])]


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
