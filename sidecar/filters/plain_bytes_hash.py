"""The hash functions of Parquet Bloom filters, for a value's PLAIN bytes.

``XXH64``             seed 0; for present filters (Parquet specification, "Bloom filter")
``MURMUR3_X64_128``   the first 64 bits of MurmurHash3 x64-128 with seed 1361930890; for historical filters

A filter that was built with one function denies nearly every value if it is probed with the other.
"""

from __future__ import annotations

from typing import Any, Protocol

import mmh3
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from sidecar.filters.arrays import Hashes

MURMUR3_SEED = np.uint64(1361930890)


class PlainHash(Protocol):
    """A hash function for one value and for arrays of values."""

    @property
    def name(self) -> str:
        """The name of the function: ``XXH64`` or ``MURMUR3_X64_128``."""

    def digest(self, data: bytes) -> int:
        """Return the hash of one value."""

    def words(self, words: NDArray[Any]) -> Hashes:
        """Return the hashes of little-endian words, uint32 or uint64 [n]."""

    def rows(self, plain: NDArray[np.uint8]) -> Hashes:
        """Return the hashes of values of one width, uint8 [n, width]."""

    def spans(self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
        """Return the hashes of ``data[starts[i] : starts[i] + lengths[i]]``; the caller checks the bounds."""


class _Xxh64:
    name = "XXH64"

    def digest(self, data: bytes) -> int:
        return xxh64_intdigest(data)

    def words(self, words: NDArray[Any]) -> Hashes:
        from sidecar.kernels import xxh64

        out = np.empty(len(words), np.uint64)
        (xxh64.hash_fixed4 if words.dtype.itemsize == 4 else xxh64.hash_fixed8)(words, out)
        return out

    def rows(self, plain: NDArray[np.uint8]) -> Hashes:
        from sidecar.kernels import xxh64

        out = np.empty(len(plain), np.uint64)
        xxh64.hash_fixed(plain.reshape(-1), plain.shape[1], out)
        return out

    def spans(self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
        from sidecar.kernels import xxh64

        out = np.empty(len(starts), np.uint64)
        xxh64.hash_spans(data, starts, lengths, out)
        return out


class _Murmur3:
    name = "MURMUR3_X64_128"

    def digest(self, data: bytes) -> int:
        return mmh3.hash64(data, int(MURMUR3_SEED), signed=False)[0]

    def words(self, words: NDArray[Any]) -> Hashes:
        from sidecar.kernels import murmur3

        out = np.empty(len(words), np.uint64)
        hash_fixed = murmur3.hash_fixed4 if words.dtype.itemsize == 4 else murmur3.hash_fixed8
        hash_fixed(words, MURMUR3_SEED, out)
        return out

    def rows(self, plain: NDArray[np.uint8]) -> Hashes:
        count, width = plain.shape
        starts = np.arange(count, dtype=np.int64) * width
        return self.spans(plain.reshape(-1), starts, np.full(count, width, np.int64))

    def spans(self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
        from sidecar.kernels import murmur3

        out = np.empty(len(starts), np.uint64)
        murmur3.hash_spans(data, starts, lengths, MURMUR3_SEED, out)
        return out


XXH64: PlainHash = _Xxh64()
MURMUR3_X64_128: PlainHash = _Murmur3()
