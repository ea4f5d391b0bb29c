"""Finds snapshots by the name of a branch or tag, and walks their ancestors.

A name is resolved once, when it is used. As with pyiceberg's ``use_ref``, rows have the schema of the named snapshot
(also for ``main``), while the predicate names columns as in the table's current schema. CREATE OR REPLACE TABLE can
give a column a type to which the old type cannot be promoted. Older snapshots of such a table are read with their own
schema.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table

from sidecar.errors import UsageError
from sidecar.iceberg.table_names import name_of


def check_table(table: object) -> None:
    """Raise :class:`UsageError` for a name, a path or another object where an open table belongs."""
    if hasattr(table, "metadata"):
        return
    hint = "Open it first: sidecar.open_table('namespace.table')."
    if isinstance(table, str):
        hint = f"Open it first: sidecar.open_table({table!r})."
    raise UsageError("the table is not open", expected="a pyiceberg Table", found=type(table).__name__, hint=hint)


def is_empty(table: Table, snapshot_id: int | None) -> bool:
    """Whether the current snapshot is asked for, and the table has none yet. Nothing was ever written to it then."""
    return snapshot_id is None and table.metadata.current_snapshot() is None


def snapshot_id_of(table: Table, snapshot_id: int | None, ref: str | None) -> int | None:
    """Return ``snapshot_id``, or the snapshot id of a branch or tag ``ref``; ``None`` means the current snapshot.

    Raises :class:`UsageError` if both are given, for an unknown name, and for a table that is not open.
    """
    check_table(table)
    if ref is None:
        return snapshot_id
    if snapshot_id is not None:
        raise UsageError("a snapshot id and the name of a branch or tag were given; give only one of them")
    refs = table.metadata.refs
    if ref in refs:
        return refs[ref].snapshot_id
    near = difflib.get_close_matches(ref, refs, n=3) or sorted(refs)[:10]
    raise UsageError(
        f"the table '{name_of(table)}' has no branch or tag '{ref}'",
        hint=f"It has {', '.join(near)}." if near else "It has no snapshot yet.",
    )


def as_it_was(table: Table, snapshot_id: int | None) -> Table:
    """Return the table with the schema of a snapshot if the current schema cannot read the snapshot, else ``table``."""
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    schemas = table.schemas()
    if snapshot is None or snapshot.schema_id not in schemas:
        return table
    if _reads(table.schema(), schemas[snapshot.schema_id]):
        return table
    return with_schema(table, snapshot.schema_id)


def with_schema(table: Table, schema_id: int) -> Table:
    """Return the table with one of its other schemas as the current one."""
    changed = copy.copy(table)
    changed.metadata = table.metadata.model_copy(update={"current_schema_id": schema_id})
    return changed


def _reads(schema: Schema, written: Schema) -> bool:
    """Return whether the types in ``written`` can be promoted to those in ``schema``, for all common field ids."""
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
    """Yield the ids of a snapshot and of its ancestors, nearest first, until one has expired."""
    next_id = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    seen: set[int] = set()
    while next_id is not None and next_id not in seen:
        seen.add(next_id)
        yield next_id
        snapshot = table.metadata.snapshot_by_id(next_id)
        next_id = snapshot.parent_snapshot_id if snapshot else None


def generations(table: Table, snapshot_id: int, ancestor_id: int) -> int:
    """Count the commits from an ancestor to a snapshot."""
    count, current = 0, table.metadata.snapshot_by_id(snapshot_id)
    while current is not None and current.snapshot_id != ancestor_id:
        count += 1
        parent = current.parent_snapshot_id
        current = None if parent is None else table.metadata.snapshot_by_id(parent)
    return count
