"""Loops over Parquet's RLE / bit-packed hybrid, and over PLAIN byte arrays.

The hybrid is a sequence of runs, each with a varint header. If the header is odd, ``header >> 1`` groups of eight
values follow, packed with ``width`` bits each, least significant bit first. If it is even, one value
of ceil(width / 8) bytes follows, which is repeated ``header >> 1`` times. The last packed run may have more
values than are needed, and its bytes may end with the last needed value.

Every function takes ``data`` (uint8[n]) with ``at`` and ``end`` as bounds, reads nothing outside them, and
returns a negative number if the bytes are too few or an index is too large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from sidecar.kernels._jit import INTEGER, helper, kernel, readable, writable
from sidecar.kernels._load import load32

ENDS_EARLY, BAD_INDEX = -1, -2

DATA = readable(types.uint8)
WORDS = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
"""The type of :func:`unaligned_words`."""
WRITABLE_WORDS = types.Array(types.uint64, 1, "A", aligned=False)


def unaligned_words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return a view of ``data`` as little-endian 64-bit words, one from every byte: uint64[max(n - 7, 0)]."""
    words: npt.NDArray[np.uint64] = np.ndarray((max(len(data) - 7, 0),), np.dtype("<u8"), buffer=data, strides=(1,))
    return words


@helper
def _little_endian(data: Any, at: int, length: int) -> int:
    value = 0
    for i in range(length):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@helper
def _packed(data: Any, at: int, end: int, width: int, position: int) -> int:
    """Return value ``position`` of a packed run at ``at``, byte by byte: near the end, a word would overshoot."""
    bit = position * width
    byte = at + (bit >> 3)
    last = at + ((bit + width + 7) >> 3)
    if last > end:
        last = end
    word = 0
    for i in range(last - byte):
        word |= np.int64(data[byte + i]) << (8 * i)
    return (word >> (bit & 7)) & ((1 << width) - 1)


@helper
def _run(data: Any, at: int, end: int, width: int, left: int) -> tuple[int, int, int, bool]:
    """Return the run at ``at``: how many of its values are needed (at most ``left``; -1 if broken), the offset of its
    bytes, the offset after it, and whether it is packed."""
    header = shift = 0
    while True:  # a varint of at most 32 bits
        if at >= end or shift == 35:
            return -1, at, at, False
        byte = np.int64(data[at])
        at += 1
        header |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if header & 1:
        values = (header >> 1) * 8
        if values > left:
            values = left
        if at + ((values * width + 7) >> 3) > end:
            return -1, at, at, True
        return values, at, at + (header >> 1) * width, True
    values = header >> 1
    if values > left:
        values = left
    behind = at + ((width + 7) >> 3)
    if behind > end or values == 0:
        return -1, at, at, False
    return values, at, behind, False


@kernel(DATA, WORDS, INTEGER, INTEGER, INTEGER, INTEGER, writable(types.boolean))
def mark_used(data: Any, words: Any, at: int, end: int, width: int, count: int, used: Any) -> int:
    """Set ``used[i]`` (bool[n]) for each of the first ``count`` values of a hybrid. Returns 0 or a negative number.

    ``words`` is :func:`unaligned_words` of ``data``. Returns :data:`BAD_INDEX` for an index beyond ``used``.
    """
    entries = len(used)
    mask = np.uint64((1 << width) - 1)
    while count > 0:
        values, begin, at, packed = _run(data, at, end, width, count)
        if values < 0:
            return -1
        if packed:
            # A fast value comes from a whole word. The last ones are read byte by byte: their words would reach beyond
            # the data.
            fast = values
            while fast > 0 and begin + (((fast - 1) * width) >> 3) >= len(words):
                fast -= 1
            bit = np.uint64(begin) << np.uint64(3)
            step = np.uint64(width)
            for _ in range(fast):
                index = (words[bit >> np.uint64(3)] >> (bit & np.uint64(7))) & mask
                if index >= entries:
                    return -2
                used[index] = True
                bit += step
            for i in range(fast, values):
                tail = _packed(data, begin, end, width, i)
                if tail >= entries:
                    return -2
                used[tail] = True
        else:
            repeated = _little_endian(data, begin, at - begin)
            if repeated >= entries:
                return -2
            used[repeated] = True
        count -= values
    return 0


@kernel(DATA, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER)
def count_level(data: Any, at: int, end: int, width: int, count: int, level: int) -> int:
    """Return how many of the first ``count`` values of a hybrid equal ``level``, or a negative number."""
    found = 0
    while count > 0:
        values, begin, at, packed = _run(data, at, end, width, count)
        if values < 0:
            return -1
        if packed:
            found += _count_packed(data, begin, end, width, values, level)
        else:
            repeated = _little_endian(data, begin, at - begin)
            if repeated >> width:  # the value has more bits than a level can have
                return -2
            found += values if repeated == level else 0
        count -= values
    return found


@helper
def _count_packed(data: Any, at: int, end: int, width: int, values: int, level: int) -> int:
    found = 0
    whole = 0
    if width == 1 and level == 1:  # nulls in a flat column: count bits
        whole = values & ~7
        for i in range(values >> 3):
            byte = np.int64(data[at + i])
            byte -= (byte >> 1) & 0x55
            byte = (byte & 0x33) + ((byte >> 2) & 0x33)
            found += (byte + (byte >> 4)) & 0x0F
    for i in range(whole, values):
        if _packed(data, at, end, width, i) == level:
            found += 1
    return found


@kernel(DATA, WORDS, INTEGER, writable(types.uint8), WRITABLE_WORDS, writable(types.int32))
def split_byte_arrays(data: Any, words: Any, count: int, out: Any, out_words: Any, offsets: Any) -> int:
    """Remove the 4-byte lengths from ``count`` PLAIN byte arrays.

    ``out`` (uint8[n], at least as long as ``data``) gets the concatenated values, and ``offsets`` (int32[count + 1])
    their starts; bytes after the last value are undefined. ``words`` and ``out_words`` are :func:`unaligned_words` of
    both arrays. Returns the bytes of all values, or a negative number.
    """
    at = 0
    filled = 0
    offsets[0] = 0
    for i in range(count):
        if at + 4 > len(data):
            return -1
        length = np.int64(load32(data, at))
        at += 4
        if at + length > len(data):
            return -1
        copied = 0
        while copied < length and at + copied < len(words):  # extra bytes are overwritten by the next value
            out_words[filled + copied] = words[at + copied]
            copied += 8
        for k in range(copied, length):
            out[filled + k] = data[at + k]
        at += length
        filled += length
        offsets[i + 1] = filled
    return filled


@kernel(DATA, INTEGER, writable(types.int64), writable(types.int64))
def byte_array_spans(data: Any, count: int, starts: Any, lengths: Any) -> bool:
    """Set ``starts`` and ``lengths`` (int64[count]) to the place of each of ``count`` PLAIN byte arrays in ``data``.

    Returns False if a value ends beyond the data (uint8[n]).
    """
    at = 0
    for i in range(count):
        if at + 4 > len(data):
            return False
        length = np.int64(load32(data, at))
        at += 4
        if at + length > len(data):
            return False
        starts[i] = at
        lengths[i] = length
        at += length
    return True
