"""Historical Bloom filters: what the Parquet specification described before XXH64. A "no" is certain.

    num_bytes   u32, little-endian: length of the bitset, a power of two from 32 to 128 MiB
    hash        u32: 0, MurmurHash3
    algorithm   u32: 0, split blocks
    bitset      num_bytes: z blocks of eight 32-bit words, little-endian

The hash is the first half of MurmurHash3 x64-128 with seed 1361930890, of the value's PLAIN bytes. It chooses block
``(h >> 32) & (z - 1)``, not by multiplication as the present form does, and the same eight bits by its lower 32
bits. So asking such a filter the present way, or with the present hash, denies nearly every value that it
holds. ("Parquet Bloom Filter" as of 2018; nothing in these bytes names the column or its type.)

Since z is a power of two, the block is the lowest bits of the upper 32, and its lemmas differ from the present form's:

*fold*: the block at z / f is that at z modulo z / f. So the OR of the f equal parts of the filter (its two halves
for f = 2) is exactly the filter built at z / f.

*widen*: repeating the whole filter f times gives the same answer to every question as before.

*merge*: the OR of two filters of the same z is the filter of both sets.

Another form cannot be had from the bits: it is a rebuild, see :mod:`sidecar.convert.rebuild`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.block_filter import BlockFilter, check_blocks
from sidecar.filters.encoding import Encoding
from sidecar.filters.plain_bytes_hash import MURMUR3_X64_128
from sidecar.filters.sizing import BLOCK_BYTES, DEFAULT_FPP, MAX_BYTES, check_fpp

if TYPE_CHECKING:
    from typing_extensions import Self

HEADER_LENGTH = 12


class HistoricalBloomFilter(BlockFilter):
    """The earlier form: MurmurHash3, a power of two of blocks."""

    function = MURMUR3_X64_128
    form = "the historical one: split blocks, MurmurHash3 x64-128 with seed 1361930890, block (upper 32 bits) & (z - 1)"

    def __init__(self, blocks: NDArray[np.uint32], tail: bytes = b"") -> None:
        if tail:
            raise UsageError("a historical filter has no odd bytes at its end", found=len(tail))
        super().__init__(blocks)

    @staticmethod
    def check_size(z: int) -> None:
        """Raise :class:`UsageError` unless ``z`` is a power of two in bounds."""
        check_blocks(z)
        if z & (z - 1):
            raise UsageError("a historical filter has a power of two of blocks", found=z)

    @staticmethod
    def block_of(h: int, z: int) -> int:
        """The block that hash ``h`` chooses among ``z``."""
        return (h >> 32) & (z - 1)

    @staticmethod
    def blocks_for(distinct: int, fpp: float) -> int:
        """The formula of the time, see :func:`bytes_for`."""
        return bytes_for(distinct, fpp) // BLOCK_BYTES

    @classmethod
    def from_arrow(
        cls,
        values: pa.Array[Any] | pa.ChunkedArray[Any],
        encoding: Encoding,
        fpp: float = DEFAULT_FPP,
        *,
        ndv: int | None = None,
        strict: bool = False,
    ) -> Self:
        """A filter of the values, of the size that :func:`bytes_for` gives for ``ndv`` or the distinct hashes.

        ``strict`` adds no twins of zeros and NaN: bit for bit what writers of the time built.
        """
        from sidecar.filters.array_hash import hash_arrow

        hashes = hash_arrow(values, encoding, twins=not strict, function=cls.function)
        distinct = len(np.unique(hashes)) if ndv is None else ndv
        return cls.from_hashes(hashes, cls.blocks_for(distinct, fpp))

    def _insert(self, hashes: NDArray[np.uint64]) -> None:
        from sidecar.kernels import sbbf

        sbbf.insert_masked(self.blocks, hashes)

    def _check(self, hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
        from sidecar.kernels import sbbf

        sbbf.check_masked(self.blocks, hashes, out)

    def _fold(self, factor: int) -> NDArray[np.uint32]:
        parts = self.blocks.reshape(factor, self.z // factor, 8)
        folded: NDArray[np.uint32] = np.bitwise_or.reduce(parts, axis=0)
        return folded

    def _widen(self, factor: int) -> NDArray[np.uint32]:
        return np.tile(self.blocks, (factor, 1))


def bytes_for(distinct: int, fpp: float) -> int:
    """Bytes of a filter by the formula of the time: ``-8 / ln(1 - fpp^(1/8))`` bits a value, a power of two.

    At least 32 bytes, at most 128 MiB.
    """
    check_fpp(fpp)
    bits = int(-8.0 * distinct / math.log(1.0 - fpp ** (1.0 / 8)))
    bits = min(max(bits, 8 * BLOCK_BYTES), 8 * MAX_BYTES)
    return (1 << (bits - 1).bit_length()) // 8


def encode_header(num_bytes: int) -> bytes:
    """The header in front of a bitset of ``num_bytes``: 12 bytes."""
    return num_bytes.to_bytes(4, "little") + bytes(8)


def is_header(data: bytes) -> bool:
    """Whether ``data`` begins with a plausible header.

    No Thrift header of the present form can be mistaken for one: it begins with a field, and the first byte of a
    power of two of at least 32 is no field that it knows.
    """
    num_bytes = int.from_bytes(data[:4], "little")
    fits = BLOCK_BYTES <= num_bytes <= MAX_BYTES and num_bytes & (num_bytes - 1) == 0
    return fits and data[4:HEADER_LENGTH] == bytes(8)


def decode_header(data: bytes) -> int:
    """``num_bytes`` of the header at the start of ``data``; :class:`DamagedFileError` if there is none."""
    if not is_header(data):
        raise DamagedFileError(
            "no header of a historical Bloom filter",
            expected="a power of two from 32 to 128 MiB, hash 0, algorithm 0",
            found=data[:HEADER_LENGTH].hex(" "),
        )
    return int.from_bytes(data[:4], "little")
