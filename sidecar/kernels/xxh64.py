"""XXH64 with seed 0 over many values at once, as Parquet's Bloom filters hash them.

Widths 4 and 8 have their own loops, which need only the tail step and the avalanche of XXH64.
Strings are one byte array with offsets, as in Arrow. Specification: xxHash 0.1.1, XXH64.

numba widens mixed integers silently (uint64 with int64 gives float64), so every constant is a uint64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import inlined, kernel
from sidecar.kernels._load import load64, tail64, widened

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
def _stripes(data: NDArray[np.uint8], at: int, end: int) -> Any:
    """Return the hash after all whole stripes of 32 bytes. There is at least one."""
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
    return h


@kernel
def _lane(h: Any, word: Any) -> Any:
    return _rotl(h ^ _round(np.uint64(0), word), 27) * P1 + P4


@kernel
def _byte(h: Any, byte: Any) -> Any:
    return _rotl(h ^ (byte * P5), 11) * P1


@inlined
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int) -> Any:
    """Return the XXH64 of ``data[at : at + length]``. ``data`` has at least 8 bytes.

    Every step of the tail is computed, and used only if it applies: lengths vary, and a mispredicted branch costs
    more than a few multiplications. A step that does not apply loads bytes from anywhere in ``data``.
    """
    last = len(data) - 8
    h = P5
    if length >= 32:
        h = _stripes(data, at, at + length)
    h += np.uint64(length)
    left = length & 31
    at += length - left
    step = _lane(h, load64(data, min(at, last)))
    h = step if left >= 8 else h
    step = _lane(h, load64(data, min(at + 8, last)))
    h = step if left >= 16 else h
    step = _lane(h, load64(data, min(at + 16, last)))
    h = step if left >= 24 else h
    at += left & 24
    word = tail64(data, at, last)
    step = _rotl(h ^ ((word & np.uint64(0xFFFFFFFF)) * P1), 23) * P2 + P3
    h = step if left & 4 else h
    word >>= np.uint64(left & 4) << np.uint64(3)
    left &= 3
    step = _byte(h, word & np.uint64(255))
    h = step if left >= 1 else h
    step = _byte(h, (word >> np.uint64(8)) & np.uint64(255))
    h = step if left >= 2 else h
    step = _byte(h, (word >> np.uint64(16)) & np.uint64(255))
    h = step if left >= 3 else h
    return _avalanche(h)


@kernel
def hash_fixed4(values: NDArray[np.uint32], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        h = (P5 + np.uint64(4)) ^ (np.uint64(values[i]) * P1)
        out[i] = _avalanche(_rotl(h, 23) * P2 + P3)


@kernel
def hash_fixed8(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of the 8 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        h = (P5 + np.uint64(8)) ^ (_rotl(values[i] * P2, 31) * P1)
        out[i] = _avalanche(_rotl(h, 27) * P1 + P4)


@kernel
def hash_fixed(data: NDArray[np.uint8], width: int, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of ``data[i * width : (i + 1) * width]``."""
    if len(data) < 8:
        _hash_fixed(widened(data), width, out)
    else:
        _hash_fixed(data, width, out)


@kernel
def _hash_fixed(data: NDArray[np.uint8], width: int, out: NDArray[np.uint64]) -> None:
    for i in range(len(out)):
        out[i] = _hash_bytes(data, i * width, width)


@kernel
def hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """Set ``out[i]`` to the XXH64 of ``data[starts[i] : starts[i] + lengths[i]]``."""
    if len(data) < 8:
        _hash_spans(widened(data), starts, lengths, out)
    else:
        _hash_spans(data, starts, lengths, out)


@kernel
def _hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    for i in range(len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i])
