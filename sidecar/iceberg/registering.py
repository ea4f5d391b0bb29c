"""Registers a sidecar without losing what others wrote.

A registration writes a new file (it never overwrites one) and sets it as the statistics file of the snapshot. Then it
reloads the table and checks that the table names the file and that the commit replaced only what was merged into it
(:mod:`sidecar.iceberg.merge`, :mod:`sidecar.iceberg.metadata_log`). If not, it merges and commits again.
"""

from __future__ import annotations

import contextlib
import copy
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import CommitConflictError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.catalog import reload_table
from sidecar.iceberg.merge import KeptSketch, Merge, SketchToCopy, open_existing, plan_merge
from sidecar.iceberg.metadata_log import Commit, NoCommit, find_commit, statistics_of
from sidecar.iceberg.partial_loading import refuse_partly_loaded
from sidecar.iceberg.write_statistics import (
    WriteOurs,
    delete_file,
    statistics_entry,
    storage_error,
    write_file,
)
from sidecar.puffin.metadata import BlobMetadata

ATTEMPTS = 6
"""The most attempts of a registration while other commits interfere."""

FIRST_PAUSE = 0.1
"""Upper bound of the random pause before the second attempt, in seconds; it doubles with each attempt."""

REFUSED = (BadRequestError, ForbiddenError, UnauthorizedError, NoSuchTableError)
"""Errors of a catalog after which the commit has certainly not happened."""


@dataclass(frozen=True)
class Registration:
    """A finished registration: the file, its blobs, and notes for the user."""

    snapshot_id: int
    statistics_path: str
    file_size: int
    footer_size: int
    blobs: tuple[BlobMetadata, ...]
    notes: tuple[str, ...]
    attempts: int


@dataclass
class _Race:
    """State that is kept from one attempt to the next."""

    displaced: list[StatisticsFile] = field(default_factory=list)
    """Files of other writers that our commits replaced without merging them, newest first."""
    own_paths: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def register(
    table: Table,
    snapshot_id: int,
    thetas: Sequence[KeptSketch],
    write: WriteOurs,
    *,
    force: bool = False,
    has_pages: bool = False,
    unsketched: Collection[int] = (),
    carried: Sequence[SketchToCopy] = (),
) -> Registration:
    """Write a Puffin file for a snapshot and register it; blobs of other writers are kept.

    ``write`` adds our own blobs after those of others and the ``thetas``. It is called once per attempt with the
    files that are replaced, newest first, and may copy our blobs from them. ``force`` registers even if an existing
    statistics file cannot be read. ``has_pages`` says that ``write`` adds page indexes. Older sketches of ours for
    the fields in ``unsketched`` are not kept. ``carried`` are sketches of an earlier snapshot, copied for fields that
    have no newer one.

    Raises :class:`UsageError` for an unknown snapshot, :class:`UnsupportedFeatureError` if pyiceberg cannot write the
    table's metadata, the error of an existing file that cannot be read, :class:`sidecar.errors.StorageError`, and
    :class:`CommitConflictError` if the snapshot expires meanwhile or other commits interfere each time.
    """
    check_writable(table)
    race = _Race()
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, FIRST_PAUSE * 2 ** (attempt - 1)))
        now = reload_table(table)
        snapshot = _snapshot(now, snapshot_id, meanwhile=attempt > 0)
        merge = _merge(now, snapshot_id, thetas, race, force, unsketched, carried)
        try:
            path, written = write_file(now, snapshot, merge, write, has_pages)
        finally:
            merge.close()
        entry = statistics_entry(path, snapshot, written, merge)
        if not _commit(now, entry):
            continue
        race.own_paths.add(path)
        if _is_settled(now, entry, race):
            notes = (*merge.notes, *race.notes)
            return Registration(snapshot_id, path, *written[:2], written.metadata.blobs, notes, attempt + 1)
    lost = [entry.statistics_path for entry in race.displaced]
    raise CommitConflictError(
        f"other commits interfered with all {ATTEMPTS} attempts, and the registration may be missing",
        file=lost[0] if lost else None,
        hint="This file was replaced without being merged; register again." if lost else "Try again.",
    )


def check_mergeable(table: Table, snapshot_id: int, force: bool = False) -> tuple[str, ...]:
    """Raise the errors that :func:`register` would raise before it writes; otherwise return its notes.

    Reads the footers of statistics files that a registration would replace, and writes nothing.
    """
    check_writable(table)
    now = reload_table(table)
    _snapshot(now, snapshot_id, meanwhile=False)
    merge = _merge(now, snapshot_id, (), _Race(), force, ())
    merge.close()
    return merge.notes


def check_writable(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if pyiceberg cannot write this table's metadata."""
    refuse_partly_loaded(table)
    check_format_version(table)


def check_format_version(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if the client of this catalog cannot write the table's format version."""
    if isinstance(table.catalog, RestCatalog):
        return  # the server writes the metadata
    try:
        table.metadata.model_dump_json()
    except NotImplementedError as error:
        version = table.metadata.format_version
        raise UnsupportedFeatureError(
            f"pyiceberg cannot write tables of format version {version} through this catalog",
            hint="Use a REST catalog.",
        ) from error


def _snapshot(table: Table, snapshot_id: int, *, meanwhile: bool) -> Snapshot:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is not None:
        return snapshot
    if meanwhile:
        raise CommitConflictError(f"the snapshot {snapshot_id} expired meanwhile; nothing was registered")
    raise UsageError(f"the table '{'.'.join(table.name())}' has no snapshot {snapshot_id}")


def _merge(
    table: Table,
    snapshot_id: int,
    thetas: Sequence[KeptSketch],
    race: _Race,
    force: bool,
    unsketched: Collection[int],
    carried: Sequence[SketchToCopy] = (),
) -> Merge:
    """Plan the merge of the current file and of those that our commits displaced, newest first.

    If the current file is our own, it is not merged: the displaced files had already replaced what was merged into
    it.
    """
    entries = list(race.displaced)
    current = statistics_of(table).get(snapshot_id)
    if current is not None and current.statistics_path not in race.own_paths:
        entries.insert(0, current)
    existing = [open_existing(table.io, entry, force=force) for entry in entries]
    return plan_merge(existing, thetas, set(table.schema().field_ids), unsketched, carried)


def _commit(table: Table, entry: StatisticsFile) -> bool:
    """Set the entry. ``False``: the commit certainly failed, the file is deleted. ``True``: it may have succeeded."""
    try:
        # A commit changes the table object. The caller compares with the old one, so the commit gets a copy.
        copy.copy(table).update_statistics().set_statistics(entry).commit()
    except CommitFailedException:
        delete_file(table, entry.statistics_path)
        return False
    except REFUSED as error:
        delete_file(table, entry.statistics_path)
        raise storage_error("the catalog refused the commit", error, table, None) from error
    except Exception as error:
        # The commit may have succeeded. The reloaded table shows whether it did.
        later = reload_table(table)
        done = find_commit(table, later, entry.statistics_path, entry.snapshot_id)
        if done is NoCommit.NEVER:
            raise storage_error(
                "the commit failed but may still take effect, so the file was kept",
                error,
                table,
                entry.statistics_path,
            ) from error
    return True


def _is_settled(before: Table, entry: StatisticsFile, race: _Race) -> bool:
    """Return whether the table has our entry and the commit replaced only what was merged."""
    snapshot_id, path = entry.snapshot_id, entry.statistics_path
    later = reload_table(before)
    if later.metadata.snapshot_by_id(snapshot_id) is None:
        _withdraw(later, entry)
        raise CommitConflictError(f"the snapshot {snapshot_id} expired meanwhile; nothing is registered")
    commit = find_commit(before, later, path, snapshot_id)
    merged = statistics_of(before).get(snapshot_id)
    if isinstance(commit, Commit):
        _check_others(commit, snapshot_id, path)
        replaced = commit.before.get(snapshot_id)
        if replaced not in (None, merged):
            race.displaced.insert(0, replaced)
            return False
        race.displaced.clear()
    elif commit is NoCommit.UNKNOWN:
        race.notes.append(f"it could not be checked which entry the commit replaced: {commit.value}")
    current = statistics_of(later).get(snapshot_id)
    return current is not None and current.statistics_path == path


def _check_others(commit: Commit, snapshot_id: int, path: str) -> None:
    """Raise :class:`CommitConflictError` if the commit changed the entry of another snapshot."""
    changed = [
        other for other in commit.before if other != snapshot_id and commit.after.get(other) != commit.before[other]
    ]
    if changed:
        raise CommitConflictError(
            f"the commit changed the statistics of other snapshots too: {', '.join(map(str, changed))}",
            file=path,
        )


def _withdraw(table: Table, entry: StatisticsFile) -> None:
    """Remove our entry for an expired snapshot, and its file."""
    with contextlib.suppress(Exception):  # leftovers do no harm, and the caller raises the error that matters
        left = statistics_of(table).get(entry.snapshot_id)
        if left is not None and left.statistics_path == entry.statistics_path:
            table.update_statistics().remove_statistics(entry.snapshot_id).commit()
        delete_file(table, entry.statistics_path)
