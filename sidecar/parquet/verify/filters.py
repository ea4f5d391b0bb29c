"""Verifies Bloom filters: looks up every value of a column chunk in its filter.

Values are hashed as they are stored (:mod:`sidecar.parquet.stored_values`), integers beyond the bits of their
annotation as readers show them. For a dictionary these are only the entries that a page uses, because the others need
not be in the filter.

Some readers look up values in other bytes than are stored. A filter that lacks those bytes loses rows in such readers:

- Spark looks up +0.0 for every zero and the canonical NaN for every NaN;
- DuckDB looks up the 4-byte float in a FLOAT16 column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.errors import SidecarError, StorageError, reason_at
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import take_values
from sidecar.parquet.stored_values import FixedValues, StoredValues, Values
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import Source

FLOATS: dict[str, npt.DTypeLike] = {"float16": "<f2", "float": "<f4", "double": "<f8"}


def value_problems(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    found: BlockFilter,
    check: ValueCheck | None = None,
    *,
    forms: bool = True,
) -> Iterator[str]:
    """Yield the problems of a filter whose column chunk has values that it lacks. A damaged chunk is a problem, too.

    Reads the whole chunk. ``forms`` is false for a filter that only sidecar reads, which knows the stored forms.
    """
    lookup = ValueLookup(chunk.leaf, found)
    try:
        scanned = take_values(source, chunk, footer.row_groups[chunk.row_group].num_rows, lookup)
    except SidecarError as error:
        yield reason_at(error)
        return
    if check is not None:
        check.values += lookup.asked
        if not lookup.complete:
            yield f"Bloom filter: values could not be looked up: {scanned.reason or 'not all were decoded'}"
    if lookup.denied:
        yield f"Bloom filter: denies {lookup.denied} of {lookup.asked} values that the column chunk has"
    if forms:
        yield from (f"Bloom filter: {text}" for text in lookup.lacking)


def lacking_form(source: Source, footer: Footer, chunk: ColumnChunk, found: BlockFilter) -> str:
    """Return which form of the chunk's values readers look up and a filter lacks, in words; empty if none is known.

    Reads the chunk only if it may have such values. Raises :class:`StorageError`.
    """
    name = chunk.leaf.encoding.name
    if name not in FLOATS or not isinstance(found, SplitBlockBloomFilter) or chunk.null_count == chunk.num_values:
        return ""
    lookup = ValueLookup(chunk.leaf, found)
    if name != "float16" and lookup.has_all_forms():
        return ""
    try:
        take_values(source, chunk, footer.row_groups[chunk.row_group].num_rows, lookup)
    except StorageError:
        raise
    except SidecarError:  # verify names the damage of the chunk
        return ""
    return next(iter(lookup.lacking), "")


class ValueLookup(StoredValues):
    """Looks up the values of one chunk in a filter while its pages are read.

    ``asked`` counts values, each entry of a dictionary once; ``denied`` counts those that the filter denies.
    ``lacking`` has the forms, in words, that readers look up and the filter lacks.
    """

    def __init__(self, leaf: Leaf, found: BlockFilter) -> None:
        super().__init__(leaf, lambda values: self._look_up(values.shown(leaf)), only_used=True)
        self.asked = self.denied = 0
        self.lacking: dict[str, None] = {}
        self._filter = found
        self._encoding = leaf.encoding
        self._is_present_form = isinstance(found, SplitBlockBloomFilter)

    def _look_up(self, values: Values) -> None:
        name = self._encoding.name
        if isinstance(values, FixedValues) and name in FLOATS and self._is_present_form:
            self._look_up_forms(values.data[: values.count * values.width].view(FLOATS[name]))
        hashes = values.hashes(self._encoding, twins=False, function=self._filter.function)
        self.asked += len(hashes)
        self.denied += len(hashes) - int(self._filter.check(hashes).sum())

    def has_all_forms(self) -> bool:
        """Return whether a filter of a float column has +0.0 and the canonical NaN, whatever the chunk has."""
        self._look_up_forms(np.array([0.0, np.nan], FLOATS[self._encoding.name]))
        found = not self.lacking
        self.lacking.clear()
        return found

    def _look_up_forms(self, values: npt.NDArray[Any]) -> None:
        nan = np.isnan(values)
        if self._encoding.name == "float16":
            wide = values[~nan].astype("<f4").view("<u4")
            self._expect(wide, "the 4-byte floats that DuckDB looks up in a FLOAT16 column")
            return
        zero, canonical = np.zeros(1, values.dtype), np.full(1, np.nan, values.dtype)
        word = f"<u{values.dtype.itemsize}"
        if (values == 0).any():
            self._expect(zero.view(word), "+0.0, which readers look up for the zeros of the column chunk")
        if nan.any():
            self._expect(
                canonical.view(word),
                "the canonical NaN, which readers look up for the NaN of the column chunk",
            )

    def _expect(self, words: npt.NDArray[Any], what: str) -> None:
        if not self._filter.check(self._filter.function.words(words)).all():
            self.lacking[f"lacks {what}"] = None
