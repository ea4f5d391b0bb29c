"""Reads from the table's metadata log what a commit of a statistics entry replaced.

No catalog lets a commit depend on the statistics entry that it replaces. So two writers of one snapshot's entry race,
and the last one silently wins. But each version of the metadata is a file that is kept for a while. The version just
before the first one that names our file shows what our commit replaced.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.errors import StorageError
from sidecar.iceberg.partial_loading import loadable_statistics
from sidecar.puffin.reader import PuffinReader
from sidecar.storage.locations import file_at
from sidecar.storage.source import Source

StatisticsEntries: TypeAlias = tuple[StatisticsFile, ...]
"""The statistics entries of one snapshot, in the order of the metadata. Spark and Impala take the first one.

Nearly always there is one; Impala leaves several. A commit can set one or none: it takes the place of all of them.
"""

Statistics: TypeAlias = dict[int, StatisticsEntries]
"""Statistics entries by snapshot id. A snapshot without entries is left out."""


@dataclass(frozen=True)
class Commit:
    """The statistics entries just before and just after the commit that first named a file."""

    before: Statistics
    after: Statistics


class TakenPlace(NamedTuple):
    """The entry that took the place of a statistics entry."""

    path: str
    """The file of the entry that stands there now."""
    at: datetime
    """The time of the first version of the metadata that had the entry."""

    @property
    def sentence(self) -> str:
        """The displacement in words."""
        return f"displaced by {self.path} at {self.at:%Y-%m-%d %H:%M:%S} UTC"


class NoCommit(Enum):
    """Why a :class:`Commit` was not found."""

    NEVER = "no version of the metadata names the file"
    UNKNOWN = "some versions of the metadata can no longer be read"


def statistics_of(table: Table) -> Statistics:
    """Return the statistics entries of a loaded table."""
    return _by_snapshot(table.metadata.statistics)


def names(entries: Iterable[StatisticsFile], path: str) -> bool:
    """Return whether one of the entries names the file ``path``."""
    return any(entry.statistics_path == path for entry in entries)


def as_entries(entry: StatisticsFile | None) -> StatisticsEntries:
    """Return the entries of a snapshot after a commit that sets ``entry``, or with ``None`` removes them."""
    return () if entry is None else (entry,)


def _by_snapshot(entries: Iterable[StatisticsFile]) -> Statistics:
    found: Statistics = {}
    for entry in entries:
        found[entry.snapshot_id] = (*found.get(entry.snapshot_id, ()), entry)
    return found


def find_commit(earlier: Table, later: Table, path: str, snapshot_id: int) -> Commit | NoCommit:
    """Find the commit between two versions of a table that first named the file ``path`` for ``snapshot_id``.

    ``earlier`` must not name the file.
    """
    after: Statistics | None = None
    # From the newest version to the oldest: the last one that names the file is the commit, the next one is before it.
    for statistics in _versions(earlier, later):
        if statistics is None:
            return NoCommit.UNKNOWN
        if names(statistics.get(snapshot_id, ()), path):
            after = statistics
        elif after is not None:
            return Commit(statistics, after)
    return NoCommit.NEVER


def displaced_entries(table: Table, snapshot_ids: Iterable[int]) -> Iterator[tuple[StatisticsFile, TakenPlace]]:
    """Yield the entries that those which stand for ``snapshot_ids`` replaced, the last one first.

    An entry that was removed before the standing one was set is not among them. A version that cannot be read ends the
    search.
    """
    now = statistics_of(table)
    standing = {one: now[one] for one in snapshot_ids if one in now}
    named = {entry.statistics_path for entries in now.values() for entry in entries}
    since = table.metadata.last_updated_ms
    for logged in reversed(table.metadata.metadata_log):
        if not standing:
            return
        version = _read_statistics(table.io, logged.metadata_file)
        if version is None:
            return
        standing = {one: entries for one, entries in standing.items() if one in version}
        for one, entries in standing.items():
            taken = TakenPlace(entries[0].statistics_path, datetime.fromtimestamp(since / 1000, timezone.utc))
            for entry in version[one]:
                if entry.statistics_path not in named:
                    named.add(entry.statistics_path)
                    yield entry, taken
        since = logged.timestamp_ms


def displaced_between(earlier: Table, later: Table, ours: Mapping[int, StatisticsFile | None]) -> Statistics:
    """Return the entries of :func:`taken_between` in whose place our own change still stands."""
    after = statistics_of(later)
    taken = taken_between(earlier, later, ours)
    return {i: entries for i, entries in taken.items() if after.get(i, ()) == as_entries(ours[i])}


def taken_between(earlier: Table, later: Table, ours: Mapping[int, StatisticsFile | None]) -> Statistics:
    """Return entries that others set between two versions of a table and that our commit then replaced.

    ``ours`` has the entries that we set by snapshot id; ``None`` is an entry that we removed. Versions that cannot be
    read are skipped.
    """
    versions = [version for version in _versions(earlier, later) if version is not None][::-1]
    found: Statistics = {}
    for snapshot_id, change in ours.items():
        own = as_entries(change)
        entries = [version.get(snapshot_id, ()) for version in (statistics_of(earlier), *versions)]
        # Our entry may equal the one before it, because unknown blobs are left out when a table is loaded. So the
        # commit is the version in which the entry becomes ours, not the first version that has it.
        replaced = next((one for one, other in pairwise(entries) if other == own != one), None)
        if replaced and replaced != entries[0]:
            found[snapshot_id] = replaced
    return found


def is_shown(earlier: Table, later: Table, ours: Mapping[int, StatisticsFile | None]) -> bool:
    """Return whether some version after ``earlier`` up to ``later`` shows one of our changes, or cannot be read.

    ``False``: no commit with these changes is in the table's history.
    """
    is_same = later.metadata_location == earlier.metadata_location and statistics_of(later) == statistics_of(earlier)
    for version in () if is_same else _versions(earlier, later):
        if version is None:
            return True
        for snapshot_id, change in ours.items():
            entries = version.get(snapshot_id, ())
            if not entries if change is None else names(entries, change.statistics_path):
                return True
    return False


def _versions(earlier: Table, later: Table) -> Iterator[Statistics | None]:
    """Yield the statistics of each version from ``later`` back to ``earlier``; ``None`` if one cannot be read."""
    yield statistics_of(later)
    if later.metadata_location == earlier.metadata_location:
        return
    for logged in reversed(later.metadata.metadata_log):
        if logged.metadata_file == earlier.metadata_location:
            yield statistics_of(earlier)
            return
        yield _read_statistics(later.io, logged.metadata_file)
    yield None


def open_statistics(table: Table, entry: StatisticsFile) -> Source:
    """Open the file of a statistics entry. Raises as :func:`sidecar.storage.opening.open_source`."""
    return Access(table.io).open(entry.statistics_path, entry.file_size_in_bytes)


@contextmanager
def opened_statistics(table: Table, entry: StatisticsFile) -> Iterator[PuffinReader]:
    """Open the file of a statistics entry as Puffin within a block. Raises the errors of :class:`PuffinReader`."""
    with closing(open_statistics(table, entry)) as source:
        yield PuffinReader(source, footer_length=entry.file_footer_size_in_bytes)


def _read_statistics(io: FileIO, location: str) -> Statistics | None:
    try:
        with file_at(io, location).open() as stream:
            data = stream.read()
        if location.endswith(".gz.metadata.json"):
            data = gzip.decompress(data)
        entries, _ = loadable_statistics(json.loads(data).get("statistics"))
        return _by_snapshot(entries)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, StorageError):
        return None
