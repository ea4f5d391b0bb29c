"""Asks the filters of numbered files a question with AND and OR, and derives from the units which files may match.

Each segment is asked once, about all its units, when a file of it is asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.bundle.segment import Segment
from sidecar.filters.arrays import Flags, Ordinals
from sidecar.filters.probes import FieldQuestion, Resolutions, ValueProbes
from sidecar.questions.conditions import Condition, HoldsAny
from sidecar.questions.filter_questions import looked_up
from sidecar.questions.narrowing import Units, matching_units
from sidecar.questions.row_ranges import RowRanges


class SegmentAnswer(NamedTuple):
    """The answer of one segment about all its units and files, by their ordinals in it."""

    units: RowRanges
    """Units that may match."""
    left: RowRanges
    """Files that may match."""
    unable: RowRanges
    """Files that the filters could not have excluded."""
    is_damaged: bool = False
    """Whether damage was found, which may be why files are left."""


class FileAnswers(NamedTuple):
    """The answers of filters about files, each bool[files]."""

    may_match: Flags
    unable: Flags
    """Whether the filters could not have excluded the file."""
    in_doubt: Flags
    """Whether its segment has damage, which may be why the file is left."""


F = TypeVar("F", bound=NumberedFiles)


class FilterAnswers(Generic[F]):
    """The answers of the filters of ``files`` to ``question``, by running numbers. Without a question (``None``) there
    are none.

    Filters of columns whose ``resolutions`` do not hold are not asked. ``warnings`` is the list to which the sidecar
    adds the damage that it finds.
    """

    def __init__(
        self,
        files: F,
        question: Condition | None,
        resolutions: Resolutions | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.files, self.question = files, question
        self.fields = {leaf.column.index for leaf in looked_up(question)} if question else set[int]()
        """The fields that the question asks filters about."""
        self._resolutions = resolutions
        self._warnings = warnings
        self._answers: dict[int, SegmentAnswer] = {}

    def left(self, files: RowRanges) -> RowRanges:
        """Return the files that may match, of all segments that have some of ``files``."""
        asked = [s for s in self.files.segments if files.cut(s.first_file, s.first_file + s.num_files)]
        pairs = [self._answer(segment).left.pairs + segment.first_file for segment in asked]
        return RowRanges(np.concatenate(pairs)) if pairs else RowRanges()

    def of_files(self, numbers: Ordinals) -> FileAnswers:
        """Return the answers about each file."""
        found = FileAnswers(*(np.zeros(len(numbers), np.bool_) for _ in range(3)))
        for segment, at, ordinals in self.files.of_files(numbers):
            answer = self._answer(segment)
            found.may_match[at] = answer.left.holds(ordinals)
            found.unable[at] = answer.unable.holds(ordinals) if answer.unable else False
            found.in_doubt[at] = answer.is_damaged
        return found

    def of_units(self, units: Ordinals) -> Units:
        """Return bool[units]: which units may match."""
        found = np.zeros(len(units), np.bool_)
        for segment, at, ordinals in self.files.of_units(units):
            found[at] = self._answer(segment).units.holds(ordinals)
        return found

    def unable(self, first: int, count: int) -> RowRanges:
        """Return those of ``count`` files from ``first`` on, all of one segment, that could not be excluded.

        Files are counted from ``first``.
        """
        segment = self.files.segments[self.files.owner(first)]
        return self._answer(segment).unable.cut(first - segment.first_file, first - segment.first_file + count)

    def states_without_filter(self, field_id: int, numbers: Ordinals) -> Iterator[tuple[str | None, Ordinals]]:
        """Yield states of the files' first units that have no filter of a field, and which of the files have each.

        A state is ``None`` if it is not recorded. Files whose units all have a filter are left out.
        """
        for segment, at, ordinals in self.files.of_files(numbers):
            first = segment.unit_ranges
            without = np.append(np.flatnonzero(~units_with_filters(segment, field_id)), segment.num_units)
            unit = without[np.searchsorted(without, first[ordinals])]
            found = unit < first[ordinals + 1]
            coverage = segment.coverage(field_id, BLOOM) if found.any() else None
            if coverage is None:
                yield None, at[found]
                continue
            codes = coverage.codes[unit[found]]
            for code in np.unique(codes).tolist():
                yield coverage.states[code].state, at[found][codes == code]

    def _answer(self, segment: Segment) -> SegmentAnswer:
        if id(segment) not in self._answers:
            answer = answer_of(segment, self.question, self._resolutions, self._warnings)
            self._answers[id(segment)] = answer
        return self._answers[id(segment)]


def answer_of(
    segment: Segment, question: Condition | None, resolutions: Resolutions | None, warnings: Sequence[str]
) -> SegmentAnswer:
    """Ask a segment about all its units and files. A longer ``warnings`` afterwards means that it has damage."""
    warned = len(warnings)
    if question is None:  # filters are not asked
        every_file = RowRanges.all(segment.num_files)
        return SegmentAnswer(RowRanges.all(segment.num_units), every_file, every_file)
    # Which units would match even if every filter said no? Those have too few filters to be ruled out. If that is every
    # unit, no filter is read.
    unable = matching_units(question, lambda leaf: ~indexed_units(segment, leaf), segment.num_units)
    if unable.all():
        left = RowRanges.all(segment.num_units)
    else:
        left = _ranges(matching_units(question, partial(may_hold, segment, resolutions), segment.num_units))
    is_damaged = len(warnings) > warned
    return SegmentAnswer(left, segment.files_with(left), segment.files_with(_ranges(unable)), is_damaged)


def _ranges(units: Units) -> RowRanges:
    return RowRanges.of_rows(units.nonzero()[0])


def may_hold(segment: Segment, resolutions: Resolutions | None, leaf: HoldsAny) -> Units:
    """Return bool[units]: which units may hold a value of the leaf."""
    probes = ValueProbes(leaf.values, leaf.column.iceberg_type)
    return segment.might_match(FieldQuestion(leaf.column.index, probes, resolutions))


def indexed_units(segment: Segment, leaf: HoldsAny) -> Units:
    """Return bool[units]: which units have a filter of the leaf's column."""
    return units_with_filters(segment, leaf.column.index)


def units_with_filters(segment: Segment, field_id: int) -> Units:
    """Return bool[units]: which units have a filter of a field."""
    units = np.zeros(segment.num_units, np.bool_)
    for group in segment.groups_of(field_id):
        units[group.units] = True
    return units
