"""The stage that rules out files by the filters of all segments that list them.

A file is out if a segment that lists it has all its units indexed, and none of them may match. Several segments may
list one file (columns that were indexed at different times); each of them can drop it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestFile

from sidecar.bundle.filter_answers import FileAnswers, FilterAnswers
from sidecar.bundle.model import UnitState
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.statistics_files.sidecar_files import Places, SidecarFiles
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, FilterCounts, Reasons, S_co, SetRows
from sidecar.planning.funnel import KeptFilesBecause, NotIndexed
from sidecar.questions.filter_questions import looked_up
from sidecar.questions.narrowing import Units
from sidecar.questions.row_ranges import RowRanges

NO_FILTERS = "no filters were built"
"""The reason for a column that does not occur in a sidecar's coverage."""


@dataclass(frozen=True)
class FilePlace:
    """Where the sidecar lists a file: running numbers of the file and of its first row group.

    ``alive`` is bool[row groups]: whether filters keep each.
    """

    number: int
    first_unit: int
    alive: Units


class IndexedFiles(FilterAnswers[SidecarFiles]):
    """The files of one sidecar for one question: what filters answer, and where it lists each file."""

    def alive(self, numbers: Ordinals) -> list[Units]:
        """Return bool[row groups] for each file: whether filters keep each of its row groups."""
        flags = self.of_units(self.files.units_of(numbers))
        ends = (self.files.unit_ranges[numbers + 1] - self.files.unit_ranges[numbers]).cumsum().tolist()
        return [flags[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def count_units(self, pairs: npt.NDArray[np.int64]) -> int:
        """Return the number of row groups of files in ranges ``pairs``, int64[n, 2]."""
        first = self.files.unit_ranges[pairs]
        return int((first[:, 1] - first[:, 0]).sum())


def by_filters(files: FileSet[S_co], index: IndexedFiles) -> FileSet[S_co]:
    """Ask the filters of segments about the files that are left, and give a reason to those that are kept.

    Rows that are running numbers are asked first, as ranges. Files that are left are then asked at their other places.
    """
    source, before, row_groups = files.source, files, 0
    if source.is_numbered:
        files = files.within(index.left(files.left), DroppedBy.FILTER)
        row_groups = index.count_units(before.left.pairs) - index.count_units(files.left.pairs)
    places = source.listed_at(files.rows, index.files, index.fields)
    answers = index.of_files(places.numbers)
    keep = np.ones(len(files), np.bool_)
    keep[places.at[~answers.may_match]] = False
    if not keep.all():
        _, first = np.unique(places.at[~answers.may_match], return_index=True)  # count each file once
        numbers = places.numbers[~answers.may_match][first]
        row_groups += index.count_units(np.stack([numbers, numbers + 1], axis=1))
        left = keep[places.at]
        places = Places((keep.cumsum() - 1)[places.at[left]], places.numbers[left])
        answers = FileAnswers(*(flags[left] for flags in answers))
    if (len(places.at) and not source.is_numbered) or not keep.all():
        files = files.narrow(keep, DroppedBy.FILTER)
    reasons, listed, indexed = _reasons(len(files), index, places, answers)
    gone = len(before) - len(files)  # what filters drop is listed and indexed
    return FileSet(source, files.left, files.steps, reasons, FilterCounts(listed + gone, indexed + gone, row_groups))


def _reasons(count: int, index: IndexedFiles, places: Places, answers: FileAnswers) -> tuple[Reasons, int, int]:
    """Return why files are kept, the number of those that are listed, and of those that filters could have dropped.

    The reason of a segment that could answer beats that of one that could not.
    """
    able, in_doubt = ~answers.unable, answers.in_doubt
    if able.all() and not in_doubt.any() and np.array_equal(places.at, np.arange(count)):  # each file has one place
        return Reasons.all(count, KeptFilesBecause.MAY_MATCH), count, count
    listed, indexed = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    listed[places.at], indexed[places.at[able]] = True, True
    reasons = Reasons.all(count, KeptFilesBecause.NOT_LISTED).put(np.flatnonzero(indexed), KeptFilesBecause.MAY_MATCH)
    reasons = reasons.put(np.unique(places.at[able & in_doubt]), KeptFilesBecause.DAMAGED)
    files, first = np.unique(places.at, return_index=True)
    unable = ~indexed[files]
    reasons = _why_not_indexed(reasons, index, places.numbers[first[unable]], files[unable])
    return reasons, int(listed.sum()), int(indexed.sum())


def _why_not_indexed(reasons: Reasons, index: IndexedFiles, numbers: Ordinals, files: SetRows) -> Reasons:
    """Give ``files`` the state of their first unit that has no filter of a column of the question."""
    reasons = reasons.put(files, KeptFilesBecause.NO_UNITS)
    for leaf in looked_up(index.question) if index.question else ():
        known = np.zeros(len(files), np.bool_)
        for state, at in index.states_without_filter(leaf.column.index, numbers):
            text = NO_FILTERS if state is None else state
            text = KeptFilesBecause.UNREADABLE.text if state == UnitState.INDEXED else text
            reasons = reasons.put(files[at], NotIndexed(leaf.column.name, text))
            known[at] = True
        files, numbers = files[~known], numbers[~known]
    return reasons


def places_of(files: FileSet[FileSource], index: IndexedFiles) -> list[list[FilePlace]]:
    """Return where the sidecar lists each file that is left, and which of its row groups filters keep."""
    found: list[list[FilePlace]] = [[] for _ in range(len(files))]
    at, numbers = files.source.listed_at(files.rows, index.files)
    first_units = index.files.unit_ranges[numbers]
    for row, number, first, alive in zip(
        at.tolist(), numbers.tolist(), first_units.tolist(), index.alive(numbers), strict=True
    ):
        found[row].append(FilePlace(number, first, alive))
    return found


def count_listed(index: IndexedFiles, lines: Iterable[ManifestFile]) -> tuple[int, int]:
    """Count the files of ``lines`` that segments list with their manifests, and those indexed for the question."""
    listed = indexed = 0
    for line in lines:
        unable: RowRanges | None = None
        for entry in index.files.listings(line):
            own = index.unable(entry.first_file, entry.live_files)
            unable = own if unable is None else unable & own
        if unable is not None:
            listed += entry.live_files
            indexed += entry.live_files - unable.num_rows
    return listed, indexed
