"""MurmurHash3 x64-128 with any seed over many values at once: the hash of theta sketches (seed 9001).

Only the first 64-bit half is kept: a theta sketch uses ``h1 >> 1``, the historical Parquet filter ``h1``.
Values of 4 and 8 bytes have loops of their own; strings come as one byte array and offsets, as in Arrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import kernel
from sidecar.kernels._load import load64

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


@kernel
def _short(data: NDArray[np.uint8], start: int, end: int) -> Any:
    """The bytes ``start`` to ``end`` (at most 8) as a little-endian number."""
    word = np.uint64(0)
    for i in range(end - 1, start - 1, -1):
        word = (word << np.uint64(8)) | np.uint64(data[i])
    return word


@kernel
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int, seed: Any) -> Any:
    """First half of MurmurHash3 x64-128 of ``data[at : at + length]``."""
    end = at + length
    h1 = seed
    h2 = seed
    while at + 16 <= end:
        h1 ^= _mix1(load64(data, at))
        h1 = (_rotl(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _mix2(load64(data, at + 8))
        h2 = (_rotl(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        at += 16
    left = end - at
    if left > 8:  # the last bytes come with the eight that end the value, shifted down
        h2 ^= _mix2(load64(data, end - 8) >> np.uint64(8 * (16 - left)))
        h1 ^= _mix1(load64(data, at))
    elif left > 0:
        if length >= 8:
            h1 ^= _mix1(load64(data, end - 8) >> np.uint64(8 * (8 - left)))
        else:
            h1 ^= _mix1(_short(data, at, end))
    return _finish(h1, h2, length)


@kernel
def hash_fixed4(values: NDArray[np.uint32], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """``out[i]`` = first half of the hash of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _finish(seed ^ _mix1(np.uint64(values[i])), seed, np.uint64(4))


@kernel
def hash_fixed8(values: NDArray[np.uint64], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """``out[i]`` = first half of the hash of the 8 little-endian bytes of ``values[i]``."""
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
    """``out[i]`` = first half of the hash of ``data[starts[i] : starts[i] + lengths[i]]``."""
    for i in range(len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i], seed)


@kernel
def hash_var(
    data: NDArray[np.uint8], offsets: NDArray[np.integer[Any]], seed: np.uint64, out: NDArray[np.uint64]
) -> None:
    """``out[i]`` = first half of the hash of ``data[offsets[i] : offsets[i + 1]]``."""
    for i in range(len(out)):
        start = np.int64(offsets[i])
        out[i] = _hash_bytes(data, start, np.int64(offsets[i + 1]) - start, seed)
