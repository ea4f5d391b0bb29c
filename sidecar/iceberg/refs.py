"""Snapshots by the name of a branch or tag, and their ancestors.

A name stands for the snapshot that it points to when it is asked. As with pyiceberg's ``use_ref``, rows then come in
the schema of that snapshot, of ``main`` too, while the predicate names columns as the table's present schema does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pyiceberg.table import Table

from sidecar.errors import UsageError


def snapshot_id_of(table: Table, snapshot_id: int | None, ref: str | None) -> int | None:
    """The snapshot that is meant: ``snapshot_id``, that of a branch or tag ``ref``, or ``None``, the current one.

    Raises :class:`UsageError` where both are given and for a name that the table does not have.
    """
    if ref is None:
        return snapshot_id
    if snapshot_id is not None:
        raise UsageError("a snapshot and the name of a branch or tag were given; one of them is enough")
    refs = table.metadata.refs
    if ref in refs:
        return refs[ref].snapshot_id
    near = difflib.get_close_matches(ref, refs, n=3) or sorted(refs)[:10]
    raise UsageError(
        f"the table '{'.'.join(table.name())}' has no branch or tag '{ref}'",
        hint=f"It has {', '.join(near)}." if near else "It has no snapshot yet.",
    )


def lineage(table: Table, snapshot_id: int | None) -> Iterator[int]:
    """The snapshot and its ancestors, as far as they are still there."""
    next_id = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    seen: set[int] = set()
    while next_id is not None and next_id not in seen:
        seen.add(next_id)
        yield next_id
        snapshot = table.metadata.snapshot_by_id(next_id)
        next_id = snapshot.parent_snapshot_id if snapshot else None


def generations(table: Table, snapshot_id: int, ancestor_id: int) -> int:
    """Commits from an ancestor to a snapshot."""
    count, current = 0, table.metadata.snapshot_by_id(snapshot_id)
    while current is not None and current.snapshot_id != ancestor_id:
        count += 1
        parent = current.parent_snapshot_id
        current = None if parent is None else table.metadata.snapshot_by_id(parent)
    return count
