"""Which filters the row groups of a rewritten Parquet file get: old ones as they are, or new ones.

A filter of the file is carried over byte for byte, header included, where it is not asked for anew or is good
enough. One that is known to lose rows (its lengths contradict each other, it is of a BOOLEAN column, it is
empty beside values, it cannot be read) is dropped: a missing filter loses nothing. A wholly dictionary-encoded
chunk whose dictionary page is no larger than the filter gets none, because readers that prune by filters read
the dictionary instead, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sidecar.build.chunks import ChunkIndexer, ChunkResult, Options
from sidecar.build.faults import STORAGE
from sidecar.build.sketches import TaskSketches
from sidecar.errors import SidecarError, StorageError
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filters
from sidecar.parquet.embed import Piece
from sidecar.parquet.extents import Range
from sidecar.parquet.footer import ColumnChunk, RowGroup
from sidecar.parquet.inspect import reason_of
from sidecar.parquet.pages import ChunkReader
from sidecar.parquet.schema import Leaf
from sidecar.source import Source

HARVEST_RULES = ("good", "always", "never")
WAYS = {"dictionary": "dictionary", "scanned": "values"}
_FIRST_PAGE = 4 << 10


@dataclass(frozen=True)
class FilterRules:
    """What to build: ``leaves``, at rate ``fpp``, from ``ndv`` distinct values by leaf index.

    ``harvest``: a trusted filter of the file is taken if it is ``good`` (at most ``fpp`` by its bits),
    ``always`` or ``never``.
    """

    leaves: tuple[Leaf, ...] = ()
    fpp: float = DEFAULT_FPP
    ndv: Mapping[int, int] = field(default_factory=dict)
    harvest: str = "good"
    even_if_dictionary: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one index of one column chunk.

    ``way``: ``exact`` (bytes of the source), ``dictionary`` or ``values`` (built from them), ``none``. ``bytes``
    count the header too. Rates are estimated from the bits, ``None`` where there is no filter.
    """

    row_group: int
    column: str
    kind: str
    way: str
    bytes: int = 0
    rate_before: float | None = None
    rate_after: float | None = None
    reason: str = ""
    damaged: bool = False
    """Whether the reason is that bytes of the source are broken."""


class FilterMaker:
    """Decides upon the filters of one open file, row group by row group."""

    def __init__(self, source: Source, rules: FilterRules) -> None:
        self._source = source
        self._rules = rules
        self._wanted = {leaf.index for leaf in rules.leaves}
        options = Options(
            bloom=True, theta=False, fpp=rules.fpp, max_bits=None, harvest="never", lg_k=12, ndv=rules.ndv
        )
        self._indexer = ChunkIndexer(source, options, TaskSketches(options.lg_k))

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open."""
        self._indexer.close()

    def make(self, group: RowGroup) -> tuple[dict[int, Piece], list[Outcome]]:
        """The filters of a row group by leaf index, and what became of each that was there or asked for."""
        filters: dict[int, Piece] = {}
        outcomes: dict[int, Outcome] = {}
        rates: dict[int, float] = {}
        for chunk, outcome in self._old(group):
            outcomes[chunk.leaf.index] = outcome
            if outcome.way == "exact":
                filters[chunk.leaf.index] = Range(chunk.bloom_filter_offset or 0, outcome.bytes)
            elif outcome.rate_before is not None:
                rates[chunk.leaf.index] = outcome.rate_before
        missing = {leaf.index: leaf for leaf in self._rules.leaves if leaf.index not in filters}
        built = self._indexer.index(group, {i: (leaf.iceberg_type, leaf) for i, leaf in missing.items()})
        for index, result in built.items():
            if result.fault == STORAGE:
                raise StorageError(result.reason, file=self._source.name)
            data, outcomes[index] = self._new(group.columns[index], result, rates.get(index))
            if data is not None:
                filters[index] = data
        return filters, [outcomes[index] for index in sorted(outcomes)]

    def _old(self, group: RowGroup) -> Iterator[tuple[ColumnChunk, Outcome]]:
        """The filters that the source has: carried over (``exact``) or not (``none``)."""
        chunks = [chunk for chunk in group.columns if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(self._source, chunks):
            if isinstance(found, StorageError):
                raise found
            reason = _defect(chunk, found)
            rate = found.filter.estimated_fpp() if isinstance(found, FoundFilter) else None
            if not reason and chunk.leaf.index in self._wanted and isinstance(found, FoundFilter):
                reason = self._not_harvested(found, rate or 0.0)
            place = (group.ordinal, chunk.leaf.path, "bloom")
            if reason or not isinstance(found, FoundFilter):
                yield chunk, Outcome(*place, "none", 0, rate, None, f"dropped: {reason}")
            else:
                yield chunk, Outcome(*place, "exact", found.length, rate, rate)

    def _not_harvested(self, found: FoundFilter, rate: float) -> str:
        if self._rules.harvest == "never":
            return "to be built anew"
        if not found.trusted:
            return found.reason
        too_many = self._rules.harvest == "good" and rate > self._rules.fpp
        return f"its rate is more than {self._rules.fpp}" if too_many else ""

    def _new(
        self, chunk: ColumnChunk, result: ChunkResult, rate_before: float | None
    ) -> tuple[bytes | None, Outcome]:
        """Header and bitset as built, and its outcome; or no bytes."""
        place = (chunk.row_group, chunk.leaf.path, "bloom")
        if result.bitset is None:
            return None, Outcome(*place, "none", 0, rate_before, None, result.reason, result.damaged)
        data = encode_header(len(result.bitset)) + result.bitset
        if self._dictionary_is_no_larger(chunk, result, len(data)):
            reason = "the dictionary is exact, and no larger than a filter"
            return None, Outcome(*place, "none", 0, rate_before, None, reason)
        return data, Outcome(*place, WAYS[result.how], len(data), rate_before, result.rate)

    def _dictionary_is_no_larger(self, chunk: ColumnChunk, result: ChunkResult, length: int) -> bool:
        if result.how != "dictionary" or self._rules.even_if_dictionary:
            return False
        return _dictionary_length(self._source, chunk) <= length


def _defect(chunk: ColumnChunk, found: FoundFilter | SidecarError | None) -> str:
    """Why a filter of the source must not live on; those that only others understand may."""
    if not isinstance(found, FoundFilter):
        return reason_of(found) if found is not None else "its offset is 0"
    contradictory = chunk.bloom_filter_length not in (None, found.length)
    if found.trusted or not (
        contradictory or chunk.leaf.physical == "BOOLEAN" or not found.filter.blocks.any()
    ):
        return ""
    return found.reason


def _dictionary_length(source: Source, chunk: ColumnChunk) -> int:
    """Bytes of the dictionary page, header included: what a reader fetches instead of a filter."""
    page = ChunkReader(source, chunk, _FIRST_PAGE).header(chunk.start)
    return page.end - page.offset
