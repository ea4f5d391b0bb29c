"""ORC Bloom filters: m bits, of which each value sets k.

A "no" of a filter is certain, a "yes" is not.

A hash (see :mod:`sidecar.filters.orc.key_hash`) chooses bit ``p(1)`` to ``p(k)``, with ``h1`` its lower and ``h2`` its
upper 32 bits as signed numbers:

    c = int32(h1 + i * h2)  (wrapping);   if c < 0: c = ~c;   p(i) = c mod m

Bit p is bit ``p & 63`` of word ``p >> 6``; on disk the words are little-endian, so it is bit ``p & 7`` of byte
``p >> 3``. The high bits of p pick the word; the published specification wrongly says the low ones.

Writers compute the size from the row index stride n and a rate, for a shorter last row group too:

    nb = trunc(-n * ln(rate) / ln(2)^2);   m = nb + (64 - nb mod 64);   k = max(1, floor(m / n * ln(2) + 0.5))

An aligned number of bits gets 64 more. Nulls are never added. Two filters of the same m and k merge by OR. ORC filters
do not fold or widen, because m is not a power of two and positions are modulo m.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sizing import MAX_BYTES, check_fpp

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_HASHES = 100
"""Largest k that is accepted: a stride of one value and a rate of 1e-12 give 89. (Pre-release files have 10,000.)"""
_M32 = (1 << 32) - 1


def size_for(entries: int, fpp: float) -> tuple[int, int]:
    """Return (m, k) as every writer chooses them for a row index stride of ``entries`` values and the rate ``fpp``.

    Raises :class:`UsageError` for a rate outside 0 to 1, and for one that needs more than 128 MiB or 100 bits a value.
    """
    check_fpp(fpp)
    n = max(entries, 1)
    wanted = int(-n * math.log(fpp) / (math.log(2) * math.log(2)))
    m = wanted + (64 - wanted % 64)
    k = max(1, math.floor(m / n * math.log(2) + 0.5))
    _check_size(m, k)
    return m, k


def positions(h: int, k: int, m: int) -> Iterator[int]:
    """Yield the ``k`` bits that hash ``h`` chooses among ``m``, in their order; they may repeat."""
    total, upper = h & _M32, h >> 32
    for _ in range(k):
        total = (total + upper) & _M32
        yield (total ^ _M32 if total >> 31 else total) % m


def _check_size(m: int, k: int) -> None:
    if not 64 <= m <= MAX_BYTES * 8 or m % 64:
        raise UsageError(f"the size of an ORC filter is not 64 to {MAX_BYTES * 8} bits in steps of 64", found=m)
    if not 1 <= k <= MAX_HASHES:
        raise UsageError(f"the number of bits that a value sets in an ORC filter is not 1 to {MAX_HASHES}", found=k)


def insert_groups(table: NDArray[np.uint64], k: int, hashes: NDArray[np.uint64], counts: Sequence[int]) -> None:
    """Add hashes to filters, the rows of ``table`` (uint64 [filters, m / 64]): the first ``counts[0]`` to row 0."""
    from sidecar.kernels import orc_bloom

    orc_bloom.insert_groups(table, k, hashes, np.array(counts, np.int64))


class OrcBloomFilter:
    """An ORC Bloom filter: ``words`` is uint64 [m / 64], ``k`` the number of bits that a value sets."""

    __slots__ = ("k", "words")

    def __init__(self, words: NDArray[np.uint64], k: int) -> None:
        if words.ndim != 1 or words.dtype != np.uint64:
            raise UsageError(
                "the words of an ORC filter have the wrong type or shape",
                expected="uint64 [m / 64]",
                found=f"{words.dtype} {list(words.shape)}",
            )
        _check_size(len(words) * 64, k)
        self.words = np.ascontiguousarray(words)
        self.k = k

    # --- making ---------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, m: int, k: int) -> Self:
        """Return a filter of ``m`` bits that holds nothing."""
        _check_size(m, k)
        return cls(np.zeros(m // 64, np.uint64), k)

    @classmethod
    def rows_of(cls, table: NDArray[np.uint64], k: int) -> list[Self]:
        """Return the filters whose words are the rows of ``table`` (uint64 [filters, m / 64]), in its memory."""
        _check_size(table.shape[1] * 64, k)
        made = []
        for words in table:
            one = cls.__new__(cls)
            one.words, one.k = words, k
            made.append(one)
        return made

    @classmethod
    def from_bytes(cls, bitset: bytes | memoryview, k: int, name: str | None = None) -> Self:
        """Return the filter of a bitset in a file: ``utf8bitset``, or the words of ``bitset`` in little-endian.

        ``name`` is the file, for errors. Raises :class:`DamagedFileError` for an empty bitset, for one that is not a
        multiple of 8 bytes or is larger than 128 MiB, and for a ``k`` outside 1 to 100.
        """
        if len(bitset) % 8:
            raise DamagedFileError(
                "the bitset of an ORC filter is not a multiple of 8 bytes", file=name, found=len(bitset)
            )
        try:
            _check_size(len(bitset) * 8, k)
        except UsageError as error:
            raise DamagedFileError(error.what, file=name, found=error.found) from None
        return cls(np.frombuffer(bitset, "<u8").astype(np.uint64, copy=False), k)

    def to_bytes(self) -> bytes:
        """Return the bitset as the field ``utf8bitset`` stores it: little-endian words."""
        return self.stored_words().tobytes()

    def stored_words(self) -> memoryview:
        """Return the bytes of :meth:`to_bytes`, in the memory of the filter where that is possible."""
        return self.words.astype("<u8", copy=False).view(np.uint8).data

    @property
    def m(self) -> int:
        """Number of bits."""
        return len(self.words) * 64

    @property
    def num_bytes(self) -> int:
        """Length of the bitset in bytes."""
        return len(self.words) * 8

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OrcBloomFilter):
            return NotImplemented
        return self.k == other.k and np.array_equal(self.words, other.words)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"OrcBloomFilter(m={self.m}, k={self.k}, fill={self.fill():.3f})"

    # --- inserting and probing ------------------------------------------------------------------------------

    def insert(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes`` (uint64 [n])."""
        from sidecar.kernels import orc_bloom

        if not self.words.flags.writeable:
            self.words = self.words.copy()
        orc_bloom.insert(self.words, self.k, hashes)

    def insert_arrow(
        self, values: pa.Array[Any] | pa.ChunkedArray[Any], encoding: OrcEncoding, *, strict: bool = False
    ) -> None:
        """Add values of the file's Arrow type; ``strict`` as in :meth:`from_arrow`."""
        from sidecar.filters.orc.array_hash import hash_orc

        self.insert(hash_orc(values, encoding, twins=not strict))

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each of ``hashes`` (uint64 [n]) whether the filter might hold it: bool [n]."""
        from sidecar.kernels import orc_bloom

        out = np.empty(len(hashes), np.bool_)
        orc_bloom.check(self.words, self.k, hashes, out)
        return out

    def might_contain_hash(self, h: int) -> bool:
        """Return whether the filter might hold the hash ``h``; needs no compiled code."""
        word = self.words.item
        return all(word(p >> 6) >> (p & 63) & 1 for p in positions(h, self.k, self.m))

    def might_contain(self, value: object, iceberg_type: str, encoding: OrcEncoding) -> bool:
        """Return whether the filter might hold ``value``, a literal of ``iceberg_type``; True if that is not certain.

        ``value`` is as for :func:`sidecar.filters.orc.values.probe_orc`.
        """
        from sidecar.filters.orc.values import probe_orc

        probe = probe_orc(value, iceberg_type, encoding)
        if probe.verdict == "probe":
            return any(self.might_contain_hash(h) for h in probe.hashes)
        return probe.verdict == "unknown"

    # --- rates and sizes ------------------------------------------------------------------------------------

    def fill(self) -> float:
        """Return the share of bits that are set, 0 to 1."""
        return float(np.bitwise_count(self.words).sum(dtype=np.int64)) / self.m

    def estimated_fpp(self) -> float:
        """Return the false-positive rate from the bits: the probability that k random bits are set."""
        return self.fill() ** self.k

    def merge(self, other: OrcBloomFilter) -> OrcBloomFilter:
        """Return the filter of both sets. Raises :class:`UsageError` unless both have the same m and k."""
        if (self.m, self.k) != (other.m, other.k):
            raise UsageError(
                "ORC filters of different sizes do not merge",
                expected=f"m {self.m} and k {self.k}",
                found=f"m {other.m} and k {other.k}",
            )
        return OrcBloomFilter(self.words | other.words, self.k)
