"""Decides which files a build need not index again, because an earlier sidecar has them.

The sidecar of the snapshot, or of its nearest ancestor that has one, is examined segment by segment. A file is *served*
if, for each requested column and kind, some segment lists it with that kind, and the column is found in the file today
as it was then. Segments are carried over as bytes: those that serve files, and those with other columns, which a build
of some columns must not lose. A segment without a live file is dropped, and so is one with only what is built anew.

Sketches cannot forget values. An earlier sketch is continued only if every file that it counted is still live and its
column still has the same type. Otherwise all files are indexed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.sidecar_file import Segment
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.errors import SidecarError
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.find_sidecar import FoundSidecar
from sidecar.iceberg.listing import ListedFile, Listing
from sidecar.iceberg.merge import MARK, SketchToCopy, is_our_blob, is_our_theta
from sidecar.iceberg.resolve import resolution_holds
from sidecar.indexing.assemble import THETA, kinds_of
from sidecar.indexing.tasks import BuildPlan
from sidecar.puffin.types import THETA as THETA_BLOB

Want = tuple[int, str]
"""A field id and a kind."""


@dataclass
class Earlier:
    """The usable part of an earlier sidecar; empty without one. Close it."""

    found: FoundSidecar | None = None
    segments: list[Segment] = field(default_factory=list)
    """Segments to carry over."""
    having: dict[int, set[Want]] = field(default_factory=dict)
    """What the segments have of each live file, by its ordinal, for all columns."""
    served: set[int] = field(default_factory=set)
    """Ordinals of the files that are not indexed again."""
    limited: bool = False
    """Whether not all files that are not served are indexed now, so that the others need their earlier indexes."""
    sketches: dict[int, ThetaSketch] = field(default_factory=dict)
    """Earlier sketches of the requested fields, by field id."""
    stale: set[tuple[bytes, int]] = field(default_factory=set)
    """(Segment id, field id) of blobs in plaintext or under a different key than this build uses."""
    why_not: str = ""
    """Why all files are indexed again; empty if they are not."""

    def is_registered(self, table: Table, snapshot_id: int) -> bool:
        """Return whether the sidecar belongs to this very snapshot, and all of it would be carried over."""
        return self.found is not None and self.found.snapshot_id == snapshot_id and self.is_whole(table)

    def is_whole(self, table: Table) -> bool:
        """Return whether all segments are carried over, and ``table`` still has the columns of all our blobs."""
        if self.found is None or len(self.segments) != len(self.found.sidecar.segments):
            return False
        fields = {i for blob in self.found.sidecar.puffin.metadata.blobs if is_our_blob(blob) for i in blob.fields}
        return table.schema().field_ids >= fields

    def close(self) -> None:
        """Close the earlier file."""
        if self.found is not None:
            self.found.sidecar.close()


def look_back(
    table: Table,
    listing: Listing,
    plan: BuildPlan,
    found: FoundSidecar | None,
    full: bool,
    most_files: int | None = None,
) -> Earlier:
    """Return the usable part of ``found``, the sidecar of the snapshot or its nearest ancestor.

    ``full`` serves no files. At most ``most_files`` files will be indexed now; files beyond that keep what they have.
    If the sidecar is damaged anywhere, nothing of it is reused.
    """
    if found is None:
        return Earlier()
    earlier = Earlier(found)
    try:
        _fill(earlier, table, listing, plan, full, most_files)
    except SidecarError as error:
        return Earlier(found, why_not=f"the earlier sidecar cannot be reused: {error.what}")
    if found.sidecar.warnings:
        return Earlier(found, why_not=f"the earlier sidecar is damaged: {found.sidecar.warnings[0]}")
    return earlier


def other_segments(segments: Sequence[Segment], known: Collection[str], plan: BuildPlan) -> list[Segment]:
    """Return segments with ids not in ``known`` that have columns or kinds which this build does not make."""
    asked = set(_wanted(plan))
    return [s for s in segments if s.id not in known and not {want for want, _ in _kinds(s)} <= asked]


def sketches_to_carry(earlier: Earlier) -> list[SketchToCopy]:
    """Return the sketches of the earlier sidecar that hold for the segments that are carried over.

    A sketch of a column that a build does not sketch stays right for the files that it counted. It is left out if a
    segment with such files is not carried over, because nothing would tell then which files it counted. Nothing is
    taken out of a damaged file.
    """
    if earlier.found is None or earlier.found.sidecar.warnings:
        return []
    kept = {segment.id for segment in earlier.segments}
    gone = {
        coverage.field_id
        for segment in earlier.found.sidecar.segments
        if segment.id not in kept
        for (_, kind), coverage in _kinds(segment)
        if kind == THETA and coverage.indexed.any()
    }
    puffin = earlier.found.sidecar.puffin
    return [(blob, puffin) for blob in puffin.metadata.blobs if is_our_theta(blob) and blob.fields[0] not in gone]


def _fill(
    earlier: Earlier, table: Table, listing: Listing, plan: BuildPlan, full: bool, most_files: int | None
) -> None:
    assert earlier.found is not None
    earlier.found.use_keys(table, plan.encryption_keys)
    segments = earlier.found.sidecar.segments
    earlier.stale = _stale(segments, plan)
    live = {segment.id: _live_files(segment, listing.files) for segment in segments}
    earlier.having = _having(segments, listing.files, live, plan, earlier.stale)
    if not full:
        asked = set(_wanted(plan))
        earlier.served = {ordinal for ordinal, wants in earlier.having.items() if wants >= asked}
        earlier.sketches, earlier.why_not = _sketches(earlier, table, segments, live, plan)
        if earlier.why_not:
            earlier.served = set()
    missing = sum(file.not_indexable is None and file.ordinal not in earlier.served for file in listing.files)
    earlier.limited = most_files is not None and missing > most_files
    wanted, fields = set(_wanted(plan)), table.schema().field_ids
    for segment in segments:
        own = {want for want, _ in _kinds(segment) if want[0] in fields}
        is_used = own - wanted or earlier.limited or earlier.served.intersection(live[segment.id])
        if live[segment.id] and own and is_used:
            earlier.segments.append(segment)


def _wanted(plan: BuildPlan) -> list[Want]:
    return [(column.field_id, kind) for column in plan.columns for kind in kinds_of(plan.options.of(column.field_id))]


def _kinds(segment: Segment) -> list[tuple[Want, Coverage]]:
    return [((coverage.field_id, coverage.kind), coverage) for coverage in segment.coverages]


def _live_files(segment: Segment, files: Sequence[ListedFile]) -> dict[int, int]:
    """Return the live files that the segment lists: ordinal in the listing -> ordinal in the segment."""
    found = ((file.ordinal, segment.file_ordinal(file.known_as)) for file in files)
    return {ordinal: known for ordinal, known in found if known is not None}


def _having(
    segments: Sequence[Segment],
    files: Sequence[ListedFile],
    live: dict[str, dict[int, int]],
    plan: BuildPlan,
    stale: set[tuple[bytes, int]],
) -> dict[int, set[Want]]:
    """Return for each file with units which kinds of which columns some segment has of it.

    Of the columns that are indexed now, only filters of the requested rate and format count.
    """
    having: dict[int, set[Want]] = {}
    holds, asked = _resolution_holds(plan), set(_wanted(plan))
    options = {column.field_id: plan.options.of(column.field_id) for column in plan.columns}
    rates = {field_id: one.fpp for field_id, one in options.items() if not one.any_rate}
    for segment in segments:
        wants = {want for want, c in _kinds(segment) if holds(c) and _has_rate(segment, want, rates.get(want[0]))}
        wants = {want for want in wants if (segment.header.segment_id, want[0]) not in stale}
        first, others = segment.unit_ranges, _other_format(segment, plan)
        locked = _locked(segment) if plan.encryption_keys is not None else {}
        for ordinal, known in live[segment.id].items():
            units = range(first[known], first[known + 1])
            if not units:
                continue  # a file that could not be read is tried again
            is_orc = files[ordinal].data_file.file_format == FileFormat.ORC
            odd = {want for want in asked & others.keys() if is_orc and others[want][units.start : units.stop].any()}
            odd |= {want for want, flags in locked.items() if flags[units.start : units.stop].any()}
            having.setdefault(ordinal, set()).update(wants - odd)
    return having


def _stale(segments: Sequence[Segment], plan: BuildPlan) -> set[tuple[bytes, int]]:
    """Return (segment id, field id) of blobs that a reader with the column's key refuses.

    Raises :class:`UsageError` if a blob under the right key does not open: the sidecar was tampered with.
    """
    keys = {} if plan.encryption_keys is None else plan.encryption_keys.bundle_keys
    named = {c.field_id: keys[c.path] for c in plan.columns if c.field_id in plan.options.sealed}
    found = set()
    for segment in segments:
        for blob in segment.blobs:
            field_id, lock = blob.toc.field_id, blob.toc.lock
            if field_id not in named:
                continue
            if lock is None or lock.key_metadata != named[field_id]:
                found.add((segment.header.segment_id, field_id))
            else:
                blob.check_key()
    return found


def _locked(segment: Segment) -> dict[Want, npt.NDArray[np.bool_]]:
    """Return for each want the units (bool[n]) that were not indexed because the column's key was missing."""
    found = {}
    for want, coverage in _kinds(segment):
        codes = [code for code, state in enumerate(coverage.states) if state.state == UnitState.ENCRYPTED]
        if codes:
            found[want] = np.isin(coverage.codes, codes)
    return found


def _other_format(segment: Segment, plan: BuildPlan) -> dict[Want, npt.NDArray[np.bool_]]:
    """Return for each want the units (bool[n]) with a filter in a format that differs from the requested one."""
    other = {"parquet": segment.orc_bundles, "orc": segment.bundles}.get(plan.options.filter_format, {})
    found = {}
    for field_id, bundle in other.items():
        flags = np.zeros(segment.num_units, np.bool_)
        for group in bundle.toc.groups:
            flags[group.ordinals()] = True
        found[field_id, BLOOM] = flags
    return found


def _resolution_holds(plan: BuildPlan) -> Callable[[Coverage], bool]:
    def holds(coverage: Coverage) -> bool:
        return all(
            resolution_holds(state.resolution, coverage.field_id, plan.name_mapping, plan.schema)
            for state in coverage.states
            if state.state == UnitState.INDEXED and state.resolution
        )

    return holds


def _has_rate(segment: Segment, want: Want, fpp: float | None) -> bool:
    """Return whether the wanted blobs are in the segment, and its filters were built for the rate (``None``: any)."""
    field_id, kind = want
    coverage, bundles = segment.coverage(field_id, kind), segment.bundles_of(field_id)
    if kind == PAGE_INDEX and coverage is not None and coverage.indexed.any():
        return field_id in segment.page_index_blobs or field_id in segment.row_index_blobs
    if kind != BLOOM or coverage is None or not coverage.indexed.any():
        return True
    return bool(bundles) and all(fpp in (None, bundle.toc.fpp) for bundle in bundles)


def _sketches(
    earlier: Earlier,
    table: Table,
    segments: Sequence[Segment],
    live: dict[str, dict[int, int]],
    plan: BuildPlan,
) -> tuple[dict[int, ThetaSketch], str]:
    """Return the earlier sketches of the wanted fields, or why they cannot be continued."""
    assert earlier.found is not None
    if not plan.options.theta or not earlier.served:
        return {}, ""
    puffin = earlier.found.sidecar.puffin
    blobs = {
        blob.fields[0]: blob
        for blob in puffin.metadata.blobs
        if blob.type == THETA_BLOB and len(blob.fields) == 1 and MARK in blob.properties
    }
    sketches: dict[int, ThetaSketch] = {}
    for column in plan.columns:
        if column.field_id in plan.options.sealed or not plan.options.of(column.field_id).theta:
            continue  # encrypted columns have no sketch
        counted = [s for s in segments if s.coverage(column.field_id, THETA) is not None]
        if any(len(live[segment.id]) < segment.num_files for segment in counted):
            return {}, "files were removed since, and a sketch cannot forget them"
        if any(_type_then(table, segment, column.field_id) != column.type for segment in counted):
            return {}, f"the type of {column.path} has changed since it was sketched"
        states = [state for s in counted for state in _states(s, column.field_id)]
        if column.field_id in blobs:
            data = puffin.read_blob(blobs[column.field_id])
            sketches[column.field_id] = ThetaSketch.from_bytes(data, plan.options.lg_k)
        elif UnitState.INDEXED in states:
            return {}, f"the earlier sketch of {column.path} is missing"
    return sketches, ""


def _states(segment: Segment, field_id: int) -> list[str]:
    coverage = segment.coverage(field_id, THETA)
    return [] if coverage is None else [state for state, count in coverage.counts().items() if count]


def _type_then(table: Table, segment: Segment, field_id: int) -> str | None:
    """Return a field's type in the schema of the snapshot that a segment indexed; ``None`` if it is not known."""
    snapshot = table.metadata.snapshot_by_id(segment.snapshot_id)
    schema = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    return str(schema.find_type(field_id)) if schema and field_id in schema.field_ids else None
