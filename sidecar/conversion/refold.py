"""Copies a Parquet file with its filters in other sizes. Pages stay the same; sound page indexes are carried over.

Folding and widening need no values: both start from the bits of the old filter and keep everything that it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.conversion.outcome import BLOOM, EXACT, FOLDED, PAGE_INDEX, WIDENED, IndexPlace, Outcome, Way
from sidecar.conversion.reshape import TargetSizes, measured_rate
from sidecar.conversion.sound_page_index import sound_page_index
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filters
from sidecar.parquet.embed import GroupIndexes, Piece, check_embeddable, embed
from sidecar.parquet.extents import Range
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup, read_footer
from sidecar.parquet.inspect import find_leaf, reason_of
from sidecar.parquet.page_index import read_page_indexes
from sidecar.source import Source, open_source
from sidecar.target import Target, create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def refold_file(
    source: str, target: str, columns: Sequence[str] | None, sizes: TargetSizes, io: FileIO | None
) -> tuple[int, list[Outcome]]:
    """Write the file ``source`` to the new file ``target``, the filters of ``columns`` (or all) in other ``sizes``.

    Everything else stays as it is, except that filters which are not trusted are left out, because they may lose rows.
    Returns the size of the new file in bytes, and what became of each index of the source. Raises :class:`UsageError`
    if ``sizes`` changes nothing, for unknown columns, and for merging: a Parquet file has a filter for each row group.
    """
    if not sizes.changes:
        raise UsageError(
            "nothing to convert: name another rate (--fpp) or --widen",
            hint="sidecar embed gives a file the indexes that it lacks.",
        )
    with closing(open_source(source, io)) as opened:
        footer = read_footer(opened)
        wanted = None if columns is None else {find_leaf(footer, name).index for name in columns}
        with create_target(target, io) as sink:
            return _refold(opened, footer, sink, sizes, wanted)


def _refold(
    source: Source, footer: Footer, target: Target, sizes: TargetSizes, wanted: Collection[int] | None
) -> tuple[int, list[Outcome]]:
    if sizes.merge or sizes.merge_all:
        raise UsageError("a Parquet file has a filter for each row group", hint="Merge into a Puffin file.")
    check_embeddable(source, footer)
    outcomes: list[Outcome] = []
    groups = _Refolder(source, footer, sizes, wanted).groups(outcomes)
    return embed(source, footer, target, groups).size, outcomes


class _Refolder:
    """Decides the filters and page indexes of each row group of one file."""

    def __init__(self, source: Source, footer: Footer, sizes: TargetSizes, wanted: Collection[int] | None) -> None:
        self._source = source
        self._footer = footer
        self._sizes = sizes
        self._wanted = wanted
        self._largest: dict[int, int] = {}
        # Filters are widened to the largest filter of their column after folding, so widening needs a first pass.
        if sizes.widen:
            for group in footer.row_groups:
                for chunk, found in self._found(group):
                    if isinstance(found, FoundFilter) and found.trusted:
                        z = self._folded(chunk, found)[0].z
                        self._largest[chunk.leaf.index] = max(z, self._largest.get(chunk.leaf.index, 0))

    def groups(self, outcomes: list[Outcome]) -> Iterator[GroupIndexes]:
        """Yield the indexes of each row group, and add what became of them to ``outcomes``."""
        for group in self._footer.row_groups:
            filters: dict[int, Piece] = {}
            for chunk, found in self._found(group):
                piece, outcome = self._filter(chunk, found)
                outcomes.append(outcome)
                if piece is not None:
                    filters[chunk.leaf.index] = piece
            columns, offsets = self._pages(group, outcomes)
            yield GroupIndexes(filters, columns, offsets)

    def _found(self, group: RowGroup) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError]]:
        chunks = [chunk for chunk in group.columns if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(self._source, chunks):
            if isinstance(found, StorageError):
                raise found
            if found is not None:
                yield chunk, found

    def _folded(self, chunk: ColumnChunk, found: FoundFilter) -> tuple[SplitBlockBloomFilter, Way]:
        own = found.filter
        assert isinstance(own, SplitBlockBloomFilter)
        if self._sizes.fpp is None or not self._is_wanted(chunk):
            return own, EXACT
        small = own.fold_to(self._sizes.fpp)
        return small, FOLDED if small.z < own.z else EXACT

    def _filter(self, chunk: ColumnChunk, found: FoundFilter | SidecarError) -> tuple[Piece | None, Outcome]:
        place: IndexPlace = (self._source.name, chunk.row_group, chunk.leaf.path, BLOOM)
        if isinstance(found, SidecarError):
            damaged = isinstance(found, DamagedFileError)
            return None, Outcome(*place, reason=reason_of(found), damaged=damaged)
        before = found.filter.estimated_fpp()
        if not found.trusted:
            return None, Outcome(*place, rate_before=before, reason=found.reason)
        made, way = self._folded(chunk, found)
        reason = ""
        largest = self._largest.get(chunk.leaf.index, made.z)
        if self._is_wanted(chunk) and largest > made.z:
            if largest % made.z:
                reason = f"{made.z} blocks do not divide the largest filter's {largest}"
            else:
                made, way = made.widen(largest), WIDENED if way == EXACT else way
        measured = measured_rate(made) if self._sizes.measure else None
        outcome = Outcome(*place, way, made.num_bytes, before, made.estimated_fpp(), measured, reason)
        # A range of the source is copied with its own header; a new filter needs a new header.
        if way == EXACT:
            return Range(found.offset, found.length), replace(outcome, bytes=found.bitset_length)
        return encode_header(made.num_bytes) + made.to_bytes(), outcome

    def _pages(self, group: RowGroup, outcomes: list[Outcome]) -> tuple[dict[int, Piece], dict[int, Piece]]:
        columns: dict[int, Piece] = {}
        offsets: dict[int, Piece] = {}
        having = [c for c in group.columns if c.column_index_offset or c.offset_index_offset]
        answers = zip(*read_page_indexes(self._source, self._footer, having, having), strict=True)
        for chunk, (column, offset) in zip(having, answers, strict=True):
            sound = sound_page_index(self._footer, chunk, column, offset)
            place: IndexPlace = (self._source.name, group.ordinal, chunk.leaf.path, PAGE_INDEX)
            if sound.offset_index is None:
                outcomes.append(Outcome(*place, reason=sound.reason, damaged=sound.damaged))
                continue
            length = chunk.offset_index_length or 0
            offsets[chunk.leaf.index] = Range(chunk.offset_index_offset or 0, length)
            if sound.column_index is not None:
                columns_length = chunk.column_index_length or 0
                columns[chunk.leaf.index] = Range(chunk.column_index_offset or 0, columns_length)
                length += columns_length
            outcomes.append(Outcome(*place, EXACT, length, reason=sound.reason, damaged=sound.damaged))
        return columns, offsets

    def _is_wanted(self, chunk: ColumnChunk) -> bool:
        return self._wanted is None or chunk.leaf.index in self._wanted
