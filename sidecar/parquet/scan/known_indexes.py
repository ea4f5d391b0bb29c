"""Gives a scan the page indexes of a file: those that the caller already has, else those that the file stores.

A sidecar keeps copies of page indexes, so a scan need not read them from the file. Copies get no more trust than
the file's own: :mod:`sidecar.parquet.page_indexes.page_bounds` checks both against the footer before they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.page_index import ColumnIndexAnswer, OffsetIndexAnswer, read_page_indexes
from sidecar.storage.source import Source


class KnownIndex(NamedTuple):
    """The column index and the offset index of a chunk; ``None`` for one that is missing."""

    column: ColumnIndexAnswer
    offset: OffsetIndexAnswer


Known = Mapping[tuple[int, int], KnownIndex]
"""Page indexes by the ordinal of the row group and the index of the leaf."""


class KnownPageIndexes:
    """The page indexes of one file. Indexes in ``known`` are not read from the file."""

    def __init__(self, source: Source, footer: Footer, known: Known) -> None:
        self._source = source
        self._footer = footer
        self._known = known

    def has_both(self, chunk: ColumnChunk) -> bool:
        """Return whether the chunk has a column index and an offset index, without reading them."""
        known = self._at_hand(chunk)
        if known is not None:
            return known.column is not None and known.offset is not None
        return bool(chunk.column_index_offset and chunk.offset_index_offset)

    def both(self, chunks: Sequence[ColumnChunk]) -> list[KnownIndex]:
        """Return both indexes of each chunk. Missing ones are read from the file, neighbours in one read."""
        missing = [chunk for chunk in chunks if self._at_hand(chunk) is None]
        read = map(KnownIndex, *read_page_indexes(self._source, self._footer, missing, missing))
        return [self._at_hand(chunk) or next(read) for chunk in chunks]

    def offsets(self, chunks: Sequence[ColumnChunk]) -> list[OffsetIndexAnswer]:
        """Return the offset index of each chunk. Missing ones are read from the file, neighbours in one read."""
        missing = [chunk for chunk in chunks if self._at_hand(chunk) is None]
        _, answers = read_page_indexes(self._source, self._footer, [], missing)
        read, found = iter(answers), []
        for chunk in chunks:
            known = self._at_hand(chunk)
            found.append(next(read) if known is None else known.offset)
        return found

    def _at_hand(self, chunk: ColumnChunk) -> KnownIndex | None:
        return self._known.get((chunk.row_group, chunk.leaf.index))
