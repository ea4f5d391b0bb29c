"""Compacts the sidecar of a table: its segments become one, without the files and columns that are gone.

Builds keep a base and a delta (:mod:`sidecar.bundle.merging.arrangement`). Compacting merges both, so that a lookup
reads what it would read after a fresh build. No data file is read. The compacted file replaces the entry of the
snapshot that the sidecar is registered for, so its sketches stay, and so does every blob of other writers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyiceberg.table import Table

from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.runs import STATE_PROPERTY, intact_state_of, state_property
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import TOC_PROPERTY, TocEntry, write_toc
from sidecar.conversion.outcome import BLOOM
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import BuildEngine, asked_engine
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.catalog import held, show_commit
from sidecar.iceberg.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.iceberg.merge import MARK
from sidecar.iceberg.refs import snapshot_id_of
from sidecar.iceberg.registering import check_mergeable, check_writable, register
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.previous.build_state import joined_state
from sidecar.indexing.previous.carrying import Registered, SegmentCarrier, live_files, sets_to_merge, use_keys
from sidecar.planning.relocated import RelocatedFiles
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.results.base import Result
from sidecar.run import report_progress
from sidecar.run_log import counted, log_run

log = logging.getLogger(__name__)

BUILD_AGAIN = "Build it again with --full."
HAS_MOVED = (
    "nothing was merged: the table has moved since the sidecar was built, and plans find its files by their path "
    f"within the table. {BUILD_AGAIN}"
)


ONE_FILE = "merging reads and writes one file, whose regions are moved as they are"
"""Why segments are merged in this process, whatever engine is asked for."""


@dataclass(frozen=True, repr=False, slots=True)
class CompactedSegment(Result):
    """A segment of the sidecar that is compacted."""

    id: str
    """The id of the segment."""
    files: int
    """The data files that it lists."""
    files_gone: int
    """Those of them that the snapshot does not have."""
    bytes: int
    """The bytes of its blobs."""
    kept_because: str | None
    """Why it stays as it is; ``None`` if it can be merged."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class CompactReport(Result):
    """What :func:`compact` did, or would do."""

    dry_run: bool
    """Whether nothing was written."""
    snapshot_id: int | None
    """The snapshot that the sidecar is registered for: the requested one or an ancestor. ``None`` without a sidecar."""
    commits: bool
    """Whether the table got a commit, or would get one. If not, there is nothing to compact."""
    statistics_path: str | None
    """The sidecar: the compacted file, or the present one if nothing was written. ``None`` without a sidecar."""
    segments: list[CompactedSegment]
    """The segments as they were."""
    segments_after: int
    """The number of segments afterwards; more than 1 if some have different keys or cannot be opened."""
    bytes_before: int
    """The bytes of our blobs before."""
    bytes_after: int | None
    """The bytes of our blobs afterwards; ``None`` if nothing was written."""
    warnings: list[str]
    """What the caller should know."""
    seconds: float
    """The time that it took."""
    engine: str = "local"
    """Where the segments were merged: always ``local``."""
    engine_reason: str = ONE_FILE
    """Why they were merged there."""

    def log_line(self, table: str) -> str:
        """What was done, for the log."""
        done = "would be compacted" if self.dry_run else "compacted"
        gone = counted({"files that are gone": sum(segment.files_gone for segment in self.segments)})
        what = f"{len(self.segments)} segments of {table} {done} to {self.segments_after} ({gone})"
        after = "" if self.bytes_after is None else f", {self.bytes_after:,} bytes"
        return f"{what if self.commits else f'nothing to compact in {table}'}{after}; {self.seconds:.3f} s"


def compact(
    table: Table,
    *,
    at: int | str | None = None,
    encryption_keys: EncryptionKeys | None = None,
    dry_run: bool = False,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> CompactReport:
    """Merge the segments of a table's sidecar into one, and leave out indexes of files and columns that are gone.

    ``table``: a table of pyiceberg. It is refreshed after the commit.
    ``at``: the snapshot id, branch or tag whose plans use the sidecar; by default the current snapshot.
    ``encryption_keys``: they open encrypted indexes, which are then encrypted anew under the same master keys. A
    segment with an encrypted index whose key is missing stays as it is.
    ``dry_run``: look at the sidecar and the manifests, and write nothing.
    ``engine``, ``spark``: as for :func:`sidecar.build`, so that all maintenance takes the same options. Merging runs in
    this process with any of them, and the report says so.

    No data file is read. The sidecar is read twice, and written once. Without a sidecar there is nothing to compact.

    Raises :class:`DamagedFileError` if the sidecar has damage that shows at once or cannot be opened, and the errors of
    :func:`sidecar.iceberg.registering.register`.
    """
    start = time.monotonic()
    asked_engine(engine, spark)
    with held(table) as own:
        report = _compact(own, snapshot_id_of(own, at), encryption_keys, dry_run)
    report = replace(report, seconds=time.monotonic() - start)
    log_run(log, lambda: report.log_line(name_of(table)), report.warnings)
    return report


def _compact(table: Table, snapshot_id: int | None, keys: EncryptionKeys | None, dry_run: bool) -> CompactReport:
    check_writable(table)
    doubts: list[str] = []
    found = find_sidecar(table, snapshot_id, warnings=doubts)
    if found is None and doubts:
        raise DamagedFileError("no sidecar of the table can be used", found=doubts[0], hint=BUILD_AGAIN)
    try:
        report = _without_sidecar(dry_run) if found is None else _Compaction(table, found, keys).run(dry_run)
    finally:
        if found is not None:
            found.sidecar.close()
    return replace(report, warnings=[*doubts, *report.warnings])


def _without_sidecar(dry_run: bool) -> CompactReport:
    return CompactReport(
        dry_run=dry_run,
        snapshot_id=None,
        commits=False,
        statistics_path=None,
        segments=[],
        segments_after=0,
        bytes_before=0,
        bytes_after=None,
        warnings=[],
        seconds=0.0,
    )


@dataclass
class _Compaction:
    """One compaction while it runs."""

    table: Table
    found: FoundSidecar
    keys: EncryptionKeys | None
    listing: Listing = field(init=False)

    def run(self, dry_run: bool) -> CompactReport:
        sidecar = self.found.sidecar
        if sidecar.warnings:
            raise DamagedFileError(
                f"the sidecar is damaged, so it is not compacted: {sidecar.warnings[0]}",
                file=self.found.statistics.statistics_path,
                hint=BUILD_AGAIN,
            )
        use_keys(self.table, self.keys, sidecar)
        report_progress("listing files")
        self.listing = list_snapshot(self.table, self.found.snapshot_id)
        has_moved = self._has_moved()
        sources = self._sources(sidecar)
        segments = [self._described(source) for source in sources]
        open_ones = [s for s, told in zip(sources, segments, strict=True) if told.kept_because is None]
        sets = sets_to_merge(open_ones, rates=self._rates())
        commits = not has_moved and any(self._is_worth_it(members) for members in sets)
        report = CompactReport(
            dry_run=dry_run,
            snapshot_id=self.found.snapshot_id,
            commits=commits,
            statistics_path=self.found.statistics.statistics_path,
            segments=segments,
            segments_after=len(sets) + len(sources) - len(open_ones),
            bytes_before=sum(segment.bytes for segment in segments),
            bytes_after=None,
            warnings=[HAS_MOVED] if has_moved else [],
            seconds=0.0,
        )
        if not commits:
            return report
        if dry_run:
            return replace(report, warnings=list(check_mergeable(self.table, self.found.snapshot_id)))
        return self._register(report)

    def _has_moved(self) -> bool:
        """Return whether the sidecar has live files under the paths of another place. A merge would lose these."""
        segments = self.found.sidecar.segments
        moved = RelocatedFiles(segments, self.table.location())
        return moved.has_moved and any(
            moved.places(file.known_as)
            for file in self.listing.files
            if all(segment.file_ordinal(file.known_as) is None for segment in segments)
        )

    def _sources(self, sidecar: SidecarFile) -> list[SourceSegment]:
        keep = partial(_has_columns, self.table.schema().field_ids)
        return [SourceSegment(sidecar, segment, keep) for segment in sidecar.segments]

    def _rates(self) -> dict[int, float]:
        """Return the rates that some files still lack, by field id: a merge with others would give these up."""
        state = intact_state_of(self.found.sidecar.puffin.metadata.properties)
        columns = {} if state is None else state.columns
        return {i: built.fpp for i, built in columns.items() if built.left.get(BLOOM) and isinstance(built.fpp, float)}

    def _described(self, source: SourceSegment) -> CompactedSegment:
        segment, why = source.segment, None
        for blob in source.blobs.values():
            try:
                blob.check_key()
            except SidecarError as error:
                why = error.what
        gone = segment.num_files - len(live_files(segment, self.listing.files))
        size = sum(entry.length for entry in segment.entries)
        return CompactedSegment(segment.id, segment.num_files, gone, size, why)

    def _is_worth_it(self, members: Sequence[SourceSegment]) -> bool:
        """Return whether merging these segments leaves out a segment, a file or a column."""
        return len(members) > 1 or any(
            len(source.entries) < len(source.segment.entries) or self._described(source).files_gone
            for source in members
        )

    def _register(self, report: CompactReport) -> CompactReport:
        carrier = SegmentCarrier(self.table, self.listing, self.keys, rates=self._rates())
        place = Registered(snapshot_id=self.listing.snapshot_id, sequence_number=self.listing.sequence_number)
        written: list[TocEntry] = []

        def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
            """Write our blobs. If another commit comes between, it is called again, with the file of that commit."""
            sources = self._sources(self.found.sidecar)
            known = {source.segment.id for source in sources}
            for reader in replaced:
                now = carrier.open_replaced(reader)
                sources += [source for source in self._sources(now) if source.segment.id not in known]
                known |= {source.segment.id for source in sources}
            written[:] = carrier.merge_all(writer, sources, place)
            files = [*replaced, self.found.sidecar.puffin]
            writer.properties.update(_our_properties(files))
            states = [state for file in files if (state := intact_state_of(file.metadata.properties)) is not None]
            if states:
                state = joined_state(states[0], states[1:], self.table.schema().field_ids)
                writer.properties[STATE_PROPERTY] = state_property(state.lacking(carrier.lost))
            write_toc(writer, written, **place)

        has_pages = any(s.page_index_blobs or s.row_index_blobs for s in self.found.sidecar.segments)
        registration = register(self.table, self.found.snapshot_id, (), write, has_pages=has_pages)
        show_commit(self.table)
        return replace(
            report,
            statistics_path=registration.statistics_path,
            segments_after=sum(entry.blob_type == UNITS for entry in written),
            bytes_after=sum(entry.length for entry in written),
            warnings=[*registration.notes, *carrier.notes],
        )


def _has_columns(live_fields: set[int], entry: TocEntry) -> bool:
    return live_fields >= set(entry.fields)


def _our_properties(files: Sequence[PuffinReader]) -> dict[str, str]:
    """Return sidecar's own properties of the files, newest first; the newest one wins.

    The place of the directory and the state are written anew.
    """
    return {
        name: text
        for file in reversed(files)
        for name, text in file.metadata.properties.items()
        if name.startswith(f"{MARK}.") and name not in (TOC_PROPERTY, STATE_PROPERTY)
    }
