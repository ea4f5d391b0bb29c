"""Decides how the sidecar of a snapshot becomes complete, once a refresh knows that it is not, and does it.

:func:`decide` is the one decision: a dry run shows it, and :class:`SidecarUpdate` carries it out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.runs import has_settled
from sidecar.errors import SidecarError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import show_commit
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import waiting_since
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.statistics_files.merge import is_our_theta
from sidecar.iceberg.statistics_files.registering import register_again, register_others_alone, unregister
from sidecar.iceberg.statistics_files.superseding import is_ours_alone, is_superseded
from sidecar.indexing.declaration import NothingDeclaredError
from sidecar.indexing.driver import run_build
from sidecar.indexing.engine_choice import choose_build_engine
from sidecar.indexing.preparing import PreparedBuild, prepare
from sidecar.indexing.previous.build_state import rates_apart, state_after
from sidecar.indexing.previous.carrying import SegmentCarrier
from sidecar.indexing.previous.earlier import gone_fields
from sidecar.indexing.request import BuildRequest
from sidecar.maintenance import costs
from sidecar.maintenance.refresh_report import RefreshAction, RefreshReport


@dataclass(frozen=True)
class Leave:
    """Nothing is written."""

    action: RefreshAction
    reason: str


@dataclass(frozen=True)
class RegisterAgain:
    """The file of another snapshot is registered for this one, as ``entry``."""

    found: FoundSidecar
    entry: StatisticsFile
    reason: str
    action: ClassVar[RefreshAction] = "registered"


@dataclass(frozen=True)
class Build:
    """A new file is written."""

    prepared: PreparedBuild
    reason: str
    action: ClassVar[RefreshAction] = "written"


@dataclass(frozen=True)
class Remove:
    """The entry of a sidecar is removed, unless others, a branch or a tag need it."""

    found: FoundSidecar
    reason: str
    action: ClassVar[RefreshAction] = "removed"


Decision: TypeAlias = Leave | RegisterAgain | Build | Remove
"""What a refresh does."""

COMPLETE = Leave("current", "the sidecar has all that is declared")
UNDECLARED = Leave("undeclared", "the table declares nothing to be indexed")


def decide(prepared: PreparedBuild, uncovered: float) -> Decision:
    """Return what a refresh does. ``uncovered`` is the share of the rows that the sidecar lacks. Writes nothing."""
    table, earlier, snapshot_id = prepared.table, prepared.earlier, prepared.listing.snapshot_id
    found, can_improve = earlier.found, not prepared.indexable and _can_improve(prepared)
    reason = _why(prepared, can_improve)
    is_displaced = found is not None and found.displaced is not None
    size = 0 if found is None or is_displaced else found.statistics.file_size_in_bytes
    is_large = size > costs.LARGE
    if prepared.indexable:
        if is_large and uncovered <= costs.FEW_ROWS:
            late = _behind(prepared)
            if late <= costs.longest_wait(size, prepared.request.longest_wait):
                return Leave("postponed", f"{uncovered:.2g} of the rows are not covered, for {late}")
        return Build(prepared, reason)
    if found is None or can_improve or is_displaced:
        return Build(prepared, reason)
    if prepared.is_registered:
        return COMPLETE
    if earlier.damage or found.snapshot_id == snapshot_id or snapshot_id in statistics_of(table):
        return Build(prepared, reason)
    if not prepared.has_right_counts or not (earlier.is_whole(table) or is_large):
        return Build(prepared, reason)
    entry = _with_marks(found.statistics, prepared)
    return RegisterAgain(found, entry, f"the sidecar of snapshot {found.snapshot_id} answers for all files")


def _why(prepared: PreparedBuild, can_improve: bool) -> str:
    found = prepared.earlier.found
    if prepared.earlier.damage:
        return "indexes are damaged"
    if prepared.indexable:
        return "not all files are covered"
    if found is not None and found.displaced is not None:
        return f"the sidecar was {found.displaced.sentence}"
    if not prepared.has_right_counts:
        return "distinct counts are missing, lack files, or have values that are gone"
    if can_improve:
        return "segments can be merged, or list many files that are gone"
    return "parts of the sidecar are gone"


def _can_improve(prepared: PreparedBuild) -> bool:
    """Return whether a merge lets lookups read less, and no refresh of this snapshot has tried it."""
    found = prepared.earlier.found
    if found is None or has_settled(found.sidecar.puffin.metadata.properties, prepared.listing.snapshot_id):
        return False
    rates = rates_apart(prepared, state_after(prepared, ())[0])
    carrier = SegmentCarrier(prepared.table, prepared.listing, prepared.plan.access, rates)
    return carrier.can_improve([SourceSegment(found.sidecar, segment) for segment in prepared.earlier.segments])


class SidecarUpdate:
    """One update while it runs. ``report`` gets what it does."""

    def __init__(self, table: Table, request: BuildRequest, report: RefreshReport) -> None:
        self.table = table
        self.request = request
        self.report = report

    def run(self, snapshot_id: int) -> None:
        """Bring the sidecar of a snapshot up to date; in a dry run, report what would be done."""
        try:
            prepared = prepare(self.table, snapshot_id, self.request)
        except NothingDeclaredError as error:
            self._drop_gone(snapshot_id)
            self.report.warnings.append(str(error))
            return
        with prepared:
            self.report.count(prepared)
            found = prepared.earlier.found
            if found is not None and found.displaced is None:
                self.report.take(found.statistics)
            decision = decide(prepared, self.report.uncovered)
            if not self._carry_out(decision):  # its file cannot be registered again
                self._carry_out(Build(prepared, _why(prepared, can_improve=False)))

    def _drop_gone(self, snapshot_id: int) -> None:
        """End the refresh of a table of which no column is to be indexed: drop the columns that the table dropped."""
        self._carry_out(UNDECLARED)
        found = find_sidecar(self.table, self.request.means.access(self.table), snapshot_id)
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
                self._carry_out(Build(prepared, reason))
            elif not self._carry_out(Remove(found, "the table has dropped all columns of the sidecar")):
                self._carry_out(UNDECLARED)

    def _carry_out(self, decision: Decision) -> bool:
        """Report a decision, and do it unless this is a dry run. Return whether it could be done."""
        self.report.end(decision.action, decision.reason)
        if self.report.dry_run:
            if isinstance(decision, Build):
                self.report.engine, _ = choose_build_engine(self.table, decision.prepared.files, self.request.means)
            elif isinstance(decision, Remove):
                self.report.take(None)
            return True
        match decision:
            case RegisterAgain(found, entry):
                return self._register_again(found, entry)
            case Build(prepared):
                self._build(prepared)
            case Remove(found):
                return self._remove(found)
        return True

    def _register_again(self, found: FoundSidecar, entry: StatisticsFile) -> bool:
        assert self.report.snapshot_id is not None
        hit("refresh: register again")
        if not register_again(self.table, entry, self.report.snapshot_id, found):
            return False
        show_commit(self.table)
        self._unregister(found)
        return True

    def _remove(self, found: FoundSidecar) -> bool:
        assert self.report.snapshot_id is not None
        hit("refresh: unregister")
        if found.snapshot_id == self.report.snapshot_id:
            removed = [entry.snapshot_id for entry in unregister(self.table, [found.statistics])]
        else:
            removed = _unregister_superseded(self.table, found, self.report.snapshot_id)
        show_commit(self.table)
        self.report.unregistered += removed
        if removed:
            self.report.take(None)
        return bool(removed)

    def _build(self, prepared: PreparedBuild) -> None:
        hit("refresh: build")
        found = prepared.earlier.found
        self.report.add_build(run_build(prepared))
        known = None if found is None else found.statistics.statistics_path
        if self.report.statistics_path != known:  # it has written one
            if found is not None:
                self._unregister(found)
            return
        self.report.end("current", "no file could be indexed")
        if found is not None:
            self.report.take(found.statistics)

    def _unregister(self, found: FoundSidecar) -> None:
        """Remove the entry that was superseded. The refresh has succeeded, even if this fails."""
        assert self.report.snapshot_id is not None
        if found.displaced is None and found.snapshot_id not in statistics_of(self.table):
            self.report.unregistered.append(found.snapshot_id)  # in the commit that has registered the new one
            return
        hit("refresh: unregister")
        try:
            self.report.unregistered += _unregister_superseded(self.table, found, self.report.snapshot_id)
        except SidecarError as error:
            self.report.warnings.append(f"the superseded sidecar is still registered: {error}")
        show_commit(self.table)


def _with_marks(entry: StatisticsFile, prepared: PreparedBuild) -> StatisticsFile:
    """Return an entry whose distinct counts are marked as bounds where files or rows were removed or added since."""
    blobs = [
        blob.model_copy(update={"properties": prepared.marked_today(blob.fields[0], blob.properties)})
        if is_our_theta(blob)
        else blob
        for blob in entry.blob_metadata
    ]
    return entry.model_copy(update={"blob_metadata": blobs})


def _behind(prepared: PreparedBuild) -> timedelta:
    """Return for how long the first file that the sidecar lacks has waited, at most if nobody can tell."""
    since, is_certain = waiting_since(prepared.table, [file.known_as for file in prepared.indexable])
    return timedelta(seconds=round(max(time.time() - since, 0.0))) if is_certain else timedelta.max


def _unregister_superseded(table: Table, found: FoundSidecar, snapshot_id: int) -> list[int]:
    """Remove the entry of ``found`` after the sidecar of ``snapshot_id`` has taken its place.

    Return the snapshots whose entries were removed. Blobs of others stay registered, in a file of their own. A
    refresh removes the entry in the commit that registers the newer one; left for here are entries with blobs of others
    and those that could not be removed then. Raises the errors of
    :func:`sidecar.iceberg.statistics_files.registering.register_others_alone`.
    """
    if not is_superseded(table, found, snapshot_id):
        return []
    if not is_ours_alone(found):
        register_others_alone(table, found.statistics)
        return []
    return [entry.snapshot_id for entry in unregister(table, [found.statistics])]
