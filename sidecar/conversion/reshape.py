"""Resizes filters without their values: folds them, or merges those of a file's row groups.

Merging: the OR of two filters of the same size is the filter of both sets; the larger filter is folded first. Folding
by an integer factor only adds false positives (the lemmas are in :mod:`sidecar.filters.sbbf`). ORC filters take
positions modulo a number of bits that is not a power of two: they merge only with filters of the same size, and do not
fold. So a reshaped filter never denies a value that the old filters hold. If one of the filters to merge is missing,
the merged unit gets no filter and is always kept.

A merged unit covers all rows of a file: its row group is -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import FileEntry, UnitEntry
from sidecar.conversion.collection import CollectedColumn, Collection, KeptFilter, Key
from sidecar.conversion.outcome import EXACT, FOLDED, MERGED, IndexPlace, Outcome, Way
from sidecar.errors import UsageError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import check_fpp

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
    units = [_Unit(file, number, entry) for file in given.files for number, entry in enumerate(file.units)]
    sets = list(_sets(given, shape))
    for file, _ in sets:
        if file is not None:
            into.add_file(file)
    names = {key: path for path, key in given.paths.items()}
    names |= {key: column.name for key, column in given.names.items() if column is not None}
    outcomes: list[Outcome] = []
    for key, column in given.columns.items():
        members = [own for _, own in sets if own]
        of_column = [
            *_reshape_filters(given, into, key, column, units, members, shape),
            *_carry_pages(given, into, key, column, units, members),
        ]
        outcomes += [replace(outcome, column=names.get(key, key.name)) for outcome in of_column]
    return outcomes


@dataclass(frozen=True)
class _Unit:
    file: FileEntry
    number: int
    entry: UnitEntry


def _sets(given: Collection, shape: TargetSizes) -> Iterator[tuple[FileEntry | None, list[int]]]:
    """Yield for each new unit the ordinals of its old units, and its file if it is the file's first unit.

    A file without units yields an empty list, so that the units table still lists it.
    """
    first = 0
    for file in given.files:
        own = list(range(first, first + len(file.units)))
        first += len(own)
        if shape.merge and len(own) > 1:
            whole = UnitEntry(WHOLE_FILE, 0, sum(unit.rows for unit in file.units))
            yield replace(file, units=(whole,)), own
        elif not own:
            yield file, []
        else:
            for number, unit in enumerate(own):
                yield (file if number == 0 else None), [unit]


def _reshape_filters(
    given: Collection,
    into: Collection,
    key: Key,
    column: CollectedColumn,
    units: Sequence[_Unit],
    sets: Iterable[list[int]],
    shape: TargetSizes,
) -> Iterator[Outcome]:
    for ordinal, members in enumerate(sets):
        place = _place(key, [units[unit] for unit in members], BLOOM)
        found, reason = _merged(given, column, members, units)
        if found is None:
            if reason:
                into.columns[key].reasons[BLOOM, ordinal] = reason
                yield place.without_index(reason)
            continue
        rates = [given.filter_of(column.filters[unit]).estimated_fpp() for unit in members if unit in column.filters]
        encoding = next(column.filters[unit].encoding for unit in members if unit in column.filters)
        way: Way = MERGED if len(members) > 1 else EXACT
        if shape.fpp is not None and isinstance(found, SplitBlockBloomFilter):
            folded = found.fold_to(shape.fpp)
            way = FOLDED if folded.z < found.z and way == EXACT else way
            found = folded
        into.add_filter(key, ordinal, encoding, found)
        rate = found.estimated_fpp()
        yield Outcome(*place, way, found.num_bytes, max(rates), rate, _note(found, shape, rate))


def _note(found: AnyFilter, shape: TargetSizes, rate: float) -> str:
    if shape.fpp is None:
        return ""
    if isinstance(found, OrcBloomFilter):
        return "ORC filters cannot be resized"
    return f"its rate is more than {shape.fpp} already" if rate > shape.fpp else ""


def _merged(
    given: Collection, column: CollectedColumn, members: Sequence[int], units: Sequence[_Unit]
) -> tuple[AnyFilter | None, str]:
    """Return the filter over all units of a set, or the reason why there is none. If no unit had one, there is no
    reason either."""
    if len(members) == 1:
        kept = column.filters.get(members[0])
        return (None, column.reasons.get((BLOOM, members[0]), "")) if kept is None else (given.filter_of(kept), "")
    having: list[KeptFilter] = []
    for unit in members:
        kept = column.filters.get(unit)
        if kept is not None:
            having.append(kept)
        # A merged filter without this unit's values would deny them, so the set gets no filter. A unit without
        # rows has no values to deny.
        elif units[unit].entry.rows:
            if not any(other in column.filters for other in members):
                return None, column.reasons.get((BLOOM, unit), "")
            reason = column.reasons.get((BLOOM, unit), "it has no filter")
            where = f"row group {units[unit].entry.row_group} of {units[unit].file.path}"
            return None, f"no filter of {where}: {reason}"
    if not having:
        return None, ""
    if len({kept.encoding for kept in having}) > 1:
        return None, f"values are stored as {' and '.join(sorted({kept.encoding for kept in having}))}"
    merged = given.filter_of(having[0])
    for kept in having[1:]:
        try:
            merged = _united(merged, given.filter_of(kept))
        except UsageError as error:
            return None, f"{error.what}: {merged.num_bytes} and {kept.num_bytes} bytes"
    return merged, ""


def _united(left: AnyFilter, right: AnyFilter) -> AnyFilter:
    """Return the filter of both sets. Raises :class:`UsageError` for sizes or kinds that cannot be merged."""
    if isinstance(left, OrcBloomFilter) and isinstance(right, OrcBloomFilter):
        return left.merge(right)
    if isinstance(left, SplitBlockBloomFilter) and isinstance(right, SplitBlockBloomFilter):
        return left.merge(right)
    raise UsageError("Parquet and ORC filters cannot be merged")


def _carry_pages(
    given: Collection,
    into: Collection,
    key: Key,
    column: CollectedColumn,
    units: Sequence[_Unit],
    sets: Iterable[list[int]],
) -> Iterator[Outcome]:
    for ordinal, members in enumerate(sets):
        place = _place(key, [units[unit] for unit in members], PAGE_INDEX)
        having = [column.entries[unit] for unit in members if unit in column.entries]
        if having and len(members) == 1:
            into.add_entry(key, ordinal, having[0].kind, given.entry_of(having[0]))
            yield Outcome(*place, EXACT, sum(having[0].lengths))
            continue
        reason = "page indexes of several row groups do not merge" if having else ""
        reason = reason or next((r for u in members if (r := column.reasons.get((PAGE_INDEX, u)))), "")
        if reason:
            into.columns[key].reasons[PAGE_INDEX, ordinal] = reason
            yield place.without_index(reason)


def _place(key: Key, units: Sequence[_Unit], kind: IndexKind) -> IndexPlace:
    row_group = units[0].entry.row_group if len(units) == 1 else WHOLE_FILE
    return IndexPlace(units[0].file.path, row_group, key.name, kind)
