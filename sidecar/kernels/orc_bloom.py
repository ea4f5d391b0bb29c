"""ORC Bloom filter loops: hashes of integer and byte keys, and k bits of each hash in ``words`` uint64 [m / 64].

:mod:`sidecar.filters.orc.key_hash` has the rules and the same hashes for single values,
:mod:`sidecar.filters.orc.bloom` the choice of bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import INTEGER, helper, kernel, readable, writable
from sidecar.kernels._load import load64
from sidecar.kernels._words import Word, leading_zeros, rotl, traced, trailing_zeros
from sidecar.kernels.decimals import plain_text

SEED = 104729
C1 = 0x87C37B91114253D5
C2 = 0x4CF5AD432745937F
_ASCII = 0x3030303030303030
_TEN_THOUSAND, _HUNDRED_MILLION = np.uint64(10**4), 10**8
BLOCK = 512
"""Hashes whose positions are computed together. They and the filter stay in the first-level cache."""
_ENOUGH_FOR_FLOAT = 1024
"""Bits of the smallest filter whose quotients are exact enough in single precision."""


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


def _mix(word: Word) -> Word:
    return rotl(word * C1, 31) * C2


def _with_word(h: Word | int, word: Word) -> Word:
    return rotl(_mix(word) ^ h, 27) * 5 + 0x52DCE729


def _with_rest(h: Word, rest: Word) -> Word:
    return _mix(rest) ^ h


def _end(h: Word, length: Word) -> Word:
    """Return the hash of a key of ``length`` bytes, all of which are mixed into ``h``."""
    h = h ^ length
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53
    return h ^ (h >> 33)


_add_word, _add_rest, _finish = map(traced, (_with_word, _with_rest, _end))


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
        h = np.uint64(SEED)
        while at + 8 <= end:
            h = _add_word(h, load64(data, at))
            at += 8
        if at < end:
            h = _add_rest(h, _tail(data, at, end, length))
        out[i] = _finish(h, length)


@traced
def _hash_short_decimal(whole: Word, fraction: Word, negative: Word) -> Word:
    """Return the hash of the shortest plain text of a decimal. The text is made in two words, not in memory.

    ``whole`` has the eight digits before the point, ``fraction`` the four after it, a byte each, the first in the
    lowest. ``negative`` is 0 or 1. All lengths are in bits.
    """
    zeros = trailing_zeros(whole | (1 << 63)) & 56  # of the last digit before the point only bits count as zeros
    before = 64 - zeros
    kept = 64 - (leading_zeros(fraction) & 120)
    after = kept.at_least(1)
    point = (((fraction | _ASCII) << 8 | ord(".")) << (56 - kept)) >> (56 - kept)
    point = after.choose(point, 0)
    half = before >> 1
    first = (whole | _ASCII) >> zeros | (point << half) << half
    second = point >> zeros
    length = before + after.choose(kept + 8, 0)
    signed = negative.at_least(1)
    second = signed.choose(second << 8 | first >> 56, second)
    first = signed.choose(first << 8 | ord("-"), first)
    length = signed.choose(length + 8, length)
    full = length.at_least(64)
    h = full.choose(_with_word(SEED, first), SEED)
    return _end(_with_rest(h, full.choose(second, first)), length >> 3)


@kernel(
    readable(types.uint64, 2),
    INTEGER,
    readable(types.uint32),
    writable(types.uint8, 2),
    writable(types.int64),
    writable(types.int64),
    writable(types.uint64),
)
def hash_decimals(
    words: NDArray[np.uint64],
    scale: int,
    digits: NDArray[np.uint32],
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.uint64],
) -> None:
    """Set ``out[i]`` to the hash of the shortest plain text of a 128-bit decimal, see :func:`plain_text`.

    ``words`` (uint64 [n, 2]) has the lower and upper half of each unscaled number in two's complement, ``digits`` is
    :data:`FOUR_DIGITS`. A number with up to eight digits before the point and four after it needs no text in memory;
    from any other number on, the rest of its block is written as text, of which ``text``, ``starts`` and ``lengths``
    have room for one block. The product with the inverse of the unit, which is made a little too large, is never below
    the quotient and less than 10**-6 above it, so cut it is right.
    """
    unit, fill = np.uint64(10 ** min(scale, 4)), np.uint64(10 ** max(4 - scale, 0))
    inverse = (1.0 + 2.0**-51) / np.float64(unit)
    most = np.int64(unit) * _HUNDRED_MILLION if scale <= 4 else 0
    block = len(text)
    for start in range(0, len(words), block):
        end = min(start + block, len(words))
        at = start
        while at < end:
            number = np.int64(words[at, 0])
            if np.int64(words[at, 1]) != number >> np.int64(63) or not -most < number < most:
                break
            size = np.uint64(abs(number))
            whole = np.uint64(np.int64(np.float64(np.int64(size)) * inverse))
            first = whole // _TEN_THOUSAND
            shown = np.uint64(digits[first]) | np.uint64(digits[whole - first * _TEN_THOUSAND]) << np.uint64(32)
            fraction = np.uint64(digits[(size - whole * unit) * fill])
            out[at] = _hash_short_decimal(shown, fraction, np.uint64(number) >> np.uint64(63))
            at += 1
        if at < end:
            plain_text(words[at:end], scale, text, starts, lengths)
            hash_spans(text.reshape(-1), starts, lengths, out[at:end])


@helper
def _position(sum32: Any, bits: Any) -> Any:
    """Return the bit of a sum of hash halves. As int32 the sum wraps, and a negative one is inverted."""
    c = sum32 & np.uint64(0xFFFFFFFF)
    if c >> np.uint64(31):
        c ^= np.uint64(0xFFFFFFFF)
    return c % bits


@helper
def _next_sum(total: Any, upper: Any) -> Any:
    return np.uint32(total + upper)


@helper
def _without_sign(total: Any) -> Any:
    """Return a sum as 31 bits: if it is negative as int32, it is inverted."""
    signed = np.int32(total)
    return np.int32(signed ^ np.int32(signed >> np.int32(31)))


@helper
def _rest(c: Any, quotient: Any, bits: Any) -> Any:
    """Return ``c mod bits``, given a quotient that is right or one less than that."""
    rest = np.uint32(np.uint32(c) - np.uint32(np.uint32(quotient) * bits))
    return min(rest, np.uint32(rest - bits))  # if it is small enough already, the difference is a large number


@helper
def _halves(hashes: NDArray[np.uint64], start: int, count: int, lower: Any, upper: Any) -> int:
    """Split a block of hashes into halves, and return their number: sorted columns repeat each value, once is enough.

    Offsets are unsigned, because numba would look whether signed ones are negative, and vector code cannot.
    """
    first = np.uint64(start)
    one = np.uint64(1)
    repeated = 0
    for i in range(1, count):
        at = first + np.uint64(i)
        repeated += np.int64(hashes[at] == hashes[at - one])
    if repeated * 4 < count:
        for i in range(count):
            h = hashes[first + np.uint64(i)]
            lower[i] = np.uint32(h)
            upper[i] = np.uint32(h >> np.uint64(32))
        return count
    kept = 0
    for i in range(count):
        at = first + np.uint64(i)
        lower[kept] = np.uint32(hashes[at])
        upper[kept] = np.uint32(hashes[at] >> np.uint64(32))
        kept += np.int64(i + 1 == count or hashes[at] != hashes[at + one])
    return kept


@kernel(writable(types.uint64), INTEGER, readable(types.uint64))
def insert(words: NDArray[np.uint64], k: int, hashes: NDArray[np.uint64]) -> None:
    """Set the ``k`` bits of every hash. ``words`` has less than 2**31 bits."""
    # The positions of a block of hashes are computed together: no step depends on another, so it becomes vector code,
    # and setting bits does not wait for it.
    # A quotient is a product with the inverse of ``bits``, which is made a little too small. So three roundings (of the
    # sum, the inverse and the product, each by 2**-24 of it) never make a quotient too large, and at most 7 * 2**-24 of
    # it too small. In float that is less than one for quotients up to 2**21; in double it is for all.
    # The many ``np.uint32`` keep numba from widening sums of 32-bit numbers.
    bits = np.uint32(len(words) * 64)
    exact = (1.0 - 2.0**-51) / np.float64(bits)
    short = np.float32((1.0 - 2.0**-22) / np.float64(bits))
    totals = np.empty(BLOCK, np.uint32)
    uppers = np.empty(BLOCK, np.uint32)
    chosen = np.empty(BLOCK, np.uint32)
    for start in range(0, len(hashes), BLOCK):
        count = _halves(hashes, start, min(BLOCK, len(hashes) - start), totals, uppers)
        for _ in range(k):
            if bits >= _ENOUGH_FOR_FLOAT:
                for i in range(count):
                    totals[i] = _next_sum(totals[i], uppers[i])
                    c = _without_sign(totals[i])
                    chosen[i] = _rest(c, np.int32(np.float32(c) * short), bits)
            else:
                for i in range(count):
                    totals[i] = _next_sum(totals[i], uppers[i])
                    c = _without_sign(totals[i])
                    chosen[i] = _rest(c, np.int32(np.float64(c) * exact), bits)
            for i in range(count):
                at = np.uint64(chosen[i])
                words[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))


@kernel(writable(types.uint64, 2), INTEGER, readable(types.uint64), readable(types.int64))
def insert_groups(table: NDArray[np.uint64], k: int, hashes: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """Set the bits of ``hashes`` in several filters, the rows of ``table``: ``counts[i]`` of them in row ``i``."""
    at = 0
    for i in range(len(counts)):
        insert(table[i], k, hashes[at : at + counts[i]])
        at += counts[i]


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
