"""Where a scan gets the page indexes of a file from: what is at hand already, or else the file.

A sidecar has page indexes of a file as they were, so that its own need not be read. They are only bytes until the
footer is known: :mod:`sidecar.parquet.page_bounds` holds them against it as it does with the file's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_index import ColumnIndexAnswer, OffsetIndexAnswer, read_page_indexes
from sidecar.source import Source


class KnownIndex(NamedTuple):
    """Both indexes of a chunk, ``None`` where there is none."""

    column: ColumnIndexAnswer
    offset: OffsetIndexAnswer


Known = Mapping[tuple[int, int], KnownIndex]
"""Page indexes by the ordinal of the row group and the index of the leaf."""


class KnownPageIndexes:
    """The page indexes of one file; what is in ``known`` is not read."""

    def __init__(self, source: Source, footer: Footer, known: Known) -> None:
        self._source = source
        self._footer = footer
        self._known = known

    def has_both(self, chunk: ColumnChunk) -> bool:
        """Whether there is a column index and an offset index, as far as is known without reading them."""
        known = self._at_hand(chunk)
        if known is not None:
            return known.column is not None and known.offset is not None
        return bool(chunk.column_index_offset and chunk.offset_index_offset)

    def both(self, chunks: Sequence[ColumnChunk]) -> list[KnownIndex]:
        """Both indexes of each chunk; those that have to be read, in few reads."""
        missing = [chunk for chunk in chunks if self._at_hand(chunk) is None]
        read = map(KnownIndex, *read_page_indexes(self._source, self._footer, missing, missing))
        return [self._at_hand(chunk) or next(read) for chunk in chunks]

    def offsets(self, chunks: Sequence[ColumnChunk]) -> list[OffsetIndexAnswer]:
        """The offset index of each chunk, in the same way."""
        missing = [chunk for chunk in chunks if self._at_hand(chunk) is None]
        _, answers = read_page_indexes(self._source, self._footer, [], missing)
        read, found = iter(answers), []
        for chunk in chunks:
            known = self._at_hand(chunk)
            found.append(next(read) if known is None else known.offset)
        return found

    def _at_hand(self, chunk: ColumnChunk) -> KnownIndex | None:
        return self._known.get((chunk.row_group, chunk.leaf.index))
