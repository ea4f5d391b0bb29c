"""Snapshots by the name of a branch or tag, and their ancestors.

A name stands for the snapshot that it points to when it is asked. As with pyiceberg's ``use_ref``, rows then come in
the schema of that snapshot, of ``main`` too, while the predicate names columns as the table's present schema does.
Where a replaced table (CREATE OR REPLACE) gave a column another type, the present schema means nothing for the older
snapshots: these are read as if their own schema was the table's.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
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


def as_it_was(table: Table, snapshot_id: int | None) -> Table:
    """The table with the schema of a snapshot, if the present one cannot read it; else ``table`` itself."""
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    schemas = table.schemas()
    if snapshot is None or snapshot.schema_id not in schemas:
        return table
    if _reads(table.schema(), schemas[snapshot.schema_id]):
        return table
    before = copy.copy(table)
    before.metadata = table.metadata.model_copy(update={"current_schema_id": snapshot.schema_id})
    return before


def _reads(schema: Schema, written: Schema) -> bool:
    """Whether every field of ``schema`` that ``written`` has too can be read from its type."""
    for field_id in schema.field_ids & written.field_ids:
        old, new = written.find_type(field_id), schema.find_type(field_id)
        if old.is_primitive != new.is_primitive or (not old.is_primitive and type(old) is not type(new)):
            return False
        try:
            if old != new and old.is_primitive:
                promote(old, new)
        except ResolveError:
            return False
    return True


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
