"""Carries the segments of earlier sidecars to a new file: copied as bytes, or merged, as the arrangement says.

Segments with different keys are arranged apart (:func:`sidecar.bundle.merging.merge.may_merge`). A segment that cannot
be merged, because a key is missing or it is not understood, is copied as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.field_parts import FieldPart, SegmentUnits, write_part
from sidecar.bundle.kinds.declared import KIND_OF_BLOB, THETA
from sidecar.bundle.merging.arrangement import StoredSize, arrange
from sidecar.bundle.merging.checking import check_segment, damaged_units
from sidecar.bundle.merging.merge import MergedFile, may_merge, merge_segments
from sidecar.bundle.merging.source_segment import CheckedSegment, SourceSegment
from sidecar.bundle.model import UNLISTED, SegmentHeader, UnitsTable
from sidecar.bundle.runs import IndexOfField
from sidecar.bundle.segment import Segment, named_columns
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.writer import copy_segments, write_segment
from sidecar.conversion.spool import Spool
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.failpoints import hit
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.resolve import fields_of_keys
from sidecar.indexing.assemble import file_entry, listed_manifests, select_files
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.run import report_progress
from sidecar.storage.source import BytesSource


class Registered(TypedDict):
    """The snapshot that the file is registered for; each of our blobs names it."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True)
class NewSegment:
    """A segment that a build adds."""

    header: SegmentHeader
    units: UnitsTable
    parts: Sequence[FieldPart]

    @property
    def size(self) -> int:
        """About the bytes of its blobs."""
        return sum(part.size for part in self.parts)

    @property
    def key_metadata(self) -> dict[int, bytes | None]:
        """As :attr:`SourceSegment.key_metadata`: a sketch, which no key encrypts, keeps no segments apart."""
        keyed = (part for part in self.parts if not isinstance(part, FieldSketches))
        return {part.field_id: None if part.key is None else part.key.metadata for part in keyed}

    def write(self, writer: PuffinWriter, place: Registered) -> list[TocEntry]:
        """Write it, once: its parts hand over what they have."""
        hit("build: write new segment")
        return write_segment(writer, self.header, self.units, self.parts, **place)


def live_files(segment: Segment, files: Sequence[SnapshotFile]) -> dict[int, int]:
    """Return the live files that the segment lists: ordinal in the listing -> ordinal in the segment."""
    found = ((file.ordinal, segment.file_ordinal(file.known_as)) for file in files)
    return {ordinal: known for ordinal, known in found if known is not None} | listed_again(segment, files)


def listed_again(segment: Segment, files: Sequence[SnapshotFile]) -> dict[int, int]:
    """Return the live files that a segment lists more than once, as a commit can: each has one of the copies."""
    waiting: dict[object, list[int]] = {}
    for known, key in segment.repeated_files().items():
        if key[0].is_certain:
            waiting.setdefault(key, []).append(known)
    found = ((file.ordinal, waiting.get((file.known_as, file.spec_id, file.partition))) for file in files if waiting)
    return {ordinal: own.pop() for ordinal, own in found if own}


def use_keys(table: Table, access: Access, sidecar: SidecarFile) -> None:
    """Open the blobs of a sidecar, to copy them, with the keys; ``bundle_keys`` name columns of any schema."""
    if access.keys is None:
        sidecar.use_keys(None, {})
    else:
        sidecar.use_keys(access.keys.for_copying(), fields_of_keys(table, access.keys))


@dataclass
class SegmentCarrier:
    """Writes the segments of a new sidecar of ``table``.

    ``listing`` has the live files of its snapshot. ``access`` has the keys of encrypted blobs. ``merge_up_to`` is that
    of :class:`sidecar.indexing.request.BuildRequest`.
    """

    table: Table
    listing: Listing
    access: Access
    rates: Mapping[int, float] = field(default_factory=dict)
    """The rates that filters must be built for, by field id, where not any rate will do. A merged segment has one rate
    for each field, so filters of other rates stay apart: they are built again, and the others need not be."""
    merge_up_to: int | None = None
    made: Collection[IndexOfField] = ()
    """The fields and kinds that this build indexes, and in ``anew`` the ordinals of the files that it has indexed."""
    anew: Collection[int] = ()
    notes: list[str] = field(default_factory=list)
    """Why segments were not merged, and which damage was left out, each once."""
    lost: dict[IndexOfField, int] = field(default_factory=dict)
    """The live files of which damaged indexes and sketches were left out, by field id and kind; of the last run of
    :meth:`write`."""
    _live: dict[str, dict[int, int]] = field(default_factory=dict)

    def open_replaced(self, reader: PuffinReader) -> SidecarFile:
        """Open the file of another commit that came between, with the keys."""
        opened = SidecarFile.open(reader.source, footer_length=reader.footer_length, table_uuid=self.listing.table_uuid)
        use_keys(self.table, self.access, opened)
        return opened

    def write(
        self, writer: PuffinWriter, carried: Sequence[SourceSegment], new: NewSegment | None, place: Registered
    ) -> list[TocEntry]:
        """Write the carried segments, oldest first, and the new one last. Returns entries for :func:`write_toc`.

        Memory: the units tables of what is merged. A new segment that is merged at once is first written to a
        temporary file; it is smaller than an eighth of the base, or than ``merge_up_to``.
        """
        self.lost = {}
        size = sum(source.size for source in carried) + (0 if new is None else new.size)
        into_one = self.merge_up_to is not None and (new is None or size <= self.merge_up_to)
        entries: list[TocEntry] = []
        *others, last = sets_to_merge(carried, new, self.rates) or [[]]
        for members in others:
            entries += self._write_set(writer, members, None, into_one, place)
        return entries + self._write_set(writer, last, new, into_one, place)

    def can_improve(self, carried: Sequence[SourceSegment]) -> bool:
        """Return whether some segments can become one, or one has lost so many files that it is rewritten."""
        sets = sets_to_merge([source for source in carried if source.has_its_keys], rates=self.rates)
        return any(len(members) > 1 or self._stored_size(members[0]).is_worn for members in sets)

    def _stored_size(self, source: SourceSegment) -> StoredSize:
        return StoredSize(source.size, source.segment.num_files, len(self._live_in(source.segment)))

    def _write_set(
        self,
        writer: PuffinWriter,
        carried: Sequence[SourceSegment],
        new: NewSegment | None,
        into_one: bool,
        place: Registered,
    ) -> list[TocEntry]:
        """Write segments that may be merged with each other: as the arrangement says, merged or copied."""
        carried = sorted(carried, key=lambda source: source.age)
        arrangement = arrange(list(map(self._stored_size, carried)), None if new is None else new.size, into_one)
        entries: list[TocEntry] = []
        for run in arrangement.runs:
            members = [carried[number] for number in run.members]
            if new is not None and arrangement.with_new and run is arrangement.runs[-1]:
                with self._spooled(new, place) as added:
                    return entries + self._merge(writer, [*members, added], place)
            # A small one is made anew where nothing is added: it lists the manifests of today.
            is_small = new is None and sum(source.size for source in members) <= (self.merge_up_to or 0)
            is_anew = run.rewritten or is_small or any(_has_damage(source, writer) for source in members)
            entries += self._merge(writer, members, place) if is_anew else _copy(writer, members, place)
        return entries if new is None else entries + new.write(writer, place)

    def _merge(self, writer: PuffinWriter, sources: Sequence[SourceSegment], place: Registered) -> list[TocEntry]:
        """Write one segment for all sources. Those that cannot be merged are copied before it."""
        checked, entries = [], []
        for done, source in enumerate(sources):
            report_progress("merging segments", done, len(sources))
            try:
                checked.append(check_segment(source))
            except (DamagedFileError, UnsupportedFeatureError, UsageError) as error:
                self._note(f"a segment was copied as it is, because it cannot be merged: {error.what}")
                entries += _copy(writer, [source], place)
        damaged = sum(int(units.sum()) for source in checked for units in source.damaged.values())
        self._count_lost(checked)
        if damaged:
            later = "; the next build of their columns makes them anew" if any(self.lost.values()) else ""
            self._note(f"damaged indexes were left out ({damaged}){later}")
        if checked:
            hit("segments: merge")
            files = _MergedListing(self.listing, checked, [self._live_in(source.segment) for source in checked])
            merged = files.files, files.manifests, files.schemas
            entries += merge_segments(
                writer,
                checked,
                *merged,
                keys=self.access.keys,
                live_fields=self.table.schema().field_ids,
                **place,
            )
        report_progress("merging segments", len(sources), len(sources))
        return entries

    def _count_lost(self, checked: Sequence[CheckedSegment]) -> None:
        """Count the live files that lose indexes or sketches."""
        live = self.table.schema().field_ids
        counted, uncounted = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for source in checked:
            numbers = self._live_in(source.segment)
            for (blob_type, field_id), units in source.damaged.items():
                files = np.searchsorted(source.first_units, np.flatnonzero(units), "right") - 1
                kind = KIND_OF_BLOB[blob_type].name
                anew = self._made_anew(field_id, kind)
                others = [ordinal for number, ordinal in numbers.items() if number not in anew]
                self._add_lost(field_id, kind, len(np.intersect1d(files, others)))
            for field_id, lacks in source.uncounted().items():
                uncounted[field_id].update(number for number, ordinal in numbers.items() if lacks[ordinal])
                counts = source.coverage[field_id, THETA].files_with_entries(source.first_units) & ~lacks
                counted[field_id].update(number for number, ordinal in numbers.items() if counts[ordinal])
        for field_id in uncounted.keys() & live:
            if lost := uncounted[field_id].difference(counted[field_id], self._made_anew(field_id, THETA)):
                self._add_lost(field_id, THETA, len(lost))
                self._note(f"values of {len(lost)} files are in no sketch; the next build counts them again")

    def _made_anew(self, field_id: int, kind: str) -> Collection[int]:
        return self.anew if (field_id, kind) in self.made else ()

    def _add_lost(self, field_id: int, kind: str, files: int) -> None:
        if files:
            self.lost[field_id, kind] = self.lost.get((field_id, kind), 0) + files

    def _live_in(self, segment: Segment) -> dict[int, int]:
        if segment.id not in self._live:
            self._live[segment.id] = live_files(segment, self.listing.files)
        return self._live[segment.id]

    def _note(self, text: str) -> None:
        self.notes += [text] if text not in self.notes else []

    @contextmanager
    def _spooled(self, new: NewSegment, place: Registered) -> Iterator[SourceSegment]:
        """Write a new segment to a temporary sidecar and open it."""
        spool = Spool()
        try:
            writer = PuffinWriter(spool)
            write_toc(writer, new.write(writer, place), **place)
            writer.finish()
            opened = SidecarFile.open(BytesSource(spool.array().data, "the new segment"), strict=True)
            use_keys(self.table, self.access, opened)
            yield SourceSegment(opened, opened.segments[0])
        finally:
            spool.close()


class _MergedListing:
    """The files of a merged segment as today's manifests list them, files of whole manifests first.

    A file whose manifest entry is not recorded in one of the segments, because it has bounds of an encrypted column,
    stays so, and its manifest is not listed.
    """

    def __init__(self, listing: Listing, checked: Sequence[CheckedSegment], live: Sequence[dict[int, int]]) -> None:
        places: dict[int, dict[int, int]] = {}
        for number, own in enumerate(live):
            for ordinal, known in own.items():
                places.setdefault(ordinal, {})[number] = known
        exposing = frozenset(
            ordinal
            for ordinal, own in places.items()
            if not all(checked[n].recorded[known] for n, known in own.items())
        )
        selection = select_files(listing, places.keys(), exposing)
        self.manifests, self.schemas, numbers = listed_manifests(selection)
        self.files: list[MergedFile] = []
        for file in selection.files:
            number, exposes = numbers.get(file.manifest, UNLISTED), file.ordinal in exposing
            entry = file_entry(file, (), number, hidden=file.bounds.keys(), exposing=exposes)
            self.files.append(MergedFile(entry, places[file.ordinal]))


def _has_damage(source: SourceSegment, writer: PuffinWriter) -> bool:
    """Return whether a segment has damage. If nobody knows, its blobs are read, unless the store copies them."""
    if source.has_damage is None:
        return not writer.copies_remotely and bool(damaged_units(source))
    return source.has_damage


def _copy(writer: PuffinWriter, sources: Sequence[SourceSegment], place: Registered) -> list[TocEntry]:
    """Write segments as they are, each with the sketches that were given to it."""
    entries: list[TocEntry] = []
    for source in sources:
        segment = source.segment
        header = replace(segment.header, columns=named_columns([segment]))
        for given in source.sketches:
            units = SegmentUnits(segment.num_files, segment.num_units, segment.entry.toc)
            entries += write_part(writer, header, given, units, **place)
        entries += copy_segments(source.sidecar, writer, segments=[segment], keep=source.keep, **place)
    return entries


def sets_to_merge(
    carried: Sequence[SourceSegment], new: NewSegment | None = None, rates: Mapping[int, float] | None = None
) -> list[list[SourceSegment]]:
    """Return the segments that may be merged with each other, in sets; the set that may take ``new`` is the last.

    ``new`` has the ``rates`` that are asked for, by field id.
    """
    mergeable: list[tuple[dict[int, bytes | None], set[int], list[SourceSegment]]] = []
    if new is not None:
        mergeable.append((new.key_metadata, set(), []))
    for source in carried:
        other = {i for i, rate in (rates or {}).items() if source.rates.get(i, rate) != rate}
        for known, others, members in mergeable:
            if others == other and may_merge(known, source.key_metadata):
                known.update(source.key_metadata)
                members.append(source)
                break
        else:
            mergeable.append((dict(source.key_metadata), other, [source]))
    return [members for *_, members in (*mergeable[1:], *mergeable[:1])]
