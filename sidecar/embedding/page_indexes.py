"""Decides which page indexes the row groups of a rewritten Parquet file get: old ones as they are, or new ones.

An old ColumnIndex or OffsetIndex is copied byte for byte if nothing contradicts it, and dropped otherwise: a wrong one
loses rows or keeps readers from opening the file. A ColumnIndex of floats with NaN is dropped if readers would not
expect NaN (:func:`sidecar.parquet.page_indexes.build.nan_problem`). New ones are built from the pages. Readers filter
pages only if every column that they read has an OffsetIndex, and some readers refuse a file in which a column has none.
So if one page index of a row group cannot be built, the row group gets no new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sidecar.bundle.kinds.declared import PAGE_INDEX
from sidecar.conversion.outcome import EXACT, VALUES, IndexPlace, Outcome
from sidecar.conversion.reuse import NEVER
from sidecar.embedding.filters import ValuesFilter, locked_indexes
from sidecar.errors import SidecarError, StorageError, reason_of
from sidecar.parquet.embed import Piece
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.page_indexes.build import build_page_index, nan_problem
from sidecar.parquet.page_indexes.extents import Range
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    ColumnIndexAnswer,
    OffsetIndex,
    OffsetIndexAnswer,
    read_indexes_by_leaf,
)
from sidecar.storage.source import Source


@dataclass
class RowGroupPageIndexes:
    """The page indexes of a row group by leaf index."""

    column_indexes: dict[int, Piece] = field(default_factory=dict)
    offset_indexes: dict[int, Piece] = field(default_factory=dict)

    def drop(self, leaf: int) -> None:
        """Remove the page index of a leaf."""
        self.column_indexes.pop(leaf, None)
        self.offset_indexes.pop(leaf, None)


class PageIndexMaker:
    """Makes the page indexes of one open file, row group by row group."""

    def __init__(self, source: Source, footer: Footer, *, build: bool, reuse: str) -> None:
        self._source = source
        self._footer = footer
        self._build = build
        self._rebuild = reuse == NEVER

    def make(self, group: RowGroup, waiting: Mapping[int, ValuesFilter]) -> tuple[RowGroupPageIndexes, list[Outcome]]:
        """Return the page indexes of a row group, and what became of each old or requested one.

        The filters in ``waiting`` (by leaf index) get the values of the pages that are read on the way.
        """
        made = RowGroupPageIndexes()
        kept = locked_indexes(self._source.name, group, PAGE_INDEX)
        outcomes = kept | dict(self._old(group, made))
        if self._build and group.num_rows:
            for chunk in group.columns:
                if chunk.leaf.index not in made.column_indexes or self._rebuild:
                    outcomes[chunk.leaf.index] = self.build(chunk, made, waiting.get(chunk.leaf.index))
            self._all_or_none(group, made, outcomes)
        return made, [outcomes[leaf] for leaf in sorted(outcomes)]

    def _old(self, group: RowGroup, made: RowGroupPageIndexes) -> Iterator[tuple[int, Outcome]]:
        """Carry over the sound page indexes of the source."""
        columns, offsets = read_indexes_by_leaf(self._source, self._footer, group.columns)
        for leaf in sorted(columns.keys() | offsets.keys()):
            yield leaf, self._carry(group.columns[leaf], columns.get(leaf), offsets.get(leaf), made)

    def _carry(
        self,
        chunk: ColumnChunk,
        columns: ColumnIndexAnswer,
        offsets: OffsetIndexAnswer,
        made: RowGroupPageIndexes,
    ) -> Outcome:
        place = self._place(chunk)
        problem = self._offset_problem(chunk, offsets)
        if problem or not isinstance(offsets, OffsetIndex):
            return Outcome(*place, reason=f"dropped: {problem}", dropped=True)
        leaf, length = chunk.leaf.index, chunk.offset_index_length or 0
        made.offset_indexes[leaf] = Range(chunk.offset_index_offset or 0, length)
        problem = self._column_problem(chunk, columns, offsets)
        if problem or not isinstance(columns, ColumnIndex):
            return Outcome(
                *place,
                EXACT,
                length,
                reason=f"column index dropped: {problem}" if problem else "",
                dropped=bool(problem),
            )
        columns_length = chunk.column_index_length or 0
        made.column_indexes[leaf] = Range(chunk.column_index_offset or 0, columns_length)
        return Outcome(*place, EXACT, length + columns_length)

    def _place(self, chunk: ColumnChunk) -> IndexPlace:
        return IndexPlace(self._source.name, chunk.row_group, chunk.leaf.path, PAGE_INDEX)

    def _offset_problem(self, chunk: ColumnChunk, index: OffsetIndexAnswer) -> str:
        if index is None:
            return "a column index without an offset index"
        if isinstance(index, SidecarError):
            return reason_of(index)
        return next(offset_index_problems(self._footer, chunk, index), "")

    def _column_problem(self, chunk: ColumnChunk, index: ColumnIndexAnswer, offsets: OffsetIndex) -> str:
        if index is None:
            return ""
        if isinstance(index, SidecarError):
            return reason_of(index)
        problem = next(column_index_problems(self._footer, chunk, index, offsets), "")
        return problem or nan_problem(self._source, self._footer, chunk, index)

    def build(self, chunk: ColumnChunk, made: RowGroupPageIndexes, waiting: ValuesFilter | None = None) -> Outcome:
        """Build the page index of one chunk from its pages."""
        place = self._place(chunk)
        leaf = chunk.leaf.index
        try:
            hasher = waiting.hasher if waiting is not None else None
            built = build_page_index(self._source, self._footer, chunk, hasher)
        except StorageError:
            raise
        except SidecarError as error:
            made.drop(leaf)
            return place.without_index(reason_of(error), damaged=True)
        if built.offset_index is None:
            made.drop(leaf)
            return place.without_index(built.reason)
        made.drop(leaf)
        made.offset_indexes[leaf] = built.offset_index.raw
        length = len(built.offset_index.raw)
        if built.column_index is not None:
            made.column_indexes[leaf] = built.column_index.raw
            length += len(built.column_index.raw)
        return Outcome(*place, VALUES, length, reason=built.reason)

    def _all_or_none(self, group: RowGroup, made: RowGroupPageIndexes, outcomes: dict[int, Outcome]) -> None:
        """If a chunk has no OffsetIndex, drop the page indexes that were built; old ones stay."""
        missing = first_without_pages(group, made.offset_indexes)
        if missing is None:
            return
        for leaf, outcome in outcomes.items():
            if outcome.way == VALUES:
                made.drop(leaf)
                place = self._place(group.columns[leaf])
                outcomes[leaf] = place.without_index(f"{missing} of the row group has no page index")


def first_without_pages(group: RowGroup, offset_indexes: Collection[int]) -> str | None:
    """Return the path of the first column that has no OffsetIndex in the new file; ``None`` if all have one.

    ``offset_indexes`` are the leaves that get one. Locked columns keep theirs.
    """
    kept = {chunk.leaf.index for chunk in group.columns.locked if chunk.offset_index_offset}
    leaves = (chunk.leaf for chunk in group.columns.stored)
    return next((leaf.path for leaf in leaves if leaf.index not in kept and leaf.index not in offset_indexes), None)
