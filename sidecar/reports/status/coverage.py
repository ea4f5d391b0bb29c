"""Counts which data files and rows of a snapshot have an index in the sidecar that plans use, and which ones wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from pyiceberg.table import Table

from sidecar.bundle.kinds.declared import BLOOM, KIND_OF_BLOB, is_asked
from sidecar.bundle.model import UnitState
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.filters.arrays import Flags, Ordinals
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.refs import waiting_since
from sidecar.iceberg.statistics_files.sidecar_files import Places
from sidecar.indexing.declaration import ColumnDeclaration
from sidecar.indexing.previous.damage import NO_DAMAGE, SidecarDamage
from sidecar.indexing.previous.earlier import has_rate
from sidecar.puffin.types import THETA_GROUPS
from sidecar.reports.status.indexes import LivePlaces
from sidecar.reports.status.results import CoveredRows, WaitingFiles


@dataclass(frozen=True)
class _Index:
    """The coverage of one column and kind: files with the index, files without the column, and known files."""

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
    refreshed: frozenset[tuple[str, str]]
    damage: SidecarDamage
    indexes: dict[tuple[str, str], _Index] = field(default_factory=dict)

    def index_of(self, column: str, kind: str) -> _Index:
        return self.indexes.setdefault((column, kind), _Index(*(self._no_files() for _ in range(3))))

    def add(self, files: NumberedFiles, places: Places, field_id: int, kind: str) -> None:
        """Add what the sidecar says about one column and kind. ``places`` are those of files in the listing."""
        column = self.table.schema().find_column_name(field_id)
        if column is None:
            return  # the table has dropped the column
        index, (states, is_recorded) = self.index_of(column, kind), files.coverage(field_id, kind)
        at, numbers = (of[is_recorded[places.numbers]] for of in places)
        retried = states.units_in({UnitState.NOT_BUILT, UnitState.DAMAGED})  # by the next refresh
        is_unread = (files.unit_ranges[numbers + 1] == files.unit_ranges[numbers]) & (self.rows[at] > 0)
        index.known[at[~is_unread & ~files.in_some_unit(retried, numbers)]] = True
        damaged = self.damage.units.get((field_id, kind))
        sound = states.indexed if damaged is None else states.indexed & ~damaged
        index.covered[at[files.in_all_units(sound, numbers)]] = True
        never = states.units_in({UnitState.ABSENT, UnitState.BOOLEANS})
        index.without_column[at[files.in_all_units(never, numbers)]] = True

    @cached_property
    def rows(self) -> Ordinals:
        return np.array([file.record_count for file in self.listing.files], np.int64)

    def result(self) -> CountedCoverage:
        rows = self.rows
        indexable = np.array([file.not_indexable is None for file in self.listing.files], np.bool_)
        covered: dict[str, dict[str, CoveredRows]] = {}
        for (column, kind), index in self.indexes.items():
            asked = int(rows[~index.without_column].sum())
            have = int(rows[index.covered].sum())
            waiting = int((indexable & ~index.known).sum())
            counted = CoveredRows(int(index.covered.sum()), have, have / asked if asked else 1.0, waiting)
            covered.setdefault(column, {})[kind] = counted
        lookups = {key: index for key, index in self.indexes.items() if is_asked(key[1])} or self.indexes
        refreshed = [index for key, index in lookups.items() if key in self.refreshed] or list(lookups.values())
        known = np.logical_and.reduce([index.known for index in refreshed]) if refreshed else self._no_files()
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
    live: LivePlaces,
    refreshed: Iterable[tuple[str, str]] = (),
    damage: SidecarDamage = NO_DAMAGE,
) -> CountedCoverage:
    """Count what the sidecar says about the files of ``listing``.

    A file is covered if some segment has the index for all its row groups, because only then a lookup can rule it out.
    ``refreshed`` are columns and kinds that a refresh indexes; they count although no segment has them yet, and a file
    waits only for these. Without any, it waits for all that the segments have. What has ``damage`` covers nothing.
    """
    counter = _Counter(table, listing, frozenset(refreshed), damage)
    for column, kind in sorted(counter.refreshed):
        counter.index_of(column, kind)
    for field_id, kind in live.sidecar.recorded:
        counter.add(live.sidecar, live.places, field_id, kind)
    return counter.result()


def files_with_other_rates(live: LivePlaces, declared: Iterable[ColumnDeclaration]) -> dict[str, int]:
    """Return by column how many files have filters for another rate than is declared, so that a refresh indexes them
    again."""
    found = {}
    for one in declared:
        field_id = one.column.field_id
        if BLOOM not in one.kinds or one.fpp == "auto":
            continue
        right, wrong = set[int](), set[int]()
        for segment, at, _ in live.sidecar.of_files(live.places.numbers):
            if segment.coverage(field_id, BLOOM) is not None:
                files = live.places.at[at].tolist()
                (right if has_rate(segment, (field_id, BLOOM), one.fpp) else wrong).update(files)
        if wrong - right:
            found[one.column.path] = len(wrong - right)
    return found


def count_damaged(table: Table, live: LivePlaces, damage: SidecarDamage) -> dict[tuple[str, str], int]:
    """Return how many live files have damaged indexes, by column and kind; of distinct counts, all that were counted.

    Columns that the table has dropped are left out.
    """
    counted, (at, numbers) = KIND_OF_BLOB[THETA_GROUPS].name, live.places
    files: dict[tuple[int, str], set[int]] = {}
    for key, flags in damage.units.items():
        files[key] = set(at[live.sidecar.in_some_unit(flags, numbers)].tolist())
    files |= {(field_id, counted): set(at.tolist()) for field_id in damage.counts}
    named = ((table.schema().find_column_name(field_id), kind, found) for (field_id, kind), found in files.items())
    return {(column, kind): len(found) for column, kind, found in named if column is not None and found}
