"""The sketches of groups of files in a merged segment.

The sketch of a group also counts files that are gone or that a newer segment counts. They stay in the rows of the
group, so that the next build sees how much of it was removed, and marks the count or reads the group again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sidecar.bundle.merging.merged_units import MergedUnits
from sidecar.bundle.merging.source_segment import THETA_KIND, CheckedSegment
from sidecar.bundle.sketches.regrouping import NO_FILE, joined, remapped
from sidecar.bundle.sketches.sketch_blob import FieldSketches


def merge_sketches(sources: Sequence[CheckedSegment], units: MergedUnits) -> list[FieldSketches]:
    """Return the sketches of each field that has some. ``sources`` are oldest first.

    A file is counted by the newest segment that has counted it. Small neighbouring groups are united.
    """
    found = []
    for field_id in sorted({field_id for source in sources for field_id in source.sketches}):
        counted = np.zeros(len(units.files), np.bool_)
        groups = []
        properties: dict[str, str] = {}
        for source, places in reversed(list(zip(sources, units.new_files, strict=True))):
            own = np.where(_has_counted(source, field_id), places, NO_FILE)
            own[np.isin(own, np.flatnonzero(counted))] = NO_FILE
            counted[own[own != NO_FILE]] = True
            if (given := source.sketches.get(field_id)) is not None:
                groups += remapped(given.groups, own)
                properties |= given.properties
        if groups:
            found.append(FieldSketches(field_id, joined(groups), properties))
    return found


def _has_counted(source: CheckedSegment, field_id: int) -> npt.NDArray[np.bool_]:
    """bool[files]: which files of a segment have a unit that a sketch counts."""
    coverage = source.coverage.get((field_id, THETA_KIND))
    if coverage is None:
        return np.zeros(len(source.first_units) - 1, np.bool_)
    return coverage.files_with_entries(source.first_units)
