"""Removes the entry of a sidecar that a newer one has taken the place of, so that old copies do not stay registered.

A refresh removes it in the commit that registers the newer one. What is done here is left for entries with blobs of
others, and for those that could not be removed then.
"""

from __future__ import annotations

from pyiceberg.table import Table

from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.registering import register_others_alone, unregister
from sidecar.iceberg.statistics_files.superseding import is_ours_alone, is_superseded


def unregister_superseded(table: Table, found: FoundSidecar, snapshot_id: int) -> list[int]:
    """Remove the entry of ``found`` after the sidecar of ``snapshot_id`` has taken its place.

    Return the snapshots whose entries were removed. Blobs of others stay registered, in a file of their own. Raises the
    errors of :func:`sidecar.iceberg.statistics_files.registering.register_others_alone`.
    """
    if not is_superseded(table, found, snapshot_id):
        return []
    if not is_ours_alone(found):
        register_others_alone(table, found.statistics)
        return []
    return [entry.snapshot_id for entry in unregister(table, [found.statistics])]
