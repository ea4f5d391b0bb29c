"""From one row group's column chunks to their filters and sketches, by the cheapest way each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.errors import SidecarError, UsageError
from sidecar.filters.hashing import hash_arrow, theta_hashes
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import blocks_for
from sidecar.filters.theta import ThetaSketch
from sidecar.indexing.faults import DAMAGE, fault_of, reason_of
from sidecar.indexing.sketches import ChunkSketch, TaskSketches
from sidecar.indexing.types import to_column_type
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.dictionary import read_dictionary, used_entries
from sidecar.parquet.footer import ColumnChunk, RowGroup
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.schema import Leaf
from sidecar.parquet.values import ValueReader
from sidecar.source import CountingSource, Source

HARVEST_RATE = 0.01
"""A filter that is already in the file is good if the rate estimated from its bits is at most this."""


@dataclass(frozen=True)
class Options:
    """What to build. ``fpp`` is the target rate; ``harvest`` is ``good``, ``always`` or ``never``."""

    bloom: bool
    theta: bool
    fpp: float
    max_bits: float | None
    """Limit of bits a value, ``None`` for none."""
    harvest: str
    lg_k: int
    ndv: Mapping[int, int] = field(default_factory=dict)
    """Distinct values of a chunk to begin with, by field id; the number of values where nothing is said."""
    page_index: bool = False


@dataclass
class ChunkResult:
    """What became of one column chunk; reasons are empty where all that was asked for is there."""

    how: str = ""
    bitset: bytes | None = None
    reason: str = ""
    sketch: ThetaSketch | None = None
    theta_reason: str = ""
    fault: str = ""
    """As :attr:`sidecar.indexing.tasks.Record.fault`."""
    tail: bytes = b""
    """Odd bytes after the last whole block of a harvested filter."""
    rate: float = 0.0
    """False-positive rate estimated from the filter's bits."""
    bytes_read: int = 0

    @property
    def damaged(self) -> bool:
        """Whether bytes could not be read or decoded."""
        return bool(self.fault)

    def take(self, found: SplitBlockBloomFilter, how: str) -> None:
        """Make ``found`` the filter of the chunk."""
        self.bitset = found.blocks.tobytes()
        self.tail = found.tail
        self.rate = found.estimated_fpp()
        self.how = how


@dataclass
class _Chunk:
    """A column chunk at work: what is still wanted of it, and what gathers its values."""

    field_id: int
    column_type: str
    leaf: Leaf
    chunk: ColumnChunk
    result: ChunkResult
    bloom: bool
    theta: bool
    filter: SplitBlockBloomFilter | None = None
    sketch: ChunkSketch | None = None

    def start(self, values: int, options: Options, sketches: TaskSketches) -> None:
        """Empty filter and sketch, sized for so many values."""
        if self.bloom:
            values = options.ndv.get(self.field_id, values)
            blocks = blocks_for(_rounded(values), options.fpp, max_bits_per_value=options.max_bits)
            self.filter = SplitBlockBloomFilter(np.zeros((blocks, 8), dtype=np.uint32))
        if self.theta:
            self.sketch = sketches.begin(self.field_id)

    def add(self, values: pa.Array[Any]) -> None:
        """Count ``values`` (the file's Arrow type) in; a type that is not understood ends only what it is
        for."""
        if self.filter is not None:
            try:
                self.filter.insert(hash_arrow(values, self.leaf.encoding))
            except (UsageError, pa.ArrowException) as error:
                self.filter, self.bloom, self.result.reason = None, False, reason_of(error)
        if self.sketch is not None:
            try:
                typed = to_column_type(values, self.column_type)
                self.sketch.update(theta_hashes(typed, self.column_type))
            except (UsageError, pa.ArrowException) as error:
                self.sketch, self.theta, self.result.theta_reason = None, False, reason_of(error)

    def finish(self, how: str, options: Options) -> None:
        """Fold the filter to its target and hand both over."""
        if self.filter is not None:
            self.result.take(self.filter.fold_to(options.fpp), how)
        if self.sketch is not None:
            self.result.sketch = self.sketch.finish()
        self.bloom = self.theta = False

    def fail(self, reason: str, fault: str = "") -> None:
        """Leave uncovered what is still wanted."""
        self.result.fault = fault
        if self.bloom:
            self.result.reason = reason
        if self.theta:
            self.result.theta_reason = reason
        self.filter = self.sketch = None
        self.bloom = self.theta = False


class ChunkIndexer:
    """Indexes the row groups of one open file."""

    def __init__(self, source: Source, options: Options, sketches: TaskSketches) -> None:
        self._source = CountingSource(source)
        self._options = options
        self._sketches = sketches
        self._reader: ValueReader | None = None

    def index(self, group: RowGroup, columns: Mapping[int, tuple[str, Leaf]]) -> dict[int, ChunkResult]:
        """Results by field id for ``columns``: field id -> (Iceberg type, leaf of this file)."""
        work = [self._begin(group, field_id, *column) for field_id, column in columns.items()]
        for chunk in work:
            if chunk.bloom and self._options.harvest != "never":
                self._harvest(chunk)
            if chunk.bloom or chunk.theta:
                self._from_dictionary(chunk)
        self._scan(group, [chunk for chunk in work if chunk.bloom or chunk.theta])
        return {chunk.field_id: chunk.result for chunk in work}

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open."""
        if self._reader is not None:
            self._reader.close()

    def _begin(self, group: RowGroup, field_id: int, column_type: str, leaf: Leaf) -> _Chunk:
        result = ChunkResult()
        bloom = self._options.bloom
        if bloom and leaf.encoding.not_indexable is not None:
            result.reason, bloom = leaf.encoding.not_indexable, False
        chunk = group.columns[leaf.index]
        work = _Chunk(field_id, column_type, leaf, chunk, result, bloom, self._options.theta)
        if chunk.encrypted:
            work.fail("the column is encrypted")
        elif chunk.file_path:
            work.fail("the column chunk lies in another file")
        return work

    def _harvest(self, chunk: _Chunk) -> None:
        """Take the file's own filter as it is; one that is broken or doubtful is simply not taken."""
        before = self._source.bytes_read
        try:
            found = read_bloom_filter(self._source, chunk.chunk)
        except SidecarError:
            return
        finally:
            chunk.result.bytes_read += self._source.bytes_read - before
        if found is None or not found.trusted or not isinstance(found.filter, SplitBlockBloomFilter):
            return
        if self._options.harvest == "good" and found.filter.estimated_fpp() > HARVEST_RATE:
            return
        chunk.result.take(found.filter, "harvested")
        chunk.bloom = False

    def _from_dictionary(self, chunk: _Chunk) -> None:
        """Index a wholly dictionary-encoded chunk from its dictionary; anything odd is left to the scan."""
        before = self._source.bytes_read
        try:
            if not wholly_dictionary(self._source, chunk.chunk):
                return
            values = read_dictionary(self._source, chunk.chunk).to_arrow(chunk.leaf)
            if chunk.theta:
                used = used_entries(self._source, chunk.chunk)
                values = values if used.all() else values.filter(pa.array(used))
        except SidecarError:
            return
        finally:
            chunk.result.bytes_read += self._source.bytes_read - before
        chunk.start(len(values), self._options, self._sketches)
        chunk.add(values)
        chunk.finish("dictionary", self._options)

    def _scan(self, group: RowGroup, work: list[_Chunk]) -> None:
        """Decode all that is left in one pass, and upon an error each column alone."""
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
                for chunk in work:
                    self._scan(group, [chunk])

    def _scan_together(self, reader: ValueReader, group: RowGroup, work: list[_Chunk]) -> None:
        for chunk in work:
            if reader.path(chunk.leaf.index) != chunk.leaf.path:
                chunk.fail("pyarrow sees another column there", DAMAGE)
        by_leaf: dict[int, list[_Chunk]] = {}
        for chunk in work:
            if chunk.bloom or chunk.theta:
                nulls = chunk.chunk.null_count or 0
                chunk.start(chunk.chunk.num_values - nulls, self._options, self._sketches)
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
                chunk.finish("scanned", self._options)


def _rounded(values: int) -> int:
    """``values`` rounded up to six significant bits, so that few sizes need to be computed."""
    drop = max(values.bit_length() - 6, 0)
    return max((values + (1 << drop) - 1) >> drop << drop, 1)
