"""The filters of a Parquet file in other sizes, in a new file with the same pages; page indexes come along."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from sidecar.convert.outcome import BLOOM, EXACT, FOLDED, PAGE_INDEX, WIDENED, Outcome
from sidecar.convert.reshape import TargetSizes, measured_rate
from sidecar.convert.sound_page_index import sound_page_index
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filters
from sidecar.parquet.embed import GroupIndexes, Piece, WrittenParquet, check_embeddable, embed
from sidecar.parquet.extents import Range
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.inspect import reason_of
from sidecar.parquet.page_index import read_page_indexes
from sidecar.source import Source
from sidecar.target import Target


@dataclass
class Refolded:
    """What was written, and what became of each index that was there."""

    written: WrittenParquet
    units: list[Outcome]


def refold(
    source: Source, footer: Footer, target: Target, shape: TargetSizes, wanted: Collection[int] | None
) -> Refolded:
    """Write the file ``source`` with its filters in another ``shape``, those of ``wanted`` leaves (indexes; all by
    default); everything else as it is.

    Filters that are not trusted are left out, as they may lose rows. Raises :class:`UsageError` for merging: a
    Parquet file has a filter for each row group.
    """
    if shape.merge or shape.merge_all:
        raise UsageError("a Parquet file has a filter for each row group", hint="Merge into a Puffin file.")
    check_embeddable(source, footer)
    worker = _Refolder(source, footer, shape, wanted)
    units: list[Outcome] = []
    written = embed(source, footer, target, worker.groups(units))
    return Refolded(written, units)


class _Refolder:
    def __init__(
        self, source: Source, footer: Footer, shape: TargetSizes, wanted: Collection[int] | None
    ) -> None:
        self._source = source
        self._footer = footer
        self._shape = shape
        self._wanted = wanted
        self._largest: dict[int, int] = {}
        if shape.widen:
            for group in footer.row_groups:
                for chunk, found in self._found(group):
                    if isinstance(found, FoundFilter) and found.trusted:
                        z = self._folded(chunk, found)[0].z
                        self._largest[chunk.leaf.index] = max(z, self._largest.get(chunk.leaf.index, 0))

    def groups(self, units: list[Outcome]) -> Iterator[GroupIndexes]:
        """Indexes of each row group; what became of them is added to ``units``."""
        for group in self._footer.row_groups:
            filters: dict[int, Piece] = {}
            for chunk, found in self._found(group):
                piece, outcome = self._filter(chunk, found)
                units.append(outcome)
                if piece is not None:
                    filters[chunk.leaf.index] = piece
            columns, offsets = self._pages(group, units)
            yield GroupIndexes(filters, columns, offsets)

    def _found(self, group: RowGroup) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError]]:
        chunks = [chunk for chunk in group.columns if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(self._source, chunks):
            if isinstance(found, StorageError):
                raise found
            if found is not None:
                yield chunk, found

    def _folded(self, chunk: ColumnChunk, found: FoundFilter) -> tuple[SplitBlockBloomFilter, str]:
        own = found.filter
        assert isinstance(own, SplitBlockBloomFilter)
        if self._shape.fpp is None or not self._is_wanted(chunk):
            return own, EXACT
        small = own.fold_to(self._shape.fpp)
        return small, FOLDED if small.z < own.z else EXACT

    def _filter(self, chunk: ColumnChunk, found: FoundFilter | SidecarError) -> tuple[Piece | None, Outcome]:
        place = (self._source.name, chunk.row_group, chunk.leaf.path, BLOOM)
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
        measured = measured_rate(made) if self._shape.measure else None
        outcome = Outcome(*place, way, made.num_bytes, before, made.estimated_fpp(), measured, reason)
        if way == EXACT:
            return Range(found.offset, found.length), replace(outcome, bytes=found.bitset_length)
        return encode_header(made.num_bytes) + made.to_bytes(), outcome

    def _pages(self, group: RowGroup, units: list[Outcome]) -> tuple[dict[int, Piece], dict[int, Piece]]:
        columns: dict[int, Piece] = {}
        offsets: dict[int, Piece] = {}
        having = [c for c in group.columns if c.column_index_offset or c.offset_index_offset]
        answers = zip(*read_page_indexes(self._source, self._footer, having, having), strict=True)
        for chunk, (column, offset) in zip(having, answers, strict=True):
            sound = sound_page_index(self._footer, chunk, column, offset)
            place = (self._source.name, group.ordinal, chunk.leaf.path, PAGE_INDEX)
            if sound.offset_index is None:
                units.append(Outcome(*place, reason=sound.reason, damaged=sound.damaged))
                continue
            length = chunk.offset_index_length or 0
            offsets[chunk.leaf.index] = Range(chunk.offset_index_offset or 0, length)
            if sound.column_index is not None:
                columns_length = chunk.column_index_length or 0
                columns[chunk.leaf.index] = Range(chunk.column_index_offset or 0, columns_length)
                length += columns_length
            units.append(Outcome(*place, EXACT, length, reason=sound.reason, damaged=sound.damaged))
        return columns, offsets

    def _is_wanted(self, chunk: ColumnChunk) -> bool:
        return self._wanted is None or chunk.leaf.index in self._wanted
