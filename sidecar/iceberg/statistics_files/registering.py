"""Registers a sidecar without losing what others wrote.

A registration writes a new file (it never overwrites one) and sets it as the statistics file of the snapshot. Then it
reloads the table and checks that the table names the file and that the commit replaced only what was merged into it
(:mod:`sidecar.iceberg.statistics_files.merge`, :mod:`sidecar.iceberg.metadata_log`). If not, it merges and commits
again.

An entry is removed, and set for another snapshot, under the same rule: the commit is checked in the metadata log, and
an entry of somebody else that it replaced is set again (:mod:`sidecar.iceberg.statistics_files.entry_commits`). The
interleavings are in ``.github/design/protocol.md``.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import CommitConflictError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import reload_table, storage_error
from sidecar.iceberg.engine_catalog import EngineCatalog, refuse_read_only
from sidecar.iceberg.metadata_log import Commit, NoCommit, StatisticsEntries, find_commit, names, statistics_of
from sidecar.iceberg.partial_loading import is_rest, refuse_partly_loaded
from sidecar.iceberg.statistics_files.entry_commits import (
    ATTEMPTS,
    Changes,
    Displaced,
    change_entries,
    is_gone,
    is_refused,
    look_for,
    pause,
    refuse_without_statistics,
    refused_commit,
    restorable,
    set_again,
)
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import KeptSketch, Merge, SketchToCopy, open_existing, plan_merge
from sidecar.iceberg.statistics_files.superseding import is_removable
from sidecar.iceberg.statistics_files.write_statistics import (
    WriteOurs,
    delete_file,
    statistics_entry,
    write_file,
)
from sidecar.iceberg.table_names import name_of
from sidecar.iceberg.table_properties import check_commit_properties
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter

REGISTRABLE_FOR = 12 * 3600.0
"""Seconds from the first byte of a file within which it is registered; later it is written anew.

The removal of unreferenced files spares every file for twice this time, so that a run that was stopped and goes on
registers no file that is about to be deleted.
"""


OTHERS_PROPERTY = "sidecar.others"
"""Property of a file into which sidecar has copied the blobs of others alone: the UUID of the table."""


@dataclass(frozen=True)
class Registration:
    """A finished registration: the table's version that shows it, the file, its blobs, and notes for the user."""

    table: Table
    snapshot_id: int
    statistics_path: str
    file_size: int
    footer_size: int
    blobs: tuple[BlobMetadata, ...]
    notes: tuple[str, ...]
    attempts: int


@dataclass
class _Attempts:
    """State that is kept from one attempt to the next."""

    displaced: list[StatisticsFile] = field(default_factory=list)
    """Files of other writers that our commits replaced without merging them, newest first."""
    merged: list[StatisticsFile] = field(default_factory=list)
    """The files that the present attempt merges, newest first."""
    superseded: str | None = None
    """Our file of the attempt before, if it displaced another file: what it merged was replaced by that one."""
    in_doubt: bool = False
    """Whether a commit has an unknown outcome."""
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
    supersedes: FoundSidecar | None = None,
) -> Registration:
    """Write a Puffin file for a snapshot and register it; blobs of other writers are kept.

    ``write`` adds our own blobs after those of others and the ``thetas``. It is called once per attempt with the
    files that are replaced, newest first, and may copy our blobs from them. ``force`` registers even if an existing
    statistics file cannot be read. ``has_pages`` says that ``write`` adds page indexes. Older sketches of ours for
    the fields in ``unsketched`` are not kept. ``carried`` are sketches of an earlier snapshot, copied for fields that
    have no newer one. The same commit removes the entry of ``supersedes``, if nothing needs it any more.

    Raises :class:`UsageError` for an unknown snapshot, :class:`UnsupportedFeatureError` if pyiceberg cannot write the
    table's metadata, the error of an existing file that cannot be read, :class:`sidecar.errors.StorageError`, and
    :class:`CommitConflictError` if the snapshot expires meanwhile or other commits interfere each time.
    """
    check_writable(table)
    race = _Attempts()
    for attempt in range(ATTEMPTS):
        pause(attempt)
        now = reload_table(table)
        snapshot = _snapshot(now, snapshot_id, meanwhile=attempt > 0)
        merge = _merge(now, snapshot_id, thetas, race, force, unsketched, carried)
        started = time.time()
        hit("register: write")
        try:
            path, written = write_file(now, snapshot, merge, write, has_pages)
        finally:
            merge.close()
        entry = statistics_entry(path, snapshot, written, merge)
        hit("register: commit")
        # A removal of unreferenced files may be about to delete a file of this age: write another one.
        if time.time() - started > REGISTRABLE_FOR:
            delete_file(now, path)
            continue
        old = None
        if supersedes is not None and is_removable(now, supersedes, snapshot_id):
            old = supersedes.statistics
        if not _commit(now, entry, race, old):
            continue
        hit("register: check")
        later = look_for(now, {snapshot_id: entry})
        if _took_effect(now, later, entry, race, old):
            notes = (*merge.notes, *race.notes)
            return Registration(later, snapshot_id, path, *written[:2], written.metadata.blobs, notes, attempt + 1)
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
    merge = _merge(now, snapshot_id, (), _Attempts(), force, ())
    merge.close()
    return merge.notes


def check_writable(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if pyiceberg cannot write this table's metadata, or nothing keeps it."""
    refuse_partly_loaded(table)
    check_commit_properties(table)
    check_registrable(table)


def check_registrable(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if a sidecar can be registered nowhere.

    The client of this catalog cannot write the table's format version, or the catalog was found to keep no statistics,
    or can only be read.
    """
    refuse_without_statistics(table)
    refuse_read_only(table)
    if is_rest(table.catalog) or isinstance(table.catalog, EngineCatalog):
        return  # the server, or the engine, writes the metadata
    try:
        table.metadata.model_dump_json()
    except NotImplementedError as error:
        version = table.metadata.format_version
        raise UnsupportedFeatureError(
            f"pyiceberg cannot write tables of format version {version} through this catalog",
            hint="Use a REST catalog, or open the table through Spark: sidecar.open_table(name, spark=spark).",
        ) from error


def _snapshot(table: Table, snapshot_id: int, *, meanwhile: bool) -> Snapshot:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is not None:
        return snapshot
    if meanwhile:
        raise CommitConflictError(
            f"the snapshot {snapshot_id} expired meanwhile; nothing was registered for the table '{name_of(table)}'"
        )
    raise UsageError(f"the table '{name_of(table)}' has no snapshot {snapshot_id}")


def _merge(
    table: Table,
    snapshot_id: int,
    thetas: Sequence[KeptSketch],
    race: _Attempts,
    force: bool,
    unsketched: Collection[int],
    carried: Sequence[SketchToCopy] = (),
) -> Merge:
    """Plan the merge of the snapshot's files and of those that our commits displaced, in this order.

    A file of our own that displaced others is not merged: they had already replaced what was merged into it.
    """
    race.merged = list(race.displaced)
    current = statistics_of(table).get(snapshot_id, ())
    race.merged[:0] = [entry for entry in current if entry.statistics_path != race.superseded]
    existing = [open_existing(table, entry, force=force) for entry in race.merged]
    return plan_merge(existing, thetas, set(table.schema().field_ids), unsketched, carried)


def _commit(table: Table, entry: StatisticsFile, race: _Attempts, old: StatisticsFile | None) -> bool:
    """Set the entry, and remove ``old``. ``False``: the commit certainly failed, the file is deleted. ``True``: it may
    have succeeded."""
    try:
        # A commit changes the table object. The caller compares with the old one, so the commit gets a copy.
        change = copy.copy(table).update_statistics()
        if old is not None:  # first, because pyiceberg 0.12 forgets what was set before a removal
            change = change.remove_statistics(old.snapshot_id)
        change.set_statistics(entry).commit()
    except CommitFailedException:
        delete_file(table, entry.statistics_path)
        return False
    except Exception as error:
        if is_refused(error):
            delete_file(table, entry.statistics_path)
            raise refused_commit(error, table) from error
        # The commit may have succeeded. The reloaded table shows whether it did.
        later = reload_table(table)
        done = find_commit(table, later, entry.statistics_path, entry.snapshot_id)
        # Not a subclass, such as those of answers that are no JSON: pyiceberg raised it before it sent anything.
        if done is NoCommit.NEVER and old is not None and type(error) is ValueError:
            return False  # somebody else has removed it, and may have set it again: there was nothing to remove
        race.in_doubt |= isinstance(done, NoCommit)
        if done is NoCommit.NEVER:
            raise storage_error(
                "the commit failed but may still take effect, so the file was kept",
                error,
                table,
                entry.statistics_path,
            ) from error
    return True


def _took_effect(
    before: Table, later: Table, entry: StatisticsFile, race: _Attempts, old: StatisticsFile | None
) -> bool:
    """Return whether ``later``, the table after the commit, has our entry, and only what was merged was replaced.

    ``old`` is the entry of another snapshot that the commit has removed. It is set again if ours is taken back, and so
    is another entry that somebody had set there.
    """
    snapshot_id, path = entry.snapshot_id, entry.statistics_path
    if later.metadata.snapshot_by_id(snapshot_id) is None:
        _undo(later, entry, race)
        if old is not None:
            set_again(later, old.snapshot_id, (old,))
        raise CommitConflictError(
            f"the snapshot {snapshot_id} expired meanwhile; nothing is registered for the table '{name_of(later)}'"
        )
    commit = find_commit(before, later, path, snapshot_id)
    merged = statistics_of(before).get(snapshot_id, ())
    current = statistics_of(later).get(snapshot_id, ())
    if isinstance(commit, Commit):
        _check_others(commit, {snapshot_id, snapshot_id if old is None else old.snapshot_id}, path)
        if old is not None and (taken := commit.before.get(old.snapshot_id, ())) not in ((), (old,)):
            set_again(later, old.snapshot_id, taken)
        replaced = commit.before.get(snapshot_id, ())
        if replaced not in ((), merged):
            race.displaced[:0] = replaced
            race.superseded = path
            return False
        # An entry that somebody removes takes with it what was merged: nothing else names these files any more.
        race.displaced = [] if current else list(race.merged)
        race.superseded = None
    elif commit is NoCommit.UNKNOWN:
        race.notes.append(f"it could not be checked which entry the commit replaced: {commit.value}")
    if not names(current, path):
        return False
    try:
        _check_file(later, entry, merged, old)
    except StorageError as error:
        race.notes.append(f"the file is registered, but could not be looked for afterwards: {error}")
    return True


def _check_file(
    table: Table, entry: StatisticsFile, earlier: StatisticsEntries, old: StatisticsFile | None = None
) -> None:
    """Take an entry back if its file is gone: the first of the ``earlier`` entries of the snapshot is set again.

    So is ``old``, the entry of another snapshot that went in the same commit.

    Raises :class:`CommitConflictError` if the file is gone, and :class:`sidecar.errors.StorageError` if storage fails.
    """
    if not is_gone(table, entry.statistics_path):
        return

    def decide(now: Table, displaced: Displaced) -> Changes:
        standing = statistics_of(now).get(entry.snapshot_id, ())
        if not names(standing, entry.statistics_path):
            return restorable(now, displaced)
        others = [one for one in (*standing, *earlier) if one.statistics_path != entry.statistics_path]
        return (others and restorable(now, {entry.snapshot_id: others[0]})) or {entry.snapshot_id: None}

    change_entries(table, decide)
    if old is not None:
        set_again(table, old.snapshot_id, (old,))
    lost = "".join(f" No entry names {other.statistics_path} any more: register it again." for other in earlier[1:])
    raise CommitConflictError(
        "the file was deleted before it was registered; its entry was taken back",
        file=entry.statistics_path,
        hint=f"Was the run stopped for a day, and did a cleanup run meanwhile? Try again.{lost}",
    )


def _check_others(commit: Commit, ours: Collection[int], path: str) -> None:
    """Raise :class:`CommitConflictError` if the commit changed the entry of a snapshot that is not one of ``ours``."""
    changed = [
        other for other in commit.before if other not in ours and commit.after.get(other) != commit.before[other]
    ]
    if changed:
        raise CommitConflictError(
            f"the commit changed the statistics of other snapshots too: {', '.join(map(str, changed))}",
            file=path,
        )


def _undo(table: Table, entry: StatisticsFile, race: _Attempts) -> None:
    """Remove our entry for an expired snapshot, and its file, unless a commit may still take effect."""
    with contextlib.suppress(Exception):  # leftovers do no harm, and the caller raises the error that matters
        unregister(table, [entry])
        if not race.in_doubt:
            delete_file(table, entry.statistics_path)


def unregister(table: Table, entries: Collection[StatisticsFile]) -> tuple[StatisticsFile, ...]:
    """Remove statistics entries in one commit, and return those that were removed. Files stay.

    An entry is removed only while the table names the same file for its snapshot; one set at the same moment is set
    again. Entries must have no blobs of others. Nothing is removed where several other entries of a snapshot would have
    to stay, because a commit sets one.

    Raises :class:`UnsupportedFeatureError` if pyiceberg cannot write the metadata, :class:`sidecar.errors.StorageError`
    if the catalog fails, :class:`CommitConflictError` if other commits interfere each time.
    """
    check_writable(table)
    wanted = {(entry.snapshot_id, entry.statistics_path) for entry in entries}
    removed: dict[tuple[int, str], StatisticsFile] = {}

    def decide(now: Table, displaced: Displaced) -> Changes:
        changes: dict[int, StatisticsFile | None] = {}
        for snapshot_id, standing in statistics_of(now).items():
            staying = [one for one in standing if (snapshot_id, one.statistics_path) not in wanted]
            if len(staying) < min(len(standing), 2):
                changes[snapshot_id] = staying[0] if staying else None
                removed.update({(snapshot_id, one.statistics_path): one for one in standing if one not in staying})
        return {**changes, **restorable(now, displaced)}

    change_entries(table, decide)
    return tuple(removed.values())


def register_again(
    table: Table, entry: StatisticsFile, snapshot_id: int, supersedes: FoundSidecar | None = None
) -> bool:
    """Register the file of ``entry``, which is registered already, for another snapshot too. Nothing is copied.

    The same commit removes the entry of ``supersedes``, if nothing needs it any more. Sketches of columns that the
    table has dropped are not registered. Return ``False`` if the snapshot has another entry or if ``entry`` is no
    longer registered: build then, because a build merges. If the file is gone afterwards, the entry is removed again.

    Raises :class:`UsageError` for an unknown snapshot, :class:`UnsupportedFeatureError` if pyiceberg cannot write the
    metadata, :class:`sidecar.errors.StorageError` if the catalog fails, and :class:`CommitConflictError` if the
    snapshot expires meanwhile, the file is gone, or other commits interfere each time.
    """
    check_writable(table)
    again: list[StatisticsFile] = []
    removed: dict[int, StatisticsFile] = {}

    def decide(now: Table, displaced: Displaced) -> Changes:
        entries = statistics_of(now)
        # The snapshot expired after our commit: remove our entry, and set those that it replaced again.
        if again and now.metadata.snapshot_by_id(snapshot_id) is None:
            back = {one: old for one, old in removed.items() if one not in entries}
            ours: Changes = {snapshot_id: None} if entries.get(snapshot_id) == (again[0],) else {}
            return {**ours, **restorable(now, back)}
        _snapshot(now, snapshot_id, meanwhile=False)
        if displaced:
            return restorable(now, displaced)
        is_known = any(names(others, entry.statistics_path) for others in entries.values())
        if snapshot_id in entries or not is_known:
            return {}
        live = set(now.schema().field_ids)
        blobs = [blob for blob in entry.blob_metadata if live.issuperset(blob.fields)]
        again[:] = [entry.model_copy(update={"snapshot_id": snapshot_id, "blob_metadata": blobs})]
        if supersedes is not None and is_removable(now, supersedes, snapshot_id):
            removed[supersedes.snapshot_id] = supersedes.statistics
        return {snapshot_id: again[0], **dict.fromkeys(removed)}

    last = change_entries(table, decide)
    _snapshot(last, snapshot_id, meanwhile=True)
    current = statistics_of(last).get(snapshot_id, ())
    registered = next((one for one in current if one.statistics_path == entry.statistics_path), None)
    if registered is None:
        return False
    _check_file(last, registered, ())
    return True


def register_others_alone(table: Table, entry: StatisticsFile) -> StatisticsFile | None:
    """Set an entry for a new file that has only the blobs of others in the place of ``entry``; return it.

    The blobs are copied byte for byte. ``None``: the snapshot is gone or has another entry, which stays. An entry that
    somebody sets at the same moment is set again. Files stay.

    Raises the errors of :func:`unregister`, and that of a file that cannot be read.
    """
    check_writable(table)
    now = reload_table(table)
    snapshot_id, standing = entry.snapshot_id, (entry,)
    snapshot = now.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or statistics_of(now).get(snapshot_id) != standing:
        return None
    live = set(now.schema().field_ids)
    merge = plan_merge([open_existing(now, entry, force=False)], (), live, unsketched=live)

    def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
        writer.properties[OTHERS_PROPERTY] = str(now.metadata.table_uuid)

    hit("register: write")
    try:
        path, written = write_file(now, snapshot, merge, write)
    finally:
        merge.close()
    alone = statistics_entry(path, snapshot, written, merge)

    def decide(later: Table, displaced: Displaced) -> Changes:
        if displaced:
            return restorable(later, displaced)
        return {snapshot_id: alone} if statistics_of(later).get(snapshot_id) == standing else {}

    last = change_entries(table, decide)
    return alone if names(statistics_of(last).get(snapshot_id, ()), path) else None
