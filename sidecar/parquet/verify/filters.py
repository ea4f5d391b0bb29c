"""Filters against the values that they are of: every value of a column chunk is looked up in its filter.

Values are hashed as they are stored (:mod:`sidecar.parquet.stored_values`); of a dictionary only the entries that a
page refers to, because the others need not be in the filter.

Some values are asked for in other bytes than they are stored in, and a filter that lacks those loses their rows in
readers that do not know better:

- Spark asks for zero as +0.0 and for NaN as the canonical one, whichever bits are stored;
- DuckDB asks a FLOAT16 column for the 4-byte float.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.errors import SidecarError, UsageError
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.inspect import place_and_reason
from sidecar.parquet.page_index_build import take_values
from sidecar.parquet.stored_values import FixedValues, StoredValues, Values
from sidecar.source import Source

FLOATS: dict[str, npt.DTypeLike] = {"float16": "<f2", "float": "<f4", "double": "<f8"}


@dataclass
class ValueCheck:
    """How much is checked against the data, and how much of it was: ``values`` looked up, ``indexes`` compared.

    ``share`` (above 0, at most 1) of the units are chosen at random, at least one. A unit is a row group, or of a
    table a data file.
    """

    share: float = 1.0
    rng: random.Random = field(default_factory=random.Random)
    units: int = 0
    units_total: int = 0
    values: int = 0
    indexes: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError("a sample is a share above 0 and at most 1", found=self.share)

    def choose(self, units: int) -> set[int]:
        """Some of ``units`` numbers from 0 on."""
        chosen = self.rng.sample(range(units), min(units, math.ceil(self.share * units)))
        self.units += len(chosen)
        self.units_total += units
        return set(chosen)

    def to_dict(self) -> dict[str, int]:
        """Plain data: ``units`` of ``units_total``, ``values`` that were looked up and ``indexes`` (page indexes and
        row indexes) that were held against values."""
        return {
            "units": self.units,
            "units_total": self.units_total,
            "values": self.values,
            "indexes": self.indexes,
        }


def value_problems(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    found: BlockFilter,
    check: ValueCheck | None = None,
    *,
    forms: bool = True,
) -> Iterator[str]:
    """What a filter lacks of its column chunk's values. Reads the whole chunk; what is damaged is a problem too.

    Without ``forms`` the filter is one that sidecar alone asks, which knows in which forms values are stored.
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


class ValueLookup(StoredValues):
    """Looks the values of one chunk up in a filter while its pages are walked.

    ``asked``: values, each entry of a dictionary once; ``denied``: those of them that the filter denies;
    ``lacking``: what it lacks of the forms in which readers ask for them.
    """

    def __init__(self, leaf: Leaf, found: BlockFilter) -> None:
        super().__init__(leaf, self._look_up, only_used=True)
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

    def _look_up_forms(self, values: npt.NDArray[Any]) -> None:
        nan = np.isnan(values)
        if self._encoding.name == "float16":
            wide = values[~nan].astype("<f4").view("<u4")
            self._expect(wide, "4-byte floats, by which DuckDB asks for the values of a FLOAT16 column")
            return
        zero, canonical = np.zeros(1, values.dtype), np.full(1, np.nan, values.dtype)
        word = f"<u{values.dtype.itemsize}"
        if (values == 0).any():
            self._expect(
                zero.view(word), "+0.0, by which readers ask for the zeros that the column chunk has"
            )
        if nan.any():
            self._expect(
                canonical.view(word),
                "the canonical NaN, by which readers ask for the NaN of the column chunk",
            )

    def _expect(self, words: npt.NDArray[Any], what: str) -> None:
        if not self._filter.check(self._filter.function.words(words)).all():
            self.lacking[f"lacks {what}"] = None
