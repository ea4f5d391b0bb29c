"""Copies a Parquet file with smaller filters. Pages stay the same; sound page indexes are carried over.

Folding needs no values: it starts from the bits of the old filter and keeps everything that it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX
from sidecar.conversion.outcome import EXACT, FOLDED, IndexPlace, Outcome
from sidecar.errors import DamagedFileError, SidecarError, StorageError, reason_of
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filters
from sidecar.parquet.embed import GroupIndexes, Piece, check_embeddable, embed
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup, read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.parquet.page_indexes.build import nan_problem
from sidecar.parquet.page_indexes.extents import Range
from sidecar.parquet.page_indexes.page_index import read_page_indexes
from sidecar.parquet.page_indexes.sound_page_index import sound_page_index
from sidecar.parquet.verify.filters import lacking_form
from sidecar.storage.source import Source


def refold_file(
    access: Access, source: str, target: str, columns: Sequence[str] | None, fpp: float
) -> tuple[int, list[Outcome]]:
    """Write the file ``source`` to the new file ``target``, the filters of ``columns`` (or all) folded to ``fpp``.

    Everything else stays as it is, except that filters which are not trusted are left out, because they may lose rows.
    Returns the size of the new file in bytes, and what became of each index of the source. Raises :class:`UsageError`
    for unknown columns.
    """
    with closing(access.open(source)) as opened:
        footer = read_footer(opened)
        wanted = None if columns is None else {find_leaf(footer, name).index for name in columns}
        with access.create(target) as sink:
            check_embeddable(opened, footer)
            outcomes: list[Outcome] = []
            groups = _Refolder(opened, footer, fpp, wanted).groups(outcomes)
            return embed(opened, footer, sink, groups).size, outcomes


class _Refolder:
    """Decides the filters and page indexes of each row group of one file."""

    def __init__(self, source: Source, footer: Footer, fpp: float, wanted: Collection[int] | None) -> None:
        self._source = source
        self._footer = footer
        self._fpp = fpp
        self._wanted = wanted

    def groups(self, outcomes: list[Outcome]) -> Iterator[GroupIndexes]:
        """Yield the indexes of each row group, and add what became of them to ``outcomes``."""
        for group in self._footer.row_groups:
            filters: dict[int, Piece] = {}
            for chunk, found in self._filters_of(group):
                piece, outcome = self._filter(chunk, found)
                outcomes.append(outcome)
                if piece is not None:
                    filters[chunk.leaf.index] = piece
            columns, offsets = self._pages(group, outcomes)
            yield GroupIndexes(filters, columns, offsets)

    def _filters_of(self, group: RowGroup) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError]]:
        chunks = [chunk for chunk in group.columns if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(self._source, chunks):
            if isinstance(found, StorageError):
                raise found
            if found is not None:
                yield chunk, found

    def _filter(self, chunk: ColumnChunk, found: FoundFilter | SidecarError) -> tuple[Piece | None, Outcome]:
        place = IndexPlace(self._source.name, chunk.row_group, chunk.leaf.path, BLOOM)
        if isinstance(found, SidecarError):
            return None, place.without_index(reason_of(found), isinstance(found, DamagedFileError))
        before = found.filter.estimated_fpp()
        reason = found.reason if not found.trusted else lacking_form(self._source, self._footer, chunk, found.filter)
        if reason:
            return None, place.without_index(reason, rate_before=before)
        own = found.filter
        made = own.fold_to(self._fpp) if self._wanted is None or chunk.leaf.index in self._wanted else own
        # A range of the source is copied with its own header; a new filter needs a new header.
        if made.z == own.z:
            outcome = Outcome(*place, EXACT, found.bitset_length, before, before)
            return Range(found.offset, found.length), outcome
        outcome = Outcome(*place, FOLDED, made.num_bytes, before, made.estimated_fpp())
        return encode_header(made.num_bytes) + made.to_bytes(), outcome

    def _pages(self, group: RowGroup, outcomes: list[Outcome]) -> tuple[dict[int, Piece], dict[int, Piece]]:
        columns: dict[int, Piece] = {}
        offsets: dict[int, Piece] = {}
        having = [c for c in group.columns if c.column_index_offset or c.offset_index_offset]
        answers = zip(*read_page_indexes(self._source, self._footer, having, having), strict=True)
        for chunk, (column, offset) in zip(having, answers, strict=True):
            sound = sound_page_index(self._footer, chunk, column, offset)
            place = IndexPlace(self._source.name, group.ordinal, chunk.leaf.path, PAGE_INDEX)
            if sound.offset_index is None:
                outcomes.append(place.without_index(sound.reason, sound.damaged))
                continue
            length = chunk.offset_index_length or 0
            offsets[chunk.leaf.index] = Range(chunk.offset_index_offset or 0, length)
            reason = sound.reason
            if sound.column_index is not None and not reason:
                reason = nan_problem(self._source, self._footer, chunk, sound.column_index)
                reason = f"no column index: {reason}" if reason else ""
            if sound.column_index is not None and not reason:
                columns_length = chunk.column_index_length or 0
                columns[chunk.leaf.index] = Range(chunk.column_index_offset or 0, columns_length)
                length += columns_length
            outcomes.append(Outcome(*place, EXACT, length, reason=reason, damaged=sound.damaged))
        return columns, offsets
