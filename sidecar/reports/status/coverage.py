"""Counts which data files and rows of a snapshot have an index in the sidecar that plans use, and which ones wait."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table

from sidecar.bundle.file_identity import UNKNOWN_SEQUENCE, DataFileIdentity
from sidecar.bundle.kinds.declared import BLOOM, KIND_OF_BLOB, is_asked
from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.segment import Segment
from sidecar.filters.arrays import Flags
from sidecar.iceberg.listing import Listing
from sidecar.indexing.declaration import ColumnWish
from sidecar.indexing.previous.damage import NO_DAMAGE, SidecarDamage
from sidecar.indexing.previous.earlier import has_rate
from sidecar.puffin.types import THETA_GROUPS
from sidecar.reports.status.results import CoveredRows, WaitingFiles


@dataclass(frozen=True)
class _Index:
    """What segments say about one column and kind: files with the index, without the column, and known ones."""

    covered: Flags
    without_column: Flags
    known: Flags


@dataclass(frozen=True)
class CountedCoverage:
    """The rows that have an index by column and kind, the least share of these, and the files that wait."""

    covered: dict[str, dict[str, CoveredRows]]
    share: float | None
    waiting: WaitingFiles


NOTHING_WAITS = WaitingFiles(0, 0, 0, None, 0.0)


@dataclass(frozen=True)
class _Counter:
    table: Table
    listing: Listing
    wished: frozenset[tuple[str, str]]
    damage: SidecarDamage
    indexes: dict[tuple[str, str], _Index] = field(default_factory=dict)

    def index_of(self, column: str, kind: str) -> _Index:
        return self.indexes.setdefault((column, kind), _Index(*(self._no_files() for _ in range(3))))

    def add(self, segment: Segment, states: Coverage, numbers: Sequence[int], ordinals: Sequence[int]) -> None:
        """Add what a segment says about one column and kind: its files ``ordinals`` are ``numbers`` in the listing."""
        column = self.table.schema().find_column_name(states.field_id)
        if column is None:
            return  # the table has dropped the column
        index = self.index_of(column, states.kind)
        retried_states = {UnitState.NOT_BUILT, UnitState.DAMAGED}  # by the next refresh
        retried = np.array([state.state in retried_states for state in states.states], np.bool_)[states.codes]
        index.known[numbers] |= ~self._is_tried_again(segment, retried, numbers, ordinals)
        damaged = self.damage.units.get(segment.id, {}).get((states.field_id, states.kind))
        sound = states.indexed if damaged is None else states.indexed & ~damaged
        index.covered[numbers] |= _in_all_units(segment, sound, ordinals)
        never = {UnitState.ABSENT, UnitState.BOOLEANS}
        absent = np.array([state.state in never for state in states.states], np.bool_)
        index.without_column[numbers] |= _in_all_units(segment, absent[states.codes], ordinals)

    def _is_tried_again(self, segment: Segment, flags: Flags, numbers: Sequence[int], ordinals: Sequence[int]) -> Flags:
        """Return bool[ordinals]: whether a unit of the file has the flag, or a file with rows could not be read."""
        first, files = segment.unit_ranges, np.array(ordinals, np.int64)
        counts = np.concatenate(([0], np.cumsum(flags)))
        rows = np.array([self.listing.files[number].record_count for number in numbers], np.int64)
        unread = (first[files + 1] == first[files]) & (rows > 0)
        found: Flags = unread | (counts[first[files + 1]] > counts[first[files]])
        return found

    def result(self) -> CountedCoverage:
        rows = np.array([file.record_count for file in self.listing.files], np.int64)
        indexable = np.array([file.not_indexable is None for file in self.listing.files], np.bool_)
        covered: dict[str, dict[str, CoveredRows]] = {}
        for (column, kind), index in self.indexes.items():
            asked = int(rows[~index.without_column].sum())
            have = int(rows[index.covered].sum())
            waiting = int((indexable & ~index.known).sum())
            counted = CoveredRows(int(index.covered.sum()), have, have / asked if asked else 1.0, waiting)
            covered.setdefault(column, {})[kind] = counted
        lookups = {key: index for key, index in self.indexes.items() if is_asked(key[1])} or self.indexes
        wished = [index for key, index in lookups.items() if key in self.wished] or list(lookups.values())
        known = np.logical_and.reduce([index.known for index in wished]) if wished else self._no_files()
        share = min((covered[column][kind].share for column, kind in lookups), default=0.0)
        waits = np.flatnonzero(indexable & ~known).tolist()
        return CountedCoverage(covered, share if self.listing.files else None, self._waiting(waits))

    def _waiting(self, numbers: Sequence[int]) -> WaitingFiles:
        if not numbers:
            return NOTHING_WAITS
        files = [self.listing.files[number] for number in numbers]
        since, is_certain = waiting_since(self.table, {file.known_as for file in files})
        return WaitingFiles(
            files=len(files),
            rows=sum(file.record_count for file in files),
            bytes=sum(file.file_size for file in files),
            since=since,
            seconds=max(time.time() - since, 0.0),
            or_longer=not is_certain,
        )

    def _no_files(self) -> Flags:
        return np.zeros(len(self.listing.files), np.bool_)


def count_coverage(
    table: Table,
    listing: Listing,
    segments: Sequence[Segment],
    live: Sequence[dict[int, int]],
    wished: Iterable[tuple[str, str]] = (),
    damage: SidecarDamage = NO_DAMAGE,
) -> CountedCoverage:
    """Count what ``segments`` say about the files of ``listing``. ``live`` is what ``live_files`` returns for them.

    A file is covered if some segment has the index for all its row groups, because only then a lookup can rule it out.
    ``wished`` are columns and kinds that a refresh indexes; they count although no segment has them yet, and a file
    waits only for these. Without any, it waits for all that the segments have. What has ``damage`` covers nothing.
    """
    counter = _Counter(table, listing, frozenset(wished), damage)
    for column, kind in sorted(counter.wished):
        counter.index_of(column, kind)
    for segment, files in zip(segments, live, strict=True):
        for states in segment.coverages:
            counter.add(segment, states, list(files.keys()), list(files.values()))
    return counter.result()


def files_with_other_rates(
    segments: Sequence[Segment], live: Sequence[dict[int, int]], wishes: Iterable[ColumnWish]
) -> dict[str, int]:
    """Return by column how many files have filters for another rate than is declared, so that a refresh indexes them
    again. ``live`` is what ``live_files`` returns."""
    found = {}
    for wish in wishes:
        if BLOOM not in wish.kinds or wish.fpp == "auto":
            continue
        right, wrong = set[int](), set[int]()
        for segment, files in zip(segments, live, strict=True):
            if segment.coverage(wish.column.field_id, BLOOM) is not None:
                (right if has_rate(segment, (wish.column.field_id, BLOOM), wish.fpp) else wrong).update(files)
        if wrong - right:
            found[wish.column.path] = len(wrong - right)
    return found


def count_damaged(
    table: Table, segments: Sequence[Segment], live: Sequence[dict[int, int]], damage: SidecarDamage
) -> dict[tuple[str, str], int]:
    """Return how many live files have damaged indexes, by column and kind; of distinct counts, all that were counted.

    Columns that the table has dropped are left out.
    """
    counted = KIND_OF_BLOB[THETA_GROUPS].name
    files: dict[tuple[int, str], set[int]] = {(field_id, counted): set() for field_id in damage.counts}
    for segment, own in zip(segments, live, strict=True):
        first = segment.unit_ranges
        for key, flags in damage.units.get(segment.id, {}).items():
            hit = {number for number, ordinal in own.items() if flags[first[ordinal] : first[ordinal + 1]].any()}
            files.setdefault(key, set()).update(hit)
        for field_id in damage.counts:
            files[field_id, counted].update(own)
    named = ((table.schema().find_column_name(field_id), kind, found) for (field_id, kind), found in files.items())
    return {(column, kind): len(found) for column, kind, found in named if column is not None and found}


def _in_all_units(segment: Segment, flags: npt.NDArray[np.bool_], ordinals: Sequence[int]) -> Flags:
    """Return bool[ordinals]: whether a flag is set in all units of the file; False for files without units."""
    first, files = segment.unit_ranges, np.array(ordinals, np.int64)
    counts = np.concatenate(([0], np.cumsum(flags)))
    units = first[files + 1] - first[files]
    whole: Flags = (units > 0) & (counts[first[files + 1]] - counts[first[files]] == units)
    return whole


def waiting_since(table: Table, files: Iterable[DataFileIdentity]) -> tuple[float, bool]:
    """Return the time at or before which the first of ``files`` was committed, and whether that is certain.

    The time of an expired snapshot is not known. What is certain is that it came after the last snapshot with a
    smaller sequence number. Where none is left, the oldest snapshot is newer than the file.
    """
    snapshots = table.metadata.snapshots
    times = {one.snapshot_id: one.timestamp_ms for one in snapshots}
    in_order = sorted((one.sequence_number or UNKNOWN_SEQUENCE, one.timestamp_ms) for one in snapshots)
    oldest, found, is_certain = min(times.values(), default=0), list[int](), True
    for file in files:
        since = None if file.added_snapshot_id is None else times.get(file.added_snapshot_id)
        if since is None and file.file_sequence_number > UNKNOWN_SEQUENCE:
            before = bisect_left(in_order, (file.file_sequence_number,))
            since = in_order[before - 1][1] if before else None
        is_certain &= since is not None
        found.append(oldest if since is None else since)
    return min(found) / 1000, is_certain
