"""Brings the sidecar of a table up to date, as a scheduled job does: declared once, cheap when there is little to do.

A refresh ends as soon as it knows enough:

1. The sidecar is registered for the snapshot, and its state says that it is complete: one read of its tail. With
   encryption keys the sidecar is opened and the files are listed, because the state says nothing of keys.
2. An ancestor's sidecar answers for all files, and its distinct counts hold: the same file is registered for the
   snapshot. Nothing is copied.
3. A large sidecar lacks few rows, and not for long: the refresh is postponed.
4. Otherwise the files that no sidecar answers for are indexed, and a new file has them and all that is carried over.
   If no column is left to be indexed, the new file only lacks what the table has dropped; without anything left in it,
   the entry is removed.

Then the entry that the new one supersedes is removed, unless a branch or a tag still needs it
(:mod:`sidecar.maintenance.superseded`).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.runs import intact_state_of
from sidecar.bundle.sketches.count_marks import CountMarks, marked
from sidecar.convert.outcome import Progress, no_progress
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import BuildEngine
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.catalog import show_commit
from sidecar.iceberg.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.merge import is_our_theta
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations, is_empty, lineage, snapshot_id_of
from sidecar.iceberg.registering import register_again, unregister
from sidecar.indexing.declaration import NothingDeclaredError, indexes_in
from sidecar.indexing.driver import run_build
from sidecar.indexing.engine_choice import choose_build_engine
from sidecar.indexing.preparing import BuildRequest, PreparedBuild, prepare
from sidecar.indexing.previous.build_state import is_complete
from sidecar.indexing.previous.earlier import gone_fields
from sidecar.kernels.announcing import announces_compiling
from sidecar.maintenance.refresh_report import RefreshAction, RefreshReport
from sidecar.maintenance.superseded import is_ours_alone, unregister_superseded
from sidecar.puffin.reader import PuffinReader
from sidecar.run_log import log_run
from sidecar.run_steps import reached
from sidecar.source import open_source

log = logging.getLogger(__name__)

REWRITE_UP_TO = "sidecar.refresh.rewrite-up-to"
"""Property of the table: the bytes up to which a sidecar is written anew for any file that it lacks."""
USUAL_REWRITE = 256 << 20
MIN_UNCOVERED = 0.01
MAX_BEHIND = timedelta(hours=1)


@announces_compiling
def refresh(
    table: Table,
    *,
    ref: str | None = None,
    max_new_files: int | None = None,
    min_uncovered: float = MIN_UNCOVERED,
    max_behind: timedelta = MAX_BEHIND,
    engine: BuildEngine | None = None,
    spark: Any = None,
    threads: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> RefreshReport:
    """Index what the last sidecar of ``table`` does not answer for, carry the rest over, and drop what is gone.

    What is indexed is what the table declares (:mod:`sidecar.indexing.declaration`), else what the last sidecar has.
    ``table``: it is refreshed after a commit.
    ``ref``: a branch or tag whose snapshot is brought up to date, by default the current snapshot.
    ``max_new_files``: the most data files that this run indexes; the others are left for later runs.
    ``min_uncovered``, ``max_behind``: a sidecar of more bytes than the table's property
    ``sidecar.refresh.rewrite-up-to`` (256 MiB) is written anew only if the share of rows in files that it lacks is
    greater than the one, or if the first of these files is older than the other.
    ``engine``, ``spark``, ``threads``, ``encryption_keys``, ``allow_plaintext``, ``progress``: as for
    :func:`sidecar.build`. Columns that the sidecar has encrypted are only indexed with their bundle keys; else they are
    kept as they are, with a warning.
    ``dry_run``: only report what would be done. No data file is opened and nothing is written.

    A table without a snapshot, and one for which nothing is declared or built, are no errors: the report says so.
    Raises :class:`UsageError` for wrong options and damaged properties, and the errors of :func:`sidecar.build`.
    """
    request = BuildRequest(
        engine=engine,
        spark=spark,
        threads=threads,
        encryption_keys=encryption_keys,
        allow_plaintext=allow_plaintext,
        progress=progress or no_progress,
        most_files=max_new_files,
        what="refresh",
    )
    request.check_options()
    if not 0 <= min_uncovered <= 1:
        raise UsageError("the share of uncovered rows is from 0 to 1", found=min_uncovered)
    snapshot_id = snapshot_id_of(table, None, ref)
    run = _Refresh(table, request, RefreshReport(table=".".join(table.name()), dry_run=dry_run, ref=ref))
    if is_empty(table, snapshot_id):
        run.end("empty", "the table has no snapshot yet")
    else:
        run.run(snapshot_of(table, snapshot_id).snapshot_id, min_uncovered, max_behind)
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

    def end(self, action: RefreshAction, reason: str) -> None:
        self.report.action, self.report.reason = action, reason

    def run(self, snapshot_id: int, min_uncovered: float, max_behind: timedelta) -> None:
        self.report.snapshot_id = snapshot_id
        rewrite_up_to = _rewrite_up_to(self.table)
        entry = statistics_of(self.table).get(snapshot_id)
        if entry is not None and self._is_current(entry):
            self._take(entry)
            self.end("current", "the sidecar has all that is declared")
            return
        try:
            prepared = prepare(self.table, snapshot_id, self.request)
        except NothingDeclaredError as error:
            self._drop_gone(snapshot_id)
            self.report.warnings.append(str(error))
            return
        with prepared:
            self.report.count(prepared)
            found = prepared.earlier.found
            if found is not None:
                self._take(found.statistics)
            if not prepared.indexable and self._needs_no_copy(prepared, rewrite_up_to):
                return
            if prepared.indexable and found is not None and found.statistics.file_size_in_bytes > rewrite_up_to:
                late = _behind(self.table, snapshot_id, found)
                if self.report.uncovered <= min_uncovered and late <= max_behind:
                    self.end("postponed", f"{self.report.uncovered:.2g} of the rows are not covered, for {late}")
                    return
            self._write(prepared)

    def _is_current(self, entry: StatisticsFile) -> bool:
        """Return whether the snapshot's own sidecar is complete, as its footer says. In doubt it is not.

        The footer does not say under which keys indexes are, nor which columns were left out because their keys were
        missing. So with keys the sidecar is opened.
        """
        if self.request.encryption_keys is not None:
            return False
        try:
            source = open_source(entry.statistics_path, self.table.io, entry.file_size_in_bytes)
        except SidecarError:
            return False
        try:
            puffin = PuffinReader(source, footer_length=entry.file_footer_size_in_bytes)
        except SidecarError:
            return False
        finally:
            source.close()
        state = intact_state_of(puffin.metadata.properties)
        if state is None:
            return False
        try:
            snapshot = snapshot_of(self.table, entry.snapshot_id)
            wishes, notes = self.request.wishes(self.table, snapshot, indexes_in(state))
        except NothingDeclaredError:
            return False
        if not is_complete(self.table, state, wishes):
            return False
        self.report.columns = [wish.column.path for wish in wishes]
        self.report.warnings += notes
        return True

    def _drop_gone(self, snapshot_id: int) -> None:
        """End the refresh of a table of which no column is to be indexed: drop the columns that the table dropped."""
        self.end("undeclared", "the table declares nothing to be indexed")
        found = find_sidecar(self.table, snapshot_id)
        if found is None:
            return
        found.sidecar.close()
        self._take(found.statistics)
        if not gone_fields(self.table, found.sidecar):
            return
        with prepare(self.table, snapshot_id, replace(self.request, only_carry=True)) as prepared:
            reason = "the table has dropped columns of the sidecar"
            if prepared.earlier.why_not:
                self.report.warnings.append(f"{reason}, and it stays as it is: {prepared.earlier.why_not}")
            elif prepared.earlier.segments or (found.snapshot_id == snapshot_id and not is_ours_alone(found)):
                self._write(prepared)
                self.report.reason = reason
            else:
                self._remove(found, snapshot_id)

    def _remove(self, found: FoundSidecar, snapshot_id: int) -> None:
        """Remove the entry of a sidecar of which the table has no column, unless others, a branch or a tag need it."""
        if not self.report.dry_run:
            reached("refresh: unregister")
            if found.snapshot_id == snapshot_id:
                removed = [entry.snapshot_id for entry in unregister(self.table, [found.statistics])]
            else:
                removed = unregister_superseded(self.table, found, snapshot_id)
            show_commit(self.table)
            self.report.unregistered += removed
            if not removed:
                return
        self.end("removed", "the table has dropped all columns of the sidecar")
        self.report.statistics_path, self.report.file_size = None, 0

    def _needs_no_copy(self, prepared: PreparedBuild, rewrite_up_to: int) -> bool:
        """End the refresh without a new file if the earlier one can stay; return whether it has ended."""
        found, snapshot_id = prepared.earlier.found, prepared.listing.snapshot_id
        if prepared.earlier.is_registered(self.table, snapshot_id) and not prepared.earlier.counts.to_count_again:
            self.end("current", "the sidecar has all that is declared")
            return True
        if found is None or found.snapshot_id == snapshot_id or snapshot_id in statistics_of(self.table):
            return False
        if prepared.earlier.counts.to_count_again:
            return False
        if _can_count_more(prepared, found):
            return False
        if not prepared.earlier.is_whole(self.table) and found.statistics.file_size_in_bytes <= rewrite_up_to:
            return False
        reason = f"the sidecar of snapshot {found.snapshot_id} answers for all files"
        if self.report.dry_run:
            self.end("registered", reason)
            return True
        reached("refresh: register again")
        if not register_again(self.table, _with_marks(found.statistics, prepared), snapshot_id):
            return False
        show_commit(self.table)
        self.end("registered", reason)
        self._unregister(found)
        return True

    def _write(self, prepared: PreparedBuild) -> None:
        self.end("written", self._why(prepared))
        if self.report.dry_run:
            self.report.engine, _ = choose_build_engine(
                prepared.files_to_read, self.request.chosen_engine(), self.request.spark
            )
            return
        reached("refresh: build")
        built = run_build(prepared)
        self.report.add_build(built)
        found = prepared.earlier.found
        if found is not None and built.statistics_path == found.statistics.statistics_path:
            self.end("current", "no file could be counted again")
        elif found is not None:
            self._unregister(found)

    def _why(self, prepared: PreparedBuild) -> str:
        if prepared.indexable:
            return "not all files are covered"
        if prepared.earlier.counts.to_count_again:
            return "distinct counts have values of rows that are gone"
        if prepared.earlier.found is not None and _can_count_more(prepared, prepared.earlier.found):
            return "distinct counts lack files that are counted by now"
        return "parts of the sidecar are gone"

    def _unregister(self, found: FoundSidecar) -> None:
        """Remove the entry that was superseded. The refresh has succeeded, even if this fails."""
        assert self.report.snapshot_id is not None
        reached("refresh: unregister")
        try:
            self.report.unregistered += unregister_superseded(self.table, found, self.report.snapshot_id)
        except SidecarError as error:
            self.report.warnings.append(f"the superseded sidecar is still registered: {error}")
        show_commit(self.table)

    def _take(self, entry: StatisticsFile) -> None:
        self.report.statistics_path, self.report.file_size = entry.statistics_path, entry.file_size_in_bytes


def _with_marks(entry: StatisticsFile, prepared: PreparedBuild) -> StatisticsFile:
    """Return an entry whose distinct counts are marked as bounds where files or rows were removed or added since."""
    blobs = []
    for blob in entry.blob_metadata:
        properties = dict(blob.properties or {})
        if is_our_theta(blob):
            properties = marked(properties, prepared.marks(blob.fields[0]))
        blobs.append(blob.model_copy(update={"properties": properties}))
    return entry.model_copy(update={"blob_metadata": blobs})


def _can_count_more(prepared: PreparedBuild, found: FoundSidecar) -> bool:
    """Return whether a registered count is missing or lacks files, and the sketches of groups have all files.

    A run that left files has registered no new count, and those files may be gone since.
    """
    counted = {
        blob.fields[0]
        for blob in found.statistics.blob_metadata
        if len(blob.fields) == 1 and not CountMarks.of(blob.properties).lower
    }
    return any(i not in counted and not prepared.marks(i).lower for i in prepared.earlier.counts.sketches)


def _rewrite_up_to(table: Table) -> int:
    text = table.properties.get(REWRITE_UP_TO, str(USUAL_REWRITE))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"the table property {REWRITE_UP_TO} makes no sense", expected="bytes", found=repr(text[:80]))
    return int(text)


def _behind(table: Table, snapshot_id: int, found: FoundSidecar) -> timedelta:
    """Return the time since the first commit with files that the sidecar may lack.

    That is the commit after the sidecar's snapshot, or this snapshot itself if some of its files were left.
    """
    newer = list(lineage(table, snapshot_id))[: generations(table, snapshot_id, found.snapshot_id)]
    first = table.metadata.snapshot_by_id(newer[-1] if newer else snapshot_id)
    then = time.time() if first is None else first.timestamp_ms / 1000
    return timedelta(seconds=round(max(time.time() - then, 0.0)))
