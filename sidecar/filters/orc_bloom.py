"""ORC Bloom filters: m bits, k of them for each value. A "no" is certain, a "yes" is not.

A hash (see :mod:`sidecar.filters.orc_key_hash`) chooses bit ``p(1)`` to ``p(k)``, with ``h1`` its lower and ``h2`` its
upper 32 bits as signed numbers:

    c = int32(h1 + i * h2)  (wrapping);   if c < 0: c = ~c;   p(i) = c mod m

Bit p is bit ``p & 63`` of word ``p >> 6``; on disk the words are little-endian, so it is bit ``p & 7`` of byte
``p >> 3``. The high bits of p pick the word, not the low ones as the published text says.

Writers size a filter by the row index stride n and a rate, whatever the number of rows in the row group:

    nb = trunc(-n * ln(rate) / ln(2)^2);   m = nb + (64 - nb mod 64);   k = max(1, floor(m / n * ln(2) + 0.5))

(a number of bits that is aligned already gets 64 more). Nulls are never added. Two filters of one m and k merge
by OR; m is no power of two and positions are taken modulo m, so nothing folds or widens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.sizing import DEFAULT_FPP, MAX_BYTES, check_fpp

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_HASHES = 100
"""Largest k believed: a stride of one value and a rate of 1e-12 give 89; pre-release files seem to say 10,000."""
_CHUNK = 8192
"""Hashes a step: they stay in the first-level cache."""
_M32 = (1 << 32) - 1


def size_for(entries: int, fpp: float) -> tuple[int, int]:
    """(m, k) that every writer chooses for a row index stride of ``entries`` and the rate ``fpp``.

    :class:`UsageError` for a rate that is none, or one that asks for more than 128 MiB or 100 bits a value.
    """
    check_fpp(fpp)
    n = max(entries, 1)
    wanted = int(-n * math.log(fpp) / (math.log(2) * math.log(2)))
    m = wanted + (64 - wanted % 64)
    k = max(1, math.floor(m / n * math.log(2) + 0.5))
    _check_size(m, k)
    return m, k


def positions(h: int, k: int, m: int) -> list[int]:
    """The ``k`` bits that hash ``h`` chooses among ``m``, in their order; they may repeat."""
    out = []
    total, upper = h & _M32, h >> 32
    for _ in range(k):
        total = (total + upper) & _M32
        out.append((total ^ _M32 if total >> 31 else total) % m)
    return out


def _check_size(m: int, k: int) -> None:
    if not 64 <= m <= MAX_BYTES * 8 or m % 64:
        raise UsageError(f"an ORC filter has 64 to {MAX_BYTES * 8} bits, a multiple of 64", found=m)
    if not 1 <= k <= MAX_HASHES:
        raise UsageError(f"an ORC filter sets 1 to {MAX_HASHES} bits a value", found=k)


class OrcBloomFilter:
    """One filter: ``words`` uint64 [m / 64] and ``k``, the bits a value sets."""

    def __init__(self, words: NDArray[np.uint64], k: int) -> None:
        if words.ndim != 1 or words.dtype != np.uint64:
            raise UsageError("words are uint64 [m / 64]", found=f"{words.dtype} {list(words.shape)}")
        _check_size(len(words) * 64, k)
        self.words = np.ascontiguousarray(words)
        self.k = k

    # --- making ---------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, m: int, k: int) -> Self:
        """A filter of ``m`` bits that holds nothing."""
        _check_size(m, k)
        return cls(np.zeros(m // 64, np.uint64), k)

    @classmethod
    def from_hashes(cls, hashes: NDArray[np.uint64], m: int, k: int) -> Self:
        """A filter of ``m`` bits that holds ``hashes`` (uint64 [n])."""
        made = cls.empty(m, k)
        made.insert(hashes)
        return made

    @classmethod
    def from_arrow(
        cls,
        values: pa.Array[Any] | pa.ChunkedArray[Any],
        encoding: OrcEncoding,
        entries: int,
        fpp: float = DEFAULT_FPP,
        *,
        strict: bool = False,
    ) -> Self:
        """The filter that writers make of ``values`` at a row index stride of ``entries``.

        ``strict`` adds no twins of zeros, NaN and timestamps: bit for bit what the file's writer builds, but other
        readers may ask for an equal value by a key that it lacks. Raises as
        :func:`sidecar.filters.orc_array_hash.hash_orc` does.
        """
        made = cls.empty(*size_for(entries, fpp))
        made.insert_arrow(values, encoding, strict=strict)
        return made

    @classmethod
    def from_bytes(cls, bitset: bytes | memoryview, k: int, name: str | None = None) -> Self:
        """The filter of a bitset as a file has it: ``utf8bitset``, or the words of ``bitset`` little-endian.

        :class:`DamagedFileError` for an empty bitset, one that is no multiple of 8 bytes or beyond 128 MiB, or a
        ``k`` outside 1 to 100.
        """
        if len(bitset) % 8:
            raise DamagedFileError("an ORC filter is a multiple of 8 bytes", file=name, found=len(bitset))
        try:
            _check_size(len(bitset) * 8, k)
        except UsageError as error:
            raise DamagedFileError(error.what, file=name, found=error.found) from None
        return cls(np.frombuffer(bitset, "<u8").astype(np.uint64, copy=False), k)

    def to_bytes(self) -> bytes:
        """The bitset as ``utf8bitset`` has it: little-endian words."""
        return self.words.astype("<u8", copy=False).tobytes()

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

    # --- asking and telling ---------------------------------------------------------------------------------

    def insert(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes`` (uint64 [n])."""
        from sidecar.kernels import orc_bloom

        if not self.words.flags.writeable:
            self.words = self.words.copy()
        for at in range(0, len(hashes), _CHUNK):
            orc_bloom.insert(self.words, self.k, hashes[at : at + _CHUNK])

    def insert_arrow(
        self, values: pa.Array[Any] | pa.ChunkedArray[Any], encoding: OrcEncoding, *, strict: bool = False
    ) -> None:
        """Add values of the file's Arrow type, see :meth:`from_arrow`."""
        from sidecar.filters.orc_array_hash import hash_orc

        self.insert(hash_orc(values, encoding, twins=not strict))

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of ``hashes`` (uint64 [n]) whether it might be there."""
        from sidecar.kernels import orc_bloom

        out = np.empty(len(hashes), np.bool_)
        for at in range(0, len(hashes), _CHUNK):
            orc_bloom.check(self.words, self.k, hashes[at : at + _CHUNK], out[at : at + _CHUNK])
        return out

    def might_contain_hash(self, h: int) -> bool:
        """Whether the hash might be there; one hash, nothing compiled."""
        return all(int(self.words[p >> 6]) >> (p & 63) & 1 for p in positions(h, self.k, self.m))

    def might_contain(self, value: object, iceberg_type: str, encoding: OrcEncoding) -> bool:
        """Whether a value of a column of ``iceberg_type`` might be there; True whenever that is not certain.

        ``value`` as for :func:`sidecar.filters.orc_values.probe_orc`.
        """
        from sidecar.filters.orc_values import probe_orc

        probe = probe_orc(value, iceberg_type, encoding)
        if probe.verdict == "probe":
            return any(self.might_contain_hash(h) for h in probe.hashes)
        return probe.verdict == "unknown"

    # --- rates and sizes ------------------------------------------------------------------------------------

    def fill(self) -> float:
        """Share of bits that are set."""
        return float(np.bitwise_count(self.words).sum(dtype=np.int64)) / self.m

    def estimated_fpp(self) -> float:
        """The false-positive rate that the bits themselves show: a random value finds k set bits."""
        return self.fill() ** self.k

    def merge(self, other: OrcBloomFilter) -> OrcBloomFilter:
        """The filter of both sets; :class:`UsageError` unless both have one m and k."""
        if (self.m, self.k) != (other.m, other.k):
            raise UsageError(
                "only ORC filters of one m and k merge", expected=(self.m, self.k), found=(other.m, other.k)
            )
        return OrcBloomFilter(self.words | other.words, self.k)
