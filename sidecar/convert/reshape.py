"""Other sizes for filters that are there: folded, widened, merged over row groups or files.

Merging: the OR of two filters of one size is the filter of both sets; the larger one is folded first. Folding by an
integer factor only adds false positives, widening changes no answer (the lemmas stand in :mod:`sidecar.filters.sbbf`
and :mod:`sidecar.bundle.filters.positions`). ORC filters take positions modulo a number of bits that is no power of
two: they merge where they are of one size, and neither fold nor widen. So nothing here ever denies a value that was
there. What has no filter cannot be merged: the unit of which it is a part has none either, and is kept.

A merged unit speaks of all rows of a file: its row group is -1. Files merged into one stand in the units table as one
entry with their common folder as path.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.model import UNLISTED, FileEntry, UnitEntry
from sidecar.convert.collection import CollectedColumn, Collection, KeptFilter, Key
from sidecar.convert.outcome import BLOOM, EXACT, FOLDED, MERGED, PAGE_INDEX, WIDENED, IndexPlace, Outcome
from sidecar.errors import UsageError
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import check_fpp

WHOLE_FILE = -1
"""The row group of a unit that is a whole file."""

MEASURED = 200_000
"""Random hashes that a rate is measured with: a rate of 1 % comes out within some 0.07 %."""


@dataclass(frozen=True)
class TargetSizes:
    """What is wanted: ``fpp`` folds as far as the rate allows, ``widen`` makes a column's filters as large as its
    largest, ``merge`` is over the row groups of a file, ``merge_all`` over all files. ``measure`` the results."""

    fpp: float | None = None
    widen: bool = False
    merge: bool = False
    merge_all: bool = False
    measure: bool = False

    def __post_init__(self) -> None:
        if self.fpp is not None:
            check_fpp(self.fpp)

    @property
    def changes(self) -> bool:
        """Whether anything but measuring is to be done."""
        return self.fpp is not None or self.widen or self.merge or self.merge_all


def measured_rate(found: BlockFilter | OrcBloomFilter) -> float:
    """The share of random hashes that a filter takes for stored; hashes of random values are random hashes."""
    hashes = np.random.default_rng(1).integers(0, 1 << 64, MEASURED, np.uint64)
    return float(found.check(hashes).mean())


def reshape(
    given: Collection, into: Collection, shape: TargetSizes, names: Mapping[Key, str] | None = None
) -> list[Outcome]:
    """Everything in ``given``, in another shape, into the empty collection ``into``; what became of each index.

    ``names``: what columns are called in the report.
    """
    units = [_Unit(file, number, entry) for file in given.files for number, entry in enumerate(file.units)]
    sets = list(_sets(given, units, shape))
    for file, _ in sets:
        if file is not None:
            into.add_file(file)
    outcomes: list[Outcome] = []
    for key, column in given.columns.items():
        members = [own for _, own in sets if own]
        of_column = [
            *_reshape_filters(given, into, key, column, units, members, shape),
            *_carry_pages(given, into, key, column, units, members),
        ]
        name = (names or {}).get(key, key.name)
        outcomes += [replace(outcome, column=name) for outcome in of_column]
    return outcomes


@dataclass(frozen=True)
class _Unit:
    file: FileEntry
    number: int
    entry: UnitEntry


def _sets(
    given: Collection, units: Sequence[_Unit], shape: TargetSizes
) -> Iterator[tuple[FileEntry | None, list[int]]]:
    """For each new unit the file that begins with it, if one does, and the ordinals of the old units in it."""
    if shape.merge_all:
        if units:
            yield _merged_file(given.files), list(range(len(units)))
        return
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


def _merged_file(files: Sequence[FileEntry]) -> FileEntry:
    rows = sum(file.record_count for file in files)
    folders = [posixpath.dirname(file.path).split("/") for file in files]
    common = [parts[0] for parts in zip(*folders, strict=False) if len(set(parts)) == 1]
    return FileEntry(
        path="/".join([*common, "*"]),
        file_size=sum(file.file_size for file in files),
        record_count=rows,
        spec_id=0,
        manifest=UNLISTED,
        entry=b"",
        units=(UnitEntry(WHOLE_FILE, 0, rows),),
    )


def _reshape_filters(
    given: Collection,
    into: Collection,
    key: Key,
    column: CollectedColumn,
    units: Sequence[_Unit],
    sets: Iterable[list[int]],
    shape: TargetSizes,
) -> Iterator[Outcome]:
    largest = 0
    made: list[tuple[int, Outcome, str]] = []
    for ordinal, own in enumerate(sets):
        place = _place(key, [units[unit] for unit in own], BLOOM)
        found, reason = _merged(given, column, own, units)
        if found is None:
            if reason:
                into.columns[key].reasons[BLOOM, ordinal] = reason
                yield Outcome(*place, reason=reason)
            continue
        rates = [
            given.filter_of(column.filters[unit]).estimated_fpp() for unit in own if unit in column.filters
        ]
        encoding = next(column.filters[unit].encoding for unit in own if unit in column.filters)
        way = MERGED if len(own) > 1 else EXACT
        if shape.fpp is not None and isinstance(found, SplitBlockBloomFilter):
            folded = found.fold_to(shape.fpp)
            way = FOLDED if folded.z < found.z and way == EXACT else way
            found = folded
        into.add_filter(key, ordinal, encoding, found)
        if isinstance(found, SplitBlockBloomFilter):
            largest = max(largest, found.z)
        measured = measured_rate(found) if shape.measure else None
        rate = found.estimated_fpp()
        note = _note(found, shape, rate)
        outcome = Outcome(*place, way, found.num_bytes, max(rates), rate, measured, note)
        made.append((ordinal, outcome, encoding))
    for ordinal, outcome, encoding in made:
        yield _widened(into, key, ordinal, outcome, encoding, largest) if shape.widen else outcome


def _note(found: AnyFilter, shape: TargetSizes, rate: float) -> str:
    if isinstance(found, OrcBloomFilter) and (shape.fpp is not None or shape.widen):
        return "filters of ORC have no other size"
    return f"its rate is more than {shape.fpp} already" if shape.fpp is not None and rate > shape.fpp else ""


def _widened(
    into: Collection, key: Key, ordinal: int, outcome: Outcome, encoding: str, largest: int
) -> Outcome:
    kept = into.columns[key].filters[ordinal]
    narrow = into.filter_of(kept)
    if kept.blocks == largest or not isinstance(narrow, SplitBlockBloomFilter):
        return outcome
    if largest % kept.blocks:
        return replace(outcome, reason=f"{kept.blocks} blocks do not divide the largest filter's {largest}")
    wide = narrow.widen(largest)
    into.add_filter(key, ordinal, encoding, wide)
    return replace(outcome, way=WIDENED if outcome.way == EXACT else outcome.way, bytes=wide.num_bytes)


def _merged(
    given: Collection, column: CollectedColumn, own: Sequence[int], units: Sequence[_Unit]
) -> tuple[AnyFilter | None, str]:
    """The filter of all units of a set together, or the reason why there is none; neither if none was there."""
    if len(own) == 1:
        kept = column.filters.get(own[0])
        return (
            (None, column.reasons.get((BLOOM, own[0]), "")) if kept is None else (given.filter_of(kept), "")
        )
    having: list[KeptFilter] = []
    for unit in own:
        kept = column.filters.get(unit)
        if kept is not None:
            having.append(kept)
        elif units[unit].entry.rows:
            if not any(other in column.filters for other in own):
                return None, column.reasons.get((BLOOM, unit), "")
            reason = column.reasons.get((BLOOM, unit), "it has none")
            where = f"row group {units[unit].entry.row_group} of {units[unit].file.path}"
            return None, f"no filter of {where}: {reason}"
    if not having:
        return None, ""
    if len({kept.encoding for kept in having}) > 1:
        return None, f"values are stored as {' and '.join(sorted({kept.encoding for kept in having}))}"
    merged = given.filter_of(having[0])
    for kept in having[1:]:
        try:
            merged = _or(merged, given.filter_of(kept))
        except UsageError as error:
            return None, f"{error.what}: {merged.num_bytes} and {kept.num_bytes} bytes"
    return merged, ""


def _or(one: AnyFilter, other: AnyFilter) -> AnyFilter:
    """The filter of both sets; :class:`UsageError` for sizes or kinds that do not merge."""
    if isinstance(one, OrcBloomFilter) and isinstance(other, OrcBloomFilter):
        return one.merge(other)
    if isinstance(one, SplitBlockBloomFilter) and isinstance(other, SplitBlockBloomFilter):
        return one.merge(other)
    raise UsageError("filters of Parquet and of ORC do not merge")


def _carry_pages(
    given: Collection,
    into: Collection,
    key: Key,
    column: CollectedColumn,
    units: Sequence[_Unit],
    sets: Iterable[list[int]],
) -> Iterator[Outcome]:
    for ordinal, own in enumerate(sets):
        place = _place(key, [units[unit] for unit in own], PAGE_INDEX)
        having = [unit for unit in own if unit in column.pages or unit in column.rows]
        if having and len(own) == 1 and own[0] in column.rows:
            row_index = column.rows[own[0]]
            into.add_row_index(key, ordinal, row_index.kind, given.row_index_of(row_index))
            yield Outcome(*place, EXACT, row_index.length)
            continue
        if having and len(own) == 1:
            kept = column.pages[own[0]]
            into.add_page_index(key, ordinal, kept.kind, *given.page_index_of(kept))
            yield Outcome(*place, EXACT, kept.column_length + kept.offset_length)
            continue
        reason = "page indexes of several row groups do not merge" if having else ""
        reason = reason or next((r for u in own if (r := column.reasons.get((PAGE_INDEX, u)))), "")
        if reason:
            into.columns[key].reasons[PAGE_INDEX, ordinal] = reason
            yield Outcome(*place, reason=reason)


def _place(key: Key, units: Sequence[_Unit], kind: str) -> IndexPlace:
    files = {unit.file.path for unit in units}
    path = files.pop() if len(files) == 1 else _merged_file([unit.file for unit in units]).path
    row_group = units[0].entry.row_group if len(units) == 1 else WHOLE_FILE
    return path, row_group, key.name, kind
