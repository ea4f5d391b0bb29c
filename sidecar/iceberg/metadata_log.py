"""What a statistics commit replaced, read from the table's metadata log.

No catalog lets a commit depend on the statistics entry that it replaces, so two writers of one snapshot's
entry race, and the last one wins in silence. But each version of the metadata is a file that stays for a
while: the version just before the first one that names our file shows what our commit replaced.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.iceberg.partial_loading import loadable_statistics

Statistics = dict[int, StatisticsFile]
"""Statistics entries by snapshot id."""


@dataclass(frozen=True)
class Commit:
    """The statistics entries just before and just after the commit that first named a file."""

    before: Statistics
    after: Statistics


class NoCommit(Enum):
    """Why there is no :class:`Commit` to show."""

    NEVER = "no version of the metadata names the file"
    UNKNOWN = "versions of the metadata that would tell are not there any more"


def statistics_of(table: Table) -> Statistics:
    """The table's statistics entries as its catalog gave them."""
    return {entry.snapshot_id: entry for entry in table.metadata.statistics}


def find_commit(earlier: Table, later: Table, path: str, snapshot_id: int) -> Commit | NoCommit:
    """The commit between two versions of a table that first named ``path`` for ``snapshot_id``.

    ``earlier`` must not name it.
    """
    after: Statistics | None = None
    for statistics in _versions(earlier, later):
        if statistics is None:
            return NoCommit.UNKNOWN
        entry = statistics.get(snapshot_id)
        if entry is not None and entry.statistics_path == path:
            after = statistics
        elif after is not None:
            return Commit(statistics, after)
    return NoCommit.NEVER


def displaced_between(earlier: Table, later: Table, ours: Mapping[int, StatisticsFile | None]) -> Statistics:
    """Entries that others set between two versions of a table, and that ``ours`` (``None``: dropped) then replaced.

    Versions that cannot be read any more tell nothing.
    """
    before, after = statistics_of(earlier), statistics_of(later)
    found: Statistics = {}
    for version in _versions(earlier, later):
        for snapshot_id, mine in ours.items():
            entry = (version or {}).get(snapshot_id)
            if (
                entry is not None
                and entry not in (mine, before.get(snapshot_id))
                and after.get(snapshot_id) == mine
            ):
                found.setdefault(snapshot_id, entry)
    return found


def _versions(earlier: Table, later: Table) -> Iterator[Statistics | None]:
    """Statistics of each version from ``later`` back to ``earlier``; ``None`` where one cannot be read."""
    yield statistics_of(later)
    if later.metadata_location == earlier.metadata_location:
        return
    for logged in reversed(later.metadata.metadata_log):
        if logged.metadata_file == earlier.metadata_location:
            yield statistics_of(earlier)
            return
        yield _read_statistics(later.io, logged.metadata_file)
    yield None


def _read_statistics(io: FileIO, location: str) -> Statistics | None:
    try:
        with io.new_input(location).open() as stream:
            data = stream.read()
        if location.endswith(".gz.metadata.json"):
            data = gzip.decompress(data)
        entries, _ = loadable_statistics(json.loads(data).get("statistics"))
        return {entry.snapshot_id: entry for entry in entries}
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None
