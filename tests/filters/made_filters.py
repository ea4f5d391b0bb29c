"""Filters of given values or hashes, of the forms that builds make chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sizing import DEFAULT_FPP


def historical_filter(
    values: pa.Array[Any],
    encoding: Encoding,
    fpp: float = DEFAULT_FPP,
    *,
    ndv: int | None = None,
    strict: bool = False,
) -> HistoricalBloomFilter:
    """A filter with the size for ``ndv`` or the distinct hashes; ``strict``: as writers of the time wrote it."""
    hashes = hash_arrow(values, encoding, twins=not strict, function=HistoricalBloomFilter.function)
    distinct = len(np.unique(hashes)) if ndv is None else ndv
    return HistoricalBloomFilter.from_hashes(hashes, HistoricalBloomFilter.blocks_for(distinct, fpp))


def orc_filter(
    values: pa.Array[Any], encoding: OrcEncoding, entries: int, fpp: float = DEFAULT_FPP, *, strict: bool = False
) -> OrcBloomFilter:
    """The filter that writers make at a row index stride of ``entries`` values; ``strict``: with their bits."""
    made = OrcBloomFilter.empty(*size_for(entries, fpp))
    made.insert_arrow(values, encoding, strict=strict)
    return made


def orc_filter_of_hashes(hashes: np.ndarray, m: int, k: int) -> OrcBloomFilter:
    """A filter of ``m`` bits."""
    made = OrcBloomFilter.empty(m, k)
    made.insert(hashes)
    return made


def historical_header(num_bytes: int) -> bytes:
    """The 12 bytes before a bitset of ``num_bytes`` bytes in a file of the historical form."""
    return num_bytes.to_bytes(4, "little") + bytes(8)
