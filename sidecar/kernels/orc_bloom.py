"""ORC Bloom filter loops: hashes of integer and byte keys, and k bits of each hash in ``words`` uint64 [m / 64].

:mod:`sidecar.filters.orc_key_hash` has the rules and the same hashes for single values,
:mod:`sidecar.filters.orc_bloom` the choice of bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import INTEGER, helper, kernel, readable, writable
from sidecar.kernels._load import load64

SEED = np.uint64(104729)
C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)
BLOCK = 512
"""Hashes whose positions are computed together. They and the filter stay in the first-level cache."""


@kernel(readable(types.int64), writable(types.uint64))
def hash_longs(keys: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the hash of the integer key ``keys[i]``. Signed, because the right shifts keep the sign."""
    for i in range(len(keys)):
        k = keys[i]
        k = (~k) + (k << 21)
        k ^= k >> 24
        k = k + (k << 3) + (k << 8)
        k ^= k >> 14
        k = k + (k << 2) + (k << 4)
        k ^= k >> 28
        out[i] = np.uint64(k + (k << 31))


@helper
def _rotl(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@helper
def _mix(k: Any) -> Any:
    return _rotl(k * C1, 31) * C2


@helper
def _tail(data: NDArray[np.uint8], at: int, end: int, length: int) -> Any:
    """Return the last ``end - at`` (1 to 7) bytes of a value as a little-endian number."""
    if length >= 8:  # load the value's last eight bytes, and shift the earlier ones out
        return load64(data, end - 8) >> np.uint64(8 * (8 - (end - at)))
    word = np.uint64(0)
    for i in range(end - 1, at - 1, -1):
        word = (word << np.uint64(8)) | np.uint64(data[i])
    return word


@kernel(readable(types.uint8), readable(types.int64), readable(types.int64), writable(types.uint64))
def hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """Set ``out[i]`` to the hash of the byte key ``data[starts[i] : starts[i] + lengths[i]]``."""
    for i in range(len(out)):
        length = lengths[i]
        at = starts[i]
        end = at + length
        h = SEED
        while at + 8 <= end:
            h ^= _mix(load64(data, at))
            h = _rotl(h, 27) * np.uint64(5) + np.uint64(0x52DCE729)
            at += 8
        if at < end:
            h ^= _mix(_tail(data, at, end, length))
        h ^= np.uint64(length)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        out[i] = h ^ (h >> np.uint64(33))


@helper
def _position(sum32: Any, bits: Any) -> Any:
    """Return the bit of a sum of hash halves. As int32 the sum wraps, and a negative one is inverted."""
    c = sum32 & np.uint64(0xFFFFFFFF)
    if c >> np.uint64(31):
        c ^= np.uint64(0xFFFFFFFF)
    return c % bits


@kernel(writable(types.uint64), INTEGER, readable(types.uint64))
def insert(words: NDArray[np.uint64], k: int, hashes: NDArray[np.uint64]) -> None:
    """Set the ``k`` bits of every hash. ``words`` has less than 2**31 bits.

    The positions of a block of hashes are computed together: no step depends on another, so it becomes vector code, and
    setting bits does not wait for it. The quotient is computed in doubles and off by at most one, which the two
    lines after it correct. The many ``np.int32`` keep numba from widening sums of 32-bit numbers.
    """
    bits = np.int32(len(words) * 64)
    inverse = 1.0 / np.float64(bits)
    totals = np.empty(BLOCK, np.int32)
    uppers = np.empty(BLOCK, np.int32)
    chosen = np.empty(BLOCK, np.int32)
    for start in range(0, len(hashes), BLOCK):
        count = min(BLOCK, len(hashes) - start)
        for i in range(count):
            h = hashes[start + i]
            totals[i] = np.int32(np.uint32(h & np.uint64(0xFFFFFFFF)))
            uppers[i] = np.int32(np.uint32(h >> np.uint64(32)))
        for _ in range(k):
            for i in range(count):
                total = np.int32(totals[i] + uppers[i])
                totals[i] = total
                c = np.int32(total ^ np.int32(total >> np.int32(31)))
                rest = np.int32(c - np.int32(np.int32(np.float64(c) * inverse) * bits))
                rest = np.int32(rest + np.int32(bits & np.int32(rest >> np.int32(31))))
                over = np.int32(rest - bits)
                chosen[i] = np.int32(over + np.int32(bits & np.int32(over >> np.int32(31))))
            for i in range(count):
                at = np.uint64(chosen[i])
                words[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))


@kernel(readable(types.uint64), INTEGER, readable(types.uint64), writable(types.boolean))
def check(words: NDArray[np.uint64], k: int, hashes: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
    """Set ``out[i]`` to whether all ``k`` bits of ``hashes[i]`` are set."""
    bits = np.uint64(len(words) * 64)
    for i in range(len(hashes)):
        upper = hashes[i] >> np.uint64(32)
        total = hashes[i]
        found = True
        for _ in range(k):
            total += upper
            at = _position(total, bits)
            if not (words[at >> np.uint64(6)] >> (at & np.uint64(63))) & np.uint64(1):
                found = False
                break
        out[i] = found
