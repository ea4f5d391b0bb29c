"""Finds the files and row groups that can hold a row whose value is one of many keys.

Bounds come first: the bounds of all files are searched in the sorted keys at once, and a file without a key between
its bounds is dropped. Filters are asked about the rest if they can help. Each lookup is another chance of a false
positive, so a row group is asked only if the number of keys within its file's bounds x the filters' rate of false
positives is below 1. If that leaves too many lookups, only the row groups with the fewest keys are asked. Row groups
that are not asked are kept, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import DataFile

from sidecar.bundle.filters.key_lookup import KeyRuns, rate_of, units_with_some_key
from sidecar.bundle.numbered_files import FieldFilters, NumberedFiles
from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import nearest_float32
from sidecar.filters.probes import FieldQuestion, Resolutions, ValueProbes
from sidecar.filters.sizing import fpp_for_keys
from sidecar.planning.file_bounds import FileBounds
from sidecar.planning.files.by_filters import NO_FILTERS, FilePlace
from sidecar.planning.funnel import KeptFilesBecause, KeptReason, NotIndexed
from sidecar.planning.keys.key_sets import KeySet
from sidecar.questions.bounds import Unknown
from sidecar.questions.narrowing import Units

MAX_LOOKUPS = 4096
"""The most distinct keys that filters of a segment are asked in one plan."""
MAX_BYTES = 64 * 1024 * 1024
"""The most bytes of a bundle of filters that one plan reads for keys."""


class FilesWithinBounds(NamedTuple):
    """For each file, positions ``[first, end)`` of the sorted keys within its bounds, and whether NaN may match."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    nan: npt.NDArray[np.bool_]

    @property
    def keep(self) -> npt.NDArray[np.bool_]:
        """bool[files]: whether some key is within the bounds."""
        return (self.first < self.end) | self.nan

    def only(self, chosen: npt.NDArray[np.bool_]) -> FilesWithinBounds:
        """Return the entries of the ``chosen`` files; ``chosen`` is bool[files]."""
        return FilesWithinBounds(self.first[chosen], self.end[chosen], self.nan[chosen])


@dataclass(frozen=True)
class KeyAnswer:
    """The answer of filters about one file; ``places`` has what they leave of its row groups."""

    places: list[FilePlace]
    reason: KeptReason

    @property
    def keep(self) -> bool:
        """Whether a row group is left in every segment that knows row groups of the file."""
        return all(len(place.alive) == 0 or bool(place.alive.any()) for place in self.places)


class KeyPruner:
    """Rules out files and row groups for one key set. Filters whose ``resolutions`` do not hold are not asked."""

    def __init__(self, keys: KeySet, resolutions: Resolutions) -> None:
        self.keys = keys
        self.notes: list[str] = []
        self._resolutions = resolutions
        self._bounds = FileBounds({keys.field_id: keys.type})

    def by_bounds(self, files: Sequence[DataFile]) -> FilesWithinBounds:
        """Find the keys within the bounds of each file: all of them if the bounds are not known."""
        keys, count = self.keys, len(self.keys.sorted)
        bounds = [self._bounds_of(file) for file in files]
        first, end = np.zeros(len(files), np.int64), np.full(len(files), count, np.int64)
        low = [at for at, (lower, _, _, _) in enumerate(bounds) if lower is not None]
        high = [at for at, (_, upper, _, _) in enumerate(bounds) if upper is not None]
        if count:
            first[low] = np.searchsorted(keys.sorted, self._as_keys([bounds[at][0] for at in low]), "left")
            end[high] = np.searchsorted(keys.sorted, self._as_keys([bounds[at][1] for at in high]), "right")
        end[np.array([all_null for _, _, all_null, _ in bounds], np.bool_)] = 0
        nan = np.array([keys.has_nan and may_have_nan for _, _, _, may_have_nan in bounds], np.bool_)
        return FilesWithinBounds(first, end, nan)

    def can_help(self, bounded: FilesWithinBounds) -> bool:
        """Return whether filters may be asked about some file, because few enough keys are within its bounds."""
        # Filters are never asked for NaN, which writers hash differently. A file that may hold it is kept.
        counts = (bounded.end - bounded.first)[~bounded.nan]
        if len(counts) and counts.min() <= MAX_LOOKUPS:
            return True
        if len(counts):
            self._note(counts, f"more than {MAX_LOOKUPS:,}")
        return False

    def by_filters(
        self, sidecar: NumberedFiles, files: Sequence[Sequence[FilePlace]], bounded: FilesWithinBounds
    ) -> list[KeyAnswer]:
        """Return what filters leave of files, given the places where ``sidecar`` lists each."""
        field_id = self.keys.field_id
        asked = {place.number: sidecar.filters_of(field_id, place.number) for places in files for place in places}
        answers = {filters: self._ask(filters, files, bounded) for filters in dict.fromkeys(asked.values())}
        by_number = {number: answers[filters] for number, filters in asked.items()}
        return [self._asked(places, by_number) for places in files]

    def _asked(self, places: Sequence[FilePlace], answers: dict[int, _Answer]) -> KeyAnswer:
        left = []
        reason: KeptReason = KeptFilesBecause.NOT_LISTED
        for place in places:
            answer = answers[place.number]
            start = place.first_unit - answer.first_unit
            units = slice(start, start + len(place.alive))
            left.append(replace(place, alive=place.alive & answer.units[units]))
            if reason is not KeptFilesBecause.MAY_MATCH:
                reason = KeptFilesBecause.MAY_MATCH if answer.asked[units].any() else answer.why_not
        return KeyAnswer(left, reason)

    def _ask(self, filters: FieldFilters, files: Sequence[Sequence[FilePlace]], bounded: FilesWithinBounds) -> _Answer:
        first, count = filters.first_unit, filters.num_units
        keep, none = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        field_id, column = self.keys.field_id, self.keys.column
        bundles = [bundle for bundle in filters.bundles if bundle.toc.groups]
        if not bundles:
            return _Answer(first, keep, none, NotIndexed(column, NO_FILTERS))
        runs = self._runs(filters, files, bounded, max(map(rate_of, bundles)))
        positions = runs.covered()
        if not len(positions):
            return _Answer(first, keep, none, KeptFilesBecause.TOO_MANY)
        probes = ValueProbes(self.keys.literals(positions), self.keys.type)
        question = FieldQuestion(field_id, probes, self._resolutions)
        for bundle in bundles:
            matching = units_with_some_key(bundle, question, positions, runs, MAX_BYTES)
            if isinstance(matching, Unknown):
                self._note(runs.end[runs.asks] - runs.first[runs.asks], matching.reason)
                # Units that earlier bundles ruled out stay ruled out, although no unit counts as asked.
                return _Answer(first, keep, none, KeptFilesBecause.TOO_MANY)
            keep &= matching
        return _Answer(first, keep, runs.asks, KeptFilesBecause.TOO_MANY)

    def _runs(
        self,
        filters: FieldFilters,
        files: Sequence[Sequence[FilePlace]],
        bounded: FilesWithinBounds,
        rate: float,
    ) -> KeyRuns:
        """Choose the keys that each unit is asked: none where filters cannot help or lookups would be too many."""
        first, end = np.zeros(filters.num_units, np.int64), np.zeros(filters.num_units, np.int64)
        for at, places in enumerate(files):
            for place in places:
                units = place.first_unit - filters.first_unit + np.flatnonzero(place.alive)
                if len(units) and 0 <= units[0] < filters.num_units and not bounded.nan[at]:
                    first[units], end[units] = bounded.first[at], bounded.end[at]
        counts = end - first
        futile = counts * rate >= 1  # at least one false positive is expected in each of these
        if futile.any():
            self._note(
                counts[futile],
                f"one lookup in {1 / max(rate, 1e-9):,.0f} is a false positive. Filters of build --for-keys "
                f"{int(counts.max())} (a rate of {fpp_for_keys(int(counts.max())):.0e}) would be asked",
            )
        most = int(counts[~futile].max(initial=0))
        runs = KeyRuns(first, np.where(futile, first, end))
        # Leave out the units with the most keys first, because filters help them least.
        while runs.count_covered() > MAX_LOOKUPS:
            most //= 2
            runs = KeyRuns(first, np.where(futile | (counts > most), first, end))
        left_out = ~futile & (counts > most)
        if left_out.any():
            self._note(counts[left_out], f"more than {MAX_LOOKUPS:,} lookups in all")
        return runs

    def _note(self, counts: npt.NDArray[np.int64], why: str) -> None:
        low, high = int(counts.min()), int(counts.max())
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        self.notes.append(
            f"filters of {self.keys.column} are not asked about files with {span} keys within their bounds: {why}"
        )

    def _bounds_of(self, file: DataFile) -> tuple[Any, Any, bool, bool]:
        """Return lower and upper bound (``None`` if unknown) in the form of the keys, all-null, and may-have-NaN."""
        field_id, kind = self.keys.field_id, ColumnType.parse(self.keys.type)
        page = self._bounds.of(file, field_id)
        lower: Any = page.lower[0]
        upper: Any = page.upper[0]
        widths = {
            len(raw) for stored in (file.lower_bounds, file.upper_bounds) if (raw := (stored or {}).get(field_id))
        }
        # Some writers order UUIDs by sign. A timestamp bound of another width than 8 was written as another type.
        doubtful = kind.family == "uuid" or (kind.family == "timestamp" and not widths <= {8})
        numbers = self.keys.sorted.dtype == np.int64
        if numbers and any(isinstance(b, int) and not -(2**63) <= b < 2**63 for b in (lower, upper)):
            doubtful = True  # the search array of int64 cannot hold such a bound
        if lower is not None and upper is not None and (doubtful or lower > upper):
            doubtful = True  # bounds that contradict each other prove nothing
        if doubtful:
            lower = upper = None
        nan = page.may_have_nan[0] if self.keys.sorted.dtype.kind == "f" else False
        if kind.base == "double":
            lower, upper = _around(lower, -math.inf), _around(upper, math.inf)
        return lower, upper, bool(page.all_null[0]), nan

    def _as_keys(self, bounds: list[Any]) -> npt.NDArray[Any]:
        """Return bounds as an array of the keys' dtype, as ``searchsorted`` needs it."""
        array = np.empty(len(bounds), self.keys.sorted.dtype)
        array[:] = bounds
        return array


def _around(bound: Any, towards: float) -> Any:
    """Return the next float32 beyond a bound that is a float32 itself, and other bounds unchanged.

    A file from before the column's promotion has float32 values. An engine that pushes a key down to such a file rounds
    it, so a key between the bound and the next float32 may match.
    """
    if bound is None or nearest_float32(bound) != bound:
        return bound
    with np.errstate(over="ignore", under="ignore"):
        return float(np.nextafter(np.float32(bound), np.float32(towards)))


class _Answer(NamedTuple):
    """What filters answer about units from ``first_unit`` on: those that may hold a key, and those that were asked."""

    first_unit: int
    units: Units
    asked: Units
    why_not: KeptReason
    """Why the others were not asked."""
