"""The sketches of groups of files in a merged segment.

The sketch of a group also counts files that are gone or that a newer segment counts. They stay in the rows of the
group, so that the next build sees how much of it was removed, and marks the count or reads the group again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sidecar.bundle.kinds.declared import THETA
from sidecar.bundle.merging.kind_merge import KindMerge, SegmentMerge
from sidecar.bundle.merging.merged_units import MergedUnits
from sidecar.bundle.merging.source_segment import CheckedSegment, SourceSegment
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.regrouping import NO_FILE, joined, remapped
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.puffin.types import THETA_GROUPS


def merge_sketches(sources: Sequence[CheckedSegment], units: MergedUnits) -> list[FieldSketches]:
    """Return the sketches of each field that has some. ``sources`` are oldest first.

    A file is counted by the newest segment that has counted it. Small groups of about one age are united.
    """
    found = []
    ages = np.array([file.identity.file_sequence_number for file in units.files], np.int64)
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
            found.append(FieldSketches(field_id, joined(groups, ages), properties))
    return found


def _has_counted(source: CheckedSegment, field_id: int) -> npt.NDArray[np.bool_]:
    """bool[files]: which files of a segment have a unit that a sketch counts."""
    coverage = source.coverage.get((field_id, THETA))
    if coverage is None:
        return np.zeros(len(source.first_units) - 1, np.bool_)
    return coverage.files_with_entries(source.first_units)


class SketchMerge(KindMerge):
    """How sketches of groups of files are merged."""

    def check(self, checked: CheckedSegment) -> None:
        """Find the sketches without damage, and the files of the others."""
        checked.sketches = {given.field_id: given for given in checked.source.sketches}
        for field_id in _stored_fields(checked.source):
            _check_sketches(checked, field_id)

    def parts(self, merge: SegmentMerge) -> Iterator[FieldSketches]:
        """Yield the united sketches of each field that has some."""
        yield from merge_sketches(merge.sources, merge.units)


def _stored_fields(source: SourceSegment) -> list[int]:
    return [entry.fields[0] for entry in source.entries[:-1] if entry.blob_type == THETA_GROUPS]


def _check_sketches(checked: CheckedSegment, field_id: int) -> None:
    """Add the sound sketches of a blob, and the files of damaged ones; all files if the groups of the blob are
    unknown."""
    damaged, sound = np.zeros(checked.segment.num_files, np.bool_), list[SketchGroup]()
    try:
        for group in checked.segment.sketch_blobs[field_id].load(damaged):
            if _is_sketch(group):
                sound.append(group)
            else:
                damaged[group.files] = True
    except DamagedFileError:
        damaged[:] = True
    else:
        properties = checked.source.properties[THETA_GROUPS, field_id]
        checked.sketches[field_id] = FieldSketches(field_id, sound, properties)
    if damaged.any():
        checked.uncountable[field_id] = damaged


def _is_sketch(group: SketchGroup) -> bool:
    try:
        ThetaSketch.from_bytes(group.sketch, LARGEST_LG_K)
    except SidecarError:
        return False
    return True
