"""Asks the filters of one segment the whole question, and derives from its units which of its files may match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sidecar.filters.probes import AnyEncoding, probe_for
from sidecar.filters.values import Probe
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.questions.conditions import Condition, HoldsAny
from sidecar.questions.narrowing import Units, matching_units
from sidecar.questions.row_ranges import RowRanges

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment


@dataclass(frozen=True)
class SegmentAnswer:
    """The answer of one segment about all its units and files."""

    units: RowRanges
    """Units that may match."""
    left: RowRanges
    """Files that may match."""
    unable: RowRanges
    """Files that the filters could not have excluded."""
    kept_because: KeptFilesBecause
    """Why a file is kept that the filters could have excluded."""


def answer_of(
    segment: Segment,
    question: Condition | None,
    resolution_holds: Callable[[int, str], bool],
    warnings: Sequence[str],
) -> SegmentAnswer:
    """Ask a segment about all its units and files. A longer ``warnings`` afterwards means that it has damage."""
    warned = len(warnings)
    if question is None:  # filters are not asked
        every_file = RowRanges.all(segment.num_files)
        return SegmentAnswer(RowRanges.all(segment.num_units), every_file, every_file, KeptFilesBecause.MAY_MATCH)
    # Which units would match even if every filter said no? Those have too few filters to be ruled out. If that is every
    # unit, no filter is read.
    unable = matching_units(question, lambda leaf: ~indexed_units(segment, leaf), segment.num_units)
    if unable.all():
        left = RowRanges.all(segment.num_units)
    else:
        left = _ranges(matching_units(question, _asker(segment, resolution_holds), segment.num_units))
    why = KeptFilesBecause.DAMAGED if len(warnings) > warned else KeptFilesBecause.MAY_MATCH
    return SegmentAnswer(left, segment.files_with(left), segment.files_with(_ranges(unable)), why)


def _ranges(units: Units) -> RowRanges:
    return RowRanges.of_rows(units.nonzero()[0])


def _asker(segment: Segment, resolution_holds: Callable[[int, str], bool]) -> Callable[[HoldsAny], Units]:
    def ask(leaf: HoldsAny) -> Units:
        def holds(resolution: str) -> bool:
            return resolution_holds(leaf.column.index, resolution)

        return segment.might_match(leaf.column.index, partial(_probe, leaf), holds)

    return ask


def _probe(leaf: HoldsAny, encoding: AnyEncoding) -> Probe:
    """Return one probe for all values of a leaf. If a value cannot be hashed with certainty, the probe is unknown."""
    hashes: list[int] = []
    for value in leaf.values:
        probe = probe_for(value, leaf.column.iceberg_type, encoding)
        if probe.verdict == "unknown":
            return probe
        hashes += probe.hashes
    return Probe("probe", tuple(hashes)) if hashes else Probe("cannot-exist")


def indexed_units(segment: Segment, leaf: HoldsAny) -> Units:
    """Return bool[units]: which units have a filter of the leaf's column."""
    return units_with_filters(segment, leaf.column.index)


def units_with_filters(segment: Segment, field_id: int) -> Units:
    """Return bool[units]: which units have a filter of a field."""
    units = np.zeros(segment.num_units, np.bool_)
    for group in segment.groups_of(field_id):
        units[group.units] = True
    return units
