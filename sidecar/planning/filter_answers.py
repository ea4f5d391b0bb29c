"""What one sidecar file says of the data files of a snapshot.

A data file is known to a segment by its place in a manifest that the segment lists as it stands in the snapshot's
manifest list, else by its fingerprint (:mod:`sidecar.bundle.file_identity`). It may match if one of its units may
match; it is dropped only if it is listed, every unit of it is indexed and none may match. Several segments may list
one file (columns that were indexed at different times); each can drop it. Fingerprints of all files are many bytes,
so they are only read where a segment might list the file after all.

Nothing is read before the first file is asked for, and nothing here raises: whatever goes wrong with an index
keeps the files and becomes a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestContent, ManifestFile

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import Coverage, ListedManifest, UnitState
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
"""Why a column has no filters in a sidecar that says nothing of it."""

Ordinals = npt.NDArray[np.int64]
"""Ordinals of files in a segment."""


class Verdict(NamedTuple):
    """Whether a file is kept, and why."""

    keep: bool
    reason: KeptReason | None = None
    """``None`` if it is not kept."""


@dataclass(frozen=True)
class ListedPlace:
    """Where a segment lists a file. ``alive`` has a flag for each of its row groups: whether filters keep it."""

    segment: Segment
    ordinal: int
    first_unit: int
    alive: Units


class Counts(NamedTuple):
    """Live files that stand in the sidecar, and those whose entries can answer the question."""

    listed: int
    indexed: int


class FilterAnswers:
    """What the segments of one sidecar file say of data files, for one question.

    ``resolution_holds(field_id, resolution)`` says whether a column would still be found in a file as it was
    when the file was indexed; ``warnings`` is the list that grows where the sidecar finds damage. ``moved`` matches
    files that no segment knows by their path.
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
        self._found: dict[DataFileIdentity, list[tuple[int, int]]] = {}
        self._by_path = [{entry.path: entry for entry in s.listed_manifests} for s in self._segments]
        self._whole = [False] * len(self._segments)
        self.units_dropped = 0
        """Row groups of the files that were dropped."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments that are asked, in the order of their numbers."""
        return self._segments

    @property
    def question(self) -> Condition | None:
        """What filters are asked."""
        return self._question

    def note_manifests(self, manifests: Iterable[ManifestFile]) -> None:
        """Be told all data manifests of the snapshot.

        A segment whose every file stands in one of them lists no file of another manifest.
        """
        inside = [0] * len(self._segments)
        for manifest in manifests:
            for number, entry in self.listed(manifest):
                inside[number] += entry.live_files
        self._whole = [
            count >= segment.num_files for count, segment in zip(inside, self._segments, strict=True)
        ]

    def expect_paths_of(self, manifests: Iterable[ManifestFile]) -> None:
        """Be told which manifests are read: files of those that a segment lists will be asked for by their paths."""
        for manifest in manifests:
            for number, _ in self.listed(manifest):
                self._whole[number] = False

    def listed(self, manifest: ManifestFile) -> list[tuple[int, ListedManifest]]:
        """The segments, by number, that list a manifest as it stands in today's manifest list."""
        path = manifest.manifest_path
        found = ((number, own.get(path)) for number, own in enumerate(self._by_path))
        return [(number, entry) for number, entry in found if entry and is_listed(manifest, entry)]

    def verdict_on(self, file: DataFileIdentity | None) -> Verdict:
        """The verdict on a data file; asks the index when the first listed file comes by.

        ``None`` is a file whose identity is ambiguous; nothing is known of it, and it is kept.
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
                del self._found[file]  # remembered are files that are kept
                return Verdict(False)
            if answer.indexed[ordinal]:
                reason = answer.kept_because
            elif reason is KeptBecause.NOT_LISTED:
                reason = self._why_not_indexed(segment, ordinal)
        return Verdict(True, reason)

    def places(self, file: DataFileIdentity | None) -> list[ListedPlace]:
        """Where a file that is kept is listed, and which of its row groups filters keep."""
        found = []
        for number, ordinal in self._places(file):
            segment = self._segments[number]
            self._seen[number].add(ordinal)
            first, end = segment.unit_ranges[ordinal : ordinal + 2].tolist()
            found.append(ListedPlace(segment, ordinal, first, self._answer(number).units[first:end]))
        return found

    def remember(self, file: DataFileIdentity, places: Mapping[int, int]) -> None:
        """Be told where segments, by number, list a file: its ordinals, -1 where it is not known."""
        known = {number: ordinal for number, ordinal in places.items() if ordinal >= 0}
        others = (n for n in range(len(self._segments)) if n not in places and not self._whole[n])
        for number in others:
            ordinal = self._segments[number].file_ordinal(file)
            if ordinal is not None:
                known[number] = ordinal
        self._found[file] = sorted(known.items())

    def judge(self, files: Mapping[int, Ordinals]) -> Files:
        """bool[n]: which of n files are kept, given their ordinals in segments by number, -1 where not listed."""
        keep = np.ones(len(next(iter(files.values()))), np.bool_)
        for number, ordinals in files.items():
            known = ordinals >= 0
            keep[known] &= self._answer(number).keep[ordinals[known]]
        return keep

    def other_places(self, number: int, ordinals: Ordinals) -> dict[int, Ordinals]:
        """Where segments whose filters can answer list files of segment ``number`` in other manifests."""
        segment, found = self._segments[number], {}
        asked = {leaf.column.index for leaf in looked_up(self._question)} if self._question else set()
        for other, own in enumerate(self._segments):
            if other != number and not self._whole[other] and asked & own.fields.keys():
                found[other] = own.same_files(segment, ordinals)
        return found

    def count_dropped(self, number: int, ordinals: Ordinals) -> None:
        """Count the row groups of files that :meth:`judge` dropped."""
        first = self._segments[number].unit_ranges
        self.units_dropped += int((first[ordinals + 1] - first[ordinals]).sum())

    def counts(self, manifests: Iterable[ManifestFile]) -> Counts:
        """Live files of the snapshot that are listed, and indexed for the question.

        Those in ``manifests`` that a segment lists as they stand are counted without opening them; of other
        manifests, the files that were asked for.
        """
        listed = indexed = 0
        inside = [np.zeros(len(segment.unit_ranges) - 1, np.bool_) for segment in self._segments]
        for manifest in manifests:
            flags = [self._take(number, entry, inside[number]) for number, entry in self.listed(manifest)]
            if flags:
                listed += len(flags[0])
                indexed += int(np.logical_or.reduce(flags).sum())
        for number, seen in enumerate(self._seen):
            rest = [ordinal for ordinal in seen if not inside[number][ordinal]]
            listed += len(rest)
            indexed += sum(bool(self._answer(number).indexed[ordinal]) for ordinal in rest)
        return Counts(listed, indexed)

    def _take(self, number: int, entry: ListedManifest, inside: Files) -> Files:
        files = slice(entry.first_file, entry.first_file + entry.live_files)
        inside[files] = True
        return self._answer(number).indexed[files]

    def _places(self, file: DataFileIdentity | None) -> list[tuple[int, int]]:
        """The segments by number that list a file, with its ordinal there."""
        if file is None or not file.is_certain:
            return []
        if file not in self._found:
            found = []
            for number, segment in enumerate(self._segments):
                ordinal = None if self._whole[number] else segment.file_ordinal(file)
                if ordinal is not None:
                    found.append((number, ordinal))
            if not found and self._moved is not None:
                found = self._moved.places(file)
            self._found[file] = found
        return self._found[file]

    def _answer(self, number: int) -> SegmentAnswer:
        if number not in self._answers:
            self._answers[number] = answer_of(
                self._segments[number], self._question, self._resolution_holds, self._warnings
            )
        return self._answers[number]

    def _why_not_indexed(self, segment: Segment, ordinal: int) -> KeptReason:
        units = range(segment.unit_ranges[ordinal], segment.unit_ranges[ordinal + 1])
        for leaf in looked_up(self._question) if self._question else ():
            indexed, coverage = indexed_units(segment, leaf), segment.coverage(leaf.column.index, BLOOM)
            for unit in units:
                if not indexed[unit]:
                    return NotIndexed(leaf.column.name, state_of(coverage, unit))
        return KeptBecause.NO_UNITS


def state_of(coverage: Coverage | None, unit: int) -> str:
    """Why a unit has no entry, or that the entry it has cannot be read."""
    if coverage is None:
        return NO_FILTERS
    state = coverage.states[coverage.codes[unit]].state
    return KeptBecause.UNREADABLE.text if state == UnitState.INDEXED else state


def is_listed(manifest: ManifestFile, entry: ListedManifest) -> bool:
    """Whether a line of today's manifest list is the manifest that the segment lists, as it was then.

    A manifest is written once, by one snapshot. So path, length and that snapshot tell it, in format version 1 too,
    which has no sequence numbers; where the snapshot is not known, nothing does.
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
