"""Decides which filters the row groups of a rewritten Parquet file get: old ones as they are, or new ones.

An old filter is copied byte for byte, header included, if no new one is requested or can be built, or if it is good
enough. A filter
that is known to lose rows (wrong lengths, a BOOLEAN column, empty although there are values, unreadable, floats
without a form that readers look up) is dropped: a missing filter loses nothing. An encrypted column keeps its filters
if its key is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.conversion.outcome import EXACT, NONE, VALUES, IndexPlace, Outcome
from sidecar.conversion.reuse import NEVER, FilterRules
from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, reason_of
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import blocks_for
from sidecar.indexing.columns import Options
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.chunks import ChunkIndexer
from sidecar.indexing.stage_one.fault import STORAGE
from sidecar.parquet.bloom import FoundFilter, doubt_of, encode_header, read_bloom_filters
from sidecar.parquet.embed import Piece
from sidecar.parquet.encrypted.sealing import NO_KEY
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.page_indexes.build import take_values
from sidecar.parquet.page_indexes.extents import Range
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.stored_values import PageHasher
from sidecar.parquet.verify.filters import lacking_form
from sidecar.storage.source import Source

XXH64 = "XXH64"


class ValuesFilter:
    """A filter that collects the values of a chunk while its pages are read."""

    def __init__(self, leaf: Leaf, blocks: int) -> None:
        self.filter = SplitBlockBloomFilter.empty(blocks)
        self.hasher = PageHasher(leaf, self.filter.insert)


@dataclass
class GroupFilters:
    """The filters of a row group while they are made, by leaf index."""

    group: RowGroup
    filters: dict[int, Piece] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    replaceable: dict[int, Outcome] = field(default_factory=dict)
    """The outcomes of sound old filters that a new one replaces, if no new one can be built."""
    waiting: dict[int, ValuesFilter] = field(default_factory=dict)
    """Filters that need values. Code that reads a chunk's pages for another purpose may feed their hashers."""

    def take(self, chunk: ColumnChunk, bitset: bytes, outcome: Outcome) -> None:
        """Give the chunk a new filter, unless its readers would doubt it."""
        if doubt := doubt_of(SplitBlockBloomFilter.from_bytes(bitset), chunk):
            self.note(chunk, replace(outcome, way=NONE, rate_after=None, reason=doubt))
            return
        data = encode_filter(bitset)
        self.filters[chunk.leaf.index] = data
        self.note(chunk, replace(outcome, bytes=len(data)))

    def note(self, chunk: ColumnChunk, outcome: Outcome) -> None:
        """Record what became of the chunk's filter, with the rate of the old one."""
        old = self.outcomes.get(chunk.leaf.index)
        rate = None if old is None else old.rate_before
        self.outcomes[chunk.leaf.index] = replace(outcome, rate_before=rate)


class ParquetFilterMaker:
    """Makes the filters of one open file, row group by row group."""

    def __init__(self, source: Source, footer: Footer, rules: FilterRules) -> None:
        self._source = source
        self._footer = footer
        self._rules = rules
        self._wanted = frozenset(rules.columns)
        self._indexers: dict[float, ChunkIndexer] = {}

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open."""
        for indexer in self._indexers.values():
            indexer.close()

    def _indexer(self, fpp: float) -> ChunkIndexer:
        """Return the indexer that builds filters of this rate."""
        if fpp not in self._indexers:
            options = Options(kinds=frozenset({BLOOM}), fpp=fpp, max_bits=None, reuse=NEVER)
            self._indexers[fpp] = ChunkIndexer(self._source, options, TaskSketches())
        return self._indexers[fpp]

    def begin(self, group: RowGroup) -> GroupFilters:
        """Make all filters of a row group that do not need its values: carry over, then use dictionaries."""
        work = GroupFilters(group, outcomes=locked_indexes(self._source.name, group, BLOOM))
        for old, outcome in self._carried_filters(group):
            work.outcomes[old.leaf.index] = outcome
            if outcome.reason and not outcome.dropped:
                work.replaceable[old.leaf.index] = outcome
            elif outcome.way == EXACT:
                work.filters[old.leaf.index] = Range(old.bloom_filter_offset or 0, outcome.bytes)
        by_indexer: list[Leaf] = []
        for leaf in map(self._footer.columns.__getitem__, self._rules.columns):
            if leaf.index in work.filters:
                continue
            chunk = group.columns.get(leaf.index)
            if chunk is None:
                place = IndexPlace(self._source.name, group.ordinal, leaf.path, BLOOM)
                work.outcomes.setdefault(leaf.index, place.without_index(NO_KEY))
            elif leaf.encoding.not_indexable is None and not self._is_dictionary(chunk):
                work.waiting[leaf.index] = self._from_values(chunk)
            else:
                by_indexer.append(leaf)
        self._index(work, by_indexer)
        return work

    def finish(self, work: GroupFilters) -> tuple[dict[int, Piece], list[Outcome]]:
        """Return the row group's filters by leaf index, and what became of each old or requested filter."""
        not_walked: list[Leaf] = []
        for index, waiting in work.waiting.items():
            chunk = work.group.columns[index]
            try:
                if not waiting.hasher.complete:  # not fed, or not to the end: start over with an empty filter
                    waiting = self._from_values(chunk)
                    take_values(self._source, chunk, work.group.num_rows, waiting.hasher)
            except StorageError:
                raise
            except UnsupportedFeatureError:  # pyarrow may decode it: tried below
                pass
            except SidecarError as error:
                work.note(chunk, self._place(chunk).without_index(reason_of(error), damaged=True))
                continue
            if waiting.hasher.complete:
                built = waiting.filter.fold_to(self._rules.rate_of(chunk.leaf.index))
                rate = built.estimated_fpp()
                work.take(chunk, built.to_bytes(), Outcome(*self._place(chunk), VALUES, rate_after=rate))
            else:
                not_walked.append(chunk.leaf)
        self._index(work, not_walked)
        for index, old in work.replaceable.items():
            if index not in work.filters:
                work.filters[index] = Range(work.group.columns[index].bloom_filter_offset or 0, old.bytes)
                failed = work.outcomes[index]
                reason = f"{old.reason}, but no other can be built: {failed.reason}"
                work.outcomes[index] = replace(old, reason=reason, damaged=failed.damaged)
        return work.filters, [work.outcomes[index] for index in sorted(work.outcomes)]

    def _is_dictionary(self, chunk: ColumnChunk) -> bool:
        try:
            return wholly_dictionary(self._source, chunk)
        except StorageError:
            raise
        except SidecarError:  # reading the values fails next, and reports the damage
            return False

    def _from_values(self, chunk: ColumnChunk) -> ValuesFilter:
        values = chunk.num_values - (chunk.null_count or 0)
        return ValuesFilter(chunk.leaf, blocks_for(max(values, 1), self._rules.rate_of(chunk.leaf.index)))

    def _index(self, work: GroupFilters, leaves: Sequence[Leaf]) -> None:
        """Build filters from dictionaries, or from values that only pyarrow decodes; note why some have no filter."""
        by_rate: dict[float, list[Leaf]] = {}
        for leaf in leaves:
            by_rate.setdefault(self._rules.rate_of(leaf.index), []).append(leaf)
        for rate, group in by_rate.items():
            self._index_at(rate, work, group)

    def _index_at(self, rate: float, work: GroupFilters, leaves: Sequence[Leaf]) -> None:
        columns = {leaf.index: (leaf.iceberg_type, leaf) for leaf in leaves}
        for index, result in self._indexer(rate).index(work.group, columns).items():
            chunk = work.group.columns[index]
            if result.fault == STORAGE:
                raise StorageError(result.outcome.reason, file=self._source.name)
            if result.bitset is None:
                work.note(chunk, result.outcome)
            else:
                work.take(chunk, result.bitset, result.outcome)

    def _carried_filters(self, group: RowGroup) -> Iterator[tuple[ColumnChunk, Outcome]]:
        """Yield the source's filters: carried over (``exact``) or dropped (``none``).

        The reason of an ``exact`` one says why a new one should replace it.
        """
        chunks = [chunk for chunk in group.columns if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(self._source, chunks):
            if isinstance(found, StorageError):
                raise found
            reason = _defect(chunk, found)
            if not reason and isinstance(found, FoundFilter):
                reason = lacking_form(self._source, self._footer, chunk, found.filter)
            rate = found.filter.estimated_fpp() if isinstance(found, FoundFilter) else None
            replaced = ""
            if not reason and chunk.leaf.index in self._wanted and isinstance(found, FoundFilter):
                replaced = self._not_reused(chunk.leaf, found, rate or 0.0)
            if reason or not isinstance(found, FoundFilter):
                yield (
                    chunk,
                    Outcome(*self._place(chunk), rate_before=rate, reason=f"dropped: {reason}", dropped=True),
                )
            else:
                yield chunk, Outcome(*self._place(chunk), EXACT, found.length, rate, rate, reason=replaced)

    def _not_reused(self, leaf: Leaf, found: FoundFilter, rate: float) -> str:
        if self._rules.reuse != NEVER and (not found.trusted or found.hash != XXH64):
            return found.reason or f"its hash is {found.hash}"
        return self._rules.why_not_reused(leaf.index, rate)

    def _place(self, chunk: ColumnChunk) -> IndexPlace:
        return IndexPlace(self._source.name, chunk.row_group, chunk.leaf.path, BLOOM)


def locked_indexes(file: str, group: RowGroup, kind: IndexKind) -> dict[int, Outcome]:
    """Return the indexes of columns whose key is missing, by leaf index. The new file keeps them as they are."""
    kept: dict[int, Outcome] = {}
    for chunk in group.columns.locked:
        length = _LENGTHS[kind](chunk)
        if length is not None:
            kept[chunk.leaf.index] = Outcome(file, group.ordinal, chunk.leaf.path, kind, EXACT, length, reason=NO_KEY)
    return kept


def _filter_length(chunk: ColumnChunk) -> int | None:
    """Return the bytes of a chunk's filter, 0 if the footer does not say; ``None`` if it has none."""
    return chunk.bloom_filter_length or 0 if chunk.bloom_filter_offset else None


def _pages_length(chunk: ColumnChunk) -> int | None:
    """Return the bytes of a chunk's page indexes; ``None`` if it has none."""
    if not (chunk.offset_index_offset or chunk.column_index_offset):
        return None
    return (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)


_LENGTHS = {BLOOM: _filter_length, PAGE_INDEX: _pages_length}


def encode_filter(bitset: bytes) -> bytes:
    """Return the bytes of a filter in a file: header and bitset."""
    return encode_header(len(bitset)) + bitset


def _defect(chunk: ColumnChunk, found: FoundFilter | SidecarError | None) -> str:
    """Return why a filter of the source must be dropped. A filter that only other readers understand may stay."""
    if not isinstance(found, FoundFilter):
        return reason_of(found) if found is not None else "its offset is 0"
    contradictory = chunk.bloom_filter_length not in (None, found.length)
    if found.trusted or not (contradictory or chunk.leaf.physical == "BOOLEAN" or not found.filter.blocks.any()):
        return ""
    return found.reason
