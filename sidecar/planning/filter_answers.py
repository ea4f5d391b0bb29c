"""Answers, from the filters of one sidecar file, which data files of a snapshot can match one question.

A segment finds a data file in one of two ways: by its position in a manifest, if the segment lists that manifest and
the snapshot's manifest list has it unchanged, or by its fingerprint (:mod:`sidecar.bundle.file_identity`). The
fingerprints of all files are many bytes, so they are read only if a segment might list the file after all.

A file is dropped only if it is listed, all its units are indexed, and none may match. Several segments may list one
file (columns that were indexed at different times); each of them can drop it.

Nothing is read before the first file is asked about, and nothing here raises: an error in an index keeps the files
and becomes a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import Coverage, ListedManifest, UnitState
from sidecar.bundle.units.fingerprints import Fingerprints
from sidecar.iceberg.listing import identity_of
from sidecar.planning.funnel import KeptBecause, KeptReason, NotIndexed
from sidecar.planning.segment_answer import Files, SegmentAnswer, answer_of, indexed_units
from sidecar.questions.conditions import Condition
from sidecar.questions.filter_questions import looked_up
from sidecar.questions.narrowing import Units

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment
    from sidecar.planning.relocated import RelocatedFiles

BLOOM = "bloom"
NO_FILTERS = "no filters were built"
"""The reason for a column that does not occur in a sidecar's coverage."""

Ordinals = npt.NDArray[np.int64]
"""int64 ordinals of files in a segment, -1 for a file that it does not list."""


class Verdict(NamedTuple):
    """The decision on one data file: whether it is kept, and why."""

    keep: bool
    reason: KeptReason | None = None
    """``None`` if it is not kept."""


@dataclass(frozen=True)
class ListedPlace:
    """Where a segment lists a file. ``alive`` is bool[row groups]: whether filters keep each."""

    segment: Segment
    ordinal: int
    first_unit: int
    alive: Units


class Counts(NamedTuple):
    """The number of live files in the sidecar, and of those whose entries can answer the question."""

    listed: int
    indexed: int


class FilterAnswers:
    """The answers of all segments of one sidecar file about data files, for one question.

    ``resolution_holds(field_id, resolution)`` says whether a column would still be found in a file as it was when the
    file was indexed. ``warnings`` is the list to which the sidecar adds the damage that it finds. ``moved`` finds
    files that no segment lists under their present path.
    """

    def __init__(
        self,
        segments: Iterable[Segment],
        question: Condition | None,
        resolution_holds: Callable[[int, str], bool],
        warnings: Sequence[str] = (),
        moved: RelocatedFiles | None = None,
    ) -> None:
        self._segments = list(segments)
        self._question = question
        self._resolution_holds = resolution_holds
        self._warnings = warnings
        self._moved = moved
        self._answers: dict[int, SegmentAnswer] = {}
        self._seen: list[set[int]] = [set() for _ in self._segments]
        self._places_by_file: dict[DataFileIdentity, list[tuple[int, int]]] = {}
        self._not_identified: list[tuple[Sequence[ManifestEntry], Mapping[int, int], Sequence[int]]] = []
        self._remembered: dict[DataFileIdentity, tuple[Mapping[int, int], int]] = {}
        self._by_path = [{entry.path: entry for entry in s.listed_manifests} for s in self._segments]
        self._whole = [False] * len(self._segments)
        self.units_dropped = 0
        """Row groups of the files that were dropped."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments that are asked; a segment's number is its position here."""
        return self._segments

    @property
    def question(self) -> Condition | None:
        """The condition that filters are asked; ``None`` if they cannot help."""
        return self._question

    def note_manifests(self, manifests: Iterable[ManifestFile]) -> None:
        """Take note of all data manifests of the snapshot, to find the segments that list no file of other manifests.

        If the manifests that a segment lists have as many live files as the segment, they have all of them.
        """
        inside = [0] * len(self._segments)
        for manifest in manifests:
            for number, entry in self.listed(manifest):
                inside[number] += entry.live_files
        self._whole = [count >= segment.num_files for count, segment in zip(inside, self._segments, strict=True)]

    def expect_paths_of(self, manifests: Iterable[ManifestFile]) -> None:
        """Take note of manifests that are opened: segments that list them are searched for their files after all."""
        for manifest in manifests:
            for number, _ in self.listed(manifest):
                self._whole[number] = False

    def listed(self, manifest: ManifestFile) -> list[tuple[int, ListedManifest]]:
        """Return the segments, by number, that list a manifest exactly as today's manifest list has it."""
        path = manifest.manifest_path
        entries = ((number, by_path.get(path)) for number, by_path in enumerate(self._by_path))
        return [(number, entry) for number, entry in entries if entry and is_listed(manifest, entry)]

    def verdict_on(self, file: DataFileIdentity | None) -> Verdict:
        """Decide on a data file. Each segment is read when the first file that it lists is asked about.

        ``None`` is a file whose identity is ambiguous; it is kept, because any entry could be another file's.
        """
        if file is None:
            return Verdict(True, KeptBecause.NOT_LISTED)
        reason: KeptReason = KeptBecause.NOT_LISTED
        for number, ordinal in self._places(file):
            segment = self._segments[number]
            self._seen[number].add(ordinal)
            answer = self._answer(number)
            if not answer.keep[ordinal]:
                self.units_dropped += int(segment.unit_ranges[ordinal + 1] - segment.unit_ranges[ordinal])
                del self._places_by_file[file]  # only kept files are asked about again, by :meth:`places`
                return Verdict(False)
            # The reason of a segment that could answer beats the reason of one that could not.
            if answer.indexed[ordinal]:
                reason = answer.kept_because
            elif reason is KeptBecause.NOT_LISTED:
                reason = self._why_not_indexed(segment, ordinal)
        return Verdict(True, reason)

    def places(self, file: DataFileIdentity | None) -> list[ListedPlace]:
        """Return where a kept file is listed, and which of its row groups filters keep."""
        places = []
        for number, ordinal in self._places(file):
            segment = self._segments[number]
            self._seen[number].add(ordinal)
            first, end = segment.unit_ranges[ordinal : ordinal + 2].tolist()
            places.append(ListedPlace(segment, ordinal, first, self._answer(number).units[first:end]))
        return places

    def remember(
        self, entries: Sequence[ManifestEntry], first_ordinals: Mapping[int, int], positions: Sequence[int]
    ) -> None:
        """Remember where segments list the files of ``entries``: at ``positions`` among a manifest's live files.

        ``first_ordinals`` has the ordinal of the manifest's first file in each segment that lists it, by number. Other
        segments are searched when a file is asked about.
        """
        self._not_identified.append((entries, first_ordinals, positions))

    def _identify(self) -> None:
        """Find out which files are remembered. A plan of many files that are all kept never asks."""
        for entries, first_ordinals, positions in self._not_identified:
            for entry, position in zip(entries, positions, strict=True):
                self._remembered[identity_of(entry)] = first_ordinals, position
        self._not_identified.clear()

    def judge(self, files: Mapping[int, Ordinals]) -> Files:
        """Return bool[n]: which of n files are kept. ``files`` has their ordinals in segments, by segment number."""
        keep = np.ones(len(next(iter(files.values()))), np.bool_)
        for number, ordinals in files.items():
            known = ordinals >= 0
            keep[known] &= self._answer(number).keep[ordinals[known]]
        return keep

    def judge_by(self, fingerprints: Fingerprints) -> Files:
        """Return bool[n]: which of n live files are kept. Segments are searched for all of their fingerprints."""
        keep = np.ones(len(fingerprints), np.bool_)
        asked = self._asked_fields()
        places = {
            number: segment.ordinals_of(fingerprints)
            for number, segment in enumerate(self._segments)
            if not self._whole[number] and asked & segment.fields.keys()
        }
        return self.judge(places) if places else keep

    @property
    def may_have_moved(self) -> bool:
        """Whether files may be listed under other paths than they have today."""
        return self._moved is not None and self._moved.has_moved

    def other_places(self, number: int, ordinals: Ordinals) -> dict[int, Ordinals]:
        """Return the ordinals of files of segment ``number`` in other segments, by number.

        Segments without filters for the question are left out, and those whose files are all in manifests that they
        list.
        """
        segment, ordinals_by_segment = self._segments[number], {}
        asked = self._asked_fields()
        for other, candidate in enumerate(self._segments):
            if other != number and not self._whole[other] and asked & candidate.fields.keys():
                ordinals_by_segment[other] = candidate.same_files(segment, ordinals)
        return ordinals_by_segment

    def _asked_fields(self) -> set[int]:
        return {leaf.column.index for leaf in looked_up(self._question)} if self._question else set()

    def count_dropped(self, number: int, ordinals: Ordinals) -> None:
        """Count the row groups of files that :meth:`judge` dropped."""
        first = self._segments[number].unit_ranges
        self.units_dropped += int((first[ordinals + 1] - first[ordinals]).sum())

    def counts(self, manifests: Iterable[ManifestFile]) -> Counts:
        """Count the live files of the snapshot that are listed, and those that are indexed for the question.

        All files of ``manifests`` that a segment lists are counted, without opening these. Of other manifests, only
        files that were asked about are counted.
        """
        listed = indexed = 0
        inside = [np.zeros(len(segment.unit_ranges) - 1, np.bool_) for segment in self._segments]
        for manifest in manifests:
            flags = [self._take(number, entry, inside[number]) for number, entry in self.listed(manifest)]
            if flags:
                listed += len(flags[0])
                indexed += int(np.logical_or.reduce(flags).sum())
        for number, seen in enumerate(self._seen):
            # Files that were counted with their manifest must not count twice.
            rest = [ordinal for ordinal in seen if not inside[number][ordinal]]
            listed += len(rest)
            indexed += sum(bool(self._answer(number).indexed[ordinal]) for ordinal in rest)
        return Counts(listed, indexed)

    def _take(self, number: int, entry: ListedManifest, inside: Files) -> Files:
        files = slice(entry.first_file, entry.first_file + entry.live_files)
        inside[files] = True
        return self._answer(number).indexed[files]

    def _places(self, file: DataFileIdentity | None) -> list[tuple[int, int]]:
        """Return the segments, by number, that list a file, with its ordinal in each."""
        if file is None or not file.is_certain:
            return []
        if file not in self._places_by_file:
            self._identify()
            places = []
            first_ordinals, position = self._remembered.get(file, ({}, 0))
            for number, segment in enumerate(self._segments):
                if number in first_ordinals:
                    ordinal: int | None = first_ordinals[number] + position
                else:
                    # A whole segment lists no file of an opened manifest, so its fingerprints need not be read.
                    ordinal = None if self._whole[number] else segment.file_ordinal(file)
                if ordinal is not None:
                    places.append((number, ordinal))
            if not places and self._moved is not None:
                places = self._moved.places(file)
            self._places_by_file[file] = places
        return self._places_by_file[file]

    def _answer(self, number: int) -> SegmentAnswer:
        if number not in self._answers:
            self._answers[number] = answer_of(
                self._segments[number], self._question, self._resolution_holds, self._warnings
            )
        return self._answers[number]

    def _why_not_indexed(self, segment: Segment, ordinal: int) -> KeptReason:
        """Return the state of the first unit of the file that has no filter of a column of the question."""
        units = range(segment.unit_ranges[ordinal], segment.unit_ranges[ordinal + 1])
        for leaf in looked_up(self._question) if self._question else ():
            indexed, coverage = indexed_units(segment, leaf), segment.coverage(leaf.column.index, BLOOM)
            for unit in units:
                if not indexed[unit]:
                    return NotIndexed(leaf.column.name, state_of(coverage, unit))
        return KeptBecause.NO_UNITS


def state_of(coverage: Coverage | None, unit: int) -> str:
    """Return why a unit has no entry, or that its entry cannot be read."""
    if coverage is None:
        return NO_FILTERS
    state = coverage.states[coverage.codes[unit]].state
    return KeptBecause.UNREADABLE.text if state == UnitState.INDEXED else state


def is_listed(manifest: ManifestFile, entry: ListedManifest) -> bool:
    """Return whether a line of today's manifest list is the manifest that the segment lists, unchanged.

    A manifest is written once, by one snapshot. So path, length and that snapshot identify it, also in format version
    1, which has no sequence numbers. If the snapshot is unknown (0 or less), the answer is no. Counts in the manifest
    list are optional; those that are there must agree.
    """
    live_files = (manifest.added_files_count, manifest.existing_files_count)
    live_rows = (manifest.added_rows_count, manifest.existing_rows_count)
    return (
        manifest.content == ManifestContent.DATA
        and manifest.manifest_path == entry.path
        and manifest.manifest_length == entry.length
        and manifest.partition_spec_id == entry.spec_id
        and manifest.sequence_number == entry.sequence_number
        and manifest.min_sequence_number == entry.min_sequence_number
        and manifest.added_snapshot_id == entry.added_snapshot_id > 0
        and (None in live_files or sum(live_files) == entry.live_files)  # type: ignore[arg-type]
        and (None in live_rows or sum(live_rows) == entry.live_rows)  # type: ignore[arg-type]
    )
