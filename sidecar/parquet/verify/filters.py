"""Verifies Bloom filters: looks up every value of a column chunk in its filter.

Values are hashed as they are stored (:mod:`sidecar.parquet.stored_values`), integers beyond the bits of their
annotation as readers show them. For a dictionary these are only the entries that a page uses, because the others need
not be in the filter.

Some readers look up values in other bytes than are stored. A filter that lacks those bytes loses rows in such readers:

- Spark looks up +0.0 for every zero and the canonical NaN for every NaN;
- DuckDB looks up the 4-byte float in a FLOAT16 column.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.inspect import place_and_reason
from sidecar.parquet.page_indexes.build import take_values
from sidecar.parquet.stored_values import FixedValues, StoredValues, Values
from sidecar.results.base import Result
from sidecar.storage.source import Source

FLOATS: dict[str, npt.DTypeLike] = {"float16": "<f2", "float": "<f4", "double": "<f8"}


@dataclass(frozen=True, repr=False, slots=True)
class ValuesLookedUp(Result):
    """How much of the data was compared with indexes. A unit is a row group; in a table it is a data file."""

    omitted_if_none = ("files_not_indexed", "files_not_given")

    units: int
    """The units whose values were looked up."""
    units_total: int
    """The units that could have been looked up."""
    values: int
    """The values that were looked up in filters."""
    indexes: int
    """The page indexes and row indexes that were compared with values."""
    files_not_indexed: int | None = None
    """The files without any index in the sidecar; ``None`` for a single file."""
    files_not_given: int | None = None
    """The files that a sidecar lists and that were not given; ``None`` unless a sidecar is compared with files."""


@dataclass
class ValueCheck:
    """Chooses the units whose values are checked, and counts ``values`` looked up and ``indexes`` compared.

    ``share`` (above 0, at most 1) of the units are chosen at random, at least one. A unit is a row group; in a table it
    is a data file.
    """

    share: float = 1.0
    rng: random.Random = field(default_factory=random.Random)
    units: int = 0
    units_total: int = 0
    values: int = 0
    indexes: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError("a sample must be a share above 0 and at most 1", found=self.share)

    def choose(self, units: int) -> set[int]:
        """Choose some of the numbers from 0 to ``units`` - 1, and count them."""
        chosen = self.rng.sample(range(units), min(units, math.ceil(self.share * units)))
        self.units += len(chosen)
        self.units_total += units
        return set(chosen)

    def looked_up(self, files_not_indexed: int | None = None) -> ValuesLookedUp:
        """Return the counts as a result."""
        return ValuesLookedUp(self.units, self.units_total, self.values, self.indexes, files_not_indexed)


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
        yield place_and_reason(error)
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
