"""Resizes filters without their values: folds them, or merges those of a file's row groups.

Merging: the OR of two filters of the same size is the filter of both sets; the larger filter is folded first. Folding
by an integer factor only adds false positives (the lemmas are in :mod:`sidecar.filters.sbbf`). ORC filters take
positions modulo a number of bits that is not a power of two: they merge only with filters of the same size, and do not
fold. So a reshaped filter never denies a value that the old filters hold. If one of the filters to merge is missing,
the merged unit gets no filter and is always kept.

A merged unit covers all rows of a file: its row group is -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import UnitEntry
from sidecar.conversion.collection import CollectedColumn, Collection, KeptFilter, Key
from sidecar.conversion.outcome import EXACT, FOLDED, MERGED, IndexPlace, Outcome, Way
from sidecar.errors import UsageError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import check_fpp
from sidecar.questions.bounds import Unknown

WHOLE_FILE = -1
"""The row group number of a unit that covers a whole file."""


@dataclass(frozen=True)
class TargetSizes:
    """The requested sizes: ``fpp`` folds as far as the rate allows, ``merge`` merges the row groups of a file."""

    fpp: float | None = None
    merge: bool = False

    def __post_init__(self) -> None:
        if self.fpp is not None:
            check_fpp(self.fpp)

    @property
    def changes(self) -> bool:
        """Whether anything changes the filters."""
        return self.fpp is not None or self.merge


def reshape(given: Collection, into: Collection, shape: TargetSizes) -> list[Outcome]:
    """Write everything in ``given`` reshaped to the empty collection ``into``; return what became of each index."""
    into.names.update(given.names)
    names = {key: path for path, key in given.paths.items()}
    names |= {key: column.name for key, column in given.names.items() if column is not None}
    reshaper = _Reshaper(given, into, shape)
    return [
        replace(outcome, column=names.get(key, key.name))
        for key, column in given.columns.items()
        for outcome in (*reshaper.filters(key, column), *reshaper.entries(key, column))
    ]


class _Reshaper:
    """Writes the files of a collection to another one, and then its indexes, column by column."""

    def __init__(self, given: Collection, into: Collection, shape: TargetSizes) -> None:
        self._given, self._into, self._shape = given, into, shape
        self._units: list[tuple[str, UnitEntry]] = []
        """The old units, each with the path of its file."""
        self._sets: list[list[int]] = []
        """For each new unit the ordinals of its old units."""
        for file in given.files:
            own = list(range(len(self._units), len(self._units) + len(file.units)))
            self._units += ((file.path, unit) for unit in file.units)
            if shape.merge and len(own) > 1:
                into.add_file(replace(file, units=(UnitEntry(WHOLE_FILE, 0, sum(unit.rows for unit in file.units)),)))
                self._sets.append(own)
            else:
                into.add_file(file)
                self._sets += ([unit] for unit in own)

    def filters(self, key: Key, column: CollectedColumn) -> Iterator[Outcome]:
        """Write the filters of a column; yield what became of each."""
        for ordinal, members in enumerate(self._sets):
            kept = [column.filters[unit] for unit in members if unit in column.filters]
            found = self._merged(column, members, kept)
            if isinstance(found, Unknown):
                yield from self._without_index(key, ordinal, members, BLOOM, found.reason)
                continue
            way: Way = MERGED if len(members) > 1 else EXACT
            if self._shape.fpp is not None and isinstance(found, SplitBlockBloomFilter):
                folded = found.fold_to(self._shape.fpp)
                way = FOLDED if folded.z < found.z and way == EXACT else way
                found = folded
            self._into.add_filter(key, ordinal, kept[0].encoding, found)
            before = max(self._given.filter_of(one).estimated_fpp() for one in kept)
            rate = found.estimated_fpp()
            place = self._place(key, members, BLOOM)
            yield Outcome(*place, way, found.num_bytes, before, rate, _note(found, self._shape, rate))

    def entries(self, key: Key, column: CollectedColumn) -> Iterator[Outcome]:
        """Write the page indexes and row indexes of a column; yield what became of each."""
        for ordinal, members in enumerate(self._sets):
            kept = [column.entries[unit] for unit in members if unit in column.entries]
            if kept and len(members) == 1:
                self._into.add_entry(key, ordinal, kept[0].kind, self._given.entry_of(kept[0]))
                yield Outcome(*self._place(key, members, PAGE_INDEX), EXACT, sum(kept[0].lengths))
            else:
                reason = "page indexes of several row groups do not merge" if kept else ""
                reason = reason or _reason(column, members, PAGE_INDEX)
                yield from self._without_index(key, ordinal, members, PAGE_INDEX, reason)

    def _merged(
        self, column: CollectedColumn, members: Sequence[int], kept: Sequence[KeptFilter]
    ) -> AnyFilter | Unknown:
        """Return the filter over all units of a set, or why there is none; without a reason if no unit had one."""
        if not kept:
            return Unknown(_reason(column, members, BLOOM))
        for unit in members:
            path, entry = self._units[unit]
            # A merged filter without this unit's values would deny them, so the set gets no filter. A unit without
            # rows has no values to deny.
            if unit not in column.filters and entry.rows:
                reason = column.reasons.get((BLOOM, unit), "it has no filter")
                return Unknown(f"no filter of row group {entry.row_group} of {path}: {reason}")
        encodings = sorted({one.encoding for one in kept})
        if len(encodings) > 1:
            return Unknown(f"values are stored as {' and '.join(encodings)}")
        merged = self._given.filter_of(kept[0])
        for one in kept[1:]:
            try:
                merged = _united(merged, self._given.filter_of(one))
            except UsageError as error:
                return Unknown(f"{error.what}: {merged.num_bytes} and {one.num_bytes} bytes")
        return merged

    def _without_index(
        self, key: Key, ordinal: int, members: Sequence[int], kind: IndexKind, reason: str
    ) -> Iterator[Outcome]:
        """Note why a new unit lacks an index; nothing if its old units had none."""
        if reason:
            self._into.columns[key].reasons[kind, ordinal] = reason
            yield self._place(key, members, kind).without_index(reason)

    def _place(self, key: Key, members: Sequence[int], kind: IndexKind) -> IndexPlace:
        path, entry = self._units[members[0]]
        return IndexPlace(path, entry.row_group if len(members) == 1 else WHOLE_FILE, key.name, kind)


def _reason(column: CollectedColumn, units: Sequence[int], kind: IndexKind) -> str:
    """Return why the first of some units lacks an index; empty if no reason is known."""
    return next((reason for unit in units if (reason := column.reasons.get((kind, unit)))), "")


def _note(found: AnyFilter, shape: TargetSizes, rate: float) -> str:
    if shape.fpp is None:
        return ""
    if isinstance(found, OrcBloomFilter):
        return "ORC filters cannot be resized"
    return f"its rate is more than {shape.fpp} already" if rate > shape.fpp else ""


def _united(left: AnyFilter, right: AnyFilter) -> AnyFilter:
    """Return the filter of both sets. Raises :class:`UsageError` for sizes or kinds that cannot be merged."""
    if isinstance(left, OrcBloomFilter) and isinstance(right, OrcBloomFilter):
        return left.merge(right)
    if isinstance(left, SplitBlockBloomFilter) and isinstance(right, SplitBlockBloomFilter):
        return left.merge(right)
    raise UsageError("Parquet and ORC filters cannot be merged")
