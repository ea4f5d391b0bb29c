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
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.sketch_blob import write_sketches
from sidecar.bundle.sketches.upper_bound import upper_bound_properties
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.writer import FieldBundle, copy_segments, kept_entries, write_segment
from sidecar.convert.outcome import Progress
from sidecar.convert.protection import Protection, properties_of
from sidecar.errors import StorageError
from sidecar.iceberg.listing import ListedFile, Listing
from sidecar.iceberg.merge import KeptSketch
from sidecar.iceberg.registering import Registration, register
from sidecar.indexing.assemble import Indexed, Selection, units_table
from sidecar.indexing.earlier import Earlier, other_segments
from sidecar.indexing.earlier_sketches import rewritten_sketches
from sidecar.indexing.engine import Engine
from sidecar.indexing.groups import expected_false_units, field_indexes, group_tasks, index_groups, tails
from sidecar.indexing.sketch_groups import segment_sketches
from sidecar.indexing.slices import GroupTask
from sidecar.indexing.tasks import BuildPlan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import ORC_BLOOM, ROW_INDEX, SBBF, THETA_GROUPS
from sidecar.puffin.types import PAGE_INDEX as PAGE_INDEX_BLOB
from sidecar.puffin.writer import PuffinWriter


class Registered(TypedDict):
    """The snapshot that the file is registered for; each of our blobs names it."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True)
class Registrar:
    """Writes and registers the result of one build."""

    table: Table
    listing: Listing
    plan: BuildPlan
    earlier: Earlier
    engine: Engine
    progress: Progress
    force: bool
    protection: Protection

    def register(
        self, selection: Selection, indexed: Indexed, groups: Sequence[Sequence[ListedFile]] = ()
    ) -> Registration:
        """Write the new segment and the carried ones, and register the file. Raises the errors of registering.

        ``groups`` are the groups of files that the new sketches count.
        """
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
            KeptSketch(
                i,
                sketch.to_bytes(),
                sketch.ndv,
                {**properties_of(i in in_clear), **upper_bound_properties(indexed.upper_bounds.get(i, ()))},
            )
            for i, sketch in sorted(indexed.sketches.items())
        ]
        sketches = segment_sketches(groups, selection, indexed, self.plan.columns, self.plan.options)

        def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
            """Write our blobs. If another commit comes between, it is called again and slices again."""
            keys = self._keys(header)
            tasks_of = group_tasks(indexed, self.plan.columns, header.segment_id, keys)
            entries = self._carry(writer, replaced, place)
            if selection.files or not entries:
                slices = self.engine.slices([t for tasks in tasks_of.values() for t in tasks], self.progress)
                fields = (
                    FieldBundle(
                        field_id,
                        [task.group for task in tasks],
                        _pages(tasks, slices, indexed),
                        self.plan.options.fpp,
                        expected_false_units(indexed, field_id),
                        keys.get(field_id),
                        properties_of(field_id in in_clear),
                    )
                    for field_id, tasks in tasks_of.items()
                )
                own = field_indexes(indexes, indexed, self.engine, keys, in_clear)
                entries += write_segment(writer, header, units, fields, own, sketches, **place)
            write_toc(writer, entries, **place)

        has_pages = bool(indexes) or any(s.page_index_blobs or s.row_index_blobs for s in self.earlier.segments)
        return register(
            self.table,
            self.listing.snapshot_id,
            thetas,
            write,
            force=self.force,
            has_pages=has_pages,
            unsketched=self.plan.options.sealed,
        )

    def _keys(self, header: SegmentHeader) -> dict[int, FieldKey]:
        """Make a fresh data key for each column with encrypted bundles. A key is never used for two files."""
        place = header.table_uuid, header.segment_id
        found = {c.field_id: self.protection.key_for(c.path, *place, c.field_id) for c in self.plan.columns}
        return {field_id: key for field_id, key in found.items() if key is not None}

    def _carry(self, writer: PuffinWriter, replaced: Sequence[PuffinReader], place: Registered) -> list[TocEntry]:
        """Copy the segments of the earlier sidecar, and those that other builds have registered meanwhile."""
        entries: list[TocEntry] = []
        known: set[str] = set()
        wanted = partial(_is_wanted, self.table, self.plan, self.earlier)
        if self.earlier.found is not None:
            old = self.earlier.found.sidecar
            known = {segment.id for segment in old.segments}
            entries += self._counted_again(writer, old, place)
            entries += copy_segments(old, writer, segments=self.earlier.segments, keep=wanted, **place)
        for reader in replaced:
            now = SidecarFile.open(
                reader.source, footer_length=reader.footer_length, table_uuid=self.listing.table_uuid
            )
            new = other_segments(now.segments, known, self.plan)
            known |= {segment.id for segment in new}
            entries += copy_segments(now, writer, segments=new, keep=wanted, **place)
        return entries

    def _counted_again(self, writer: PuffinWriter, old: SidecarFile, place: Registered) -> list[TocEntry]:
        """Write the sketches of carried segments of which some groups were counted again."""
        at = {blob.offset: blob.properties for blob in old.puffin.metadata.blobs}
        properties = {
            (entry.segment_id, entry.fields[0]): at[entry.offset]
            for segment in old.segments
            for entry in segment.entries
            if entry.blob_type == THETA_GROUPS
        }
        return [
            write_sketches(
                writer, segment.header, given, segment.num_files, segment.num_units, segment.entry.toc, **place
            )
            for segment, given in rewritten_sketches(self.earlier.counts, properties)
        ]


def bytes_carried(table: Table, plan: BuildPlan, earlier: Earlier) -> int:
    """Return the bytes of the earlier sidecar's segments that a build copies."""
    wanted = partial(_is_wanted, table, plan, earlier)
    return sum(entry.length for entry in kept_entries(earlier.segments, wanted))


def _is_wanted(table: Table, plan: BuildPlan, earlier: Earlier, entry: TocEntry) -> bool:
    """Return whether an earlier blob of a field is kept.

    It is dropped if the column is gone, if its blobs are now encrypted differently, if it is built anew for all files,
    or if it has sketches and some of them were counted again.
    """
    anew = set() if earlier.served else {column.field_id for column in plan.columns}
    live = table.schema().field_ids
    options = plan.options
    rebuilt = {
        **dict.fromkeys((SBBF, ORC_BLOOM), options.bloom),
        **dict.fromkeys((PAGE_INDEX_BLOB, ROW_INDEX), options.page_index),
        THETA_GROUPS: options.theta,
    }
    if entry.blob_type == THETA_GROUPS and earlier.counts.is_replaced(entry.segment_id, entry.fields):
        return False
    if any((entry.segment_id, field_id) in earlier.stale for field_id in entry.fields):
        return False
    if rebuilt.get(entry.blob_type) and anew.issuperset(entry.fields):
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
