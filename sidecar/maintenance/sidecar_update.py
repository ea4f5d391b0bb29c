"""Makes the sidecar of a snapshot complete, once a refresh knows that it is not: the steps 2 to 4 of a refresh."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.sketches.count_marks import CountMarks, marked
from sidecar.errors import SidecarError
from sidecar.iceberg.catalog import show_commit
from sidecar.iceberg.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.merge import is_our_theta
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import generations, lineage
from sidecar.iceberg.registering import register_again, unregister
from sidecar.indexing.declaration import NothingDeclaredError
from sidecar.indexing.driver import run_build
from sidecar.indexing.engine_choice import choose_build_engine
from sidecar.indexing.preparing import PreparedBuild, prepare
from sidecar.indexing.previous.earlier import gone_fields
from sidecar.indexing.request import BuildRequest
from sidecar.maintenance.refresh_report import RefreshReport
from sidecar.maintenance.superseded import is_ours_alone, unregister_superseded
from sidecar.run_steps import reached


class SidecarUpdate:
    """One update while it runs. ``report`` gets what it does."""

    def __init__(self, table: Table, request: BuildRequest, report: RefreshReport) -> None:
        self.table = table
        self.request = request
        self.report = report

    def run(self, snapshot_id: int, rewrite_up_to: int, min_uncovered: float, max_behind: timedelta) -> None:
        """Bring the sidecar of a snapshot up to date. ``rewrite_up_to`` is in bytes; limits are those of a refresh."""
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
                self.report.take(found.statistics)
            if not prepared.indexable and self._needs_no_copy(prepared, rewrite_up_to):
                return
            if prepared.indexable and found is not None and found.statistics.file_size_in_bytes > rewrite_up_to:
                late = _behind(self.table, snapshot_id, found)
                if self.report.uncovered <= min_uncovered and late <= max_behind:
                    reason = f"{self.report.uncovered:.2g} of the rows are not covered, for {late}"
                    self.report.end("postponed", reason)
                    return
            self._write(prepared)

    def _drop_gone(self, snapshot_id: int) -> None:
        """End the refresh of a table of which no column is to be indexed: drop the columns that the table dropped."""
        self.report.end("undeclared", "the table declares nothing to be indexed")
        found = find_sidecar(self.table, snapshot_id)
        if found is None:
            return
        found.sidecar.close()
        self.report.take(found.statistics)
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
        self.report.end("removed", "the table has dropped all columns of the sidecar")
        self.report.statistics_path, self.report.file_size = None, 0

    def _needs_no_copy(self, prepared: PreparedBuild, rewrite_up_to: int) -> bool:
        """End the refresh without a new file if the earlier one can stay; return whether it has ended."""
        found, snapshot_id = prepared.earlier.found, prepared.listing.snapshot_id
        if prepared.earlier.is_registered(self.table, snapshot_id):
            self.report.end("current", "the sidecar has all that is declared")
            return True
        if found is None or found.snapshot_id == snapshot_id or snapshot_id in statistics_of(self.table):
            return False
        if _can_count_more(prepared, found):
            return False
        if not prepared.earlier.is_whole(self.table) and found.statistics.file_size_in_bytes <= rewrite_up_to:
            return False
        reason = f"the sidecar of snapshot {found.snapshot_id} answers for all files"
        if self.report.dry_run:
            self.report.end("registered", reason)
            return True
        reached("refresh: register again")
        if not register_again(self.table, _with_marks(found.statistics, prepared), snapshot_id):
            return False
        show_commit(self.table)
        self.report.end("registered", reason)
        self._unregister(found)
        return True

    def _write(self, prepared: PreparedBuild) -> None:
        self.report.end("written", self._why(prepared))
        if self.report.dry_run:
            self.report.engine, _ = choose_build_engine(
                prepared.files, self.request.chosen_engine(), self.request.spark
            )
            return
        reached("refresh: build")
        built = run_build(prepared)
        self.report.add_build(built)
        found = prepared.earlier.found
        if found is not None and built.statistics_path == found.statistics.statistics_path:
            self.report.end("current", "no file could be counted again")
        elif found is not None:
            self._unregister(found)

    def _why(self, prepared: PreparedBuild) -> str:
        if prepared.indexable:
            return "not all files are covered"
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


def _behind(table: Table, snapshot_id: int, found: FoundSidecar) -> timedelta:
    """Return the time since the first commit with files that the sidecar may lack.

    That is the commit after the sidecar's snapshot, or this snapshot itself if some of its files were left.
    """
    newer = list(lineage(table, snapshot_id))[: generations(table, snapshot_id, found.snapshot_id)]
    first = table.metadata.snapshot_by_id(newer[-1] if newer else snapshot_id)
    then = time.time() if first is None else first.timestamp_ms / 1000
    return timedelta(seconds=round(max(time.time() - then, 0.0)))
