"""Ends a build: writes its new segment and the carried segments into one file, and registers the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TypedDict

from pyiceberg.table import Table

from sidecar.bundle.encryption import FieldKey
from sidecar.bundle.filters.slicing import tail_piece
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.runs import (
    HISTORY_PROPERTY,
    STATE_PROPERTY,
    RunRecord,
    SidecarState,
    history_property,
    state_property,
)
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.writer import FieldBundle, copy_segments, kept_entries, write_segment
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.convert.protection import properties_of
from sidecar.errors import StorageError
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.merge import KeptSketch
from sidecar.iceberg.registering import Registration, register
from sidecar.indexing.assemble import Indexed, Selection, kinds_of, units_table
from sidecar.indexing.earlier import Earlier, other_segments, sketches_to_carry
from sidecar.indexing.engine import Engine
from sidecar.indexing.groups import expected_false_units, field_indexes, group_tasks, index_groups, tails
from sidecar.indexing.preparing import PreparedBuild
from sidecar.indexing.slices import GroupTask
from sidecar.indexing.tasks import BuildPlan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import ORC_BLOOM, ROW_INDEX, SBBF
from sidecar.puffin.types import PAGE_INDEX as PAGE_INDEX_BLOB
from sidecar.puffin.writer import PuffinWriter

_KINDS_OF_BLOBS = {SBBF: BLOOM, ORC_BLOOM: BLOOM, PAGE_INDEX_BLOB: PAGE_INDEX, ROW_INDEX: PAGE_INDEX}
"""The kind of index in each type of blob that belongs to a field."""


class Registered(TypedDict):
    """The snapshot that the file is registered for; each of our blobs names it."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True)
class Registrar:
    """Writes and registers the result of one build."""

    prepared: PreparedBuild
    engine: Engine
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
    def earlier(self) -> Earlier:
        """What the earlier sidecar serves."""
        return self.prepared.earlier

    def register(self, selection: Selection, indexed: Indexed) -> Registration:
        """Write the new segment and the carried ones, and register the file. Raises the errors of registering."""
        header = SegmentHeader(
            table_uuid=self.listing.table_uuid,
            snapshot_id=self.listing.snapshot_id,
            sequence_number=self.listing.sequence_number,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        place = Registered(snapshot_id=self.listing.snapshot_id, sequence_number=self.listing.sequence_number)
        units = units_table(selection, indexed, self.plan.columns, self.plan.options)
        in_clear = indexed.encrypted.fields & self.plan.options.in_clear
        indexes = index_groups(indexed, self.plan.columns)
        thetas = [
            KeptSketch(i, sketch.to_bytes(), sketch.ndv, properties_of(i in in_clear))
            for i, sketch in sorted(indexed.sketches.items())
        ]

        def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
            """Write our blobs. If another commit comes between, it is called again and slices again."""
            keys = self._keys(header)
            groups = group_tasks(indexed, self.plan.columns, header.segment_id, keys)
            entries = self._carry(writer, replaced, place)
            if selection.files or not entries:
                slices = self.engine.slices(
                    [t for tasks in groups.values() for t in tasks], self.prepared.request.progress
                )
                fields = (
                    FieldBundle(
                        field_id,
                        [task.group for task in tasks],
                        _pages(tasks, slices, indexed),
                        self.plan.options.of(field_id).fpp,
                        expected_false_units(indexed, field_id),
                        keys.get(field_id),
                        properties_of(field_id in in_clear),
                    )
                    for field_id, tasks in groups.items()
                )
                own = field_indexes(indexes, indexed, self.engine, keys, in_clear)
                entries += write_segment(writer, header, units, fields, own, **place)
            self._describe_run(writer, replaced, indexed)
            write_toc(writer, entries, **place)

        has_pages = bool(indexes) or any(s.page_index_blobs or s.row_index_blobs for s in self.earlier.segments)
        return register(
            self.table,
            self.listing.snapshot_id,
            thetas,
            write,
            force=self.prepared.request.force,
            has_pages=has_pages,
            unsketched=self.plan.options.sealed,
            carried=sketches_to_carry(self.earlier),
        )

    def _describe_run(self, writer: PuffinWriter, replaced: Sequence[PuffinReader], indexed: Indexed) -> None:
        """Set the file's properties that tell of this run and the last ones, and what the file is complete for."""
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
        writer.properties[HISTORY_PROPERTY] = history_property([file.metadata.properties for file in files], run)
        writer.properties[STATE_PROPERTY] = state_property(self.state)

    def _keys(self, header: SegmentHeader) -> dict[int, FieldKey]:
        """Make a fresh data key for each column with encrypted bundles. A key is never used for two files."""
        place = header.table_uuid, header.segment_id
        found = {c.field_id: self.prepared.protection.key_for(c.path, *place, c.field_id) for c in self.plan.columns}
        return {field_id: key for field_id, key in found.items() if key is not None}

    def _carry(self, writer: PuffinWriter, replaced: Sequence[PuffinReader], place: Registered) -> list[TocEntry]:
        """Copy the segments of the earlier sidecar, and those that other builds have registered meanwhile."""
        entries: list[TocEntry] = []
        known: set[str] = set()
        wanted = partial(_is_wanted, self.table, self.plan, self.earlier)
        if self.earlier.found is not None:
            old = self.earlier.found.sidecar
            known = {segment.id for segment in old.segments}
            entries += copy_segments(old, writer, segments=self.earlier.segments, keep=wanted, **place)
        for reader in replaced:
            now = SidecarFile.open(
                reader.source, footer_length=reader.footer_length, table_uuid=self.listing.table_uuid
            )
            new = other_segments(now.segments, known, self.plan)
            known |= {segment.id for segment in new}
            entries += copy_segments(now, writer, segments=new, keep=wanted, **place)
        return entries


def bytes_carried(table: Table, plan: BuildPlan, earlier: Earlier) -> int:
    """Return the bytes of the earlier sidecar's segments that a build copies."""
    wanted = partial(_is_wanted, table, plan, earlier)
    return sum(entry.length for entry in kept_entries(earlier.segments, wanted))


def _is_wanted(table: Table, plan: BuildPlan, earlier: Earlier, entry: TocEntry) -> bool:
    """Return whether an earlier blob of a field is kept.

    It is dropped if the column is gone, if its blobs are now encrypted differently, or if it is built anew for all
    files.
    """
    anew = set() if earlier.served or earlier.limited else {column.field_id for column in plan.columns}
    live = table.schema().field_ids
    if any((entry.segment_id, field_id) in earlier.stale for field_id in entry.fields):
        return False
    kind = _KINDS_OF_BLOBS.get(entry.blob_type)
    if anew.issuperset(entry.fields) and all(kind in kinds_of(plan.options.of(i)) for i in entry.fields):
        return False
    return live >= set(entry.fields)


def _pages(tasks: Sequence[GroupTask], slices: Iterator[tuple[int, bytes]], indexed: Indexed) -> Iterator[bytes]:
    """Yield the pages of one field's groups, taken from the slices of all fields, and each group's tails."""
    for task in tasks:
        for _ in range(task.parts):
            number, data = next(slices, (-1, b""))
            if number != task.number:
                raise StorageError("slices of the index were lost", expected=task.number, found=number)
            yield data
        if task.group.tail:
            yield tail_piece(task.group, tails(task, indexed), task.place)
