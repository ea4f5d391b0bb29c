"""Stage: rules out files by the filters of all segments that list them.

A file is out if a segment that lists it has all its units indexed, and none of them may match. Several segments may
list one file (columns that were indexed at different times); each of them can drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestFile

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import Coverage, ListedManifest, UnitState
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.recorded_entries import is_listed
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, FilterCounts, Reasons, S_co, SetRows
from sidecar.planning.funnel import KeptFilesBecause, NotIndexed
from sidecar.planning.segment_answer import SegmentAnswer, answer_of, indexed_units
from sidecar.questions.conditions import Condition
from sidecar.questions.filter_questions import looked_up
from sidecar.questions.narrowing import Units
from sidecar.questions.row_ranges import RowRanges

if TYPE_CHECKING:
    from sidecar.bundle.segment import Segment
    from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles

NO_FILTERS = "no filters were built"
"""The reason for a column that does not occur in a sidecar's coverage."""


@dataclass(frozen=True)
class SegmentPlace:
    """Where a segment lists a file. ``alive`` is bool[row groups]: whether filters keep each."""

    segment: Segment
    ordinal: int
    first_unit: int
    alive: Units


class IndexedFiles:
    """The segments of one sidecar for one question: what each answers, and which manifests each lists.

    ``resolution_holds(field_id, resolution)`` says whether a column would still be found in a file as it was when the
    file was indexed. ``warnings`` is the list to which the sidecar adds the damage that it finds.
    """

    def __init__(
        self,
        files: SidecarFiles,
        question: Condition | None,
        resolution_holds: Callable[[int, str], bool],
        warnings: Sequence[str] = (),
    ) -> None:
        self.files, self.segments = files, files.segments
        self.question = question
        self.whole = [False] * len(self.segments)
        """Segments whose files are all in manifests that they list: files of other manifests are not in them."""
        self._resolution_holds = resolution_holds
        self._warnings = warnings
        self._answers: dict[int, SegmentAnswer] = {}
        self._listings: dict[int, tuple[ManifestFile, dict[int, ListedManifest]]] = {}
        fields = {leaf.column.index for leaf in looked_up(question)} if question else set[int]()
        self.asked = [number for number, segment in enumerate(self.segments) if not fields.isdisjoint(segment.fields)]
        """Numbers of the segments with filters of a column of the question."""
        self._by_path = [{entry.path: entry for entry in s.listed_manifests} for s in self.segments]

    def listing(self, line: ManifestFile) -> dict[int, ListedManifest]:
        """Return, by segment number, how segments list a manifest that is as today's manifest list has it."""
        known = self._listings.get(id(line))
        if known is None or known[0] is not line:
            found = ((number, by_path.get(line.manifest_path)) for number, by_path in enumerate(self._by_path))
            known = line, {number: entry for number, entry in found if entry and is_listed(line, entry)}
            self._listings[id(line)] = known
        return known[1]

    def note_manifests(self, lines: Iterable[ManifestFile]) -> None:
        """Take note of all data manifests of the snapshot, to find the segments that are :attr:`whole`."""
        inside: list[dict[str, int]] = [{} for _ in self.segments]  # a list may name a manifest twice
        for line in lines:
            for number, entry in self.listing(line).items():
                inside[number][entry.path] = entry.live_files
        counts = (sum(live_files.values()) for live_files in inside)
        self.whole = [count >= segment.num_files for count, segment in zip(counts, self.segments, strict=True)]

    def answer(self, number: int) -> SegmentAnswer:
        """Return the answer of a segment, which is asked once."""
        if number not in self._answers:
            self._answers[number] = answer_of(
                self.segments[number], self.question, self._resolution_holds, self._warnings
            )
        return self._answers[number]

    def alive(self, number: int, ordinals: Ordinals) -> list[Units]:
        """Return bool[row groups] for each file of a segment: whether filters keep each of its row groups."""
        first = self.segments[number].unit_ranges
        counts = first[ordinals + 1] - first[ordinals]
        ends = counts.cumsum()
        units = np.arange(counts.sum()) + np.repeat(first[ordinals] - ends + counts, counts)
        flags = self.answer(number).units.holds(units)
        return [flags[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]

    def count_units(self, number: int, ordinals: Ordinals) -> int:
        """Return the number of row groups of files of a segment."""
        first = self.segments[number].unit_ranges
        return int((first[ordinals + 1] - first[ordinals]).sum())


def by_filters(files: FileSet[S_co], index: IndexedFiles) -> FileSet[S_co]:
    """Ask the filters of segments about the files that are left, and give a reason to those that are kept.

    The segment whose ordinals are the rows comes first. Each of the others sees what those before it leave.
    """
    source, before, row_groups = files.source, files, 0
    own = source.own
    if own is not None and own in index.asked:
        files = files.within(index.answer(own).left, DroppedBy.FILTER, own)
        first = index.segments[own].unit_ranges
        row_groups = _count_rows(first[before.left.pairs]) - _count_rows(first[files.left.pairs])
    places: dict[int, Ordinals] = {}
    for number in source.asked(index):
        if not len(files):
            break
        ordinals = source.ordinals(number, files.rows, index)
        if number != own:
            known = ordinals >= 0
            if not known.any():
                continue
            keep = ~known | index.answer(number).left.holds(ordinals)
            files = files.narrow(keep, DroppedBy.FILTER, number) if number in index.asked else files
            if not keep.all():
                row_groups += index.count_units(number, ordinals[~keep])
                ordinals = ordinals[keep]
                places = {other: found[keep] for other, found in places.items()}
        places[number] = ordinals
    reasons, listed, indexed = _reasons(len(files), index, places)
    out = len(before) - len(files)  # what filters drop is listed and indexed
    counts = FilterCounts(listed + out, indexed + out, row_groups)
    return FileSet(source, files.left, files.steps, reasons, counts)


def _count_rows(pairs: npt.NDArray[np.int64]) -> int:
    """Return the number of rows in ranges ``pairs``, int64[n, 2]."""
    return int((pairs[:, 1] - pairs[:, 0]).sum())


def _reasons(count: int, index: IndexedFiles, places: Mapping[int, Ordinals]) -> tuple[Reasons, int, int]:
    """Return why files are kept, the number of those that are listed, and of those that filters could have dropped.

    The reason of a segment that could answer beats that of one that could not.
    """
    reasons, listed, able = (
        Reasons.all(count, KeptFilesBecause.NOT_LISTED),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
    )
    for number, ordinals in places.items():
        answer, known = index.answer(number), ordinals >= 0
        is_indexed = known & ~answer.unable.holds(ordinals) if answer.unable else known
        if is_indexed.all():
            reasons = Reasons.all(count, answer.kept_because)
        else:
            reasons = reasons.put(np.flatnonzero(is_indexed), answer.kept_because)
            unable = np.flatnonzero(known & ~is_indexed & ~listed)
            reasons = _why_not_indexed(reasons, index, number, ordinals, unable)
        listed, able = listed | known, able | is_indexed
    return reasons, int(listed.sum()), int(able.sum())


def _why_not_indexed(reasons: Reasons, index: IndexedFiles, number: int, ordinals: Ordinals, files: SetRows) -> Reasons:
    """Give ``files`` the state of their first unit that has no filter of a column of the question."""
    segment, reasons = index.segments[number], reasons.put(files, KeptFilesBecause.NO_UNITS)
    for leaf in looked_up(index.question) if index.question and len(files) else ():
        without = np.append(np.flatnonzero(~indexed_units(segment, leaf)), segment.num_units)
        unit = without[np.searchsorted(without, segment.unit_ranges[ordinals[files]])]
        found = unit < segment.unit_ranges[ordinals[files] + 1]
        coverage = segment.coverage(leaf.column.index, BLOOM) if found.any() else None
        states = np.zeros(len(files), np.int64)
        states[found] = 0 if coverage is None else coverage.codes[unit[found]]
        for state in np.unique(states[found]).tolist():
            chosen = files[found & (states == state)]
            reasons = reasons.put(chosen, NotIndexed(leaf.column.name, _state(coverage, state)))
        files = files[~found]
    return reasons


def places_of(files: FileSet[FileSource], index: IndexedFiles) -> list[list[SegmentPlace]]:
    """Return where segments list each file that is left, and which of its row groups filters keep."""
    places: list[list[SegmentPlace]] = [[] for _ in range(len(files))]
    for number, segment in enumerate(index.segments):
        ordinals = files.source.ordinals(number, files.rows, index)
        known = np.flatnonzero(ordinals >= 0)
        if len(known):
            alive = index.alive(number, ordinals[known])
            for at, ordinal, flags in zip(known.tolist(), ordinals[known].tolist(), alive, strict=True):
                places[at].append(SegmentPlace(segment, ordinal, int(segment.unit_ranges[ordinal]), flags))
    return places


def count_listed(index: IndexedFiles, lines: Iterable[ManifestFile]) -> tuple[int, int]:
    """Count the files of ``lines`` that segments list with their manifests, and those indexed for the question."""
    listed = indexed = 0
    for line in lines:
        unable: RowRanges | None = None
        for number, entry in index.listing(line).items():
            own = index.answer(number).unable.cut(entry.first_file, entry.first_file + entry.live_files)
            unable = own if unable is None else unable & own
        if unable is not None:
            listed += entry.live_files
            indexed += entry.live_files - unable.num_rows
    return listed, indexed


def _state(coverage: Coverage | None, code: int) -> str:
    if coverage is None:
        return NO_FILTERS
    state = coverage.states[code].state
    return KeptFilesBecause.UNREADABLE.text if state == UnitState.INDEXED else state
