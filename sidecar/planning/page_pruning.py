"""Row groups and pages of data files that can be ruled out without touching the files.

Filters have judged row groups before (:mod:`sidecar.planning.filter_answers`); here page indexes of a sidecar are
asked about those that are left. A page index is read only if it can change anything: the predicate compares a column
that has one, and the bounds of the file in its manifest do not settle that part for all of its rows already.

What a page index says counts only if the column would be found in the file today as it was then, if its bounds
compare in a known way, if the index contradicts neither itself nor the file's bounds, and where it says nothing,
every row of the row group may match. Row groups of ORC files have row indexes instead, which say of all their rows what
a page index says of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyiceberg.manifest import DataFile

from sidecar.bundle.model import UnitEntry
from sidecar.bundle.page_indexes import PageIndexKind, StoredPageIndex, decode_page_index, leaf_of
from sidecar.bundle.row_indexes import RowIndexKind, StoredRowIndex, row_index_bounds
from sidecar.bundle.segment import Segment
from sidecar.errors import SidecarError
from sidecar.filters.leaf import ComparedColumn
from sidecar.iceberg.conditions import condition_of
from sidecar.orc.bounds import compared_column
from sidecar.parquet.page_bounds import ChunkFacts, first_row_problems, proven_bounds
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.filter_answers import ListedPlace
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.questions.bounds import Bounds, contradicts
from sidecar.questions.conditions import Condition, LeafCondition
from sidecar.questions.narrowing import narrow
from sidecar.questions.row_ranges import RowRanges, Rows

Stored = StoredPageIndex | StoredRowIndex
IndexKind = PageIndexKind | RowIndexKind

MAX_UNITS = 2048
"""Row groups whose page indexes one plan reads. Of more, each file's own are read when it is scanned."""


@dataclass
class _File:
    data: DataFile
    places: Sequence[ListedPlace]
    fields: list[set[int]] = field(default_factory=list)
    """For each place the fields whose page indexes can help."""


class PagePruner:
    """Rules out row groups and rows of files that one sidecar lists, for one predicate.

    ``holds`` is as in :class:`sidecar.planning.filter_answers.FilterAnswers`; ``warn`` is told of doubts.
    """

    def __init__(
        self,
        question: FileQuestion,
        holds: Callable[[int, str], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._question = question
        self._holds = holds
        self._warn = warn
        self._conditions: dict[frozenset[tuple[int, IndexKind]], Condition | None] = {}
        self.notes: list[str] = []

    def can_help(self, data: DataFile) -> bool:
        """Whether page indexes of some column may say more of a file than its bounds do."""
        return bool(self._question.helpful_fields(data))

    def narrow(self, files: Sequence[tuple[DataFile, Sequence[ListedPlace]]]) -> list[KeptRowGroups | None]:
        """What is left of each file; ``None`` where nothing is known of its row groups or all of it is left."""
        found = [_File(data, places) for data, places in files]
        for file in found:
            file.fields = [self._helped(file.data, place) for place in file.places]
        self._limit(found)
        entries = self._read_units(found)
        stored = self._read_pages(found)
        return [self._kept(file, entries, stored) for file in found]

    def _helped(self, data: DataFile, place: ListedPlace) -> set[int]:
        segment = place.segment
        known = segment.page_index_blobs.keys() | segment.row_index_blobs.keys()
        return self._question.helpful_fields(data, lambda i: i in known)

    def _limit(self, files: Sequence[_File]) -> None:
        asked = sum(
            int(place.alive.sum())
            for file in files
            for place, fields in zip(file.places, file.fields, strict=True)
            if fields
        )
        if asked > MAX_UNITS:
            self.notes.append(f"page indexes of {asked} row groups are not read: more than {MAX_UNITS}")
            for file in files:
                file.fields = [set() for _ in file.places]

    def _read_units(self, files: Sequence[_File]) -> dict[tuple[int, int], tuple[UnitEntry, ...]]:
        """The row groups of files of which only some may be left, by segment and ordinal."""
        wanted: dict[int, tuple[Segment, list[int]]] = {}
        for file in files:
            for place, fields in zip(file.places, file.fields, strict=True):
                if fields or not place.alive.all():
                    wanted.setdefault(id(place.segment), (place.segment, []))[1].append(place.ordinal)
        return {
            (key, ordinal): entry.units
            for key, (segment, ordinals) in wanted.items()
            for ordinal, entry in zip(ordinals, segment.files(ordinals), strict=True)
            if entry is not None
        }

    def _read_pages(self, files: Sequence[_File]) -> dict[tuple[int, int, int], Stored]:
        """Page indexes and row indexes that can help, by segment, field and unit; of each field in few reads."""
        wanted: dict[tuple[int, int], tuple[Segment, list[int]]] = {}
        for file in files:
            for place, fields in zip(file.places, file.fields, strict=True):
                alive = (place.first_unit + np.flatnonzero(place.alive)).tolist()
                for field_id in sorted(fields):
                    wanted.setdefault((id(place.segment), field_id), (place.segment, []))[1].extend(alive)
        found: dict[tuple[int, int, int], Stored] = {}
        for (key, field_id), (segment, units) in wanted.items():
            own: dict[int, Stored] = {**segment.page_indexes(field_id, units)}
            own |= segment.row_indexes(field_id, units)
            for unit, stored in own.items():
                if self._holds(field_id, stored.kind.resolution):
                    found[key, field_id, unit] = stored
        return found

    def _kept(
        self,
        file: _File,
        entries: dict[tuple[int, int], tuple[UnitEntry, ...]],
        stored: dict[tuple[int, int, int], Stored],
    ) -> KeptRowGroups | None:
        units: tuple[UnitEntry, ...] | None = None
        rows: list[RowRanges] = []
        alive: list[bool] = []
        pages: dict[tuple[int, int], StoredPageIndex] = {}
        by_rows = 0
        for place in file.places:
            own = entries.get((id(place.segment), place.ordinal))
            if own is None:
                continue
            problem = _problem(own, place, file.data) or ("" if units in (None, own) else "segments differ")
            if problem:
                self._warn(f"row groups of {file.data.file_path} are not told apart: {problem}")
                return None
            if units is None:
                units, rows, alive = own, [RowRanges.all(u.rows) for u in own], [True] * len(own)
            for at, unit in enumerate(own):
                alive[at] = alive[at] and bool(place.alive[at])
                ordinal = place.first_unit + at
                mine = {
                    i: s for i in self._question.types if (s := stored.get((id(place.segment), i, ordinal)))
                }
                whole = {i: s for i, s in mine.items() if isinstance(s, StoredPageIndex)}
                pages |= {(i, unit.row_group): s for i, s in whole.items()}
                by_rows += len(mine) - len(whole)
                if not place.alive[at]:
                    rows[at] = RowRanges()
                elif rows[at] and mine:
                    rows[at] = rows[at] & self._rows(file.data, unit, mine)
        if units is None:
            return None
        places = tuple((place.segment, place.first_unit) for place in file.places)
        return KeptRowGroups(units, tuple(rows), alive.count(False), places, pages, by_rows)

    def _rows(self, data: DataFile, unit: UnitEntry, stored: dict[int, Stored]) -> RowRanges:
        """The rows of a row group that page indexes leave, or its row indexes, which speak of all of its rows."""
        everything = RowRanges.all(unit.rows)
        pages: dict[int, tuple[Bounds, Rows]] = {}
        for field_id, index in stored.items():
            if isinstance(index, StoredRowIndex):
                found, what = self._row_index(unit, field_id, index), "row"
            elif index.column_index is None:
                continue  # columns with NaN have none
            else:
                found, what = self._pages(data, unit, field_id, index), "page"
            if isinstance(found, str):
                where = f"{data.file_path}, row group {unit.row_group}, {self._question.names[field_id]}"
                self._warn(f"the {what} index of {where} is not used: {found}")
            else:
                pages[field_id] = found
        condition = self._condition({field_id: stored[field_id].kind for field_id in pages})
        if condition is None:
            return everything

        def rows_of(leaf: LeafCondition, wanted: RowRanges) -> RowRanges:
            bounds, first_rows = pages[leaf.column.index]
            keep = np.fromiter((leaf.may_match(bounds, i) for i in range(len(first_rows))), np.bool_)
            return wanted & RowRanges.of_pages(first_rows, unit.rows, keep)

        return narrow(condition, everything, rows_of)

    def _pages(
        self, data: DataFile, unit: UnitEntry, field_id: int, stored: StoredPageIndex
    ) -> tuple[Bounds, Rows] | str:
        """What a stored page index proves, or why it proves nothing."""
        try:
            column, offset, ordering = decode_page_index(stored)
            leaf = leaf_of(stored.kind, field_id, self._question.types[field_id])
        except SidecarError as error:
            return error.what
        if offset is None:
            return "it has no offset index"
        facts = ChunkFacts(leaf, ordering, unit.rows, unit.rows if leaf.max_rep == 0 else None)
        problem = next(first_row_problems(unit.rows, offset), "")
        found = problem or proven_bounds(facts, column, offset)
        if isinstance(found, str):
            return found
        problem = contradicts(found, self._question.bounds.in_terms_of(data, field_id, leaf))
        return problem or (found, offset.first_row_indexes)

    def _row_index(self, unit: UnitEntry, field_id: int, stored: StoredRowIndex) -> tuple[Bounds, Rows] | str:
        """What a stored row index proves of its row group, as of one page, or why it proves nothing."""
        try:
            self._column(field_id, stored.kind)
        except SidecarError as error:
            return error.what
        found = row_index_bounds(stored, unit.rows)
        return found if isinstance(found, str) else (found, np.zeros(1, np.int64))

    def _condition(self, kinds: dict[int, IndexKind]) -> Condition | None:
        key = frozenset(kinds.items())
        if key not in self._conditions:
            columns = {field_id: self._column(field_id, kind) for field_id, kind in kinds.items()}
            self._conditions[key] = condition_of(self._question.bound, columns.get)
        return self._conditions[key]

    def _column(self, field_id: int, kind: IndexKind) -> ComparedColumn:
        """What bounds of an index are compared as; :class:`UnsupportedFeatureError` where they do not compare."""
        iceberg_type = self._question.types[field_id]
        if isinstance(kind, RowIndexKind):
            return compared_column(kind.type, kind.scale, field_id, iceberg_type)
        return leaf_of(kind, field_id, iceberg_type).compared


def _problem(units: Sequence[UnitEntry], place: ListedPlace, data: DataFile) -> str:
    """Why these are not certainly all row groups of the file, in their order."""
    if len(units) != len(place.alive):
        return "their number is another"
    ordinals: Iterable[Any] = (unit.row_group for unit in units)
    starts = np.cumsum([0, *(unit.rows for unit in units)]).tolist()
    if list(ordinals) != list(range(len(units))) or [unit.first_row for unit in units] != starts[:-1]:
        return "they do not follow each other"
    return "" if starts[-1] == data.record_count else "they have not the rows of the file"
