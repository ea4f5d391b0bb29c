"""Brings the sidecar of a table up to date, as a scheduled job does: declared once, cheap when there is little to do.

A refresh ends as soon as it knows enough:

1. The sidecar is registered for the snapshot, and its state says that it is complete: one read of its tail. With
   encryption keys, in ``care``, which looks for damage, and if a build of other columns has left a distinct count out
   or carried it over as a bound, the sidecar is opened and the files are listed.
2. The sidecar of another snapshot answers for all files, and its distinct counts hold: the same file is registered for
   the snapshot. Nothing is copied.
3. A large sidecar lacks few rows, and not for long: the refresh is postponed (:mod:`sidecar.maintenance.costs`).
4. Otherwise the files that no sidecar answers for are indexed, and a new file has them and all that is carried over,
   merged into one segment. A large sidecar is merged once no file is to be indexed. If no column is left to be indexed,
   the new file only lacks what the table has dropped; without anything left in it, the entry is removed.

The same commit removes the entry that the new one supersedes, unless a branch or a tag still needs it
(:mod:`sidecar.iceberg.statistics_files.superseding`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.kinds.declared import is_united
from sidecar.bundle.runs import has_settled, intact_state_of
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.catalog import command_for, held, is_static, reload_table
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.metadata_log import opened_statistics, statistics_of
from sidecar.iceberg.partial_loading import location_in_sql
from sidecar.iceberg.refs import is_branch, is_empty, schema_at, snapshot_id_of
from sidecar.iceberg.statistics_files.registered_counts import may_be_stale, registers_as_declared
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.declaration import NothingDeclaredError, indexes_in
from sidecar.indexing.previous.build_state import is_complete
from sidecar.indexing.request import BuildMeans, BuildRequest
from sidecar.maintenance import costs
from sidecar.maintenance.refresh_report import RefreshReport
from sidecar.puffin.types import UNITS
from sidecar.results.choices import BuildEngine
from sidecar.run_log import log_run

log = logging.getLogger(__name__)


def refresh(
    table: Table,
    *,
    at: str | None = None,
    max_new_files: int | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
    threads: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    dry_run: bool = False,
) -> RefreshReport:
    """Index what the last sidecar of ``table`` does not answer for, carry the rest over, and drop what is gone.

    Example: ``sidecar.refresh(table, max_new_files=500)``

    What is indexed is what the table declares (:mod:`sidecar.indexing.declaration`), else what the last sidecar has.
    ``table``: it is refreshed after a commit.
    ``at``: a branch whose snapshot is brought up to date, by default the current snapshot.
    ``max_new_files``: the most data files that this run indexes; the others are left for later runs.
    ``engine``, ``spark``, ``threads``, ``encryption_keys``, ``allow_plaintext``: as for
    :func:`sidecar.build`. Columns that the sidecar has encrypted are only indexed with their bundle keys; else they are
    kept as they are, with a warning.
    ``dry_run``: only report what would be done. No data file is opened and nothing is written.

    A table without a snapshot, and one for which nothing is declared or built, are no errors: the report says so.
    Raises :class:`UsageError` for wrong options and damaged properties, and the errors of :func:`sidecar.build`.
    """
    means = BuildMeans(engine, spark, threads, encryption_keys, allow_plaintext)
    return refresh_with(table, means, at, max_new_files, dry_run)


def refresh_with(
    table: Table, means: BuildMeans, at: str | None = None, most_files: int | None = None, dry_run: bool = False
) -> RefreshReport:
    """Do :func:`refresh`, with the means of another operation."""
    request = BuildRequest(
        means, most_files=most_files, merge_up_to=costs.MERGED_AT_ONCE, thorough=False, what="refresh"
    )
    return _refreshed(table, request, at, dry_run)


def refresh_thoroughly(
    table: Table, means: BuildMeans, longest_wait: timedelta | None = None, dry_run: bool = False
) -> RefreshReport:
    """Do the same as :func:`refresh`, but read the whole sidecar first, and index again what is damaged in it.

    ``longest_wait``: for how long a new file may wait at most, because the sidecar is large.
    """
    request = BuildRequest(means, merge_up_to=costs.MERGED_AT_ONCE, longest_wait=longest_wait, what="refresh")
    return _refreshed(table, request, None, dry_run)


def _refreshed(table: Table, request: BuildRequest, at: str | None, dry_run: bool) -> RefreshReport:
    request.check_options()
    with held(table) as own:
        snapshot_id = snapshot_id_of(own, at)
        if at is not None and not is_branch(own, at):
            raise UsageError(
                "only a branch can be refreshed",
                found=at,
                hint=f"{command_for(own, 'build', '--at', str(at))} indexes the snapshot of a tag.",
            )
        request = replace(request, schema=schema_at(own, at))
        run = _Refresh(own, request, RefreshReport(table=name_of(own), dry_run=dry_run, branch=at))
        if is_empty(own, snapshot_id):
            run.report.end("empty", "the table has no snapshot yet")
        else:
            run.run(snapshot_of(own, snapshot_id).snapshot_id)
    run.report.seconds = request.seconds()
    if run.report.action != "written":  # the build has logged itself
        log_run(log, run.report.log_line, run.report.warnings)
    return run.report


class _Refresh:
    """One refresh while it runs."""

    def __init__(self, table: Table, request: BuildRequest, report: RefreshReport) -> None:
        self.table = table
        self.request = request
        self.report = report

    def run(self, snapshot_id: int) -> None:
        self.report.snapshot_id = snapshot_id
        entries = statistics_of(self.table).get(snapshot_id, ())
        entry = next(filter(self._is_current, entries), None)
        if entry is not None:
            self._check_is_there()
            self.report.take(entry)
            self.report.end("current", "the sidecar has all that is declared")
            return
        # Loaded only now: to load what builds takes longer than all of a refresh with nothing to do.
        from sidecar.maintenance.sidecar_update import SidecarUpdate

        SidecarUpdate(self.table, self.request, self.report).run(snapshot_id)

    def _check_is_there(self) -> None:
        """Raise :class:`UsageError` if the catalog does not have the table any more: its files may still be there."""
        if is_static(self.table):
            return
        if location_in_sql(self.table.catalog, self.table.name()) == self.table.metadata_location:
            return  # an SQL catalog says so without a look at the metadata
        if reload_table(self.table).metadata.table_uuid != self.table.metadata.table_uuid:
            raise UsageError(f"the table '{name_of(self.table)}' was dropped, and another one has its name")

    def _is_current(self, entry: StatisticsFile) -> bool:
        """Return whether the snapshot's own sidecar is complete, as its footer says. In doubt it is not.

        The footer does not say under which keys indexes are, nor which columns were left out because their keys were
        missing. So with keys the sidecar is opened. It says nothing of damage either.
        """
        if self.request.means.keys is not None or self.request.thorough:
            return False
        try:
            with opened_statistics(self.table, entry) as puffin:
                footer = puffin.metadata
        except SidecarError:
            return False
        state = intact_state_of(footer.properties)
        if state is None:
            return False
        segments = sum(blob.type == UNITS for blob in footer.blobs)
        if not segments or (segments > 1 and not has_settled(footer.properties, entry.snapshot_id)):
            return False
        try:
            snapshot = snapshot_of(self.table, entry.snapshot_id)
            declared, notes = self.request.declared(self.table, snapshot, indexes_in(state))
        except NothingDeclaredError:
            return False
        if not is_complete(self.table, state, declared):
            return False
        chosen = {w.column.field_id: w.is_count_registered for w in declared if w.is_count_registered is not None}
        counted = {one.column.field_id for one in declared if any(map(is_united, one.kinds))}
        if not registers_as_declared(entry, footer, chosen) or may_be_stale(entry, footer, state.snapshot_id, counted):
            return False
        self.report.columns = [one.column.path for one in declared]
        self.report.warnings += notes
        return True
