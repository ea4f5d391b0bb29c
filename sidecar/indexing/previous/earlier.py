"""Decides which files a build need not index again, because an earlier sidecar has them.

The nearest sidecar of the snapshot, registered or displaced by another writer's statistics, is examined segment by
segment. A file is *served* if, for each requested column and kind, some segment lists it with that kind, and the column
is found in the file today as it was then. Segments are carried over as bytes: those that serve files, and those with
other columns, which a build of some columns must not lose. A segment without a live file is dropped, and so is one with
only what is built anew.

Distinct counts are carried over by groups of files (:mod:`sidecar.indexing.previous.earlier_sketches`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from sidecar.bundle.kinds.declared import KINDS, THETA, is_united
from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.runs import IndexOfField, intact_state_of
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import SketchToCopy, is_our_blob, is_our_theta, sketched_fields
from sidecar.iceberg.statistics_files.sidecar_files import Places
from sidecar.indexing.assemble import kinds_of
from sidecar.indexing.kinds import PARTS
from sidecar.indexing.previous.build_state import mapping_digest
from sidecar.indexing.previous.carrying import live_files
from sidecar.indexing.previous.damage import SidecarDamage, find_damage
from sidecar.indexing.previous.earlier_sketches import ReusableCounts, counted_files, earlier_counts, still_holds
from sidecar.indexing.stage_one.tasks import BuildPlan
from sidecar.puffin.types import ORC_BLOOM, SBBF
from sidecar.questions.narrowing import Units


@dataclass
class ReusableSidecar:
    """The usable part of an earlier sidecar; empty without one. Close it."""

    found: FoundSidecar | None = None
    segments: list[Segment] = field(default_factory=list)
    """Segments to carry over."""
    live: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """The live files of each segment, by its id: their ordinals in the listing and in the segment."""
    having: dict[int, set[IndexOfField]] = field(default_factory=dict)
    """The indexes of each live file in the segments, by its ordinal, for all columns."""
    served: set[int] = field(default_factory=set)
    """Ordinals of the files that are not indexed again."""
    limited: bool = False
    """Whether not all files that are not served are indexed now, so that the others need their earlier indexes."""
    counts: ReusableCounts = field(default_factory=ReusableCounts)
    """Distinct counts of the requested fields in the served files."""
    counted: dict[int, set[int]] = field(default_factory=dict)
    """Ordinals of the live files of which the segments have counted all units, by field id."""
    removed: set[int] = field(default_factory=set)
    """Fields of which the segments have counted files that are gone."""
    misread: set[int] = field(default_factory=set)
    """Fields whose sketch of the whole table may count the values of another column, as files are read now."""
    damage: SidecarDamage | None = None
    """What is damaged in the sidecar; ``None`` if nobody has looked."""
    stale: set[tuple[bytes, int]] = field(default_factory=set)
    """(Segment id, field id) of blobs in plaintext or under a different key than this build uses."""
    why_not: str = ""
    """Why all files are indexed again; empty if they are not."""

    def registered_count(self, field_id: int) -> tuple[set[int], bool]:
        """Return the ordinals of the live files that the segments have counted, and whether they counted others."""
        return self.counted.get(field_id, set()), field_id in self.removed

    def is_registered(self, table: Table, snapshot_id: int) -> bool:
        """Return whether the sidecar belongs to this very snapshot, and all of it would be carried over."""
        found = self.found
        is_own = found is not None and found.displaced is None and found.snapshot_id == snapshot_id
        is_told = self.damage is not None and self.damage.footer
        return is_own and not is_told and self.is_whole(table)

    def is_whole(self, table: Table) -> bool:
        """Return whether all segments are carried over, and none of our blobs is about a column that is gone.

        A segment that only lists files which could not be read is as good as carried: a new one would list them again,
        and each run would write a copy of all the others for it.
        """
        if self.found is None:
            return False
        carried, unread = {segment.id for segment in self.segments}, self.unread
        if self.damage is None or not self.damage.tables:
            carried |= {i for i, files in self.live.items() if files and unread.issuperset(files)}
        if any(segment.id not in carried for segment in self.found.sidecar.segments):
            return False
        return not gone_fields(table, self.found.sidecar)

    @property
    def broken_counts(self) -> set[int]:
        """The fields whose sketch of the whole table is damaged, or counts values of another column."""
        return self.misread.union(() if self.damage is None else self.damage.counts)

    def damaged(self, segment: Segment) -> Mapping[IndexOfField, npt.NDArray[np.bool_]]:
        """Return the units (bool[n]) of a segment whose index is damaged, by field id and kind."""
        damage = {} if self.damage is None else self.damage.units
        return {key: own for key, units in damage.items() if (own := segment.own_units(units)).any()}

    def has_damage(self, segment: Segment) -> bool | None:
        """Return whether an index of a segment is damaged that would be carried over; ``None`` if nobody has looked.

        Sketches of groups that are left out are written anew.
        """
        if self.damage is None:
            return None
        anew, known = self.counts.is_replaced, segment.header.segment_id
        return any(not (is_united(kind) and anew(known, [field_id])) for field_id, kind in self.damaged(segment))

    def without(self, files: Sequence[int], field_id: int, kind: str) -> set[int]:
        """Return those of ``files`` (ordinals) of which no segment has this kind of index of a field."""
        return {ordinal for ordinal in files if (field_id, kind) not in self.having.get(ordinal, ())}

    @property
    def listed(self) -> set[int]:
        """Ordinals of the live files that segments list."""
        return set[int]().union(*self.live.values())

    @property
    def unread(self) -> set[int]:
        """Ordinals of the live files that segments list without a unit: unreadable, or in a format without indexes."""
        return self.listed - self.having.keys()

    def close(self) -> None:
        """Close the earlier file."""
        if self.found is not None:
            self.found.sidecar.close()


def gone_fields(table: Table, sidecar: SidecarFile) -> set[int]:
    """Return the fields of our blobs in a sidecar that ``table`` does not have any more."""
    fields = {i for blob in sidecar.puffin.metadata.blobs if is_our_blob(blob) for i in blob.fields}
    return fields - table.schema().field_ids


def look_back(
    table: Table,
    listing: Listing,
    plan: BuildPlan,
    found: FoundSidecar | None,
    full: bool,
    most_files: int | None = None,
    checked: bool = False,
) -> ReusableSidecar:
    """Return the usable part of ``found``, the nearest sidecar of the snapshot.

    It has its keys. ``full`` serves no files. ``checked``: all checksums are looked at, and damaged indexes serve no
    file. At most ``most_files`` files will be indexed now; files beyond that keep what they have. If the sidecar is
    damaged anywhere but in a sketch, nothing of it is reused.
    """
    if found is None:
        return ReusableSidecar()
    earlier = ReusableSidecar(found)
    try:
        earlier.damage = find_damage(found.sidecar, found.statistics) if checked else None
        _fill(earlier, table, listing, plan, full, most_files)
    except SidecarError as error:
        return ReusableSidecar(found, why_not=f"the earlier sidecar cannot be reused: {error.what}")
    if found.sidecar.warnings:
        is_damaged = any(isinstance(cause, DamagedFileError) for cause in found.sidecar.damage.causes)
        fault = "is damaged" if is_damaged else "cannot be used"
        return ReusableSidecar(found, why_not=f"the earlier sidecar {fault}: {found.sidecar.warnings[0]}")
    return earlier


def other_segments(segments: Sequence[Segment], known: Collection[str], plan: BuildPlan) -> list[Segment]:
    """Return segments with ids not in ``known`` that have columns or kinds which this build does not make."""
    wanted = set(wanted_indexes(plan))
    return [s for s in segments if s.id not in known and not {want for want, _ in _kinds(s)} <= wanted]


def sketches_to_carry(earlier: ReusableSidecar) -> list[SketchToCopy]:
    """Return the sketches of the earlier sidecar that hold for the segments that are carried over.

    A sketch of a column that a build does not sketch stays right for the files that it counted. It is left out if a
    segment with such files is not carried over, because nothing would tell then which files it counted. Nothing is
    taken out of a damaged file.
    """
    if earlier.found is None or earlier.found.sidecar.warnings:
        return []
    kept = {segment.id for segment in earlier.segments}
    others = [segment for segment in earlier.found.sidecar.segments if segment.id not in kept]
    if earlier.damage is not None and any(one.id in earlier.damage.tables and not one.coverages for one in others):
        return []  # nobody knows what these have counted
    gone = {
        coverage.field_id
        for segment in others
        for (_, kind), coverage in _kinds(segment)
        if is_united(kind) and coverage.indexed.any()
    }
    gone |= earlier.broken_counts
    puffin = earlier.found.sidecar.puffin
    registered = sketched_fields(earlier.found.statistics.blob_metadata)
    return [
        SketchToCopy(blob, puffin, blob.fields[0] in registered)
        for blob in puffin.metadata.blobs
        if is_our_theta(blob) and blob.fields[0] not in gone
    ]


def _fill(
    earlier: ReusableSidecar,
    table: Table,
    listing: Listing,
    plan: BuildPlan,
    full: bool,
    most_files: int | None,
) -> None:
    assert earlier.found is not None
    segments = earlier.found.sidecar.segments
    earlier.stale = _refused_blobs(segments, plan)
    earlier.live = {segment.id: live_files(segment, listing.files) for segment in segments}
    earlier.misread = _misread(earlier.found, table, plan)
    earlier.having = _having(earlier.found.sidecar, listing.files, plan, earlier)
    if not full:
        earlier.served = _served(earlier, plan)
    _choose_segments(earlier, table, listing, plan, most_files)
    if earlier.served or earlier.limited:
        earlier.counts = earlier_counts(earlier.segments, earlier.live, listing.files, earlier.served, plan)
        for field_id, lost in earlier.counts.lost.items():
            for ordinal in lost:
                earlier.having[ordinal].discard((field_id, THETA))
        if any(earlier.counts.lost.values()):
            earlier.served = _served(earlier, plan)
            _choose_segments(earlier, table, listing, plan, most_files)
    _note_counted(earlier, earlier.found.sidecar)


def _misread(found: FoundSidecar, table: Table, plan: BuildPlan) -> set[int]:
    """Return the fields whose count may have the values of another column, because the name mapping has changed.

    The file that is written then lacks these counts, and has the digest of the new mapping.
    """
    footer = found.sidecar.puffin.metadata
    state = intact_state_of(footer.properties)
    if state is not None and state.mapping == mapping_digest(table):
        return set()
    counted = (one for segment in found.sidecar.segments for (_, kind), one in _kinds(segment) if is_united(kind))
    other = {one.field_id for one in counted if not all(still_holds(state, one.field_id, plan) for state in one.states)}
    return other & sketched_fields(footer.blobs)


def _served(earlier: ReusableSidecar, plan: BuildPlan) -> set[int]:
    """Return the files of which segments have all that is asked for."""
    wanted = set(wanted_indexes(plan))
    return {ordinal for ordinal, wants in earlier.having.items() if wants >= wanted}


def _choose_segments(
    earlier: ReusableSidecar,
    table: Table,
    listing: Listing,
    plan: BuildPlan,
    most_files: int | None,
) -> None:
    """Choose the segments to carry over, by the files that are served."""
    assert earlier.found is not None
    missing = sum(file.not_indexable is None and file.ordinal not in earlier.served for file in listing.files)
    earlier.limited = most_files is not None and missing > most_files
    wanted, fields = set(wanted_indexes(plan)), table.schema().field_ids
    earlier.segments = []
    broken: Collection[str] = () if earlier.damage is None else earlier.damage.tables
    sound = [segment for segment in earlier.found.sidecar.segments if segment.id not in broken]
    for segment in earlier.found.sidecar.segments:
        own = {want for want, _ in _kinds(segment) if want[0] in fields}
        if segment.id in broken:  # it serves nothing, and stays for what nobody makes anew
            is_used: object = (own & _only_in(segment, sound, earlier.live)) - wanted
        else:
            is_used = own - wanted or earlier.limited or earlier.served.intersection(earlier.live[segment.id])
        if earlier.live[segment.id] and own and is_used:
            earlier.segments.append(segment)


def _only_in(segment: Segment, others: Sequence[Segment], live: Mapping[str, Mapping[int, int]]) -> set[IndexOfField]:
    """Return the columns and kinds of which the segment indexes a live file that none of ``others`` does."""

    def files(one: Segment, want: IndexOfField) -> set[int]:
        coverage = one.coverage(*want)
        if coverage is None:
            return set()
        has = coverage.files_with_entries(one.unit_ranges)
        return {ordinal for ordinal, known in live[one.id].items() if has[known]}

    return {
        want for want, _ in _kinds(segment) if files(segment, want).difference(*(files(one, want) for one in others))
    }


def _note_counted(earlier: ReusableSidecar, sidecar: SidecarFile) -> None:
    """Note which files the sidecar has counted: its sketches have values of segments that are not carried, too."""
    places = _placed(sidecar.segments, earlier.live)
    for field_id, kind in sidecar.recorded:
        if is_united(kind):
            earlier.counted[field_id], has_removed = counted_files(sidecar, field_id, kind, places)
            earlier.removed |= {field_id} if has_removed else set()


def _placed(segments: Sequence[Segment], live: Mapping[str, Mapping[int, int]]) -> Places:
    """Return where segments list live files, by the ordinals of these in the listing."""
    pairs = [(at, segment.first_file + own) for segment in segments for at, own in live[segment.id].items()]
    return Places(*np.array(pairs, np.int64).reshape(-1, 2).T)


def wanted_indexes(plan: BuildPlan) -> list[IndexOfField]:
    """Return the columns and kinds that a build makes."""
    return [(column.field_id, kind) for column in plan.columns for kind in kinds_of(plan.options.of(column.field_id))]


def _kinds(segment: Segment) -> list[tuple[IndexOfField, Coverage]]:
    return [((coverage.field_id, coverage.kind), coverage) for coverage in segment.coverages]


def _having(
    sidecar: SidecarFile,
    files: Sequence[SnapshotFile],
    plan: BuildPlan,
    earlier: ReusableSidecar,
) -> dict[int, set[IndexOfField]]:
    """Return for each file with units which kinds of which columns some segment has of it.

    Of the columns that are indexed now, only filters of the requested rate and format count.
    """
    at, numbers = _placed(sidecar.segments, earlier.live)
    has_rows = np.array([bool(file.record_count) for file in files], np.bool_)[at]
    # A file with rows and without units could not be read: it is tried again.
    is_read = ~has_rows | (sidecar.unit_ranges[numbers + 1] > sidecar.unit_ranges[numbers])
    at, numbers = at[is_read], numbers[is_read]
    is_orc = np.array([file.data_file.file_format == FileFormat.ORC for file in files], np.bool_)[at]
    having: dict[int, set[IndexOfField]] = {ordinal: set() for ordinal in at.tolist()}
    wanted, rates = set(wanted_indexes(plan)), plan.fixed_rates()
    for want in sidecar.recorded:
        states, is_recorded = sidecar.coverage(*want)
        has = is_recorded[numbers] & ~sidecar.in_some_unit(_tried_again(states, plan), numbers)
        if want in wanted:
            damaged = None if earlier.damage is None else earlier.damage.units.get(want)
            has &= True if damaged is None else ~sidecar.in_some_unit(damaged, numbers)
            has &= ~(is_orc & sidecar.in_some_unit(_in_other_format(sidecar, want, plan), numbers))
        for segment, own, _ in sidecar.of_files(numbers):
            if (segment.header.segment_id, want[0]) in earlier.stale or not has_rate(segment, want, rates.get(want[0])):
                has[own] = False
        for ordinal in at[has].tolist():
            having[ordinal].add(want)
    return having


def _refused_blobs(segments: Sequence[Segment], plan: BuildPlan) -> set[tuple[bytes, int]]:
    """Return (segment id, field id) of blobs that a reader with the column's key refuses, and of sketches.

    Raises :class:`UsageError` if a blob under the right key does not open: the sidecar was tampered with.
    """
    keys = {} if plan.access.keys is None else plan.access.keys.bundle_keys
    named = {c.field_id: keys[c.path] for c in plan.columns if c.field_id in plan.options.encrypted}
    found = set()
    for segment in segments:
        found |= {(segment.header.segment_id, field_id) for field_id in named.keys() & segment.sketch_blobs.keys()}
        for blob in segment.blobs:
            field_id, lock = blob.toc.field_id, blob.toc.lock
            if field_id not in named:
                continue
            if lock is None or lock.key_metadata != named[field_id]:
                found.add((segment.header.segment_id, field_id))
            else:
                blob.check_key()
    return found


def _tried_again(coverage: Coverage, plan: BuildPlan) -> Units:
    """Return the units of which a listed file is not served.

    No index was built or it was damaged, the column's key was missing and some keys are given now, or the column is no
    longer found as it was.
    """
    reasons = {UnitState.NOT_BUILT, UnitState.DAMAGED, *([] if plan.access.keys is None else [UnitState.ENCRYPTED])}
    states = enumerate(coverage.states)
    again = [n for n, one in states if one.state in reasons or not still_holds(one, coverage.field_id, plan)]
    return np.isin(coverage.codes, again)


def _in_other_format(sidecar: SidecarFile, want: IndexOfField, plan: BuildPlan) -> Units:
    """Return the units with a filter in a format that differs from the requested one."""
    field_id, kind = want
    other = {"parquet": ORC_BLOOM, "orc": SBBF}.get(plan.options.filter_format)
    flags = np.zeros(sidecar.num_units, np.bool_)
    for bundle, _, units in sidecar.groups_of(field_id) if other in KINDS[kind].blob_types else ():
        if bundle.toc.rule_type.blob_type == other:
            flags[units] = True
    return flags


def has_rate(segment: Segment, want: IndexOfField, fpp: float | None) -> bool:
    """Return whether the wanted blobs are in the segment, and its filters were built for the rate (``None``: any)."""
    field_id, kind = want
    coverage = segment.coverage(field_id, kind)
    if coverage is None or not coverage.indexed.any() or kind not in PARTS:
        return True
    return PARTS[kind].serves(segment, field_id, fpp)
