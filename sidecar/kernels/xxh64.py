"""XXH64 with seed 0 over many values at once, as Parquet's Bloom filters hash them.

Widths 4 and 8 have their own loops, which need only the tail step and the avalanche of XXH64.
Strings are one byte array with offsets, as in Arrow; vectors hash several at once. Specification: xxHash 0.1.1, XXH64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import INTEGER, helper, inlined, kernel, readable, writable
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
)

P1 = 0x9E3779B185EBCA87
P2 = 0xC2B2AE3D27D4EB4F
P3 = 0x165667B19E3779F9
P4 = 0x85EBCA77C2B2AE63
P5 = 0x27D4EB2F165667C5
EMPTY = np.uint64(P5)
STARTS = np.uint64(0x60EA27EEADC0B5D6), np.uint64(P2), np.uint64(0), np.uint64(0x61C8864E7A143579)
"""The four accumulators of seed 0: P1 + P2, P2, 0, 0 - P1."""


def _avalanche(h: Word) -> Word:
    h ^= h >> 33
    h *= P2
    h ^= h >> 29
    h *= P3
    return h ^ (h >> 32)


def _mixed(lane: Word) -> Word:
    return rotl(lane * P2, 31) * P1


def _after(acc: Word, data: ByteArray, at: Word) -> Word:
    """Return an accumulator after the word at ``at``."""
    return rotl(acc + data.word(at) * P2, 31) * P1


def _merge(v1: Word, v2: Word, v3: Word, v4: Word) -> Word:
    h = rotl(v1, 1) + rotl(v2, 7) + rotl(v3, 12) + rotl(v4, 18)
    for v in (v1, v2, v3, v4):
        h = (h ^ _mixed(v)) * P1 + P4
    return h


_stripe = traced(_after)
_merged = traced(_merge)


@helper
def _stripes(data: NDArray[np.uint8], at: int, end: int) -> Any:
    """Return the hash after all whole stripes of 32 bytes. There is at least one."""
    v1, v2, v3, v4 = STARTS
    while at + 32 <= end:
        v1 = _stripe(v1, data, at)
        v2 = _stripe(v2, data, at + 8)
        v3 = _stripe(v3, data, at + 16)
        v4 = _stripe(v4, data, at + 24)
        at += 32
    return _merged(v1, v2, v3, v4)


def _lane(h: Word, word: Word) -> Word:
    return rotl(h ^ _mixed(word), 27) * P1 + P4


def _byte(h: Word, byte: Word) -> Word:
    return rotl(h ^ (byte * P5), 11) * P1


def _finish(h: Word, data: ByteArray, at: Word, length: Word) -> Word:
    """Return the hash after the last ``length % 32`` bytes of ``data[at : at + length]``, from that before them.

    Every step of the tail is computed, and used only if it applies: lengths vary, and a mispredicted branch costs
    more than a few multiplications. A step that does not apply loads bytes from anywhere in ``data``.
    """
    last = data.length - 8
    h += length
    left = length & 31
    at += length - left
    for lane in (0, 8, 16):
        step = _lane(h, data.word(least(at + lane, last)))
        h = left.at_least(lane + 8).choose(step, h)
    at += left & 24
    word = tail(data, at)
    step = rotl(h ^ ((word & 0xFFFFFFFF) * P1), 23) * P2 + P3
    h = (left & 4).at_least(4).choose(step, h)
    word >>= (left & 4) << 3
    left &= 3
    for byte in range(3):
        step = _byte(h, (word >> 8 * byte) & 255)
        h = left.at_least(byte + 1).choose(step, h)
    return _avalanche(h)


_finished = traced(_finish)


@traced_lanes
def _hash_lanes(data: ByteArray, starts: WordArray, lengths: WordArray, first: Word, out: WordArray) -> None:
    """Hash the values from ``first`` on in all lanes. ``data`` has at least 8 bytes.

    Values of 32 bytes and more have stripes first. A lane whose value has no further stripe loads other bytes.
    """
    at, length = starts.lanes(first), lengths.lanes(first)
    last = data.length - 32

    def stripe(begin: Word, left: Word, *accumulators: Word) -> list[Word]:
        place = least(begin, last)
        added = [_after(acc, data, place + 8 * word) for word, acc in enumerate(accumulators)]
        return [begin + 32, left - 32, *added]

    begun = (at.filled(int(start)) for start in STARTS)
    _, _, *accumulators = repeat(lambda _, left, *__: left.at_least(32), stripe, at, length, *begun)
    _, h = repeat(
        lambda left, _: left.at_least(32), lambda left, _: [left & 31, _merge(*accumulators)], length, at.filled(P5)
    )
    out.put(first, _finish(h, data, at, length))


@inlined
def _hash_bytes(data: NDArray[np.uint8], at: int, length: int) -> Any:
    """Return the XXH64 of ``data[at : at + length]``. ``data`` has at least 8 bytes."""
    h = EMPTY
    if length >= 32:
        h = _stripes(data, at, at + length)
    return _finished(h, data, at, length)


@traced
def _hash4(word: Word) -> Word:
    h = (word * P1) ^ (P5 + 4)
    return _avalanche(rotl(h, 23) * P2 + P3)


@traced
def _hash8(word: Word) -> Word:
    h = _mixed(word) ^ (P5 + 8)
    return _avalanche(rotl(h, 27) * P1 + P4)


@kernel(readable(types.uint32), writable(types.uint64))
def hash_fixed4(values: NDArray[np.uint32], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of the 4 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _hash4(values[i])


@kernel(readable(types.uint64), writable(types.uint64))
def hash_fixed8(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of the 8 little-endian bytes of ``values[i]``."""
    for i in range(len(values)):
        out[i] = _hash8(values[i])


def hash_fixed(data: NDArray[np.uint8], width: int, out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to the XXH64 of ``data[i * width : (i + 1) * width]``."""
    _hash_fixed(widened(data), width, out)


@kernel(readable(types.uint8), INTEGER, writable(types.uint64))
def _hash_fixed(data: NDArray[np.uint8], width: int, out: NDArray[np.uint64]) -> None:
    for i in range(len(out)):
        out[i] = _hash_bytes(data, i * width, width)


def hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """Set ``out[i]`` to the XXH64 of ``data[starts[i] : starts[i] + lengths[i]]``."""
    _hash_spans(widened(data), starts, lengths, out)


@kernel(readable(types.uint8), readable(types.int64), readable(types.int64), writable(types.uint64))
def _hash_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    whole = len(out) // LANES * LANES if HAS_LANES else 0
    for i in range(0, whole, LANES):
        _hash_lanes(data, starts, lengths, i, out)
    for i in range(whole, len(out)):
        out[i] = _hash_bytes(data, starts[i], lengths[i])
