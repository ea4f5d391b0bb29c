"""MurmurHash3 x64-128 with any seed over many values at once: the hash of theta sketches (seed 9001).

Only the first 64-bit half is returned: theta sketches use ``h1 >> 1``, the historical Parquet filter ``h1``.
Values of 4 and 8 bytes have their own loops. Strings are one byte array with offsets, as in Arrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import inlined, kernel
from sidecar.kernels._load import load64, tail64, widened

C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)


@kernel
def _rotl(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel
def _mix1(k1: Any) -> Any:
    return _rotl(k1 * C1, 31) * C2


@kernel
def _mix2(k2: Any) -> Any:
    return _rotl(k2 * C2, 33) * C1


@kernel
def _fmix(k: Any) -> Any:
    k ^= k >> np.uint64(33)
    k *= np.uint64(0xFF51AFD7ED558CCD)
    k ^= k >> np.uint64(33)
    k *= np.uint64(0xC4CEB9FE1A85EC53)
    return k ^ (k >> np.uint64(33))


@kernel
def _finish(h1: Any, h2: Any, length: Any) -> Any:
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    return _fmix(h1) + _fmix(h2)


@inlined
def _low_bytes(word: Any, count: int) -> Any:
    """Return the lowest ``count`` bytes (0 to 8) of a word."""
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64 - 8 * count) & np.uint64(63))
    return word & mask if count > 0 else np.uint64(0)


@inlined
def _block(data: NDArray[np.uint8], at: int, h1: Any, h2: Any) -> Any:
    """Return ``h1`` and ``h2`` after the next 16 bytes."""
    h1 = (_rotl(h1 ^ _mix1(load64(data, at)), 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
    h2 = (_rotl(h2 ^ _mix2(load64(data, at + 8)), 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    return h1, h2


@inlined
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int, seed: Any) -> Any:
    """Return the first half of MurmurHash3 x64-128 of ``data[at : at + length]``; ``data`` has at least 16 bytes.

    The last two blocks are always computed, and used only if they exist: lengths vary, and a mispredicted
    branch costs more than a few multiplications.
    """
    last = len(data) - 8
    h1, h2 = seed, seed
    left = length
    while left >= 48:
        h1, h2 = _block(data, at, h1, h2)
        at += 16
        left -= 16
    for _ in range(2):
        next1, next2 = _block(data, min(at, last - 8), h1, h2)
        is_block = left >= 16
        h1 = next1 if is_block else h1
        h2 = next2 if is_block else h2
        step = 16 if is_block else 0
        at += step
        left -= step
    h2 ^= _mix2(_low_bytes(tail64(data, min(at + 8, last + 8), last), max(left - 8, 0)))
    h1 ^= _mix1(_low_bytes(tail64(data, at, last), min(left, 8)))
    return _finish(h1, h2, length)


@kernel
def hash_fixed4(values: NDArray[np.uint32], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the first half of the hash of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _finish(seed ^ _mix1(np.uint64(values[i])), seed, np.uint64(4))


@kernel
def hash_fixed8(values: NDArray[np.uint64], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the first half of the hash of the 8 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _finish(seed ^ _mix1(values[i]), seed, np.uint64(8))


@kernel
def hash_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seed: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    """Set ``out[i]`` to the first half of the hash of ``data[starts[i] : starts[i] + lengths[i]]``."""
    if len(data) < 16:
        _hash_spans(widened(data), starts, lengths, seed, out)
    else:
        _hash_spans(data, starts, lengths, seed, out)


@kernel
def _hash_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seed: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    for i in range(len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i], seed)
