"""The units table of a merged segment: its files with their units, and the state of each unit.

A file that several segments list has one entry. Its units and its bounds are those of the newest segment that knows
its units. A segment that has other units for the file does not speak for it any more: the file may have been replaced
in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sidecar.bundle.kinds.declared import is_united
from sidecar.bundle.merging.source_segment import CheckedSegment
from sidecar.bundle.model import Coverage, CoverageState, FieldBounds, FileEntry, UnitState

NOBODY = -1
"""The owner of a unit that has no filter or index."""

Owners = npt.NDArray[np.int32]
"""int32[merged units]: the number of the segment that a unit's filter or index is taken from, or :data:`NOBODY`."""


@dataclass(frozen=True)
class MergedFile:
    """A file of a merged segment.

    ``entry`` is the file as a live manifest has it; its units and bounds are not used. ``places`` maps the numbers of
    source segments to the ordinal of the file in each.
    """

    entry: FileEntry
    places: Mapping[int, int]


@dataclass(frozen=True)
class MergedUnits:
    """The files of a merged segment, and where the units of the source segments went."""

    files: list[FileEntry]
    new_units: list[npt.NDArray[np.int64]]
    """For each source segment int64[its units]: the ordinal of the unit in the merged segment, -1 if it is gone."""
    new_files: list[npt.NDArray[np.int64]]
    """The new ordinal of each of its files; -1 also if the segment does not answer for the file any more, or knows no
    unit of it."""
    num_units: int

    def owners(self) -> Owners:
        """Return owners for all units, each of them :data:`NOBODY`."""
        return np.full(self.num_units, NOBODY, np.int32)


def merge_units(sources: Sequence[CheckedSegment], files: Sequence[MergedFile]) -> MergedUnits:
    """Give the units of ``files`` their ordinals. ``sources`` are oldest first."""
    new_units = [np.full(source.segment.num_units, -1, np.int64) for source in sources]
    new_files = [np.full(source.segment.num_files, -1, np.int64) for source in sources]
    merged: list[FileEntry] = []
    count = 0
    for file in files:
        newest_first = sorted(file.places.items(), reverse=True)
        known = [(number, ordinal) for number, ordinal in newest_first if sources[number].units[ordinal]]
        units = sources[known[0][0]].units[known[0][1]] if known else ()
        for number, ordinal in known:
            if sources[number].units[ordinal] == units:
                first = sources[number].first_units[ordinal]
                new_units[number][first : first + len(units)] = np.arange(count, count + len(units))
                new_files[number][ordinal] = len(merged)
        number, ordinal = (known or newest_first)[0]
        entry = file.entry if sources[number].recorded[ordinal] else replace(file.entry, entry=b"")
        merged.append(replace(entry, units=units, bounds=_bounds(sources[number], ordinal)))
        count += len(units)
    return MergedUnits(merged, new_units, new_files, count)


def _bounds(source: CheckedSegment, ordinal: int) -> dict[int, FieldBounds]:
    nothing = FieldBounds()
    return {i: bounds[ordinal] for i, bounds in source.bounds.items() if bounds[ordinal] != nothing}


def merge_coverage(
    sources: Sequence[CheckedSegment],
    units: MergedUnits,
    owners: Mapping[tuple[int, str], Owners],
    damaged: Mapping[tuple[int, str], npt.NDArray[np.bool_]],
    live_fields: Collection[int] | None,
) -> list[Coverage]:
    """Return the states of all merged units for each field and kind.

    ``owners`` says where the filters or indexes of a field and kind come from, ``damaged`` (bool[merged units]) which
    were damaged. Fields that are not in ``live_fields`` are left out.
    """
    known = {key: None for source in sources for key in source.coverage}
    found = []
    for key in sorted(known):
        if live_fields is not None and key[0] not in live_fields:
            continue
        states = _States(units.num_units)
        if is_united(key[1]):
            _merge_counted(sources, units, key, states)
        else:
            owned = owners.get(key, units.owners())
            _merge_owned(sources, units, key, owned, damaged.get(key), states)
        if states.has_some:
            found.append(states.coverage(*key))
    return found


class _States:
    """The states of all merged units for one field and kind, at first :attr:`UnitState.NOT_BUILT`."""

    def __init__(self, num_units: int) -> None:
        self._places = {CoverageState(UnitState.NOT_BUILT.value): 0}
        self.codes = np.zeros(num_units, np.int32)

    def coverage(self, field_id: int, kind: str) -> Coverage:
        """Return the states as they are stored, without those that no unit has."""
        used, codes = np.unique(self.codes, return_inverse=True)
        names = tuple(self._places)
        return Coverage(field_id, kind, tuple(names[code] for code in used.tolist()), codes.astype(np.int32))

    @property
    def has_some(self) -> bool:
        """Whether anything is known of some unit."""
        return bool(self.codes.any())

    def code(self, state: CoverageState) -> int:
        return self._places.setdefault(state, len(self._places))

    def are(self, state: UnitState) -> npt.NDArray[np.bool_]:
        """bool[units]: which units have this state."""
        return np.isin(self.codes, [code for name, code in self._places.items() if name.state == state])

    def take(self, coverage: Coverage, at: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> None:
        """Take the states of the source units ``chosen`` (bool[units of the source]); unit u becomes ``at[u]``."""
        codes = np.array([self.code(state) for state in coverage.states] or [0], np.int32)
        self.codes[at[chosen]] = codes[coverage.codes[chosen]]


def _merge_owned(
    sources: Sequence[CheckedSegment],
    units: MergedUnits,
    key: tuple[int, str],
    owners: Owners,
    damaged: npt.NDArray[np.bool_] | None,
    states: _States,
) -> None:
    """Units with an index have the state of its segment, others the newest reason why they have none."""
    for number, source in enumerate(sources):
        coverage = source.coverage.get(key)
        if coverage is None:
            continue
        at, says_something = units.new_units[number], ~_in_state(coverage, UnitState.NOT_BUILT)
        owner = np.where(at >= 0, owners[at] if units.num_units else NOBODY, NOBODY - 1)
        without = (owner == NOBODY) & says_something & ~coverage.indexed
        states.take(coverage, at, without | ((owner == number) & coverage.indexed))
        lost = (owner == NOBODY) & coverage.indexed
        states.codes[at[lost]] = 0
    if damaged is not None:
        states.codes[damaged & (owners == NOBODY)] = states.code(CoverageState(UnitState.DAMAGED.value))
    unstated = (owners != NOBODY) & ~states.are(UnitState.INDEXED)
    if unstated.any():
        states.codes[unstated] = states.code(CoverageState(UnitState.INDEXED.value))


def _merge_counted(
    sources: Sequence[CheckedSegment], units: MergedUnits, key: tuple[int, str], states: _States
) -> None:
    """Merge the coverage of sketches: a unit is counted if the sketch of any segment counted it."""
    for number, source in enumerate(sources):
        coverage = source.coverage.get(key)
        if coverage is None:
            continue
        at = units.new_units[number]
        says_something = (at >= 0) & ~_in_state(coverage, UnitState.NOT_BUILT)
        counted = np.zeros(len(at), np.bool_)
        counted[at >= 0] = states.are(UnitState.INDEXED)[at[at >= 0]]
        decides = coverage.indexed | ~counted
        states.take(coverage, at, says_something & decides)


def _in_state(coverage: Coverage, state: UnitState) -> npt.NDArray[np.bool_]:
    return np.isin(coverage.codes, [code for code, found in enumerate(coverage.states) if found.state == state])
