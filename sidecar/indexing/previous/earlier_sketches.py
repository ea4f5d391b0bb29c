"""Distinct counts of the files that an earlier sidecar serves, by its sketches of groups of files.

The count of a field is the union of the sketches of all groups with a live file. A sketch cannot forget a value. So a
group is left out if more than 5 % of its rows were removed, if its sketch is damaged, if the column's type has changed
since, or if one of its files is read as having another column's values there. Its live files, and files that no group
counts, are indexed again unless another group counts them. Up to 5 %, the values of removed files stay in the count,
which is marked as an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sidecar.bundle.kinds.declared import THETA
from sidecar.bundle.model import CoverageState, UnitState
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.count_marks import AlsoCounted, CountMarks, NotCounted
from sidecar.bundle.sketches.group_table import SketchGroup, StoredSketchGroup
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.errors import SidecarError
from sidecar.filters.arrays import Flags
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.resolve import resolution_holds
from sidecar.iceberg.statistics_files.sidecar_files import Places
from sidecar.indexing.costs import UNITED_AT_ONCE
from sidecar.indexing.sketch_groups import sketched_columns
from sidecar.indexing.stage_one.tasks import BuildPlan

REMOVED_SHARE = 0.05
"""A group is left out if more than this share of its rows was removed."""


@dataclass
class CarriedGroups:
    """The groups of one field of a carried segment that stay."""

    segment: Segment
    live: Mapping[int, int]
    """Ordinal in the listing -> ordinal in the segment, of the live files."""
    field_id: int
    type: str
    kept: list[StoredSketchGroup] = field(default_factory=list)
    dropped: bool = False
    """Whether a group with a live file is left out."""

    def groups(self) -> Iterator[SketchGroup]:
        """Yield the groups that stay, with their sketches as stored."""
        for group, data in self.segment.sketch_blobs[self.field_id].stored(self.kept) if self.kept else ():
            if not isinstance(data, SidecarError):
                yield SketchGroup(group.files, group.counted, group.rows, group.size, group.type, data)


@dataclass
class ReusableCounts:
    """The distinct counts of the files that an earlier sidecar serves; empty without one."""

    sketches: dict[int, ThetaSketch] = field(default_factory=dict)
    """The union of the groups that stay, by field id."""
    inexact: set[int] = field(default_factory=set)
    """Fields whose union also counts values of removed files."""
    counted: dict[int, set[int]] = field(default_factory=dict)
    """The ordinals of the files that are in the union, by field id."""
    lost: dict[int, set[int]] = field(default_factory=dict)
    """The ordinals of served files that no group counts any more, by field id."""
    rewritten: list[CarriedGroups] = field(default_factory=list)
    """The segments and fields whose blob of sketches is written without groups that are left out."""

    def is_replaced(self, segment_id: bytes, field_ids: Iterable[int]) -> bool:
        """Return whether the groups of a field in a carried segment are written anew."""
        asked = set(field_ids)
        return any(one.segment.header.segment_id == segment_id and one.field_id in asked for one in self.rewritten)

    def add(self, field_id: int, sketches: Sequence[ThetaSketch]) -> None:
        """Add the sketches of some groups."""
        if sketches:
            before = [self.sketches[field_id]] if field_id in self.sketches else []
            self.sketches[field_id] = ThetaSketch.union([*before, *sketches])


def counted_files(sidecar: NumberedFiles, field_id: int, kind: str, live: Places) -> tuple[set[int], bool]:
    """Return the live files (ordinals in the listing) of which some segment has counted all units of a column.

    Besides, whether one has counted units of files that are gone.
    """
    states, gone = sidecar.coverage(field_id, kind)
    gone[live.numbers] = False
    has_removed = bool(sidecar.in_some_unit(states.indexed, gone.nonzero()[0]).any())
    return set(live.at[sidecar.in_all_units(states.indexed, live.numbers)].tolist()), has_removed


def marks_by_files(listing: Listing, counted: Collection[int], has_removed: bool) -> CountMarks:
    """Return why a count is a bound for a snapshot, by the files (ordinals) that it has counted.

    ``has_removed``: it has counted values of files that are gone.
    """
    upper = {AlsoCounted.REMOVED_FILES} if has_removed else set[AlsoCounted]()
    upper |= {AlsoCounted.ROW_DELETES} if listing.delete_files else set()
    lacks = any(file.record_count and file.ordinal not in counted for file in listing.files)
    return CountMarks(frozenset(map(str, upper)), frozenset({str(NotCounted.FILES)} if lacks else ()))


def earlier_counts(
    segments: Sequence[Segment],
    live: Mapping[str, Mapping[int, int]],
    files: Sequence[SnapshotFile],
    served: set[int],
    plan: BuildPlan,
) -> ReusableCounts:
    """Return what the carried ``segments`` count, and which of the ``served`` files must be indexed again.

    ``live`` has for each segment the live files that it lists: their ordinals in ``files``, and in the segment. Reads
    the sketches of the plan's columns.
    """
    counts = ReusableCounts()
    for column in sketched_columns(plan.columns, plan.options):
        field_id, counted = column.field_id, set[int]()
        parts = [CarriedGroups(segment, live[segment.id], field_id, column.type) for segment in segments]
        for part in parts:
            counted |= _add_kept_groups(counts, part, files, plan)
        counts.counted[field_id] = counted
        counts.lost[field_id] = {ordinal for part in parts for ordinal in _indexed_files(part)} & served - counted
        counts.rewritten += [part for part in parts if part.dropped]
    return counts


def still_holds(state: CoverageState, field_id: int, plan: BuildPlan) -> bool:
    """Return whether the column of an indexed unit is still found as it was. Other states hold."""
    if state.state != UnitState.INDEXED or not state.resolution:
        return True
    return resolution_holds(state.resolution, field_id, plan.name_mapping, plan.schema)


def _add_kept_groups(
    counts: ReusableCounts, part: CarriedGroups, files: Sequence[SnapshotFile], plan: BuildPlan
) -> set[int]:
    """Add the groups of a segment that stay to ``counts``. Returns the ordinals of their live files."""
    counted: set[int] = set()
    waiting: list[ThetaSketch] = []
    for group, members, sketch in _groups_of(part, files, plan):
        if sketch is None:
            part.dropped |= bool(members)
            continue
        waiting.append(sketch)
        if len(waiting) > UNITED_AT_ONCE:
            counts.add(part.field_id, waiting)
            waiting = []
        if _removed_rows(group, members):
            counts.inexact.add(part.field_id)
        counted.update(file.ordinal for file in members)
        part.kept.append(group)
    counts.add(part.field_id, waiting)
    return counted


def _groups_of(
    part: CarriedGroups, files: Sequence[SnapshotFile], plan: BuildPlan
) -> Iterator[tuple[StoredSketchGroup, list[SnapshotFile], ThetaSketch | None]]:
    """Yield each group, its live files, and its sketch; ``None`` if it has no live file or is left out."""
    blob = part.segment.sketch_blobs.get(part.field_id)
    if blob is None:
        return
    try:
        groups = blob.groups()
    except SidecarError:
        part.dropped = True  # its files are found to be in no group
        return
    numbers = {ordinal: number for number, ordinal in part.live.items()}
    others = _files_of_other_columns(part, plan)
    fresh: list[StoredSketchGroup] = []
    live: list[list[SnapshotFile]] = []
    for group in groups:
        members = [files[numbers[ordinal]] for ordinal in group.files.tolist() if ordinal in numbers]
        is_other = group.type != part.type or others[group.files].any()
        if not members or is_other or _removed_rows(group, members) > REMOVED_SHARE * group.rows:
            yield group, members, None
        else:
            fresh.append(group)
            live.append(members)
    for (group, found), members in zip(blob.read(fresh), live, strict=True):
        yield group, members, found if isinstance(found, ThetaSketch) else None


def _files_of_other_columns(part: CarriedGroups, plan: BuildPlan) -> Flags:
    """Return bool[files of the segment]: of which the values of another column were counted, as they are read now."""
    coverage = part.segment.coverage(part.field_id, THETA)
    if coverage is None:
        return np.zeros(part.segment.num_files, np.bool_)
    held = [CoverageState("") if still_holds(state, part.field_id, plan) else state for state in coverage.states]
    return replace(coverage, states=tuple(held)).files_with_entries(part.segment.unit_ranges)


def _removed_rows(group: StoredSketchGroup, members: Sequence[SnapshotFile]) -> int:
    return max(group.rows - sum(file.record_count for file in members), 0)


def _indexed_files(part: CarriedGroups) -> Iterator[int]:
    """Yield the live files of a segment of which some unit was counted when it was built."""
    coverage = part.segment.coverage(part.field_id, THETA)
    if coverage is None:
        return
    counted = coverage.files_with_entries(part.segment.unit_ranges)
    yield from (number for number, ordinal in part.live.items() if counted[ordinal])


def rewritten_sketches(
    counts: ReusableCounts, old_properties: Mapping[tuple[bytes, int], Mapping[str, str]]
) -> list[tuple[Segment, FieldSketches]]:
    """Return the blobs that replace those of carried segments, without groups that are left out.

    ``old_properties``: of the present blobs, by segment id and field id.
    """
    found = []
    for one in counts.rewritten:
        groups = list(one.groups())
        if groups:
            properties = old_properties[one.segment.header.segment_id, one.field_id]
            found.append((one.segment, FieldSketches(one.field_id, groups, properties)))
    return found
