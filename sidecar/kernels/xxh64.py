"""XXH64 with seed 0 over many values at once, as Parquet's Bloom filters hash them.

Widths 4 and 8 have loops of their own: of XXH64 only the tail step and the avalanche are left for them.
Strings come as one byte array and offsets, the way Arrow keeps them. Specification: xxHash 0.1.1, XXH64.

numba widens mixed integers silently (uint64 with int64 gives float64), so every constant is a uint64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import kernel
from sidecar.kernels._load import load32, load64

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
SEED_1 = np.uint64(0x60EA27EEADC0B5D6)  # P1 + P2, the first accumulator of seed 0
SEED_4 = np.uint64(0x61C8864E7A143579)  # 0 - P1, the fourth


@kernel
def _rotl(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel
def _avalanche(h: Any) -> Any:
    h ^= h >> np.uint64(33)
    h *= P2
    h ^= h >> np.uint64(29)
    h *= P3
    return h ^ (h >> np.uint64(32))


@kernel
def _round(acc: Any, lane: Any) -> Any:
    return _rotl(acc + lane * P2, 31) * P1


@kernel
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int) -> Any:
    """XXH64 of ``data[at : at + length]``."""
    end = at + length
    if length >= 32:
        v1, v2, v3, v4 = SEED_1, P2, np.uint64(0), SEED_4
        while at + 32 <= end:
            v1 = _round(v1, load64(data, at))
            v2 = _round(v2, load64(data, at + 8))
            v3 = _round(v3, load64(data, at + 16))
            v4 = _round(v4, load64(data, at + 24))
            at += 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        for v in (v1, v2, v3, v4):
            h = (h ^ _round(np.uint64(0), v)) * P1 + P4
    else:
        h = P5
    h += np.uint64(length)
    while at + 8 <= end:
        h = _rotl(h ^ _round(np.uint64(0), load64(data, at)), 27) * P1 + P4
        at += 8
    if at + 4 <= end:
        h = _rotl(h ^ (np.uint64(load32(data, at)) * P1), 23) * P2 + P3
        at += 4
    while at < end:
        h = _rotl(h ^ (np.uint64(data[at]) * P5), 11) * P1
        at += 1
    return _avalanche(h)


@kernel
def hash_fixed4(values: NDArray[np.uint32], out: NDArray[np.uint64]) -> None:
    """``out[i]`` = XXH64 of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        h = (P5 + np.uint64(4)) ^ (np.uint64(values[i]) * P1)
        out[i] = _avalanche(_rotl(h, 23) * P2 + P3)


@kernel
def hash_fixed8(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """``out[i]`` = XXH64 of the 8 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        h = (P5 + np.uint64(8)) ^ (_rotl(values[i] * P2, 31) * P1)
        out[i] = _avalanche(_rotl(h, 27) * P1 + P4)


@kernel
def hash_fixed(data: NDArray[np.uint8], width: int, out: NDArray[np.uint64]) -> None:
    """``out[i]`` = XXH64 of ``data[i * width : (i + 1) * width]``."""
    for i in range(len(out)):
        out[i] = _hash_bytes(data, i * width, width)


@kernel
def hash_var(data: NDArray[np.uint8], offsets: NDArray[np.integer[Any]], out: NDArray[np.uint64]) -> None:
    """``out[i]`` = XXH64 of ``data[offsets[i] : offsets[i + 1]]``; ``offsets`` is int32 or int64 [n + 1]."""
    for i in range(len(out)):
        start = np.int64(offsets[i])
        out[i] = _hash_bytes(data, start, np.int64(offsets[i + 1]) - start)


@kernel
def hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """``out[i]`` = XXH64 of ``data[starts[i] : starts[i] + lengths[i]]``."""
    for i in range(len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i])
