"""Brings the sidecar of a table up to date, as a scheduled job does: declared once, cheap when there is little to do.

A refresh ends as soon as it knows enough:

1. The sidecar is registered for the snapshot, and its state says that it is complete: one read of its tail.
2. An ancestor's sidecar answers for all files, and its distinct counts hold: the same file is registered for the
   snapshot. Nothing is copied.
3. A large sidecar lacks few rows, and not for long: the refresh is postponed.
4. Otherwise the files that no sidecar answers for are indexed, and a new file has them and all that is carried over.

Then the entry that the new one supersedes is removed, unless a branch or a tag still needs it
(:mod:`sidecar.maintenance.superseded`).
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.runs import intact_state_of
from sidecar.bundle.sketches.upper_bound import upper_bound_properties, upper_bound_reasons
from sidecar.convert.outcome import Progress, no_progress
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.catalog import show_commit
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.merge import is_our_theta
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations, is_empty, lineage, snapshot_id_of
from sidecar.iceberg.registering import register_again
from sidecar.indexing.declaration import NothingDeclaredError, indexes_in
from sidecar.indexing.options import BuildEngine
from sidecar.indexing.previous.build_state import is_complete
from sidecar.indexing.request import BuildRequest
from sidecar.kernels.announcing import announces_compiling
from sidecar.maintenance.refresh_report import RefreshAction, RefreshReport
from sidecar.puffin.reader import PuffinReader
from sidecar.run_log import log_run
from sidecar.run_steps import reached
from sidecar.source import open_source

if TYPE_CHECKING:
    from sidecar.iceberg.find_sidecar import FoundSidecar
    from sidecar.indexing.preparing import PreparedBuild

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
        # Loaded only now: what builds takes longer to load than a refresh with nothing to do takes in all.
        from sidecar.indexing.preparing import prepare

        try:
            prepared = prepare(self.table, snapshot_id, self.request)
        except NothingDeclaredError as error:
            self.report.warnings.append(str(error))
            self.end("undeclared", "the table declares nothing to be indexed, and has no sidecar")
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
        """Return whether the snapshot's own sidecar is complete, as its footer says. In doubt it is not."""
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
            wishes, _ = self.request.wishes(self.table, snapshot_of(self.table, entry.snapshot_id), indexes_in(state))
        except NothingDeclaredError:
            return False
        self.report.columns = [wish.column.path for wish in wishes]
        return is_complete(self.table, state, wishes)

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
        from sidecar.indexing.driver import run_build
        from sidecar.indexing.engine_choice import choose_engine

        self.end("written", self._why(prepared))
        if self.report.dry_run:
            self.report.engine, _ = choose_engine(
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
        return "parts of the sidecar are gone"

    def _unregister(self, found: FoundSidecar) -> None:
        """Remove the entry that was superseded. The refresh has succeeded, even if this fails."""
        from sidecar.maintenance.superseded import unregister_superseded

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
    """Return an entry whose distinct counts are marked as upper bounds where files or rows were removed since."""
    blobs = []
    for blob in entry.blob_metadata:
        properties = dict(blob.properties or {})
        if is_our_theta(blob):
            known = upper_bound_reasons(properties) or []
            properties |= upper_bound_properties([*known, *prepared.upper_bounds(blob.fields[0])])
        blobs.append(blob.model_copy(update={"properties": properties}))
    return entry.model_copy(update={"blob_metadata": blobs})


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
