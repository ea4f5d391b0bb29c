"""Finds and opens the sidecar of a snapshot.

A sidecar is a Puffin file that the table's metadata registers as the statistics file of a snapshot. Readers use that
of their snapshot or of its nearest ancestor, or else that of any other snapshot: it answers for the files that both
have, because files are matched by their identity (:mod:`sidecar.bundle.file_identity`). So a rollback and an expired
ancestor lose nothing. A build can also carry over from a sidecar whose entry another writer has replaced.
:mod:`sidecar.iceberg.statistics_files.registering` registers one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import Problem, SidecarError, UsageError, problem_in
from sidecar.iceberg.metadata_log import (
    TakenPlace,
    displaced_entries,
    open_statistics,
    statistics_of,
)
from sidecar.iceberg.partial_loading import state_of_registrations
from sidecar.iceberg.paths import moved_hint
from sidecar.iceberg.refs import lineage, one_version, snapshot_id_of, snapshots_by_id
from sidecar.iceberg.resolve import fields_of_keys
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.iceberg.table_names import name_of
from sidecar.questions.bounds import Unknown

PAGES = "-pages.stats"
"""End of the names of files with page indexes. A query that only page indexes can help opens no other files."""

SidecarOpener = Callable[[Table, StatisticsFile], "SidecarFile | Unknown"]
"""Opens the file of a statistics entry, see :func:`open_registered`."""


@dataclass(frozen=True)
class FoundSidecar:
    """An open sidecar and the snapshot for which it is registered: the requested one, an ancestor, or another one."""

    statistics: StatisticsFile
    snapshot_id: int
    sidecar: SidecarFile
    files: SidecarFiles
    displaced: TakenPlace | None = None
    """The entry that took the sidecar's place in the table's metadata; ``None`` if the sidecar is registered."""


@dataclass(frozen=True)
class NearestSidecar:
    """The nearest sidecar of a snapshot, if there is one, and what the search met."""

    found: FoundSidecar | None
    problems: list[Problem]
    """Why statistics files are not used, and faults of the table's metadata, which have no ``file``."""
    passed: list[StatisticsFile]
    """The nearer entries that were passed over."""

    @property
    def warnings(self) -> list[str]:
        """The text of each problem."""
        return [one.problem for one in self.problems]


def find_sidecar(
    table: Table, access: Access, snapshot_id: int | None = None, opener: SidecarOpener | None = None
) -> FoundSidecar | None:
    """Open the sidecar that :func:`search_sidecar` finds."""
    return search_sidecar(table, access, snapshot_id, opener).found


def search_sidecar(
    table: Table, access: Access, snapshot_id: int | None = None, opener: SidecarOpener | None = None
) -> NearestSidecar:
    """Open the nearest sidecar of a snapshot, by default the current one; :func:`registered_for` has the order.

    Statistics files that are not sidecars are skipped. Files that cannot be read are skipped too, with a problem; they
    raise no errors. ``access`` opens encrypted blobs. ``opener`` opens files; by default :func:`open_registered`.
    """
    search = NearestSidecar(None, [], [])
    for entry in registered_for(table, snapshot_id):
        match (opener or open_registered)(table, entry):
            case Unknown(reason):
                reasons = [reason]
            case sidecar if sidecar.is_sidecar:
                search.problems.extend(problem_in(None, text) for text in state_of_registrations(table))
                sidecar.use_keys(access.keys, fields_of_keys(table, access.keys))
                files = SidecarFiles(sidecar.segments, table.location())
                return replace(search, found=FoundSidecar(entry, entry.snapshot_id, sidecar, files))
            case sidecar:
                reasons = sidecar.warnings
                sidecar.close()
        search.passed.append(entry)
        unused = f"the statistics file of snapshot {entry.snapshot_id} is not used"
        search.problems.extend(problem_in(entry.statistics_path, f"{unused}: {reason}") for reason in reasons)
    return search


def find_reusable(table: Table, snapshot_id: int) -> FoundSidecar | None:
    """Open the sidecar from which a build carries over, without keys: the nearest one, registered or displaced."""
    search = search_sidecar(table, Access(table.io), snapshot_id)
    found = search.found
    try:
        displaced = find_displaced(table, search.passed)
    except BaseException:
        if found is not None:
            found.sidecar.close()
        raise
    if displaced is not None and found is not None:
        found.sidecar.close()
    return displaced or found


def find_displaced(table: Table, passed: Iterable[StatisticsFile]) -> FoundSidecar | None:
    """Open the sidecar whose entry one of ``passed`` has replaced, as Spark's ``compute_table_stats`` does.

    ``passed`` are the entries that are nearer than the nearest registered sidecar. The metadata log has what they
    replaced, as long as its files are there.
    """
    for entry, taken in displaced_entries(table, [one.snapshot_id for one in passed]):
        sidecar = open_registered(table, entry)
        if isinstance(sidecar, Unknown):
            continue
        if sidecar.is_sidecar:
            files = SidecarFiles(sidecar.segments, table.location())
            return FoundSidecar(entry, entry.snapshot_id, sidecar, files, taken)
        sidecar.close()
    return None


def registered_for(table: Table, snapshot_id: int | None) -> Iterator[StatisticsFile]:
    """Yield the entries that can be about files of a snapshot (by default the current one), the nearest first.

    First come those of the snapshot and its ancestors, then those of other snapshots, by the time between the commits.
    """
    left = statistics_of(table)
    if not left:
        return
    asked = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    for ancestor in lineage(table, asked):
        if ancestor in left:
            yield from left.pop(ancestor)
        if not left:
            return
    known = snapshots_by_id(table)
    if asked in known:
        now = known[asked].timestamp_ms
        apart = {one: abs(known[one].timestamp_ms - now) if one in known else sys.maxsize for one in left}
        yield from (entry for one in sorted(left, key=lambda one: (apart[one], one)) for entry in left[one])


def is_sidecar(table: Table, entry: StatisticsFile) -> bool | None:
    """Return whether a statistics file is a sidecar; ``None`` if it cannot be read now."""
    sidecar = open_registered(table, entry)
    if isinstance(sidecar, Unknown):
        return None
    sidecar.close()
    return sidecar.is_sidecar


def may_have_pages(table: Table, snapshot_id: int) -> bool:
    """Return whether :func:`find_sidecar` may find page indexes, by the names of statistics files; opens no file."""
    return any(entry.statistics_path.endswith(PAGES) for entry in registered_for(table, snapshot_id))


def open_sidecar(
    table: Table,
    *,
    at: int | str | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> SidecarFile:
    """Open the sidecar that plans of a snapshot of ``table`` use; the caller closes it.

    Example: ``sidecar.open_sidecar(table)``
    ``at`` is a snapshot id, a branch or a tag, by default the current snapshot. ``encryption_keys`` open
    encrypted blobs. Plaintext blobs of the columns that ``bundle_keys`` name are not used. Raises :class:`UsageError`
    if there is no sidecar.
    """
    table = one_version(table)
    search = search_sidecar(table, Access(table.io, encryption_keys), snapshot_id_of(table, at))
    if search.found is None:
        raise UsageError(f"the table {name_of(table)} has no sidecar", found=next(iter(search.warnings), None))
    return search.found.sidecar


def open_registered(table: Table, entry: StatisticsFile) -> SidecarFile | Unknown:
    """Open the file of a statistics entry; it need not be a sidecar, and then it has no segments of this table.

    The caller closes the file. Unknown if it cannot be read.
    """
    try:
        source = open_statistics(table, entry)
    except SidecarError as error:
        hint = moved_hint(entry.statistics_path, table.location())
        return Unknown(f"{error}; {hint}" if hint else str(error))
    try:
        return SidecarFile.open(
            source,
            file_size=entry.file_size_in_bytes,
            footer_length=entry.file_footer_size_in_bytes,
            table_uuid=str(table.metadata.table_uuid),
            columns=table.schema().find_column_name,
        )
    except SidecarError as error:
        source.close()
        return Unknown(str(error))
