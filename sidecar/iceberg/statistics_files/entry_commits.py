"""Commits that only change statistics entries, and the check that none of them took an entry from somebody else.

No catalog lets a commit depend on statistics entries. An SQL catalog at least fails if the table has a newer version
than the one that was read; a REST catalog takes the change as it is. So each commit is followed by a look at the
table's metadata log. An entry that somebody set between the version that was read and our commit is set again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertTableUUID, RemoveStatisticsUpdate, SetStatisticsUpdate, TableUpdate

from sidecar.errors import CommitConflictError, SidecarError, UnsupportedFeatureError, foreign_reason
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import reload_table, storage_error
from sidecar.iceberg.metadata_log import StatisticsEntries, as_entries, is_shown, statistics_of, taken_between
from sidecar.iceberg.partial_loading import commit
from sidecar.iceberg.statistics_files.merge import is_our_theta
from sidecar.storage.remote import is_stored

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

ATTEMPTS = 6
"""The most attempts of a change while other commits interfere."""

FIRST_PAUSE = 0.1
"""Upper bound of the random pause before the second attempt, in seconds; it doubles with each attempt."""

_REFUSED = (BadRequestError, ForbiddenError, UnauthorizedError, NoSuchTableError, NotImplementedError)
_UNSUPPORTED = (405, 406, 501)
"""Statuses of a server that does not know a request at all."""
_CLOSED_BY_CLIENT = (408, 499)
"""Statuses of a proxy that has lost a request on its way; the server may have it."""

_without_statistics: WeakSet[Catalog] = WeakSet()
"""Catalogs that were found to keep no statistics, so that a run does not build for each of their tables."""

Changes: TypeAlias = Mapping[int, StatisticsFile | None]
"""Statistics entries to set, by snapshot id; ``None`` removes the entry. Either takes the place of all entries."""

Displaced: TypeAlias = dict[int, StatisticsFile]
"""Entries that our commit took from others and that can be set again, by snapshot id."""


def pause(attempt: int) -> None:
    """Wait a random time before an attempt, the first one (0) excepted."""
    if attempt:
        time.sleep(random.uniform(0, FIRST_PAUSE * 2 ** (attempt - 1)))


def change_entries(table: Table, decide: Callable[[Table, Displaced], Changes]) -> Table:
    """Change statistics entries until nothing is left to change, and return the table's version that shows it.

    ``decide`` gets the table as it is, and entries that our last commit took from somebody else and that can be set
    again. It returns the changes to make now. One commit makes them all.

    Raises :class:`CommitConflictError` if other commits interfere each time, :class:`sidecar.errors.StorageError` if
    the catalog fails, :class:`UnsupportedFeatureError` if it keeps no statistics, and what ``decide`` raises.
    """
    now = reload_table(table)
    displaced: Displaced = {}
    for attempt in range(ATTEMPTS):
        pause(attempt)
        changes = decide(now, displaced)
        if not changes:
            return now
        done = try_to_change(now, changes)
        later = look_for(now, changes) if done else reload_table(table)
        if done:
            displaced = _displaced_by(now, later, changes, displaced)
        now = later
    lost = [entry.statistics_path for entry in displaced.values()]
    raise CommitConflictError(
        f"other commits interfered with all {ATTEMPTS} attempts",
        file=lost[0] if lost else None,
        hint="This file's entry was replaced; register it again." if lost else "Try again.",
    )


def _displaced_by(before: Table, later: Table, changes: Changes, restored: Displaced) -> Displaced:
    """Return the entries that our commit took from others and that can be set again; ``restored`` were set by it.

    A commit sets one entry. Raises :class:`CommitConflictError` if two others have set entries that do not have each
    other's blobs: one was taken and a third writer set the other afterwards, or one was set again and took the other,
    or both were taken at once. Nothing more is changed then; the lost file is named.
    """
    standing, displaced = statistics_of(later), {}
    for snapshot_id, entries in taken_between(before, later, changes).items():
        own, now = changes[snapshot_id], standing.get(snapshot_id, ())
        is_restored = own is not None and restored.get(snapshot_id) == own
        taken = to_set_again(snapshot_id, entries)
        if now not in (as_entries(own), ()):
            if not _may_replace(now, taken):
                raise _three_met(snapshot_id, taken)
        elif is_restored and own is not None and not _may_replace((taken,), own):
            raise _three_met(snapshot_id, taken)
        else:
            displaced[snapshot_id] = taken
    return displaced


def to_set_again(snapshot_id: int, entries: StatisticsEntries) -> StatisticsFile:
    """Return the one entry to set again of those that a commit took from a snapshot.

    Raises :class:`CommitConflictError` if another one of them would be lost.
    """
    for other in entries[1:]:
        if not _may_replace(entries[:1], other):
            raise _three_met(snapshot_id, other)
    return entries[0]


def set_again(table: Table, snapshot_id: int, entries: StatisticsEntries) -> None:
    """Set one of ``entries``, which a commit of ours has taken from a snapshot, unless another one stands there now.

    Raises the errors of :func:`change_entries`, also if the one that stands there lacks blobs of others.
    """
    taken = to_set_again(snapshot_id, entries)

    def decide(now: Table, displaced: Displaced) -> Changes:
        if displaced:
            return restorable(now, displaced)
        standing = statistics_of(now).get(snapshot_id, ())
        if standing and not _may_replace(standing, taken):
            raise _three_met(snapshot_id, taken)
        return {} if standing else restorable(now, {snapshot_id: taken})

    change_entries(table, decide)


def _three_met(snapshot_id: int, lost: StatisticsFile) -> CommitConflictError:
    return CommitConflictError(
        f"three writers met at the statistics of snapshot {snapshot_id}, and the entry of one was replaced",
        file=lost.statistics_path,
        hint="The file is there: let its writer make it again, or register it again.",
    )


def _may_replace(entries: StatisticsEntries, other: StatisticsFile) -> bool:
    """Return whether nothing of others is lost if ``entries`` stand and ``other`` does not, by what they register."""
    kept = {(blob.type, tuple(blob.fields)) for entry in entries for blob in entry.blob_metadata}
    theirs = {(blob.type, tuple(blob.fields)) for blob in other.blob_metadata if not is_our_theta(blob)}
    return other in entries or (bool(other.blob_metadata) and theirs <= kept)


def restorable(table: Table, displaced: Mapping[int, StatisticsFile]) -> Displaced:
    """Return the entries of ``displaced`` whose snapshot and file are still there."""
    return {
        snapshot_id: entry
        for snapshot_id, entry in displaced.items()
        if table.metadata.snapshot_by_id(snapshot_id) is not None and not is_gone(table, entry.statistics_path)
    }


def is_gone(table: Table, path: str) -> bool:
    """Return whether a file certainly does not exist. Raises :class:`sidecar.errors.StorageError` if storage fails."""
    try:
        return not is_stored(path, table.io)
    except Exception as error:
        raise storage_error("cannot look for the file", error, table, path) from error


def is_refused(error: BaseException) -> bool:
    """Return whether a commit has certainly not happened, by the error of the catalog."""
    status = _status_of(error)
    is_refusal = status is not None and 400 <= status < 500 and status not in _CLOSED_BY_CLIENT
    return is_refusal or isinstance(error, (CommitFailedException, *_REFUSED))


def _status_of(error: BaseException) -> int | None:
    """Return the status of the HTTP response that pyiceberg's error came from."""
    status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def refused_commit(error: Exception, table: Table) -> SidecarError:
    """Return the error for a commit of statistics that the catalog refused."""
    if not isinstance(error, NotImplementedError) and _status_of(error) not in _UNSUPPORTED:
        return storage_error("the catalog refused the commit", error, table, None)
    _without_statistics.add(table.catalog)
    return _keeps_none(table, f"it refuses them ({foreign_reason(error)})", None)


def look_for(before: Table, changes: Changes) -> Table:
    """Return the table as it shows a commit of ``changes`` that the catalog has taken. A cache may be a moment behind.

    Raises :class:`UnsupportedFeatureError` if no version of the table since ``before`` shows any of them.
    """
    for look in range(ATTEMPTS):
        pause(look)
        later = reload_table(before)
        if is_shown(before, later, changes):
            return later
    _without_statistics.add(before.catalog)
    written = next((entry.statistics_path for entry in changes.values() if entry is not None), None)
    raise _keeps_none(before, "it took the commit, but no version of the table shows it", written)


def refuse_without_statistics(table: Table) -> None:
    """Raise :class:`UnsupportedFeatureError` if an earlier commit showed that the catalog keeps no statistics."""
    if table.catalog in _without_statistics:
        raise _keeps_none(table, "an earlier commit of this run showed it", None)


def _keeps_none(table: Table, why: str, file: str | None) -> UnsupportedFeatureError:
    left = " Nothing names this file: delete it." if file else ""
    return UnsupportedFeatureError(
        f"the catalog '{table.catalog.name}' does not keep statistics, so no sidecar can be registered: {why}",
        file=file,
        hint=f"Use another catalog, or put the indexes into the data files: sidecar embed.{left}",
    )


def try_to_change(table: Table, changes: Changes) -> bool:
    """Commit changes to the version of the table that was read; return ``False`` if another commit came first.

    Raises :class:`sidecar.errors.StorageError` if the catalog refuses the commit, and if its outcome is unknown and
    the table does not show it.
    """
    hit("change entries: commit")
    done = _commit(table, changes)
    hit("change entries: check")
    return done


def _commit(table: Table, changes: Changes) -> bool:
    """Do the commit of :func:`try_to_change`, and raise its errors."""
    updates = tuple(_update(snapshot_id, entry) for snapshot_id, entry in changes.items())
    try:
        commit(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)
    except CommitFailedException:
        return False
    except ValueError:
        # pyiceberg cannot parse the response if somebody registered unknown blobs meanwhile. The commit may have
        # succeeded; the caller reloads the table and checks.
        return True
    except Exception as error:
        if is_refused(error):
            raise refused_commit(error, table) from error
        entries = statistics_of(reload_table(table))
        if all(entries.get(snapshot_id, ()) == as_entries(entry) for snapshot_id, entry in changes.items()):
            return True
        raise storage_error("the commit failed but may still take effect", error, table, None) from error
    return True


def _update(snapshot_id: int, entry: StatisticsFile | None) -> TableUpdate:
    if entry is None:
        return RemoveStatisticsUpdate.model_validate({"snapshot-id": snapshot_id})
    return SetStatisticsUpdate.model_validate({"statistics": entry})
