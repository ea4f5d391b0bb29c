"""MurmurHash3 x64-128 with any seed over many values at once: the hash of theta sketches (seed 9001).

Only the first 64-bit half is returned: theta sketches use ``h1 >> 1``, the historical Parquet filter ``h1``.
Values of 4 and 8 bytes have their own loops. Strings are one byte array with offsets, as in Arrow; vectors hash
several at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import WORD, inlined, kernel, readable, writable
from sidecar.kernels._load import tail, widened
from sidecar.kernels._words import (
    HAS_LANES,
    LANES,
    ByteArray,
    Word,
    WordArray,
    least,
    repeat,
    rotl,
    traced,
    traced_lanes,
    traced_pair,
)

C1 = 0x87C37B91114253D5
C2 = 0x4CF5AD432745937F


def _mix1(k1: Word) -> Word:
    return rotl(k1 * C1, 31) * C2


def _mix2(k2: Word) -> Word:
    return rotl(k2 * C2, 33) * C1


def _fmix(k: Word) -> Word:
    k ^= k >> 33
    k *= 0xFF51AFD7ED558CCD
    k ^= k >> 33
    k *= 0xC4CEB9FE1A85EC53
    return k ^ (k >> 33)


def _finish(h1: Word, h2: Word, length: Word | int) -> Word:
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    return _fmix(h1) + _fmix(h2)


def _low_bytes(word: Word, count: Word) -> Word:
    """Return the lowest ``count`` bytes (0 to 8) of a word."""
    mask = -1 >> (64 - (count << 3) & 63)
    return count.at_least(1).choose(word & mask, 0)


def _block(data: ByteArray, at: Word, h1: Word, h2: Word) -> tuple[Word, Word]:
    """Return ``h1`` and ``h2`` after the next 16 bytes."""
    h1 = (rotl(h1 ^ _mix1(data.word(at)), 27) + h2) * 5 + 0x52DCE729
    h2 = (rotl(h2 ^ _mix2(data.word(at + 8)), 31) + h1) * 5 + 0x38495AB5
    return h1, h2


@traced_pair
def _next(data: ByteArray, at: Word, h1: Word, h2: Word) -> tuple[Word, Word]:
    return _block(data, at, h1, h2)


def _end(data: ByteArray, at: Word, left: Word, length: Word, h1: Word, h2: Word) -> Word:
    """Return the first half of the hash of ``length`` bytes after the last ``left`` of them (less than 48).

    The last two blocks are always computed, and used only if they exist: lengths vary, and a mispredicted
    branch costs more than a few multiplications.
    """
    for _ in range(2):
        next1, next2 = _block(data, least(at, data.length - 16), h1, h2)
        is_block = left.at_least(16)
        h1 = is_block.choose(next1, h1)
        h2 = is_block.choose(next2, h2)
        step = is_block.choose(16, 0)
        at += step
        left -= step
    upper = left.at_least(8).choose(left - 8, 0)
    h2 ^= _mix2(_low_bytes(tail(data, least(at + 8, data.length)), upper))
    h1 ^= _mix1(_low_bytes(tail(data, at), least(left, 8)))
    return _finish(h1, h2, length)


_finished = traced(_end)


@traced_lanes
def _hash_lanes(
    data: ByteArray, starts: WordArray, lengths: WordArray, first: Word, seed: Word, out: WordArray
) -> None:
    """Hash the values from ``first`` on in all lanes. ``data`` has at least 16 bytes."""
    length = lengths.lanes(first)
    seeds = length.filled(seed)

    def block(at: Word, left: Word, h1: Word, h2: Word) -> list[Word]:
        return [at + 16, left - 16, *_block(data, least(at, data.length - 16), h1, h2)]

    state = starts.lanes(first), length, seeds, seeds
    at, left, h1, h2 = repeat(lambda _, left, *__: left.at_least(48), block, *state)
    out.put(first, _end(data, at, left, length, h1, h2))


@inlined
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int, seed: Any) -> Any:
    """Return the first half of MurmurHash3 x64-128 of ``data[at : at + length]``; ``data`` has at least 16 bytes."""
    h1, h2 = seed, seed
    left = length
    while left >= 48:
        h1, h2 = _next(data, at, h1, h2)
        at += 16
        left -= 16
    return _finished(data, at, left, length, h1, h2)


@traced
def _hash4(word: Word, seed: Word) -> Word:
    return _finish(seed ^ _mix1(word), seed, 4)


@traced
def _hash8(word: Word, seed: Word) -> Word:
    return _finish(seed ^ _mix1(word), seed, 8)


@kernel(readable(types.uint32), WORD, writable(types.uint64))
def hash_fixed4(values: NDArray[np.uint32], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the first half of the hash of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _hash4(values[i], seed)


@kernel(readable(types.uint64), WORD, writable(types.uint64))
def hash_fixed8(values: NDArray[np.uint64], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the first half of the hash of the 8 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _hash8(values[i], seed)


def hash_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seed: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    """Set ``out[i]`` to the first half of the hash of ``data[starts[i] : starts[i] + lengths[i]]``."""
    _hash_spans(widened(data), starts, lengths, seed, out)


@kernel(readable(types.uint8), readable(types.int64), readable(types.int64), WORD, writable(types.uint64))
def _hash_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seed: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    whole = len(out) // LANES * LANES if HAS_LANES else 0
    for i in range(0, whole, LANES):
        _hash_lanes(data, starts, lengths, i, seed, out)
    for i in range(whole, len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i], seed)
