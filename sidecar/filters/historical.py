"""Historical Bloom filters: the form that the Parquet specification described before XXH64.

A "no" of a filter is certain, a "yes" is not.

    num_bytes   u32, little-endian: length of the bitset, a power of two from 32 to 128 MiB
    hash        u32: 0, MurmurHash3
    algorithm   u32: 0, split blocks
    bitset      num_bytes: z blocks of eight 32-bit words, little-endian

The hash is the first half of MurmurHash3 x64-128 with seed 1361930890 of the value's PLAIN bytes. Its upper 32 bits
choose block ``(h >> 32) & (z - 1)``, where the present form multiplies. Its lower 32 bits choose the eight bits as in
the present form. A reader that probes such a filter like a present one gets a wrong "no" for nearly every value.
(Source: "Parquet Bloom Filter" as of 2018. The bytes do not name the column or its type.)

z is a power of two, so the lowest of the upper 32 bits choose the block. The lemmas differ from the present form's:

*fold*: the block at z / f is the block at z, modulo z / f. So the OR of the f equal parts of the filter (its two halves
for f = 2) is exactly the filter built at z / f.

*merge*: the OR of two filters of the same z is the filter of both sets.

The bits cannot be converted to the present form; :mod:`sidecar.conversion.rebuild` builds a new filter from the values.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.block_filter import BlockFilter, check_blocks
from sidecar.filters.plain_bytes_hash import MURMUR3_X64_128
from sidecar.filters.sizing import BLOCK_BYTES, MAX_BYTES, check_fpp

HEADER_LENGTH = 12


class HistoricalBloomFilter(BlockFilter):
    """A split-block filter of the earlier form: MurmurHash3, a power of two of blocks."""

    function = MURMUR3_X64_128
    form = "the historical one: split blocks, MurmurHash3 x64-128 with seed 1361930890, block (upper 32 bits) & (z - 1)"

    def __init__(self, blocks: NDArray[np.uint32], tail: bytes = b"") -> None:
        if tail:
            raise UsageError(
                "a historical filter has odd bytes at its end",
                expected="a multiple of 32 bytes",
                found=f"{len(tail)} odd bytes",
            )
        super().__init__(blocks)

    @staticmethod
    def check_size(z: int) -> None:
        """Raise :class:`UsageError` unless ``z`` is a power of two within the limits of all forms."""
        check_blocks(z)
        if z & (z - 1):
            raise UsageError(
                "the number of blocks of a historical filter is out of range",
                expected="a power of two",
                found=z,
            )

    @staticmethod
    def block_of(h: int, z: int) -> int:
        """Return the block that hash ``h`` chooses among ``z``."""
        return (h >> 32) & (z - 1)

    @staticmethod
    def blocks_for(distinct: int, fpp: float) -> int:
        """Return the number of blocks by the formula of :func:`bytes_for`."""
        return bytes_for(distinct, fpp) // BLOCK_BYTES

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


def bytes_for(distinct: int, fpp: float) -> int:
    """Return the size in bytes of a filter by the formula of the time: ``-8 / ln(1 - fpp^(1/8))`` bits for each value.

    The size is a power of two, at least 32 bytes and at most 128 MiB.
    """
    check_fpp(fpp)
    bits = int(-8.0 * distinct / math.log(1.0 - fpp ** (1.0 / 8)))
    bits = min(max(bits, 8 * BLOCK_BYTES), 8 * MAX_BYTES)
    return (1 << (bits - 1).bit_length()) // 8


def is_header(data: bytes) -> bool:
    """Return whether ``data`` begins with a plausible header.

    A Thrift header of the present form never looks like one. It begins with the byte of a field, and the first byte of
    a power of two from 32 on is not the byte of a field that the header has.
    """
    num_bytes = int.from_bytes(data[:4], "little")
    fits = BLOCK_BYTES <= num_bytes <= MAX_BYTES and num_bytes & (num_bytes - 1) == 0
    return fits and data[4:HEADER_LENGTH] == bytes(8)


def decode_header(data: bytes) -> int:
    """Return ``num_bytes`` of the header at the start of ``data``. Raises :class:`DamagedFileError` without one."""
    if not is_header(data):
        raise DamagedFileError(
            "the bytes are not the header of a historical Bloom filter",
            expected="a power of two from 32 to 128 MiB, hash 0, algorithm 0",
            found=data[:HEADER_LENGTH].hex(" "),
        )
    return int.from_bytes(data[:4], "little")
