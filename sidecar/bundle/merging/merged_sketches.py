"""The sketches of groups of files in a merged segment.

The sketch of a group also counts files that are gone. They stay in the rows of the group, so that the next build sees
how much of it was removed, and marks the count or reads the group again. A file that was indexed again for another
column stays in its older group too, of which nothing was removed: else the rest of the group would be read again, then
that of groups of the other column, and runs of few files might never come to an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sidecar.bundle.merging.kind_merge import KindMerge, SegmentMerge
from sidecar.bundle.merging.merged_units import MergedUnits
from sidecar.bundle.merging.source_segment import CheckedSegment, SourceSegment
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.regrouping import joined, remapped
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.puffin.types import THETA_GROUPS


def merge_sketches(sources: Sequence[CheckedSegment], units: MergedUnits) -> list[FieldSketches]:
    """Return the sketches of each field that has some. ``sources`` are oldest first.

    A group is left out if newer ones have all its files. Small groups of about one age are united, without those of
    which newer ones have some files: their rows would count twice.
    """
    found = []
    ages = np.array([file.identity.file_sequence_number for file in units.files], np.int64)
    for field_id in sorted({field_id for source in sources for field_id in source.sketches}):
        listed = np.zeros(len(units.files), np.bool_)
        groups, older = list[SketchGroup](), list[SketchGroup]()
        properties: dict[str, str] = {}
        for source, places in reversed(list(zip(sources, units.new_files, strict=True))):
            if (given := source.sketches.get(field_id)) is None:
                continue
            for group in reversed(remapped(given.groups, places)):
                if not (known := listed[group.files]).all():
                    (older if known.any() else groups).append(group)
                listed[group.files] = True
            properties |= given.properties
        if groups:
            found.append(FieldSketches(field_id, [*reversed(older), *joined(groups, ages)], properties))
    return found


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
