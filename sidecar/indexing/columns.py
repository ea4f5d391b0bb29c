"""Collects the filter and sketch of one column of one unit from its values, for any file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.rules import SPLIT_BLOCK, AnyFilter, IndexRule, OrcRule
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, THETA
from sidecar.conversion.outcome import IndexPlace, Outcome, Way
from sidecar.conversion.protection import NO_SKETCH
from sidecar.conversion.reuse import why_not_reused
from sidecar.errors import UsageError
from sidecar.filters.array_hash import hash_arrow, theta_hashes
from sidecar.filters.column_cast import to_column_type
from sidecar.filters.encoding import Encoding
from sidecar.filters.layouts import ArrayLike
from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import DEFAULT_FPP, blocks_for
from sidecar.indexing.sketches import ChunkSketch, TaskSketches
from sidecar.indexing.stage_one.fault import reason_of

REUSE_RATE = 0.01
"""A filter of the file is good enough if its bits show at most this rate, independent of the rate of new filters."""


@dataclass(frozen=True)
class Options:
    """The options of a build. ``fpp`` is the target rate; ``reuse`` is ``good``, ``always`` or ``never``."""

    kinds: frozenset[str]
    """The names of the kinds of indexes that are made."""
    fpp: float
    max_bits: float | None
    """The most bits per value; ``None`` for no limit."""
    reuse: str
    filter_format: str = "auto"
    """The filters of ORC units: ``parquet`` builds split-block filters, ``orc`` uses ORC filters, ``auto`` reuses
    the file's own good filters and else builds split-block filters."""
    orc_fpp: float = DEFAULT_FPP
    """Target rate of new ORC filters."""
    encrypted: frozenset[int] = frozenset()
    """Field ids with encrypted bundles; they get no sketch."""
    plaintext: frozenset[int] = frozenset()
    """Field ids that may be indexed in plaintext although files have them encrypted."""
    any_rate: bool = False
    """Whether filters of an earlier sidecar are reused whatever rate they were built for."""
    own: Mapping[int, Options] = field(default_factory=dict)
    """The options of columns that differ from the others in kinds or rate, by field id."""

    def of(self, field_id: int) -> Options:
        """Return the options of one column."""
        return self.own.get(field_id, self)

    @property
    def bloom(self) -> bool:
        """Whether filters are made."""
        return BLOOM in self.kinds

    @property
    def theta(self) -> bool:
        """Whether values are counted."""
        return THETA in self.kinds

    @property
    def page_index(self) -> bool:
        """Whether page indexes and row indexes are taken over."""
        return PAGE_INDEX in self.kinds

    def takes(self, found: AnyFilter) -> bool:
        """Return whether a trusted filter of the file is reused."""
        return not why_not_reused(self.reuse, found.estimated_fpp(), REUSE_RATE)

    def may_index(self, field_id: int) -> bool:
        """Return whether a column may be indexed in files that have it encrypted."""
        return field_id in self.encrypted or field_id in self.plaintext


class FilterFacts(NamedTuple):
    """The encoding and the size of a filter, and its bytes after the last whole block."""

    encoding: str = ""
    """The encoding of the filter, by its registered name."""
    blocks: int = 0
    """Number of whole blocks; 0 without a filter. The last one of an ORC filter is padded with zeros."""
    tail: bytes = b""
    """Bytes after the last whole block of a reused filter."""
    bits: int = 0
    """m (bits) of an ORC filter; 0 for a split-block filter."""
    hashes: int = 0
    """k (hashes per key) of an ORC filter."""

    @property
    def rule(self) -> IndexRule:
        """The rule that maps a hash to bits of the filter."""
        return OrcRule(self.hashes, self.bits) if self.bits else SPLIT_BLOCK

    @property
    def num_bytes(self) -> int:
        """Bytes of the filter in a data file; 0 without a filter."""
        return self.bits // 8 or self.blocks * BLOCK_BYTES + len(self.tail)


@dataclass
class ColumnResult:
    """The result for one column of one unit. A reason is empty if its index is there or was not requested."""

    outcome: Outcome
    """The outcome for the filter."""
    filter: FilterFacts
    bitset: bytes | None = None
    """The filter's whole blocks."""
    sketch: ChunkSketch | None = None
    theta_reason: str = ""
    fault: str = ""
    """See :attr:`sidecar.indexing.stage_one.tasks.StageResult.fault`."""
    bytes_read: int = 0

    def take(self, found: AnyFilter, encoding: str, way: Way) -> None:
        """Make ``found`` the filter."""
        if isinstance(found, OrcBloomFilter):
            bitset = found.to_bytes()
            self.bitset = bitset + bytes(-len(bitset) % BLOCK_BYTES)
            self.filter = FilterFacts(encoding, len(self.bitset) // BLOCK_BYTES, b"", found.m, found.k)
        else:
            self.bitset = found.blocks.tobytes()
            self.filter = FilterFacts(encoding, len(found.blocks), found.tail)
        self.outcome = replace(self.outcome, way=way, bytes=found.num_bytes, rate_after=found.estimated_fpp())


class SplitBlockBuilder:
    """Builds a split-block filter for at most ``values`` values, and folds it to the target rate in the end."""

    def __init__(self, encoding: Encoding, values: int, options: Options) -> None:
        self.encoding = encoding
        self._fpp = options.fpp
        blocks = blocks_for(_rounded(values), options.fpp, max_bits_per_value=options.max_bits)
        self._filter = SplitBlockBloomFilter(np.zeros((blocks, 8), dtype=np.uint32))

    def insert(self, values: ArrayLike) -> None:
        """Add values, as :meth:`ColumnWork.add`. Raises :class:`UsageError` if their bytes are not certain."""
        self._filter.insert(hash_arrow(values, self.encoding))

    def finish(self) -> SplitBlockBloomFilter:
        """Return the filter at its target size."""
        return self._filter.fold_to(self._fpp)


class OrcFilterBuilder:
    """Builds an ORC filter of the size that ORC writers choose for a row index stride of ``stride`` rows."""

    def __init__(self, encoding: OrcEncoding, stride: int, options: Options) -> None:
        self.encoding = encoding
        self._filter = OrcBloomFilter.empty(*size_for(stride, options.orc_fpp))

    def insert(self, values: ArrayLike) -> None:
        """See :meth:`SplitBlockBuilder.insert`."""
        self._filter.insert_arrow(values, self.encoding)

    def finish(self) -> OrcBloomFilter:
        """Return the filter."""
        return self._filter


FilterBuilder = SplitBlockBuilder | OrcFilterBuilder
"""Builds a filter from values."""


class ColumnWork:
    """One column of one unit while it is indexed: what is still missing, and the builders of filter and sketch."""

    def __init__(self, place: IndexPlace, field_id: int, column_type: str, encoding: str, options: Options) -> None:
        options = options.of(field_id)
        self.field_id = field_id
        self.column_type = column_type
        self.result = ColumnResult(Outcome(*place), FilterFacts(encoding))
        self.bloom = options.bloom
        self.theta = options.theta and field_id not in options.encrypted
        if options.theta and not self.theta:
            self.result.theta_reason = NO_SKETCH
        self._maker: FilterBuilder | None = None
        self._sketch: ChunkSketch | None = None

    @property
    def wanted(self) -> bool:
        """Whether anything is still missing."""
        return self.bloom or self.theta

    def start(self, maker: FilterBuilder | None, sketches: TaskSketches) -> None:
        """Start to collect values, into ``maker`` if a filter is missing and into a sketch if one is missing."""
        self._maker = maker if self.bloom else None
        self._sketch = sketches.begin(self.field_id) if self.theta else None

    def add(self, values: ArrayLike) -> None:
        """Add ``values``: an array in the file's Arrow type, or byte arrays in place for strings and binary.

        :func:`sidecar.filters.layouts.chunks` takes both apart. If filter or sketch cannot take them, only that one is
        given up.
        """
        if self._maker is not None:
            try:
                self._maker.insert(values)
            except (UsageError, pa.ArrowException) as error:
                self.refuse_filter(reason_of(error))
        if self._sketch is not None:
            try:
                typed = to_column_type(values, self.column_type)
                self._sketch.update(theta_hashes(typed, self.column_type))
            except (UsageError, pa.ArrowException) as error:
                self._sketch, self.theta, self.result.theta_reason = None, False, reason_of(error)

    def refuse_filter(self, reason: str) -> None:
        """Give up the filter, for a reason; the sketch goes on."""
        self.result.outcome = replace(self.result.outcome, reason=reason)
        self._maker, self.bloom = None, False

    def finish(self, way: Way) -> None:
        """Put the filter at its target size and the sketch into the result."""
        if self._maker is not None:
            self.result.take(self._maker.finish(), self._maker.encoding.name, way)
        if self._sketch is not None:
            self.result.sketch = self._sketch
        self.bloom = self.theta = False

    def fail(self, reason: str, fault: str = "") -> None:
        """Give up everything that is still missing, for a reason."""
        self.result.fault = fault
        if self.bloom:
            self.result.outcome = replace(self.result.outcome, reason=reason, damaged=bool(fault))
        if self.theta:
            self.result.theta_reason = reason
        self._maker = self._sketch = None
        self.bloom = self.theta = False


def _rounded(values: int) -> int:
    """Round up to six significant bits, so that few filter sizes have to be computed."""
    drop = max(values.bit_length() - 6, 0)
    return max((values + (1 << drop) - 1) >> drop << drop, 1)
