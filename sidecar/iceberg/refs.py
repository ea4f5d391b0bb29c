"""Snapshots by the name of a branch or tag.

A name stands for the snapshot that it points to when it is asked. As with pyiceberg's ``use_ref``, rows then come in
the schema of that snapshot, of ``main`` too, while the predicate names columns as the table's present schema does.
"""

from __future__ import annotations

import difflib

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
