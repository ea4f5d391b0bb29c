"""Summarise a page without unpacking it: level histograms, and folds over dictionary indices.

Levels and indices are RLE / bit-packed hybrids (see :mod:`sidecar.kernels.rle`). Levels may also have the deprecated
BIT_PACKED form, without runs, most significant bit first. A run of equal values costs one step
regardless of its length, and no memory is allocated for values: a page of ten bytes may state a billion of them.

Every function takes ``data`` (uint8[n]) with ``at`` and ``end`` as bounds and reads nothing outside them. It returns 0,
or a negative error of :mod:`sidecar.kernels.rle`; then the results are undefined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sidecar.kernels._jit import FLAG, INTEGER, helper, kernel, readable, writable
from sidecar.kernels.rle import DATA, WORDS, _little_endian, _packed, _run

LOW, HIGH, NAN_LOW, NAN_HIGH, NAN_COUNT, BYTES = range(6)
"""Indexes into the result of :func:`fold_indices`."""


@kernel(DATA, WORDS, INTEGER, INTEGER, INTEGER, INTEGER, writable(types.int64))
def histogram(data: Any, words: Any, at: int, end: int, width: int, count: int, out: Any) -> int:
    """Add to ``out`` (int64[m]) how often each value occurs among the first ``count`` values of a hybrid.

    ``words`` is :func:`sidecar.kernels.rle.unaligned_words` of ``data``.
    """
    mask = np.uint64((1 << width) - 1)
    while count > 0:
        values, begin, at, packed = _run(data, at, end, width, count)
        if values < 0:
            return -1
        if packed:
            bit = np.uint64(begin) << np.uint64(3)
            step = np.uint64(width)
            for i in range(values):
                byte = bit >> np.uint64(3)
                if byte < len(words):
                    value = np.int64((words[byte] >> (bit & np.uint64(7))) & mask)
                else:  # a word would extend beyond the data
                    value = _packed(data, begin, end, width, i)
                if value >= len(out):
                    return -2
                out[value] += 1
                bit += step
        else:
            value = _little_endian(data, begin, at - begin)
            if value >= len(out):
                return -2
            out[value] += values
        count -= values
    return 0


@kernel(DATA, INTEGER, INTEGER, INTEGER, INTEGER, writable(types.int64))
def histogram_bit_packed(data: Any, at: int, end: int, width: int, count: int, out: Any) -> int:
    """Add to ``out`` (int64[m]) how often each value occurs among ``count`` BIT_PACKED levels."""
    if at + ((count * width + 7) >> 3) > end:
        return -1
    for i in range(count):
        value = 0
        for bit in range(i * width, (i + 1) * width):
            value = (value << 1) | ((np.int64(data[at + (bit >> 3)]) >> (7 - (bit & 7))) & 1)
        if value >= len(out):
            return -2
        out[value] += 1
    return 0


@helper
def _fold(index: int, times: int, ranks: Any, sizes: Any, nan: Any, out: Any) -> None:
    rank = ranks[index]
    if nan[index]:
        out[2] = min(out[2], rank)
        out[3] = max(out[3], rank)
        out[4] += times
    else:
        out[0] = min(out[0], rank)
        out[1] = max(out[1], rank)
    out[5] += np.int64(sizes[index]) * times


@kernel(
    *(DATA, WORDS, INTEGER, INTEGER, INTEGER, INTEGER),
    *(readable(types.int64), readable(types.int64), readable(types.boolean), writable(types.int64)),
)
def fold_indices(
    data: Any,
    words: Any,
    at: int,
    end: int,
    width: int,
    count: int,
    ranks: Any,
    sizes: Any,
    nan: Any,
    out: Any,
) -> int:
    """Fold the first ``count`` dictionary indices of a hybrid into ``out`` (int64[6]).

    ``ranks`` (int64[d]) is each entry's position in sorted order, ``sizes`` (int64[d]) its bytes, ``nan`` (bool[d])
    whether it is NaN. Lowest and highest rank are separate for NaN and other values. ``words`` is as in
    :func:`histogram`. Returns BAD_INDEX for an index beyond the dictionary.
    """
    entries = len(ranks)
    mask = np.uint64((1 << width) - 1)
    while count > 0:
        values, begin, at, packed = _run(data, at, end, width, count)
        if values < 0:
            return -1
        if packed:
            bit = np.uint64(begin) << np.uint64(3)
            step = np.uint64(width)
            for i in range(values):
                byte = bit >> np.uint64(3)
                if byte < len(words):
                    index = np.int64((words[byte] >> (bit & np.uint64(7))) & mask)
                else:  # a word would extend beyond the data
                    index = _packed(data, begin, end, width, i)
                if index >= entries:
                    return -2
                _fold(index, 1, ranks, sizes, nan, out)
                bit += step
        else:
            index = _little_endian(data, begin, at - begin)
            if index >= entries:
                return -2
            _fold(index, values, ranks, sizes, nan, out)
        count -= values
    return 0


@helper
def _is_less(data: Any, first: int, first_length: int, other: int, other_length: int) -> bool:
    for k in range(min(first_length, other_length)):
        if data[first + k] != data[other + k]:
            return bool(data[first + k] < data[other + k])
    return bool(first_length < other_length)


@kernel(DATA, readable(types.int64), readable(types.int64))
def span_extremes(data: Any, starts: Any, lengths: Any) -> tuple[int, int]:
    """Return the indexes of the lowest and highest byte string ``data[starts[i] : starts[i] + lengths[i]]``.

    They are compared as unsigned bytes. There must be at least one, and all must be inside ``data``.
    """
    low = high = 0
    for i in range(1, len(starts)):
        if _is_less(data, starts[i], lengths[i], starts[low], lengths[low]):
            low = i
        elif _is_less(data, starts[high], lengths[high], starts[i], lengths[i]):
            high = i
    return low, high


@helper
def _is_lower_row(data: Any, first: int, other: int, width: int, turn: Any) -> bool:
    if data[first] != data[other]:
        return bool(data[first] ^ turn < data[other] ^ turn)
    for k in range(1, width):
        if data[first + k] != data[other + k]:
            return bool(data[first + k] < data[other + k])
    return False


@helper
def _short_row_extremes(data: Any, width: int, count: int, signed: bool) -> tuple[int, int]:
    """Like :func:`row_extremes`, for rows of at most 8 bytes, which are compared as words."""
    turn = np.uint64(0x80 << (8 * width - 8) if signed else 0)
    low = high = 0
    lowest, highest = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
    for i in range(count):
        key = np.uint64(0)
        for k in range(width):
            key = key << np.uint64(8) | np.uint64(data[i * width + k])
        key ^= turn
        if key < lowest:
            lowest, low = key, i
        if key > highest:
            highest, high = key, i
    return low, high


@kernel(DATA, INTEGER, INTEGER, FLAG)
def row_extremes(data: Any, width: int, count: int, signed: bool) -> tuple[int, int]:
    """Return the indexes of the lowest and highest of ``count`` big-endian numbers of ``width`` bytes in ``data``.

    ``data`` is uint8[n]. With ``signed``, the numbers are in two's complement.
    """
    if width <= 8:
        return _short_row_extremes(data, width, count, signed)
    turn = np.uint8(0x80 if signed else 0)
    low = high = 0
    for i in range(1, count):
        if _is_lower_row(data, i * width, low * width, width, turn):
            low = i
        elif _is_lower_row(data, high * width, i * width, width, turn):
            high = i
    return low, high
