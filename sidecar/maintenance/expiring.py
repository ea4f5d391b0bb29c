"""Removes statistics entries of sidecar that no plan of a branch or tag needs. Files stay; ``gc`` deletes them later.

An entry goes only if all of this is true: its snapshot is old, its file is a sidecar of this table, and it is not one
of the nearest sidecars of a branch or tag. Blobs of others stay registered, in a file of their own. What cannot be read
is kept. Nothing is removed from a table whose property ``gc.enabled`` is false: its files may be those of other tables.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby, islice
from operator import attrgetter
from typing import Literal, TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.errors import UsageError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import reload_table, show_commit, with_all_snapshots
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import one_version, snapshots_by_id
from sidecar.iceberg.statistics_files.find_sidecar import open_registered, registered_for
from sidecar.iceberg.statistics_files.merge import has_blobs_of_others
from sidecar.iceberg.statistics_files.registering import check_writable, register_others_alone, unregister
from sidecar.iceberg.table_names import name_of
from sidecar.maintenance.garbage import why_left_alone
from sidecar.questions.bounds import Unknown
from sidecar.results.base import Result
from sidecar.run_log import counted, log_run

log = logging.getLogger(__name__)

OLDER_THAN = timedelta(days=5)
"""How old the snapshot of an entry must be by default."""

MOST_ENTRIES = 2
"""The most entries of a snapshot of which one can be removed, because a commit can set one other."""

KeptBecause: TypeAlias = Literal["used", "young", "others", "unreadable"]
"""Why an entry stays: plans of a branch or tag use it, its snapshot is young, its file has blobs of others, or its file
is no sidecar that can be read. An entry beside several others counts as one with blobs of others."""


@dataclass(frozen=True, repr=False, slots=True)
class ExpiredEntry(Result):
    """An entry that was removed, or would be."""

    snapshot_id: int
    """The snapshot."""
    statistics_path: str
    """The file that the entry names. It stays."""
    file_size: int
    """Bytes of the file."""


@dataclass(frozen=True, repr=False, slots=True)
class KeptEntry(Result):
    """An entry that stays."""

    snapshot_id: int
    """The snapshot."""
    statistics_path: str
    """The file that the entry names."""
    kept_because: KeptBecause
    """``used`` (plans of a branch or tag use it), ``young``, ``others`` (the file has blobs of other writers), or
    ``unreadable`` (the file cannot be read, or is no sidecar of this table)."""
    used_by: list[str]
    """The branches and tags whose plans use it."""


@dataclass(frozen=True, repr=False, slots=True)
class ExpireReport(Result):
    """What :func:`expire` did, or would do."""

    table: str
    """The name of the table."""
    dry_run: bool
    """Whether nothing was changed."""
    expired: list[ExpiredEntry]
    """The entries that were removed."""
    kept: list[KeptEntry]
    """The entries that stay."""
    unreferenced_bytes: int
    """Bytes of the files that no entry names any more."""
    warnings: list[str]
    """Files that could not be read."""
    left_alone: str | None
    """Why nothing was decided, as a sentence; ``None`` if it was."""


def _log_line(report: ExpireReport) -> str:
    if report.left_alone is not None:
        return f"expire {report.table}: {report.left_alone}"
    counts = {"expired": len(report.expired), "kept": len(report.kept)}
    return f"expire {report.table}: {counted(counts)}{', dry run' if report.dry_run else ''}"


def expire(
    table: Table,
    *,
    older_than: timedelta = OLDER_THAN,
    retain_last: int = 1,
    dry_run: bool = False,
) -> ExpireReport:
    """Remove the statistics entries of sidecar that nothing needs from the metadata of ``table``. No file is deleted.

    Example: ``sidecar.expire(table, dry_run=True)``
    ``older_than``: the least age of an entry's snapshot, by default five days.
    ``retain_last``: how many of the nearest sidecars of each branch and tag stay, by default the one that plans use.
    ``dry_run``: change nothing.

    Raises :class:`sidecar.errors.UsageError` for a negative ``older_than``, for ``retain_last`` below 1 and for a table
    that was opened from a metadata file (unless ``dry_run``), :class:`sidecar.errors.UnsupportedFeatureError` if
    pyiceberg cannot write the metadata, :class:`sidecar.errors.StorageError` if the catalog fails, and
    :class:`sidecar.errors.CommitConflictError` if other commits interfere each time.
    """
    read = one_version(table)
    if older_than < timedelta(0):
        raise UsageError("older_than is negative", found=older_than)
    if retain_last < 1:
        raise UsageError("retain_last is below 1: plans need the nearest sidecar", found=retain_last)
    check_writable(read)
    now = with_all_snapshots(read) if dry_run else reload_table(read)
    left_alone = why_left_alone(now)
    decision = _decide(now, older_than, retain_last) if left_alone is None else _Decision()
    hit("expire: decided")
    if (decision.expired or decision.reduced) and not dry_run:
        if decision.expired:
            unregister(table, decision.expired)
        for entry in decision.reduced:
            register_others_alone(table, entry)
        hit("expire: done")
        show_commit(table)
    named = {entry.statistics_path for entry in decision.kept_entries if entry not in decision.reduced}
    unnamed = [one for one in (*decision.expired, *decision.reduced) if one.statistics_path not in named]
    sizes = {one.statistics_path: one.file_size_in_bytes for one in unnamed}
    report = ExpireReport(
        table=name_of(table),
        dry_run=dry_run,
        expired=[ExpiredEntry(e.snapshot_id, e.statistics_path, e.file_size_in_bytes) for e in decision.expired],
        kept=decision.kept,
        unreferenced_bytes=sum(sizes.values()),
        warnings=decision.warnings,
        left_alone=left_alone,
    )
    log_run(log, lambda: _log_line(report), report.warnings)
    return report


@dataclass
class _Decision:
    expired: list[StatisticsFile] = field(default_factory=list)
    reduced: list[StatisticsFile] = field(default_factory=list)
    """Entries that stay for the blobs of others alone."""
    kept: list[KeptEntry] = field(default_factory=list)
    kept_entries: list[StatisticsFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Contents:
    """The kind of a statistics file: a sidecar that plans use or not, with blobs of others or without."""

    is_sidecar: bool
    has_others: bool


def _decide(table: Table, older_than: timedelta, retain_last: int) -> _Decision:
    """Decide about each entry of a table. Each file is opened at most once, and only if it matters."""
    decision = _Decision()
    entries, snapshots = statistics_of(table), snapshots_by_id(table)
    latest = (time.time() - older_than.total_seconds()) * 1000
    known: dict[tuple[int, str], _Contents] = {}

    def contents(entry: StatisticsFile) -> _Contents:
        key = _key(entry)
        if key not in known:
            known[key] = _contents(table, entry, decision.warnings)
        return known[key]

    users: dict[tuple[int, str], list[str]] = {}
    for name, ref in sorted(table.metadata.refs.items()):
        # Plans use the first sidecar of a snapshot, so further entries of the same snapshot do not count as nearest
        # ones.
        by_snapshot = groupby(registered_for(table, ref.snapshot_id), attrgetter("snapshot_id"))
        first = (next((one for one in some if contents(one).is_sidecar), None) for _, some in by_snapshot)
        for entry in islice(filter(None, first), retain_last):
            users.setdefault(_key(entry), []).append(name)
    for entry in sorted(table.metadata.statistics, key=lambda one: one.snapshot_id):
        because: KeptBecause | None = None
        snapshot = snapshots.get(entry.snapshot_id)
        if _key(entry) in users:
            because = "used"
        elif snapshot is not None and snapshot.timestamp_ms > latest:
            because = "young"
        elif len(entries[entry.snapshot_id]) > MOST_ENTRIES or contents(entry).has_others:
            because = "others"
            if len(entries[entry.snapshot_id]) == 1 and snapshot is not None and contents(entry).is_sidecar:
                decision.reduced.append(entry)
        elif not contents(entry).is_sidecar:
            because = "unreadable"
        if because is None:
            decision.expired.append(entry)
            continue
        decision.kept_entries.append(entry)
        used_by = users.get(_key(entry), [])
        decision.kept.append(KeptEntry(entry.snapshot_id, entry.statistics_path, because, used_by))
    return decision


def _key(entry: StatisticsFile) -> tuple[int, str]:
    return entry.snapshot_id, entry.statistics_path


def _contents(table: Table, entry: StatisticsFile, warnings: list[str]) -> _Contents:
    sidecar = open_registered(table, entry)
    if isinstance(sidecar, Unknown):
        warnings.append(sidecar.reason)
        return _Contents(is_sidecar=False, has_others=False)
    try:
        return _Contents(sidecar.is_sidecar, has_blobs_of_others(entry, sidecar.puffin.metadata))
    finally:
        sidecar.close()
