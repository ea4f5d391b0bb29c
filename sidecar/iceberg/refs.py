"""Finds the snapshot that is asked about, and the schema in which it is read; walks the ancestors of snapshots.

Spark's rule holds, for predicates, keys, columns and rows alike: a snapshot id or a tag means the snapshot's own
schema, a branch (``main`` too) or nothing means the table's present schema. pyiceberg takes the names in a predicate
from the present schema, and those of rows from the snapshot's.

pyiceberg changes a :class:`Table` in place: ``refresh`` and each commit give the object other metadata. So whoever uses
a table for more than a moment uses a copy (:func:`one_version`, :func:`table_at`, and for commits
:func:`sidecar.iceberg.catalog.held`).
"""

from __future__ import annotations

import copy
import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import takewhile

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE, DataFileIdentity
from sidecar.errors import UsageError
from sidecar.iceberg.table_names import name_of


def check_table(table: object) -> None:
    """Raise :class:`UsageError` for a name, a path or another object where an open table belongs."""
    if hasattr(table, "metadata"):
        return
    name = table if isinstance(table, str) else "namespace.table"
    hint = f"Open it first: table = sidecar.open_table({name!r}, catalog), and pass table."
    raise UsageError("the table is not open", expected="a pyiceberg Table", found=type(table).__name__, hint=hint)


def is_empty(table: Table, snapshot_id: int | None) -> bool:
    """Whether the current snapshot is asked for, but the table has none, because nothing was ever written to it."""
    return snapshot_id is None and table.metadata.current_snapshot() is None


def snapshot_id_of(table: Table, at: int | str | None) -> int | None:
    """Return the snapshot id that ``at`` names; ``None`` means the current snapshot.

    A text names a branch or tag. If none has that name and it has only digits, it is a snapshot id, as on a command
    line. Raises :class:`UsageError` for an unknown name, and for a table that is not open.
    """
    check_table(table)
    if not isinstance(at, str):
        return at
    refs = table.metadata.refs
    if at in refs:
        return refs[at].snapshot_id
    if at.isascii() and at.isdigit():
        return int(at)
    near = difflib.get_close_matches(at, refs, n=3) or sorted(refs)[:10]
    raise UsageError(
        f"the table '{name_of(table)}' has no branch or tag '{at}'",
        hint=f"It has {', '.join(near)}." if near else "It has no snapshot yet.",
    )


def is_branch(table: Table, at: int | str | None) -> bool:
    """Whether ``at`` names a branch, as ``main`` is one, and not a tag or a snapshot."""
    ref = table.metadata.refs.get(at) if isinstance(at, str) else None
    return ref is not None and ref.snapshot_ref_type == SnapshotRefType.BRANCH


def schema_at(table: Table, at: int | str | None = None) -> Schema:
    """Return the schema in which the snapshot that ``at`` names is read.

    It is the table's present one if the metadata does not say which schema the snapshot has. Raises as
    :func:`snapshot_id_of`.
    """
    chosen = snapshot_id_of(table, at)
    if is_branch(table, at):
        return table.schema()
    snapshot = None if chosen is None else table.metadata.snapshot_by_id(chosen)
    own = None if snapshot is None or snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    return table.schema() if own is None else own  # a schema without columns is false


def table_at(table: Table, at: int | str | None = None) -> tuple[Table, int | None]:
    """Return one version of the table whose current schema is that of :func:`schema_at`, and the snapshot id.

    Raises as :func:`snapshot_id_of`.
    """
    table = one_version(table)
    chosen, schema = snapshot_id_of(table, at), schema_at(table, at)
    is_present = schema.schema_id == table.metadata.current_schema_id
    return (table if is_present else with_schema(table, schema.schema_id)), chosen


def check_readable(table: Table, snapshot_id: int | None) -> None:
    """Raise :class:`UsageError` if the table's current schema cannot read the named snapshot, as a branch may have it.

    CREATE OR REPLACE TABLE can give a column a type to which the old type cannot be promoted.
    """
    if snapshot_id is None:
        return
    schema, own = table.schema(), schema_at(table, snapshot_id)
    field_id = None if own is schema else unreadable_field(schema, own)
    if field_id is not None:
        raise UsageError(
            f"the table's present schema cannot read the snapshot {snapshot_id}",
            column=schema.find_column_name(field_id),
            expected=str(schema.find_type(field_id)),
            found=str(own.find_type(field_id)),
            hint="Name the snapshot by its id, not by a branch, to read it in its own schema.",
        )


def one_version(table: Table) -> Table:
    """Return a copy of a table that no refresh changes. Raises :class:`UsageError` for a table that is not open."""
    check_table(table)
    return copy.copy(table)


def with_schema(table: Table, schema_id: int) -> Table:
    """Return the table with one of its other schemas as the current one."""
    changed = one_version(table)
    changed.metadata = changed.metadata.model_copy(update={"current_schema_id": schema_id})
    return changed


def unreadable_field(schema: Schema, written: Schema) -> int | None:
    """Return a field id whose type in ``written`` cannot be promoted to that in ``schema``; ``None`` if all can."""
    for field_id in sorted(schema.field_ids & written.field_ids):
        old, new = written.find_type(field_id), schema.find_type(field_id)
        if old.is_primitive != new.is_primitive or (not old.is_primitive and type(old) is not type(new)):
            return field_id
        try:
            if old != new and old.is_primitive:
                promote(old, new)
        except ResolveError:
            return field_id
    return None


def snapshots_by_id(table: Table) -> dict[int, Snapshot]:
    """Return the table's snapshots by id. ``snapshot_by_id`` of pyiceberg looks through all of them for each one."""
    return {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}


def lineage(table: Table, snapshot_id: int | None) -> Iterator[int]:
    """Yield the ids of a snapshot and of its ancestors, nearest first, until one has expired."""
    next_id = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    if next_id is None:
        return
    yield next_id  # usually it is the only one that is asked for
    known, seen = snapshots_by_id(table), {next_id}
    while (snapshot := known.get(next_id)) is not None and snapshot.parent_snapshot_id is not None:
        next_id = snapshot.parent_snapshot_id
        if next_id in seen:
            return
        seen.add(next_id)
        yield next_id


def generations(table: Table, snapshot_id: int, other_id: int) -> int:
    """Count the commits of a snapshot's history that another snapshot's history does not have.

    If the other snapshot is an ancestor, these are the commits since then.
    """
    newer = list(takewhile(lambda one: one != other_id, lineage(table, snapshot_id)))
    known = snapshots_by_id(table) if newer else {}
    parent = known[newer[-1]].parent_snapshot_id if newer and newer[-1] in known else None
    shared = set() if parent == other_id else set(lineage(table, other_id))
    return sum(one in known and one not in shared for one in newer)


def waiting_since(table: Table, files: Iterable[DataFileIdentity]) -> tuple[float, bool]:
    """Return the time at or before which the first of ``files`` was committed, and whether that is certain.

    The time of an expired snapshot is not known. It certainly came after the last snapshot with a smaller sequence
    number. If no such snapshot is left, the oldest snapshot is newer than the file.
    """
    snapshots = table.metadata.snapshots
    times = {one.snapshot_id: one.timestamp_ms for one in snapshots}
    in_order = sorted((one.sequence_number or UNKNOWN_SEQUENCE, one.timestamp_ms) for one in snapshots)
    oldest, found, is_certain = min(times.values(), default=0), list[int](), True
    for file in files:
        since = None if file.added_snapshot_id is None else times.get(file.added_snapshot_id)
        if since is None and file.file_sequence_number > UNKNOWN_SEQUENCE:
            before = bisect_left(in_order, (file.file_sequence_number,))
            since = in_order[before - 1][1] if before else None
        is_certain &= since is not None
        found.append(oldest if since is None else since)
    return min(found) / 1000, is_certain
