"""Says of which rows of a snapshot a registered distinct count is, by the commits since it was made."""

from __future__ import annotations

from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob

from sidecar.bundle.sketches.count_marks import AlsoCounted, CountMarks, NotCounted
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.refs import lineage, snapshots_by_id
from sidecar.iceberg.statistics_files.merge import is_our_theta
from sidecar.puffin.metadata import BlobMetadata

_REMOVES = (Operation.DELETE, Operation.OVERWRITE)
_ADDS = (Operation.APPEND, Operation.OVERWRITE)


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
