"""Makes the filters and sketches of one row group's column chunks, each in the cheapest way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import UnitState
from sidecar.conversion.outcome import DICTIONARY, EXACT, VALUES, IndexPlace
from sidecar.conversion.reuse import NEVER
from sidecar.errors import SidecarError
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.indexing.columns import ColumnResult, ColumnWork, Options, SplitBlockBuilder
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.fault import DAMAGE, fault_of, reason_of
from sidecar.parquet.arrow_values import ValueReader, check_pages
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.dictionary import read_dictionary, read_used
from sidecar.parquet.footer import ColumnChunk, RowGroup
from sidecar.parquet.page_indexes.build import take_values
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.stored_values import StoredValues, check_typed, entries_of
from sidecar.storage.source import CountingSource, Source


class _Chunk(ColumnWork):
    """A column chunk while it is indexed."""

    def __init__(self, file: str, field_id: int, column_type: str, chunk: ColumnChunk, options: Options) -> None:
        self.leaf = chunk.leaf
        place = IndexPlace(file, chunk.row_group, self.leaf.path, BLOOM)
        super().__init__(place, field_id, column_type, self.leaf.encoding.name, options)
        self.chunk = chunk
        if self.bloom and self.leaf.encoding.not_indexable is not None:
            self.refuse_filter(self.leaf.encoding.not_indexable)

    @property
    def num_present(self) -> int:
        """An upper limit of its non-null values: nulls count if the footer does not tell their number."""
        return self.chunk.num_values - (self.chunk.null_count or 0)

    def begin(self, values: int, options: Options, sketches: TaskSketches) -> None:
        """Start to collect at most ``values`` values."""
        maker = SplitBlockBuilder(self.leaf.encoding, values, options.of(self.field_id)) if self.bloom else None
        self.start(maker, sketches)


class ChunkIndexer:
    """Indexes the row groups of one open file."""

    def __init__(self, source: Source, options: Options, sketches: TaskSketches) -> None:
        self._source = CountingSource(source)
        self._options = options
        self._sketches = sketches
        self._reader: ValueReader | None = None

    def index(self, group: RowGroup, columns: Mapping[int, tuple[str, Leaf]]) -> dict[int, ColumnResult]:
        """Index a row group and return the results by field id.

        ``columns`` maps field ids to (Iceberg type, leaf of this file).
        """
        work = [self._begin(group, field_id, *column) for field_id, column in columns.items()]
        # From cheap to expensive. Each step leaves a chunk alone if its way is not certain, so the next step does it.
        for chunk in work:
            if chunk.bloom and self._options.reuse != NEVER:
                self._reuse(chunk)
            if chunk.wanted:
                self._from_dictionary(chunk)
            if chunk.wanted:
                self._from_pages(chunk, group.num_rows)
        self._scan(group, [chunk for chunk in work if chunk.wanted])
        return {chunk.field_id: chunk.result for chunk in work}

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open."""
        if self._reader is not None:
            self._reader.close()

    def _begin(self, group: RowGroup, field_id: int, column_type: str, leaf: Leaf) -> _Chunk:
        chunk = group.columns.stored[leaf.index]
        work = _Chunk(self._source.name, field_id, column_type, chunk, self._options)
        if group.columns.get(leaf.index) is None:
            work.fail(UnitState.ENCRYPTED)
        elif chunk.file_path:
            work.fail("the column chunk is in another file")
        return work

    @contextmanager
    def _counting(self, chunk: _Chunk) -> Iterator[None]:
        """Count the bytes that the block reads for a chunk."""
        before = self._source.bytes_read
        try:
            yield
        finally:
            chunk.result.bytes_read += self._source.bytes_read - before

    def _reuse(self, chunk: _Chunk) -> None:
        """Reuse the file's own filter if it is trusted and good enough. A broken filter is only not reused."""
        try:
            with self._counting(chunk):
                found = read_bloom_filter(self._source, chunk.chunk)
        except SidecarError:
            return
        if found is None or not found.trusted or not isinstance(found.filter, SplitBlockBloomFilter):
            return
        if self._options.takes(found.filter):
            chunk.result.take(found.filter, chunk.leaf.encoding.name, EXACT)
            chunk.bloom = False

    def _from_dictionary(self, chunk: _Chunk) -> None:
        """Index a wholly dictionary-encoded chunk from its dictionary. On any error the scan indexes it."""
        try:
            with self._counting(chunk):
                if not wholly_dictionary(self._source, chunk.chunk):
                    return
                # A filter may hold entries that no row uses, but a sketch must not count them.
                if chunk.theta:
                    page, used = read_used(self._source, chunk.chunk)
                else:
                    page = read_dictionary(self._source, chunk.chunk)
                    used = np.ones(page.num_values, np.bool_)
                values = entries_of(page, used).typed(chunk.leaf)
        except SidecarError:
            return
        chunk.begin(int(np.count_nonzero(used)), self._options, self._sketches)
        chunk.add(values)
        chunk.finish(DICTIONARY)

    def _from_pages(self, chunk: _Chunk, num_rows: int) -> None:
        """Hash the values directly in the pages' bytes. On any error the scan indexes the chunk."""
        leaf = chunk.leaf
        values = StoredValues(leaf, lambda some: chunk.add(some.typed(leaf)), only_used=True)
        try:
            check_typed(leaf)
            chunk.begin(chunk.num_present, self._options, self._sketches)
            with self._counting(chunk):
                take_values(self._source, chunk.chunk, num_rows, values)
        except SidecarError:
            return
        if values.complete:
            chunk.finish(VALUES)

    def _scan(self, group: RowGroup, work: list[_Chunk]) -> None:
        """Decode the remaining columns with pyarrow in one pass; after an error, each column alone."""
        if not work:
            return
        try:
            if self._reader is None:
                self._reader = ValueReader(self._source.inner)
            self._scan_together(self._reader, group, work)
        except SidecarError as error:
            if len(work) == 1 or self._reader is None:
                for chunk in work:
                    chunk.fail(reason_of(error), fault_of(error))
            else:
                for chunk in work:  # one damaged column must not cost the others
                    self._scan(group, [chunk])

    def _scan_together(self, reader: ValueReader, group: RowGroup, work: list[_Chunk]) -> None:
        for chunk in work:
            if reader.path(chunk.leaf.index) != chunk.leaf.path:
                chunk.fail("pyarrow finds a different column there", DAMAGE)
                continue
            try:
                check_pages(self._source, chunk.chunk)
            except SidecarError as error:
                chunk.fail(reason_of(error), fault_of(error))
        by_leaf: dict[int, list[_Chunk]] = {}
        for chunk in work:
            if chunk.wanted:
                chunk.begin(chunk.num_present, self._options, self._sketches)
                by_leaf.setdefault(chunk.leaf.index, []).append(chunk)
        leaves = sorted(by_leaf)
        if not leaves:
            return
        for arrays in reader.batches(group.ordinal, leaves):
            for leaf, values in zip(leaves, arrays, strict=True):
                for chunk in by_leaf[leaf]:
                    chunk.add(values)
        for chunks in by_leaf.values():
            for chunk in chunks:
                chunk.result.bytes_read += chunk.chunk.total_compressed_size
                chunk.finish(VALUES)
