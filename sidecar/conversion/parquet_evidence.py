"""Gathers what a Parquet file tells about the values of a column: the evidence for rebuilding a filter.

The bounds of a chunk are trusted only if all of this holds: the column is INT32 or INT64 in a known column order,
``min_value`` and ``max_value`` are both present and in the right order, and neither is marked as inexact. Writers do
not round or truncate integers, so these bounds are the least and the greatest value of the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.conversion.rebuild import Build, Domain, Numbers
from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.array_hash import hash_plain_fixed
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Leaf
from sidecar.parquet.arrow_values import ValueReader, check_pages
from sidecar.parquet.bloom import FoundFilter
from sidecar.parquet.dictionary import DictionaryPage, read_dictionary
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_bounds import chunk_bounds
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.thrift import Struct
from sidecar.source import Source

_IS_MAX_EXACT, _IS_MIN_EXACT = 7, 8
_INT64 = np.iinfo(np.int64)
B = TypeVar("B", bound=BlockFilter)


class ParquetEvidence:
    """The evidence about the values of some chunks of one column, which get one filter together.

    ``old`` is the present filter over all these chunks, or ``None``. ``source`` must stay open while the iterator of
    :meth:`values` is in use.
    """

    def __init__(
        self, source: Source, footer: Footer, chunks: Sequence[ColumnChunk], old: FoundFilter | None = None
    ) -> None:
        self.name = source.name
        self._source = source
        self._footer = footer
        self._chunks = chunks
        self._old = old
        for chunk in chunks:
            _check_readable(footer, chunk)

    def dictionary(self) -> list[pa.Array[Any]] | str:
        """See :meth:`sidecar.conversion.rebuild.Evidence.dictionary`."""
        for chunk in self._chunks:
            if chunk.num_values and not wholly_dictionary(self._source, chunk):
                return f"not every page of row group {chunk.row_group} is dictionary-encoded"
        chunks = [chunk for chunk in self._chunks if chunk.num_values]
        return [read_dictionary(self._source, chunk).to_arrow(chunk.leaf) for chunk in chunks]

    def domain(self) -> Domain | str:
        """See :meth:`sidecar.conversion.rebuild.Evidence.domain`."""
        if self._old is None:
            return "there is no old filter of this column"
        if self._old.defect:
            return f"the old filter is defective: {self._old.defect}"
        bounds: list[int] = []
        for chunk in self._chunks:
            found = integer_bounds(self._footer, chunk)
            if isinstance(found, str):
                return found
            bounds += found
        if not bounds:
            return "there are no chunks"
        leaf, old = self._chunks[0].leaf, self._old.filter
        return Domain(
            min(bounds),
            max(bounds),
            lambda numbers: admits(old, numbers, leaf.encoding),
            lambda numbers: to_arrow(numbers, leaf),
            old.estimated_fpp(),
            self._num_values,
        )

    def values(self) -> tuple[Iterator[pa.Array[Any]], int]:
        """See :meth:`sidecar.conversion.rebuild.Evidence.values`."""
        return chain.from_iterable(map(self._decode, self._chunks)), self._num_values

    @property
    def _num_values(self) -> int:
        return sum(max(chunk.num_values - (chunk.null_count or 0), 0) for chunk in self._chunks)

    def _decode(self, chunk: ColumnChunk) -> Iterator[pa.Array[Any]]:
        check_pages(self._source, chunk)
        with ValueReader(self._source) as reader:
            for (values,) in reader.batches(chunk.row_group, [chunk.leaf.index]):
                yield values


def _check_readable(footer: Footer, chunk: ColumnChunk) -> None:
    reason = "is encrypted" if chunk.encrypted else "is in another file" if chunk.file_path else ""
    reason = reason and f"the column chunk {reason}"
    if reason or chunk.leaf.encoding.not_indexable:
        raise UnsupportedFeatureError(
            reason or f"no filter for {chunk.leaf.encoding}: {chunk.leaf.encoding.not_indexable}",
            file=footer.name,
            column=chunk.leaf.path,
        )


def integer_bounds(footer: Footer, chunk: ColumnChunk) -> tuple[int, int] | str:
    """Return the least and greatest value of a chunk of integers, or why they are not certain."""
    if chunk.leaf.physical not in ("INT32", "INT64"):
        return f"values of {chunk.leaf.physical} are not bounded integers"
    bounds = chunk_bounds(footer, chunk)
    low, high = bounds.lower[0], bounds.upper[0]
    if bounds.reason or not isinstance(low, int) or not isinstance(high, int):
        return bounds.reason or "the chunk has no bounds"
    statistics = _statistics(footer, chunk)
    if statistics.boolean(_IS_MIN_EXACT) is False or statistics.boolean(_IS_MAX_EXACT) is False:
        return "the chunk's bounds are not exact"
    if high > _INT64.max:
        return "the chunk's bounds do not fit a signed 64-bit integer"
    return low, high


def _statistics(footer: Footer, chunk: ColumnChunk) -> Struct:
    group = (footer.metadata.structs(4) or [])[chunk.row_group]
    meta = (group.structs(1) or [])[chunk.leaf.index].struct(3) or Struct()
    return meta.struct(12) or Struct()


def admits(old: BlockFilter, numbers: Numbers, encoding: Encoding) -> npt.NDArray[np.bool_]:
    """Return for each number whether the old filter of ``encoding`` may hold it: bool[n]."""
    plain = _plain(numbers, encoding)
    hashes = hash_plain_fixed(plain, len(numbers), encoding, twins=False, function=old.function)
    return old.check(hashes)


def to_arrow(numbers: Numbers, leaf: Leaf) -> pa.Array[Any]:
    """Return the numbers as an array in the column's type."""
    return DictionaryPage(len(numbers), _plain(numbers, leaf.encoding), leaf.width).to_arrow(leaf)


def _plain(numbers: Numbers, encoding: Encoding) -> npt.NDArray[np.uint8]:
    """Return the numbers in PLAIN encoding. A 32-bit number is the lower word, signed or unsigned."""
    return numbers.astype("<u4" if encoding.width == 4 else "<u8").view(np.uint8)


def filter_of(form: type[B], encoding: Encoding, fpp: float) -> Build[B]:
    """Return a builder of ``form`` filters: sized for the number of values, then folded as far as ``fpp`` allows."""

    def build(arrays: Any, distinct: int) -> B:
        made = form.empty(form.blocks_for(distinct, fpp))
        for array in arrays:
            made.insert_arrow(array, encoding)
        return made.fold_to(fpp)

    return build
