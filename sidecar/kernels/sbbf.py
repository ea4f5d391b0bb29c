"""Split-block Bloom filter loops over ``blocks`` uint32 [z, 8] (C-contiguous) and ``hashes`` uint64 [n].

The upper 32 bits of a hash choose the block (multiply and shift), the lower 32 bits choose one bit in each of its
eight words. Parquet specification, "Bloom filter". Callers hash values that fit the cache and then call
these loops, because two plain loops are faster than one fused one.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._block import has_bits, set_bits
from sidecar.kernels._jit import INTEGER, kernel, readable, writable
from sidecar.kernels._words import Word, traced


@traced
def _block(h: Word, z: Word) -> Word:
    return ((h >> 32) * z) >> 32


@kernel(writable(types.uint32, 2), readable(types.uint64))
def insert(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Set the eight bits of every hash."""
    z = np.uint64(blocks.shape[0])
    for i in range(len(hashes)):
        h = hashes[i]
        set_bits(blocks, _block(h, z), np.uint32(h))


@kernel(readable(types.uint32, 2), readable(types.uint64), writable(types.boolean))
def check(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
    """Set ``out[i]`` to whether all eight bits of ``hashes[i]`` are set."""
    z = np.uint64(blocks.shape[0])
    for i in range(len(hashes)):
        h = hashes[i]
        out[i] = has_bits(blocks, _block(h, z), np.uint32(h))


@kernel(readable(types.uint32, 2), INTEGER, writable(types.uint32, 2))
def fold(blocks: NDArray[np.uint32], factor: int, out: NDArray[np.uint32]) -> None:
    """Set ``out[i]`` (uint32 [z / factor, 8]) to the OR of the ``factor`` adjacent blocks from ``i * factor``."""
    for i in range(out.shape[0]):
        for j in range(8):
            out[i, j] = blocks[i * factor, j]
        for k in range(i * factor + 1, (i + 1) * factor):
            for j in range(8):
                out[i, j] |= blocks[k, j]


@kernel(writable(types.uint32, 2), readable(types.uint64))
def insert_masked(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Set the eight bits of every hash in block ``upper32 & (z - 1)``, for historical filters with z a power of two."""
    mask = np.uint64(blocks.shape[0] - 1)
    for i in range(len(hashes)):
        h = hashes[i]
        set_bits(blocks, (h >> np.uint64(32)) & mask, np.uint32(h))


@kernel(readable(types.uint32, 2), readable(types.uint64), writable(types.boolean))
def check_masked(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
    """Set ``out[i]`` to whether all eight bits of ``hashes[i]`` are set in block ``upper32 & (z - 1)``."""
    mask = np.uint64(blocks.shape[0] - 1)
    for i in range(len(hashes)):
        h = hashes[i]
        out[i] = has_bits(blocks, (h >> np.uint64(32)) & mask, np.uint32(h))
