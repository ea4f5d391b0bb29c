"""Says of which rows of a snapshot a distinct count is.

That of a registered count is known by the commits since it was registered. The metadata says nothing of a count that is
in the sidecar alone; the files that its segments have counted say it.
"""

from __future__ import annotations

from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob

from sidecar.bundle.kinds.declared import THETA
from sidecar.bundle.sketches.count_marks import AlsoCounted, CountMarks, NotCounted, count_of
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.refs import lineage, snapshots_by_id
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import is_our_theta, sketched_fields
from sidecar.iceberg.statistics_files.sidecar_files import Places
from sidecar.indexing.previous.earlier_sketches import counted_files, marks_by_files
from sidecar.puffin.metadata import BlobMetadata

_REMOVES = (Operation.DELETE, Operation.OVERWRITE)
_ADDS = (Operation.APPEND, Operation.OVERWRITE)


def unregistered_counts(listing: Listing, found: FoundSidecar, live: Places) -> dict[int, tuple[int, CountMarks]]:
    """Return the counts of sidecar that the table's metadata does not name, by field id, and why each is a bound.

    ``live`` says where the sidecar lists the files of ``listing``.
    """
    registered = sketched_fields(found.statistics.blob_metadata)
    counts: dict[int, tuple[int, CountMarks]] = {}
    for blob in found.sidecar.puffin.metadata.blobs:
        ndv = count_of(blob.properties)
        if not is_our_theta(blob) or blob.fields[0] in registered or ndv is None:
            continue
        known, now = CountMarks.of(blob.properties), CountMarks()
        if blob.snapshot_id != listing.snapshot_id:  # otherwise its own marks are about the files of this snapshot
            now = marks_by_files(listing, *counted_files(found.files, blob.fields[0], THETA, live))
        counts[blob.fields[0]] = ndv, CountMarks(known.upper | now.upper, known.lower | now.lower)
    return counts


def marks_today(table: Table, listing: Listing, blob: BlobMetadata | RegisteredBlob, registered_for: int) -> CountMarks:
    """Return why the count of a sketch is a bound for a listed snapshot.

    The marks of our sketches are about the snapshot that they are registered for. Other writers set none; their counts
    are about the snapshot that the blob names.
    """
    known = CountMarks.of(blob.properties)
    made_for = registered_for if is_our_theta(blob) else blob.snapshot_id
    history = list(lineage(table, listing.snapshot_id))
    later = list(takewhile(lambda one: one != made_for, history))
    snapshots = snapshots_by_id(table)
    summaries = [snapshots[one].summary for one in later if one in snapshots]
    commits = {None if summary is None else summary.operation for summary in summaries}
    if made_for not in history:  # it has expired, or is of another branch
        commits.add(None)
    upper, lower = set[str](), set[str]()
    if commits & {None, *_REMOVES}:
        upper |= {str(AlsoCounted.ROW_DELETES if listing.delete_files else AlsoCounted.REMOVED_FILES)}
    if commits & {None, *_ADDS}:
        lower |= {str(NotCounted.FILES)}
    return CountMarks(known.upper | upper, known.lower | lower)
