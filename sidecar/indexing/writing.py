"""Ends a build: writes its new segment and the carried segments into one file, and registers the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from pyiceberg.table import Table

from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.field_parts import FieldPart
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.slicing import tail_piece
from sidecar.bundle.kinds.declared import KIND_OF_BLOB
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.model import SegmentHeader, StoredColumn
from sidecar.bundle.runs import (
    HISTORY_PROPERTY,
    STATE_PROPERTY,
    IndexOfField,
    RunRecord,
    SidecarState,
    history_property,
    intact_state_of,
    state_property,
)
from sidecar.bundle.segment import withheld_columns
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.count_marks import COUNTS_PROPERTY, CountMarks, digest_of_counts
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.writer import kept_entries
from sidecar.conversion.protection import properties_of
from sidecar.errors import StorageError
from sidecar.failpoints import hit
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.resolve import names_of_columns
from sidecar.iceberg.statistics_files.merge import KeptSketch, is_our_theta
from sidecar.iceberg.statistics_files.registering import Registration, register
from sidecar.indexing.assemble import Selection, StageResults, kinds_of, units_table
from sidecar.indexing.groups import (
    expected_false_units,
    field_indexes,
    group_tasks,
    index_groups,
    tails,
)
from sidecar.indexing.preparing import PreparedBuild
from sidecar.indexing.previous.build_state import joined_state, rates_apart
from sidecar.indexing.previous.carrying import NewSegment, Registered, SegmentCarrier
from sidecar.indexing.previous.earlier import ReusableSidecar, other_segments, wanted_indexes
from sidecar.indexing.previous.earlier_sketches import rewritten_sketches
from sidecar.indexing.sketch_groups import segment_sketches
from sidecar.indexing.slices import GroupTask, KeptIndexes
from sidecar.indexing.stage_one.tasks import BuildPlan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA_GROUPS
from sidecar.puffin.writer import PuffinWriter


@dataclass(frozen=True)
class Registrar:
    """Writes and registers the result of one build."""

    prepared: PreparedBuild
    kept: KeptIndexes
    state: SidecarState

    @property
    def table(self) -> Table:
        """The table."""
        return self.prepared.table

    @property
    def listing(self) -> Listing:
        """The files of the snapshot."""
        return self.prepared.listing

    @property
    def plan(self) -> BuildPlan:
        """What is built."""
        return self.prepared.plan

    @property
    def earlier(self) -> ReusableSidecar:
        """What the earlier sidecar serves."""
        return self.prepared.earlier

    def register(
        self, selection: Selection, indexed: StageResults, groups: Sequence[Sequence[SnapshotFile]] = ()
    ) -> Registration:
        """Write the new segment and the carried ones, and register the file. Raises the errors of registering.

        ``groups``: the files that a new sketch counts. If files are left to later builds, the table keeps its counts.
        """
        header = self._header(indexed)
        place = Registered(snapshot_id=self.listing.snapshot_id, sequence_number=self.listing.sequence_number)
        units = units_table(selection, indexed, self.plan.columns, self.plan.options)
        plaintext = indexed.encrypted.fields & self.plan.options.plaintext
        indexes = index_groups(indexed, self.plan.columns)
        sketches = segment_sketches(groups, selection, indexed, self.plan.columns, self.plan.options)
        carrier = self._carrier(indexed)

        def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
            """Write our blobs. If another commit comes between, it is called again and slices again."""
            keys = self._keys(header)
            tasks_of = group_tasks(indexed, self.plan.columns, header.segment_id, keys)
            slices = self.kept.slices([t for tasks in tasks_of.values() for t in tasks])
            filters = (
                FieldBundle(
                    field_id,
                    [task.group for task in tasks],
                    _pages(tasks, slices, indexed),
                    self.plan.options.of(field_id).fpp,
                    expected_false_units(indexed, field_id),
                    keys.get(field_id),
                    properties_of(field_id in plaintext),
                )
                for field_id, tasks in tasks_of.items()
            )
            own = field_indexes(indexes, indexed, self.kept, keys, plaintext)
            parts: list[FieldPart] = [*own, *filters, *sketches]
            carried = self._carried(carrier, replaced)
            new = None
            # A sidecar has a segment at least: if none is carried, one without files is written.
            if selection.files or (self.plan.columns and not carried):
                new = NewSegment(header, units, parts)
            entries = carrier.write(writer, carried, new, place)
            hit("build: segments written")
            self._describe_run(writer, replaced, indexed, carrier.lost)
            write_toc(writer, entries, **place)

        has_pages = bool(indexes) or any(s.page_index_blobs or s.row_index_blobs for s in self.earlier.segments)
        registration = register(
            self.table,
            self.listing.snapshot_id,
            self._thetas(indexed, plaintext),
            write,
            force=self.prepared.request.force,
            has_pages=has_pages,
            unsketched=self.plan.options.encrypted | self.earlier.broken_counts,
            carried=self.prepared.carried_sketches(),
            supersedes=None if self.prepared.request.merge_up_to is None else self.earlier.found,
        )
        return replace(registration, notes=(*registration.notes, *carrier.notes))

    def _header(self, indexed: StageResults) -> SegmentHeader:
        return SegmentHeader(
            table_uuid=self.listing.table_uuid,
            snapshot_id=self.listing.snapshot_id,
            sequence_number=self.listing.sequence_number,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            columns=self._named(indexed),
        )

    def _thetas(self, indexed: StageResults, plaintext: Collection[int]) -> list[KeptSketch]:
        """Return the sketches of whole columns, of which there are none if files are left to later builds."""
        return [
            KeptSketch(
                i,
                sketch.to_bytes(),
                sketch.ndv,
                dict(properties_of(i in plaintext)) | indexed.marks.get(i, CountMarks()).to_properties(),
                i in self.prepared.counts_to_register,
            )
            for i, sketch in sorted(indexed.sketches.items())
            if not self.prepared.left
        ]

    def _carrier(self, indexed: StageResults) -> SegmentCarrier:
        """Return what carries the earlier segments over."""
        return SegmentCarrier(
            self.table,
            self.listing,
            self.plan.access,
            rates_apart(self.prepared, self.state),
            self.prepared.request.merge_up_to,
            set(wanted_indexes(self.plan)),
            {file.ordinal for file in self.prepared.to_index} - indexed.failed.keys(),
        )

    def _describe_run(
        self,
        writer: PuffinWriter,
        replaced: Sequence[PuffinReader],
        indexed: StageResults,
        lost: Mapping[IndexOfField, int],
    ) -> None:
        """Set the file's properties that tell of this run and the last ones, and what the file is complete for.

        ``lost``: the files of which damaged indexes were left out, by field id and kind.
        """
        old = self.earlier.found
        files = [*([] if old is None else [old.sidecar.puffin]), *replaced]
        request, to_index = self.prepared.request, self.prepared.to_index
        done = sum(file.ordinal not in indexed.failed for file in to_index)
        run = RunRecord(
            at=request.at.isoformat(timespec="seconds"),
            seconds=round(request.seconds(), 3),
            what=request.what,
            snapshot_id=self.listing.snapshot_id,
            files=len(self.listing.files),
            indexed=done,
            carried=len(self.earlier.served),
            left=len(self.prepared.indexable) - done,
            bytes_read=indexed.bytes_read,
            bytes_carried=bytes_carried(self.table, self.plan, self.earlier),
        )
        if sketches := list(filter(is_our_theta, writer.blobs)):
            writer.properties[COUNTS_PROPERTY] = digest_of_counts(sketches)
        writer.properties[HISTORY_PROPERTY] = history_property([file.metadata.properties for file in files], run)
        writer.properties[STATE_PROPERTY] = state_property(self._state_with(replaced).lacking(lost))

    def _state_with(self, replaced: Sequence[PuffinReader]) -> SidecarState:
        """Return the state with what other builds of this snapshot have registered meanwhile."""
        found = (intact_state_of(reader.metadata.properties) for reader in replaced)
        others = [state for state in found if state is not None]
        requested = set(wanted_indexes(self.plan))
        return joined_state(self.state, others, self.table.schema().field_ids, requested)

    def _named(self, indexed: StageResults) -> dict[int, StoredColumn]:
        """Return the columns to name: none that is encrypted in a file, nor that a carried segment does not name."""
        if indexed.encrypted.files:
            return {}
        names, withheld = names_of_columns(self.table.schema()), withheld_columns(self.earlier.segments)
        withheld |= indexed.encrypted.fields
        return {
            column.field_id: StoredColumn(names[column.field_id], column.type)
            for column in self.plan.columns
            if column.field_id in names and column.field_id not in withheld
        }

    def _keys(self, header: SegmentHeader) -> dict[int, FieldKey]:
        """Make a fresh data key for each column with encrypted bundles. A key is never used for two files."""
        place = header.table_uuid, header.segment_id
        found = {c.field_id: self.prepared.protection.key_for(c.path, *place, c.field_id) for c in self.plan.columns}
        return {field_id: key for field_id, key in found.items() if key is not None}

    def _carried(self, carrier: SegmentCarrier, replaced: Sequence[PuffinReader]) -> list[SourceSegment]:
        """Return the segments of the earlier sidecar, and those that other builds have registered meanwhile."""
        wanted = partial(_is_wanted, self.table, self.plan, self.earlier)
        carried: list[SourceSegment] = []
        known: set[str] = set()
        if self.earlier.found is not None:
            old = self.earlier.found.sidecar
            known = {segment.id for segment in old.segments}
            again = _without_dropped_groups(self.earlier, old)
            carried += (
                SourceSegment(old, s, wanted, again.get(s.id, ()), self.earlier.has_damage(s))
                for s in self.earlier.segments
            )
        for reader in replaced:
            now = carrier.open_replaced(reader)
            new = other_segments(now.segments, known, self.plan)
            known |= {segment.id for segment in new}
            carried += (SourceSegment(now, segment, wanted) for segment in new)
        return carried


def _without_dropped_groups(earlier: ReusableSidecar, old: SidecarFile) -> dict[str, list[FieldSketches]]:
    """Return the sketches of carried segments of which some groups are left out, by the id of the segment."""
    at = {blob.offset: blob.properties for blob in old.puffin.metadata.blobs}
    properties = {
        (entry.segment_id, entry.fields[0]): at[entry.offset]
        for segment in old.segments
        for entry in segment.entries
        if entry.blob_type == THETA_GROUPS
    }
    found: dict[str, list[FieldSketches]] = {}
    for segment, given in rewritten_sketches(earlier.counts, properties):
        found.setdefault(segment.id, []).append(given)
    return found


def bytes_carried(table: Table, plan: BuildPlan, earlier: ReusableSidecar) -> int:
    """Return the bytes of the earlier sidecar's segments that a build copies."""
    wanted = partial(_is_wanted, table, plan, earlier)
    return sum(entry.length for entry in kept_entries(earlier.segments, wanted))


def _is_wanted(table: Table, plan: BuildPlan, earlier: ReusableSidecar, entry: TocEntry) -> bool:
    """Return whether an earlier blob of a field is kept.

    It is dropped if the column is gone, if its blobs are now encrypted differently, if it is built anew for all files,
    or if it has sketches and some of them are left out.
    """
    anew = set() if earlier.served or earlier.limited else {column.field_id for column in plan.columns}
    live = table.schema().field_ids
    kind = KIND_OF_BLOB.get(entry.blob_type)
    is_counted = kind is not None and kind.merges == "united"
    if is_counted and earlier.counts.is_replaced(entry.segment_id, entry.fields):
        return False
    if any((entry.segment_id, field_id) in earlier.stale for field_id in entry.fields):
        return False
    if anew.issuperset(entry.fields) and kind and all(kind.name in kinds_of(plan.options.of(i)) for i in entry.fields):
        return False
    return live >= set(entry.fields)


def _pages(tasks: Sequence[GroupTask], slices: Iterator[tuple[int, bytes]], indexed: StageResults) -> Iterator[bytes]:
    """Yield the pages of one field's groups, taken from the slices of all fields, and each group's tails."""
    for task in tasks:
        for _ in range(task.parts):
            number, data = next(slices, (-1, b""))
            if number != task.number:
                raise StorageError("slices of the index were lost", expected=task.number, found=number)
            yield data
        if task.group.tail:
            yield tail_piece(task.group, tails(task, indexed), task.place)
