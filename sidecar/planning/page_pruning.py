"""Rules out row groups and pages of data files by the page indexes of a sidecar, without opening the files.

Filters come first (:mod:`sidecar.planning.files.by_filters`); here page indexes are asked about the row groups that are
left. A page index is read only if it can change anything: the predicate compares a column that has one, and the bounds
in the manifest do not already decide that part of the predicate for the whole file.

A page index is used only if the column would still be found in the file as it was when the index was built, if its
bounds compare in a known way, and if it contradicts neither itself nor the file's bounds. Otherwise every row of the
row group may match. ORC files have row indexes instead; such an index is used like a page index with one page, the
whole row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pyiceberg.manifest import DataFile

from sidecar.bundle.indexes.page_indexes import StoredPageIndex, leaf_of, ordering_of
from sidecar.bundle.indexes.row_indexes import EntryKind, StoredRowIndex, row_index_bounds
from sidecar.bundle.model import UnitEntry
from sidecar.bundle.numbered_files import NumberedFiles
from sidecar.errors import SidecarError
from sidecar.filters.probes import Resolutions
from sidecar.iceberg.predicates.conditions import condition_of
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import FilePlace
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.puffin.types import PAGE_INDEX, ROW_INDEX
from sidecar.questions.bounds import Bounds, Unknown, contradicts
from sidecar.questions.conditions import Condition, LeafCondition
from sidecar.questions.narrowing import holds, narrow
from sidecar.questions.row_ranges import RowRanges, Rows

T = TypeVar("T")
Stored = StoredPageIndex | StoredRowIndex

MAX_UNITS = 2048
"""The most row groups whose page indexes one plan reads. With more, a scan uses the page indexes in each file."""


class _Unproven(NamedTuple):
    """The bounds that an index has of pages, or of one row group, before anything is proven."""

    bounds: Bounds
    prove: Callable[[], tuple[Bounds, Rows] | Unknown]
    """Returns the bounds that are proven and the first row of each page, or the reason not to use the index."""


@dataclass
class _File:
    data: DataFile
    places: Sequence[FilePlace]
    fields: list[set[int]] = field(default_factory=list)
    """For each place, the ids of the fields whose page indexes can help."""


class PagePruner:
    """Rules out row groups and rows of files that one sidecar lists, for one predicate.

    Page indexes whose ``resolutions`` do not hold are not asked.
    """

    def __init__(self, question: FileQuestion, resolutions: Resolutions) -> None:
        self._question, self._resolutions = question, resolutions
        self._conditions: dict[frozenset[tuple[int, EntryKind]], Condition | None] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []
        """A text for each index that is not used."""

    def can_help(self, data: DataFile) -> bool:
        """Return whether page indexes of some column may rule out more of a file than its bounds do."""
        return bool(self._question.helpful_fields(data))

    def narrow(
        self, sidecar: NumberedFiles, files: Sequence[tuple[DataFile, Sequence[FilePlace]]]
    ) -> list[KeptRowGroups | None]:
        """Return what is left of each file; ``None`` if its row groups are unknown or no index is asked about them.

        All files are asked together, so that their indexes come in few reads.
        """
        asked = [_File(data, places) for data, places in files]
        for file in asked:
            known = [sidecar.fields_with(place.number, PAGE_INDEX, ROW_INDEX) for place in file.places]
            file.fields = [f and self._question.helpful_fields(file.data, f.__contains__) for f in known]
        self._limit(asked)
        entries = _read_units(sidecar, asked)
        stored = self._read_pages(sidecar, asked)
        return [self._ranges_left(file, entries, stored) for file in asked]

    def _limit(self, files: Sequence[_File]) -> None:
        """Ask no page indexes at all if more than :data:`MAX_UNITS` row groups would need them."""
        asked = sum(
            int(place.alive.sum())
            for file in files
            for place, fields in zip(file.places, file.fields, strict=True)
            if fields
        )
        if asked > MAX_UNITS:
            self.notes.append(f"page indexes of {asked} row groups are not read: the limit is {MAX_UNITS}")
            for file in files:
                file.fields = [set() for _ in file.places]

    def _read_pages(self, sidecar: NumberedFiles, files: Sequence[_File]) -> dict[tuple[int, int], Stored]:
        """Read the page indexes and row indexes that can help, by field and unit; each field in few reads."""
        wanted: dict[int, list[int]] = {}
        for file in files:
            for place, fields in zip(file.places, file.fields, strict=True):
                alive = (place.first_unit + np.flatnonzero(place.alive)).tolist()
                for field_id in sorted(fields):
                    wanted.setdefault(field_id, []).extend(alive)
        indexes: dict[tuple[int, int], Stored] = {}
        for field_id, units in wanted.items():
            for unit, stored in sidecar.stored_indexes(field_id, units).items():
                if self._resolutions[field_id, stored.kind.resolution]:
                    indexes[field_id, unit] = stored
        return indexes

    def _ranges_left(
        self,
        file: _File,
        entries: dict[int, tuple[UnitEntry, ...]],
        stored: dict[tuple[int, int], Stored],
    ) -> KeptRowGroups | None:
        """Return what all segments together leave of a file; ``None`` if they do not agree on its row groups."""
        asked = [place for place in file.places if place.number in entries]
        if not asked:
            return None
        units = entries[asked[0].number]
        problem = next((text for place in asked if (text := _problem(units, place, file.data))), "")
        if any(entries[place.number] != units for place in asked):
            problem = "segments record different row groups"
        if problem:
            # Rows are skipped by their positions, so one wrong length would skip rows that match.
            self.warnings.append(f"row groups of {file.data.file_path} are not pruned: {problem}")
            return None
        rows = [RowRanges.all(unit.rows) for unit in units]
        pages: dict[tuple[int, int], StoredPageIndex] = {}
        by_rows = 0
        for place in asked:
            for at, unit in enumerate(units):
                number = place.first_unit + at
                indexes = {i: s for i in self._question.types if (s := stored.get((i, number)))}
                paged = {i: s for i, s in indexes.items() if isinstance(s, StoredPageIndex)}
                pages |= {(i, unit.row_group): s for i, s in paged.items()}
                by_rows += len(indexes) - len(paged)
                if not place.alive[at]:
                    rows[at] = RowRanges()
                elif rows[at] and indexes:
                    rows[at] = self._rows(file.data, unit, indexes, rows[at])
        places = tuple((place.number, place.first_unit) for place in file.places)
        denied = frozenset(at for at in range(len(units)) if not all(place.alive[at] for place in asked))
        return KeptRowGroups(units, tuple(rows), denied, places, pages, by_rows)

    def _rows(self, data: DataFile, unit: UnitEntry, stored: dict[int, Stored], wanted: RowRanges) -> RowRanges:
        """Return which of the ``wanted`` rows of a unit its page or row indexes, by field id in ``stored``, leave."""
        # A column with NaN has no column index, so no bounds.
        found = {
            field_id: self._claim(data, unit, field_id, index)
            for field_id, index in stored.items()
            if isinstance(index, StoredRowIndex) or index.column_index is not None
        }
        claims = self._known(data, unit, stored, found)
        condition = self._condition({field_id: stored[field_id].kind for field_id in claims})
        # Most indexes rule nothing out. What these say need not be proven: every row is kept in any case.
        if condition is None or holds(condition, lambda leaf: _all_may_match(leaf, claims[leaf.column.index].bounds)):
            return wanted
        proven = {field_id: claim.prove() for field_id, claim in claims.items()}
        pages = self._known(data, unit, stored, proven)
        if len(pages) < len(claims):
            condition = self._condition({field_id: stored[field_id].kind for field_id in pages})
        if condition is None:
            return wanted

        def rows_of(leaf: LeafCondition, wanted: RowRanges) -> RowRanges:
            bounds, first_rows = pages[leaf.column.index]
            keep = np.fromiter((leaf.may_match(bounds, i) for i in range(len(first_rows))), np.bool_)
            return wanted & RowRanges.of_pages(first_rows, unit.rows, keep)

        return narrow(condition, wanted, rows_of)

    def _known(
        self, data: DataFile, unit: UnitEntry, stored: dict[int, Stored], found: Mapping[int, T | Unknown]
    ) -> dict[int, T]:
        """Return what is known, by field id, and warn of the indexes that are not used."""
        known: dict[int, T] = {}
        for field_id, answer in found.items():
            if isinstance(answer, Unknown):
                what = "row" if isinstance(stored[field_id], StoredRowIndex) else "page"
                where = f"{data.file_path}, row group {unit.row_group}, {self._question.names[field_id]}"
                self.warnings.append(f"the {what} index of {where} is not used: {answer.reason}")
            else:
                known[field_id] = answer
        return known

    def _claim(self, data: DataFile, unit: UnitEntry, field_id: int, stored: Stored) -> _Unproven | Unknown:
        """Return the bounds that a stored index has, or the reason not to use it."""
        if isinstance(stored, StoredRowIndex):
            return self._row_index(unit, field_id, stored)
        return self._pages(data, unit, field_id, stored)

    def _pages(self, data: DataFile, unit: UnitEntry, field_id: int, stored: StoredPageIndex) -> _Unproven | Unknown:
        """Return what a stored page index says of its pages, or the reason not to use it."""
        from sidecar.parquet.page_indexes.page_bounds import (
            ChunkFacts,
            claimed_bounds,
            first_row_problems,
            proven_bounds,
        )
        from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index

        assert stored.column_index is not None
        ordering = ordering_of(stored.kind)
        try:
            column = decode_column_index(stored.column_index)
            leaf = leaf_of(stored.kind, field_id, self._question.types[field_id])
        except SidecarError as error:
            return Unknown(error.what)
        claimed = claimed_bounds(ordering, leaf, column)

        def prove() -> tuple[Bounds, Rows] | Unknown:
            if stored.offset_index is None:
                return Unknown("it has no offset index")
            try:
                offset = decode_offset_index(stored.offset_index)
            except SidecarError as error:
                return Unknown(error.what)
            # Without lists, a row group has as many values as rows.
            facts = ChunkFacts(leaf, ordering, unit.rows, unit.rows if leaf.max_rep == 0 else None)
            problem = next(first_row_problems(unit.rows, offset), "")
            bounds = Unknown(problem) if problem else proven_bounds(facts, column, offset)
            if isinstance(bounds, Unknown):
                return bounds
            # The manifest does not get its bounds from the index. If the two disagree, one of them is wrong.
            problem = contradicts(bounds, self._question.bounds.in_terms_of(data, field_id, leaf))
            return Unknown(problem) if problem else (bounds, offset.first_row_indexes)

        return claimed if isinstance(claimed, Unknown) else _Unproven(claimed, prove)

    def _row_index(self, unit: UnitEntry, field_id: int, stored: StoredRowIndex) -> _Unproven | Unknown:
        """Return the bounds of a stored row index as those of one page, or the reason not to use it."""
        try:
            stored.kind.compared(field_id, self._question.types[field_id])
        except SidecarError as error:
            return Unknown(error.what)
        bounds = row_index_bounds(stored, unit.rows)
        return bounds if isinstance(bounds, Unknown) else _Unproven(bounds, lambda: (bounds, np.zeros(1, np.int64)))

    def _condition(self, kinds: dict[int, EntryKind]) -> Condition | None:
        """Return the condition on the fields that have an index, made once for each combination of their types."""
        key = frozenset(kinds.items())
        if key not in self._conditions:
            types = self._question.types
            columns = {field_id: kind.compared(field_id, types[field_id]) for field_id, kind in kinds.items()}
            self._conditions[key] = condition_of(self._question.bound, columns.get)
        return self._conditions[key]


def _read_units(sidecar: NumberedFiles, files: Sequence[_File]) -> dict[int, tuple[UnitEntry, ...]]:
    """Read the row groups of files that may be left in part, by the numbers of the files."""
    wanted = [
        place.number
        for file in files
        for place, fields in zip(file.places, file.fields, strict=True)
        if fields or not place.alive.all()
    ]
    found = zip(wanted, sidecar.entries(wanted), strict=True)
    return {number: entry.units for number, entry in found if entry is not None}


def _all_may_match(leaf: LeafCondition, bounds: Bounds) -> bool:
    """Return whether every page may have rows that meet a leaf of the condition."""
    return all(map(partial(leaf.may_match, bounds), range(len(bounds.all_null))))


def _problem(units: Sequence[UnitEntry], place: FilePlace, data: DataFile) -> str:
    """Return why these may not be all row groups of the file, in order; an empty text if they are."""
    if len(units) != len(place.alive):
        return f"the sidecar records {len(units)} of them in one place and {len(place.alive)} in another"
    ordinals: Iterable[Any] = (unit.row_group for unit in units)
    starts = np.cumsum([0, *(unit.rows for unit in units)]).tolist()
    if list(ordinals) != list(range(len(units))) or [unit.first_row for unit in units] != starts[:-1]:
        return "their ordinals or first rows are not consecutive"
    rows = starts[-1]
    return "" if rows == data.record_count else f"they have {rows} rows, the file has {data.record_count}"
