"""Finds the byte ranges of a Parquet file's parts: pages, and the filters and page indexes in the footer.

Writers differ: parquet-java writes page indexes and then filters after all data, Arrow C++ filters and then page
indexes, and the parquet crate writes filters after each row group. All other bytes between them (an older footer, or
bytes to which only an unknown field refers) may be in use, so they are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.errors import DamagedFileError
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import MAGIC, ColumnChunk, Footer
from sidecar.storage.source import Source


class Range(NamedTuple):
    """A byte range of a file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.offset + self.length


@dataclass(frozen=True)
class Extents:
    """The byte ranges of a file's parts."""

    groups: list[Range | None]
    """The range from the first to the last page of each row group; ``None`` for one without pages."""
    indexes: list[Range]
    """Filters and page indexes that do not overlap pages, sorted by offset."""
    cut: int
    """Offset from which on there are only filters and page indexes before the footer. They may be dropped."""
    locked: tuple[ColumnChunk, ...] = ()
    """Encrypted chunks whose key is missing. Their metadata cannot be read or not be written, so nothing can move."""

    def next_start(self, row_group: int) -> int:
        """Return where the pages of the next row group begin; :attr:`cut` after the last one.

        The pages of a row group may end later than the footer says, but before that offset.
        """
        return next((part.offset for part in self.groups[row_group + 1 :] if part is not None), self.cut)

    def between(self, start: int, end: int) -> Iterator[Range]:
        """Yield the ranges of ``[start, end)`` that are not filters or page indexes."""
        for part in self.indexes[bisect_left(self.indexes, (start, 0)) :]:
            if part.offset >= end:
                break
            if part.offset > start:
                yield Range(start, part.offset - start)
            start = max(start, part.end)
        if start < end:
            yield Range(start, end - start)


def find_extents(source: Source, footer: Footer) -> Extents:
    """Find the byte ranges of a file's parts. Reads only headers of filters whose length is not in the footer.

    Filters and page indexes of chunks whose key is missing are not known. If there is such a chunk, nothing may be
    dropped, and ``cut`` is the footer's offset. Raises :class:`DamagedFileError` for a column chunk outside the file's
    body.
    """
    locked = tuple(chunk for group in footer.row_groups for chunk in group.columns.locked)
    parts_of = [[_pages(footer, chunk) for chunk in group.columns.stored] for group in footer.row_groups]
    taken = sorted(part for parts in parts_of for part in parts if part.length)
    data_end = max((part.end for part in taken), default=len(MAGIC))
    known = [part for part in _named(source, footer) if _is_free(part, taken, footer.offset)]
    groups: list[Range | None] = []
    for some in parts_of:
        parts = [part for part in some if part.length]
        start = min((part.offset for part in parts), default=0)
        groups.append(Range(start, max(part.end for part in parts) - start) if parts else None)
    cut = footer.offset if locked else _cut(known, data_end, footer.offset)
    return Extents(groups, sorted(known), cut, locked)


def _pages(footer: Footer, chunk: ColumnChunk) -> Range:
    part = Range(chunk.start, chunk.total_compressed_size)
    if part.length and not (len(MAGIC) <= part.offset <= part.end <= footer.offset):
        raise DamagedFileError(
            "the column chunk is outside the file's body",
            file=footer.name,
            column=chunk.leaf.path,
            offset=part.offset,
            expected=f"at most {footer.offset} bytes",
            found=f"{part.length} bytes from {part.offset}",
        )
    return part


def _named(source: Source, footer: Footer) -> Iterator[Range]:
    """Yield every range that is a filter or a page index according to the footer, without a check."""
    unknown_length: list[ColumnChunk] = []
    for group in footer.row_groups:
        for chunk in group.columns:
            if chunk.bloom_filter_offset and chunk.bloom_filter_length is None:
                unknown_length.append(chunk)
            for offset, length in (
                (chunk.bloom_filter_offset, chunk.bloom_filter_length),
                (chunk.column_index_offset, chunk.column_index_length),
                (chunk.offset_index_offset, chunk.offset_index_length),
            ):
                if offset and length:
                    yield Range(offset, length)
    yield from _read_lengths(source, unknown_length)


def _read_lengths(source: Source, chunks: Iterable[ColumnChunk]) -> Iterator[Range]:
    for _, found in read_bloom_filters(source, chunks):
        if isinstance(found, FoundFilter):
            yield Range(found.offset, found.length)


def _is_free(part: Range, taken: Sequence[Range], end: int) -> bool:
    """Return whether a range is inside the body and does not overlap the pages (``taken``, sorted by offset)."""
    if not (len(MAGIC) <= part.offset < part.end <= end):
        return False
    after = bisect_left(taken, (part.offset, 0))
    behind = after == len(taken) or part.end <= taken[after].offset
    return behind and (after == 0 or taken[after - 1].end <= part.offset)


def _cut(known: Iterable[Range], data_end: int, footer_offset: int) -> int:
    """Walk back from the footer over known ranges without gaps, and return where the first of them begins."""
    cut = footer_offset
    for part in sorted(known, key=lambda part: part.end, reverse=True):
        if part.end < cut or part.offset < data_end:
            break
        cut = min(cut, part.offset)
    return cut
