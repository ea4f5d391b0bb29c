"""Distinct counts of the files that an earlier sidecar serves, by its sketches of groups of files.

The count of a field is the union of the sketches of all groups with a live file. A group is *counted again*, from its
live files alone, if more than 5 % of its rows were removed (``exact``: if any were), if its sketch is damaged, or if
the column's type has changed since. So are files that no usable group counts. Until then the values of removed files
stay in the count, which is marked as an upper bound.

Counting again reads one or few columns of some files and makes no filters. The segment keeps its other blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from sidecar.bundle.model import Coverage
from sidecar.bundle.runs import IndexOfField
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.group_table import SketchGroup, StoredSketchGroup
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.convert.outcome import Progress
from sidecar.convert.protection import properties_of
from sidecar.errors import SidecarError
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import ListedFile
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.assemble import Indexed, SegmentUnit, collect, encrypted_of
from sidecar.indexing.engine import Engine
from sidecar.indexing.options import THETA
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.sketch_groups import group_files, sketch_group, sketched_columns
from sidecar.indexing.tasks import BuildPlan

REMOVED_SHARE = 0.05
"""A group is counted again if more than this share of its rows was removed."""

UNITED_AT_ONCE = 256
"""Sketches in memory while a column's are united: 8 MiB at the usual size."""


class Unused(Enum):
    """Why the sketch of a group is not used."""

    STALE = "too many rows were removed"
    UNUSABLE = "the sketch is damaged, or of another type than the column"


@dataclass(frozen=True)
class Recount:
    """Live files of one segment that are counted again for one field, and the group that they replace.

    ``old`` is ``None`` if no usable group counts them: its type or its sketch is wrong, or there is none.
    """

    files: tuple[ListedFile, ...]
    old: StoredSketchGroup | None


@dataclass
class SegmentCount:
    """The groups of one field of a carried segment: those that stay, and those that are counted again."""

    segment: Segment
    live: Mapping[int, int]
    """Ordinal in the listing -> ordinal in the segment, of the live files."""
    column: TableColumn
    kept: list[StoredSketchGroup] = field(default_factory=list)
    recounts: list[Recount] = field(default_factory=list)
    made: list[SketchGroup] = field(default_factory=list)
    """Groups that were counted again."""
    dropped: bool = False
    """Whether a group was left out because all its live files are counted elsewhere."""

    def kept_groups(self) -> Iterator[SketchGroup]:
        """Yield the groups that stay, with their sketches as stored."""
        blob = self.segment.sketch_blobs.get(self.column.field_id)
        for group, data in blob.stored(self.kept) if blob is not None else ():
            if not isinstance(data, SidecarError):
                yield SketchGroup(group.files, group.counted, group.rows, group.size, group.type, data)


@dataclass
class EarlierCounts:
    """The distinct counts of the files that an earlier sidecar serves; empty without one."""

    sketches: dict[int, ThetaSketch] = field(default_factory=dict)
    """The union of the groups that need not be counted again, by field id."""
    inexact: set[int] = field(default_factory=set)
    """Fields whose union also counts values of removed files."""
    counted: dict[int, set[int]] = field(default_factory=dict)
    """The ordinals of the files that are in the union or are counted again, by field id."""
    segments: list[SegmentCount] = field(default_factory=list)
    """Those with groups that are counted again or left out."""
    uncounted: dict[IndexOfField, int] = field(default_factory=dict)
    """The files that could not be counted again and are in no count, by field id and kind."""
    encrypted: set[int] = field(default_factory=set)
    """Fields that are encrypted in files that were counted again."""

    @property
    def files(self) -> list[ListedFile]:
        """The files that are read again, in the order of the listing."""
        found = {file.ordinal: file for one in self.segments for recount in one.recounts for file in recount.files}
        return [found[ordinal] for ordinal in sorted(found)]

    @property
    def to_count_again(self) -> set[int]:
        """The fields that are read again in some files."""
        return {one.column.field_id for one in self.segments if one.recounts}

    def is_replaced(self, segment_id: bytes, field_ids: Iterable[int]) -> bool:
        """Return whether the groups of a field in a carried segment are written anew."""
        asked = set(field_ids)
        return any(
            one.segment.header.segment_id == segment_id and one.column.field_id in asked for one in self.rewritten
        )

    @property
    def rewritten(self) -> list[SegmentCount]:
        """The segments and fields whose blob of sketches is written anew."""
        return [one for one in self.segments if one.made or one.dropped]

    def add(self, field_id: int, sketches: Sequence[ThetaSketch], lg_k: int) -> None:
        """Add the sketches of some groups."""
        if sketches:
            before = [self.sketches[field_id]] if field_id in self.sketches else []
            self.sketches[field_id] = ThetaSketch.union([*before, *sketches], lg_k)


def earlier_counts(
    segments: Sequence[Segment],
    live: Mapping[str, Mapping[int, int]],
    files: Sequence[ListedFile],
    served: set[int],
    plan: BuildPlan,
    holds: Callable[[Coverage], bool],
    exact: bool,
) -> EarlierCounts:
    """Return what the carried ``segments`` count, and which of the ``served`` files must be counted again.

    ``live`` has for each segment the live files that it lists: their ordinals in ``files``, and in the segment. Reads
    the sketches of the plan's columns. ``holds`` returns whether a column is still found in the files as it was; if
    not, a segment counts the values of another column, and is left out. ``exact`` allows no row of a removed file in a
    count.
    """
    counts = EarlierCounts()
    for column in sketched_columns(plan.columns, plan.options):
        sound = [s for s in segments if (known := s.coverage(column.field_id, THETA)) is not None and holds(known)]
        parts = [SegmentCount(segment, live[segment.id], column) for segment in sound]
        _look_at_column(counts, parts, files, served, plan.options.lg_k, exact)
        counts.segments += [part for part in parts if part.recounts or part.dropped]
    return counts


def _look_at_column(
    counts: EarlierCounts,
    parts: Sequence[SegmentCount],
    files: Sequence[ListedFile],
    served: set[int],
    lg_k: int,
    exact: bool,
) -> None:
    counted: set[int] = set()
    unused: list[tuple[SegmentCount, StoredSketchGroup | None, list[ListedFile]]] = []
    waiting: list[ThetaSketch] = []
    for part in parts:
        field_id = part.column.field_id
        for group, members, found in _groups_of(part, files, lg_k, exact):
            if isinstance(found, ThetaSketch):
                waiting.append(found)
                if len(waiting) > UNITED_AT_ONCE:
                    counts.add(field_id, waiting, lg_k)
                    waiting = []
                if _removed_rows(group, members):
                    counts.inexact.add(field_id)
                counted.update(file.ordinal for file in members)
                part.kept.append(group)
            else:
                unused.append((part, group if found is Unused.STALE else None, members))
        counts.add(field_id, waiting, lg_k)
        waiting = []
    for part, old, members in unused:
        missing = tuple(file for file in members if file.ordinal in served and file.ordinal not in counted)
        counted.update(file.ordinal for file in missing)
        if missing:
            part.recounts.append(Recount(missing, old))
        else:
            part.dropped = True
    for part in parts:
        uncounted = served - counted
        alone = [files[ordinal] for ordinal in _indexed_files(part) if ordinal in uncounted]
        counted.update(file.ordinal for file in alone)
        part.recounts += [Recount(tuple(group), None) for group in group_files(alone)]
        counts.counted[part.column.field_id] = counted


def _groups_of(
    part: SegmentCount, files: Sequence[ListedFile], lg_k: int, exact: bool
) -> Iterator[tuple[StoredSketchGroup, list[ListedFile], ThetaSketch | Unused]]:
    """Yield each group with a live file, these files, and its sketch or why it is not used."""
    blob = part.segment.sketch_blobs.get(part.column.field_id)
    if blob is None:
        return
    try:
        groups = blob.groups()
    except SidecarError:
        return  # its files are found to be in no group
    numbers = {ordinal: number for number, ordinal in part.live.items()}
    fresh: list[StoredSketchGroup] = []
    live: list[list[ListedFile]] = []
    for group in groups:
        members = [files[numbers[ordinal]] for ordinal in group.files.tolist() if ordinal in numbers]
        if members and group.type != part.column.type:
            yield group, members, Unused.UNUSABLE
        elif members and _removed_rows(group, members) > (0 if exact else REMOVED_SHARE * group.rows):
            yield group, members, Unused.STALE
        elif members:
            fresh.append(group)
            live.append(members)
    for (group, found), members in zip(blob.read(fresh, lg_k), live, strict=True):
        yield group, members, found if isinstance(found, ThetaSketch) else Unused.UNUSABLE


def _removed_rows(group: StoredSketchGroup, members: Sequence[ListedFile]) -> int:
    return max(group.rows - sum(file.record_count for file in members), 0)


def _indexed_files(part: SegmentCount) -> Iterator[int]:
    """Yield the live files of a segment of which some unit was counted when it was built."""
    coverage = part.segment.coverage(part.column.field_id, THETA)
    if coverage is None:
        return
    counted = coverage.files_with_entries(part.segment.unit_ranges)
    yield from (number for number, ordinal in part.live.items() if counted[ordinal])


def count_again(counts: EarlierCounts, engine: Engine, plan: BuildPlan, progress: Progress) -> list[str]:
    """Read the files of all recounts and add their sketches to ``counts``. Returns what could not be done, in words.

    Files that several fields need are read once. A file that cannot be read stays in its old group, or else in none:
    then the next build tries again.
    """
    problems: dict[str, None] = {}
    jobs: dict[tuple[bytes, tuple[int, ...]], list[tuple[SegmentCount, Recount]]] = {}
    for part in counts.segments:
        for recount in part.recounts:
            key = part.segment.header.segment_id, tuple(file.ordinal for file in recount.files)
            jobs.setdefault(key, []).append((part, recount))
    by_fields: dict[tuple[int, ...], list[list[tuple[SegmentCount, Recount]]]] = {}
    for same in jobs.values():
        by_fields.setdefault(tuple(part.column.field_id for part, _ in same), []).append(same)
    for fields, readings in by_fields.items():
        options = replace(plan.options, bloom=False, page_index=False, theta=True, own={})
        columns = tuple(column for column in plan.columns if column.field_id in fields)
        groups = [reading[0][1].files for reading in readings]
        tasks = make_tasks(groups, engine.name)
        records = engine.index(tasks, replace(plan, columns=columns, options=options), progress)
        indexed = collect([file for files in groups for file in files], records, options.lg_k)
        counts.encrypted |= encrypted_of(records, options).fields
        units: dict[int, list[SegmentUnit]] = {}
        for unit in indexed.units:
            units.setdefault(unit.file, []).append(unit)
        for number, reading in enumerate(readings):
            for part, recount in reading:
                for problem in _take(counts, part, recount, number, indexed, units, options.lg_k):
                    problems[problem] = None
    return list(problems)


def _take(
    counts: EarlierCounts,
    part: SegmentCount,
    recount: Recount,
    number: int,
    indexed: Indexed,
    units: Mapping[int, Sequence[SegmentUnit]],
    lg_k: int,
) -> Iterator[str]:
    """Add the group that was counted again, or its old sketch if a file could not be read whole. Yields problems."""
    field_id = part.column.field_id
    lost = {file.ordinal: why for file in recount.files if (why := _why_not_counted(file, part, indexed, units))}
    for file in recount.files:
        if file.ordinal in lost:
            yield f"{file.path} was not counted again for {part.column.path}: {lost[file.ordinal]}"
    old = _old_sketch(part, recount.old, lg_k) if lost and recount.old is not None else None
    if old is not None and recount.old is not None:
        part.kept.append(recount.old)
        counts.add(field_id, [old], lg_k)
        counts.inexact.add(field_id)
        return
    if lost:
        counts.uncounted[field_id, THETA] = counts.uncounted.get((field_id, THETA), 0) + len(lost)
        counts.counted[field_id] -= lost.keys()
    sketch = indexed.group_sketches.get((number, field_id), ThetaSketch(lg_k))
    counts.add(field_id, [sketch], lg_k)
    counted = [file for file in recount.files if file.ordinal not in lost]
    if counted:
        places = [part.live[file.ordinal] for file in counted]
        part.made.append(sketch_group(places, counted, part.column, sketch))


def _why_not_counted(
    file: ListedFile, part: SegmentCount, indexed: Indexed, units: Mapping[int, Sequence[SegmentUnit]]
) -> str:
    """Return why the new sketch lacks values of a file that the old one had; empty if it lacks none."""
    if file.ordinal in indexed.failed:
        return indexed.failed[file.ordinal]
    place, first = part.live[file.ordinal], part.segment.unit_ranges
    coverage = part.segment.coverage(part.column.field_id, THETA)
    found = units.get(file.ordinal, ())
    if coverage is None or len(found) != first[place + 1] - first[place]:
        return "its row groups are not those that were indexed"
    before = coverage.indexed[first[place] : first[place + 1]]
    reasons = [unit.columns[part.column.field_id].theta_reason for unit in found]
    return next((why for why, was_counted in zip(reasons, before, strict=True) if why and was_counted), "")


def _old_sketch(part: SegmentCount, group: StoredSketchGroup, lg_k: int) -> ThetaSketch | None:
    blob = part.segment.sketch_blobs[part.column.field_id]
    found = next(result for _, result in blob.read([group], lg_k))
    return found if isinstance(found, ThetaSketch) else None


def rewritten_sketches(
    counts: EarlierCounts, old_properties: Mapping[tuple[bytes, int], Mapping[str, str]]
) -> list[tuple[Segment, FieldSketches]]:
    """Return the blobs that replace those of carried segments, without groups that have no live file.

    ``old_properties``: of the present blobs, by segment id and field id. Without a present blob, the new one says
    whether it is plaintext of an encrypted column.
    """
    found = []
    for one in counts.rewritten:
        groups = sorted([*one.kept_groups(), *one.made], key=lambda group: int(group.files[0]))
        key = one.segment.header.segment_id, one.column.field_id
        properties = old_properties.get(key, properties_of(one.column.field_id in counts.encrypted))
        if groups:
            found.append((one.segment, FieldSketches(one.column.field_id, groups, properties)))
    return found
