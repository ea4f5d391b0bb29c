"""Rebuilds a filter for another hash function, index rule or encoding, from the values of a Parquet column.

The bits of a filter say nothing about another hash, so the new filter needs the values. There are two ways to get
them. Each gives *all* values, so the new filter denies none of them:

``dictionary``  the entries of the dictionary pages, if every data page provably uses them
``values``      the column's values
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from sidecar.conversion.outcome import DICTIONARY, VALUES, Way
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.encoding import Encoding
from sidecar.parquet.arrow_values import check_readable, chunk_values
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.pages import wholly_dictionary
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import Source

F = TypeVar("F")
B = TypeVar("B", bound=BlockFilter)
FilterFromArrays = Callable[[Iterable["pa.Array[Any]"], int], F]
"""Builds a filter from arrays; the number is an upper limit of their distinct values together."""


class ParquetEvidence:
    """The values of some chunks of one column, which get one filter together.

    ``source`` must stay open while the iterator of :meth:`values` is in use. Raises :class:`UnsupportedFeatureError`
    for chunks that cannot be read and for types without filters.
    """

    def __init__(self, source: Source, footer: Footer, chunks: Sequence[ColumnChunk]) -> None:
        self.name = source.name
        self._source = source
        self._chunks = chunks
        for chunk in chunks:
            check_readable(footer, chunk)

    def dictionary(self) -> list[pa.Array[Any]] | Unknown:
        """Return arrays with every value at least once, or why a dictionary does not prove to have them all.

        Extra entries only add false positives.
        """
        for chunk in self._chunks:
            if chunk.num_values and not wholly_dictionary(self._source, chunk):
                return Unknown(f"not every page of row group {chunk.row_group} is dictionary-encoded")
        chunks = [chunk for chunk in self._chunks if chunk.num_values]
        return [read_dictionary(self._source, chunk).to_arrow(chunk.leaf) for chunk in chunks]

    def values(self) -> tuple[Iterator[pa.Array[Any]], int]:
        """Return all values, and an upper limit of their number."""
        count = sum(max(chunk.num_values - (chunk.null_count or 0), 0) for chunk in self._chunks)
        return chain.from_iterable(chunk_values(self._source, chunk) for chunk in self._chunks), count


def rebuild(evidence: ParquetEvidence, build: FilterFromArrays[F]) -> tuple[F, Way]:
    """Build the new filter by the first way that is possible, and return it with the way.

    Raises :class:`DamagedFileError` if the values cannot be decoded, and :class:`sidecar.errors.StorageError`.
    """
    try:
        entries = evidence.dictionary()
    except (DamagedFileError, UnsupportedFeatureError, UsageError) as error:
        entries = Unknown(error.what)  # the values may not need the damaged bytes
    if not isinstance(entries, Unknown):
        return build(entries, sum(map(len, entries))), DICTIONARY
    return build(*evidence.values()), VALUES


def filter_of(form: type[B], encoding: Encoding, fpp: float) -> FilterFromArrays[B]:
    """Return a builder of ``form`` filters: sized for the number of values, then folded as far as ``fpp`` allows."""

    def build(arrays: Any, distinct: int) -> B:
        made = form.empty(form.blocks_for(distinct, fpp))
        for array in arrays:
            made.insert_arrow(array, encoding)
        return made.fold_to(fpp)

    return build
