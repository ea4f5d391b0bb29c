"""Decodes the run-length encodings of ORC streams, from ``data`` (uint8 [n]) and a run that begins at ``at``.

Every loop skips ``skip`` values, fills ``out`` and returns the offset in ``data`` where the last used run ends, or -1
if the data ends before that (``out`` is then undefined). A run may begin before the wanted values
and continue after them. So ``place`` (int64 [2]) gets the offset of the next value's run and the number of values of
that run before it, which are ``at`` and ``skip`` of the next call. ORC specification, "Run Length Encoding".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import FLAG, INTEGER, WORD, helper, kernel, readable, writable
from sidecar.kernels._load import load64
from sidecar.kernels._words import Word, traced_pair, trailing_zeros

_ONE = np.uint64(1)
_BYTE = np.uint64(0xFF)
_LOW32 = np.uint64(0xFFFFFFFF)
_TOP_BITS = 0x8080808080808080
_UPPER_OF_38, _LOWER_OF_38 = np.uint64((10**38 - 1) >> 64), np.uint64((10**38 - 1) & (1 << 64) - 1)
_LOADED_WIDTH = 57
"""The widest numbers of which each is inside the eight bytes that begin with its first byte."""
_LONGEST_RUN = 512
_LONGEST_REPEAT = 10
"""Values of the longest short repeat."""
_BEYOND = 32
"""Bytes after a direct run that three more numbers of it could be loaded from."""


@helper
def _set_place(place: NDArray[np.int64], begin: int, end: int, count: int, beyond: int) -> None:
    """Store where to continue: in the run of ``count`` values at ``begin`` if ``beyond`` are left, else at ``end``."""
    place[0] = begin if beyond else end
    place[1] = count - beyond if beyond else 0


@kernel(readable(types.uint8), INTEGER, INTEGER, writable(types.uint8), writable(types.int64))
def bytes_rle(data: NDArray[np.uint8], at: int, skip: int, out: NDArray[np.uint8], place: NDArray[np.int64]) -> int:
    """Decode byte RLE: a control byte c, then one byte for c + 3 values if c < 128, else 256 - c bytes."""
    filled = -skip
    begin = at
    count = 0
    while filled < len(out):
        if at + 2 > len(data):
            return -1
        begin = at
        control = np.int64(data[at])
        at += 1
        run = control < 128
        count = control + 3 if run else 256 - control
        if not run and at + count > len(data):
            return -1
        for i in range(max(-filled, 0), min(count, len(out) - filled)):
            out[filled + i] = data[at] if run else data[at + i]
        filled += count
        at += 1 if run else count
    _set_place(place, begin, at, count, filled - len(out))
    return at


@helper
def _varint(data: NDArray[np.uint8], at: int) -> Any:
    """Return a base-128 number, low bits first, cut to 64 bits, and the offset after it (-1 if the data ends)."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < len(data):
        byte = np.uint64(data[at])
        at += 1
        if shift < np.uint64(64):
            value |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        if byte < np.uint64(128):
            return value, at
    return value, -1


@helper
def _unzigzag(value: Any) -> Any:
    return np.int64(value >> _ONE) ^ -np.int64(value & _ONE)


@helper
def _as_int(value: Any, signed: bool) -> Any:
    return _unzigzag(value) if signed else np.int64(value)


@kernel(readable(types.uint8), INTEGER, INTEGER, FLAG, writable(types.int64), writable(types.int64))
def integers_v1(
    data: NDArray[np.uint8],
    at: int,
    skip: int,
    signed: bool,
    out: NDArray[np.int64],
    place: NDArray[np.int64],
) -> int:
    """Decode RLE version 1: c + 3 values from a base with a step of -128 to 127, or 256 - c varints."""
    # Skipped values have positions below 0: they are decoded, because the next ones follow them, and not stored.
    filled = -skip
    begin = at
    count = 0
    while filled < len(out):
        if at + 2 > len(data):
            return -1
        begin = at
        control = np.int64(data[at])
        at += 1
        if control < 128:
            count = control + 3
            step = np.int64(np.int8(data[at]))
            raw, at = _varint(data, at + 1)
            if at < 0:
                return -1
            base = _as_int(raw, signed)
            for i in range(max(-filled, 0), min(count, len(out) - filled)):
                out[filled + i] = base + i * step
            filled += count
        else:
            count = 256 - control
            for _ in range(count):
                raw, at = _varint(data, at)
                if at < 0:
                    return -1
                if 0 <= filled < len(out):
                    out[filled] = _as_int(raw, signed)
                filled += 1
    _set_place(place, begin, at, count, filled - len(out))
    return at


@helper
def _width(code: int) -> int:
    """Return the width in bits that a five-bit code means."""
    if code < 24:
        return code + 1
    if code < 28:
        return 26 + (code - 24) * 2
    return 40 + (code - 28) * 8


@helper
def _closest_width(bits: int) -> int:
    """Return the smallest width with a code that is at least ``bits``."""
    if bits <= 24:
        return max(bits, 1)
    return (bits + 1) & ~1 if bits <= 32 else (bits + 7) & ~7


@helper
def _big_endian(data: NDArray[np.uint8], at: int, width: int) -> Any:
    value = np.uint64(0)
    for i in range(width):
        value = (value << np.uint64(8)) | np.uint64(data[at + i])
    return value


@helper
def _swapped(word: Any) -> Any:
    """Return the word with its bytes reversed."""
    word = ((word & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)) | (
        (word >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    )
    word = ((word & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)) | (
        (word >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    )
    return (word << np.uint64(32)) | (word >> np.uint64(32))


@helper
def _unpack(data: NDArray[np.uint8], at: int, width: int, count: int, out: NDArray[np.uint64]) -> None:
    """Unpack ``count`` big-endian numbers of ``width`` bits from byte ``at``. The caller checks the bounds.

    Nearly all numbers are inside eight bytes that can be loaded as one word; their loop has no branches.
    """
    bit = at * 8
    whole = 0
    if width <= _LOADED_WIDTH:
        whole = count
        if ((bit + (count - 1) * width) >> 3) + 8 > len(data):
            whole = min(max(((len(data) - 8) * 8 + 7 - bit) // width + 1, 0), count)
        right = np.uint64(64 - width)
        for i in range(whole):
            out[i] = (_swapped(load64(data, bit >> 3)) << np.uint64(bit & 7)) >> right
            bit += width
    for i in range(whole, count):
        first = bit >> 3
        gone = bit & 7
        value = np.uint64(data[first]) & (_BYTE >> np.uint64(gone))
        left = width - (8 - gone)
        while left > 0:
            first += 1
            taken = min(left, 8)
            value = (value << np.uint64(taken)) | (np.uint64(data[first]) >> np.uint64(8 - taken))
            left -= taken
        out[i] = value >> np.uint64(-left) if left < 0 else value
        bit += width


@helper
def _patch(data: NDArray[np.uint8], at: int, width: int, third: int, fourth: int, run: Any) -> int:
    """Add the bits above ``width`` of patched values to ``run``. Returns the end of the patch list, or -1."""
    gap_width = (fourth >> 5) + 1
    patch_width = _width(third & 31)
    entry_width = _closest_width(gap_width + patch_width)
    count = fourth & 31
    end = at + ((entry_width * count + 7) >> 3)
    if end > len(data) or gap_width + patch_width > 64:
        return -1
    patches = np.empty(count, np.uint64)
    _unpack(data, at, entry_width, count, patches)
    place = 0
    for i in range(count):
        place += np.int64(patches[i] >> np.uint64(patch_width))
        if place >= len(run):
            return -1
        mask = (_ONE << np.uint64(patch_width)) - _ONE if patch_width < 64 else ~np.uint64(0)
        if width < 64:
            run[place] |= (patches[i] & mask) << np.uint64(width)
    return end


@helper
def _run_v2(data: NDArray[np.uint8], at: int, signed: bool, raw: Any, out: Any, to: int) -> Any:
    """Decode one run into ``out`` (int64) from ``to``, where there is room for 512 values.

    Returns its number of values and its end (-1 if the data ends).
    """
    first = np.int64(data[at])
    kind = first >> 6
    if kind == 0:  # short repeat
        width = ((first >> 3) & 7) + 1
        count = (first & 7) + 3
        if at + 1 + width > len(data):
            return 0, -1
        value = _as_int(_big_endian(data, at + 1, width), signed)
        for i in range(count):
            out[to + i] = value
        return count, at + 1 + width
    if at + 2 > len(data):
        return 0, -1
    code = (first >> 1) & 31
    width = _width(code)
    count = ((first & 1) << 8 | np.int64(data[at + 1])) + 1
    if kind == 1:  # direct
        end = at + 2 + ((width * count + 7) >> 3)
        if end > len(data):
            return 0, -1
        _unpack(data, at + 2, width, count, raw)
        for i in range(count):
            out[to + i] = _as_int(raw[i], signed)
        return count, end
    if kind == 2:  # patched base
        if at + 4 > len(data):
            return 0, -1
        third, fourth = np.int64(data[at + 2]), np.int64(data[at + 3])
        base_width = (third >> 5) + 1
        values_at = at + 4 + base_width
        patches_at = values_at + ((width * count + 7) >> 3)
        if patches_at > len(data):
            return 0, -1
        base = _big_endian(data, at + 4, base_width)
        sign = _ONE << np.uint64(base_width * 8 - 1)
        start = -np.int64(base & (sign - _ONE)) if base & sign else np.int64(base)
        _unpack(data, values_at, width, count, raw)
        end = _patch(data, patches_at, width, third, fourth, raw[:count])
        for i in range(count):
            out[to + i] = start + np.int64(raw[i])
        return count, end
    value_bits, end = _varint(data, at + 2)  # delta
    if end < 0:
        return 0, -1
    step_bits, end = _varint(data, end)
    if end < 0:
        return 0, -1
    value, step = _as_int(value_bits, signed), _unzigzag(step_bits)
    out[to] = value
    if code == 0:
        for i in range(1, count):
            value += step
            out[to + i] = value
        return count, end
    deltas_at = end
    deltas = max(count - 2, 0)
    end = deltas_at + ((width * deltas + 7) >> 3)
    if end > len(data):
        return 0, -1
    _unpack(data, deltas_at, width, deltas, raw)
    if count > 1:
        value += step
        out[to + 1] = value
    for i in range(deltas):
        delta = np.int64(raw[i])
        value += -delta if step < 0 else delta
        out[to + i + 2] = value
    return count, end


@kernel(readable(types.uint8), INTEGER, INTEGER, FLAG, writable(types.int64), writable(types.int64))
def integers_v2(
    data: NDArray[np.uint8],
    at: int,
    skip: int,
    signed: bool,
    out: NDArray[np.int64],
    place: NDArray[np.int64],
) -> int:
    """Decode RLE version 2: runs of up to 512 values as short repeat, direct, patched base or delta."""
    raw = np.empty(_LONGEST_RUN, np.uint64)
    run = np.empty(_LONGEST_RUN, np.int64)
    zigzag = np.uint64(signed)
    filled = -skip
    begin = at
    count = 0
    while filled < len(out):
        if at >= len(data):
            return -1
        begin = at
        head = np.int64(data[at])
        # Runs that a column of few repetitions has very many of are decoded here: a call costs more than a short run.
        # They write a little beyond their values, so that no loop depends on a length that has to be predicted. The
        # next run begins after what they do have.
        if head < 64 and at + 9 <= len(data) and filled >= 0 and filled + _LONGEST_REPEAT <= len(out):
            width = ((head >> 3) & 7) + 1
            value = _as_int(_swapped(load64(data, at + 1)) >> np.uint64(64 - 8 * width), signed)
            for i in range(_LONGEST_REPEAT):
                out[filled + i] = value
            filled += (head & 7) + 3
            at += 1 + width
            continue
        if head >> 6 == 1 and at + 2 <= len(data):
            count = ((head & 1) << 8 | np.int64(data[at + 1])) + 1
            width = _width((head >> 1) & 31)
            end = at + 2 + ((width * count + 7) >> 3)
            in_words = width <= _LOADED_WIDTH and end + _BEYOND <= len(data)
            if in_words and filled >= 0 and filled + count + 3 <= len(out):
                bit, wide = np.uint64(at + 2) << np.uint64(3), np.uint64(width)
                for i in range(filled, filled + count, 4):
                    for j in range(4):
                        word = _swapped(load64(data, bit >> np.uint64(3))) << (bit & np.uint64(7))
                        number = word >> (np.uint64(64) - wide)
                        out[np.uint64(i + j)] = np.int64(number >> zigzag) ^ -np.int64(number & zigzag)
                        bit += wide
                filled += count
                at = end
                continue
        if filled >= 0 and filled + _LONGEST_RUN <= len(out):
            count, at = _run_v2(data, at, signed, raw, out, filled)
        else:  # the run may begin before the wanted values, or end after them
            count, at = _run_v2(data, at, signed, raw, run, 0)
            for i in range(max(-filled, 0), min(count, len(out) - filled)):
                out[filled + i] = run[i]
        if at < 0:
            return -1
        filled += count
    _set_place(place, begin, at, count, filled - len(out))
    return at


@kernel(readable(types.int64), writable(types.int32))
def offsets(lengths: NDArray[np.int64], out: NDArray[np.int32]) -> int:
    """Set ``out`` (int32 [n + 1]) to the offsets of values with these lengths, from 0, and return the last one.

    Returns -1 for a negative length, and if all lengths together are 2**31 or more.
    """
    total = 0
    out[0] = 0
    for i in range(len(lengths)):
        if lengths[i] < 0 or lengths[i] > 0x7FFFFFFF - total:
            return -1
        total += lengths[i]
        out[i + 1] = total
    return total


# --- timestamps ---------------------------------------------------------------------------------------------


@kernel(writable(types.int64), writable(types.int64), INTEGER)
def instants(seconds: NDArray[np.int64], nanos: NDArray[np.int64], base: int) -> bool:
    """Turn stored ``seconds`` since ``base`` and stored ``nanos`` into seconds since 1970 and nanoseconds, in place.

    Returns False if nanoseconds are a second or more.
    """
    most = 1_000_000_000
    for i in range(len(seconds)):
        number, zeros = nanos[i] >> 3, nanos[i] & 7
        if number <= -most or number >= most:
            return False
        for _ in range(zeros + 1 if zeros else 0):
            number *= 10
        if number <= -most or number >= most:
            return False
        nanos[i] = number
        second = seconds[i] + base
        seconds[i] = second - 1 if second < 0 and number > 999_999 else second
    return True


# --- decimals -----------------------------------------------------------------------------------------------


@helper
def _times_ten(upper: Any, lower: Any) -> Any:
    low = (lower & _LOW32) * np.uint64(10)
    middle = (lower >> np.uint64(32)) * np.uint64(10) + (low >> np.uint64(32))
    return upper * np.uint64(10) + (middle >> np.uint64(32)), (middle << np.uint64(32)) | (low & _LOW32)


@helper
def _tenth(upper: Any, lower: Any) -> Any:
    """Return a tenth, rounded toward zero."""
    ten = np.uint64(10)
    rest = upper % ten
    high = (rest << np.uint64(32)) | (lower >> np.uint64(32))
    low = ((high % ten) << np.uint64(32)) | (lower & _LOW32)
    return upper // ten, ((high // ten) << np.uint64(32)) | (low // ten)


@helper
def _beyond(upper: Any, lower: Any, most_upper: Any, most_lower: Any) -> Any:
    """Return whether a number of two halves is greater than another."""
    return upper > most_upper or (upper == most_upper and lower > most_lower)


@traced_pair
def _short_varint(word: Word) -> tuple[Word, Word]:
    """Return the varint that begins a word, and its length in bytes: 9 if it does not end in the word."""
    ends = (word & _TOP_BITS) ^ _TOP_BITS
    kept = word & (ends ^ (ends - 1)) & ~_TOP_BITS
    kept = kept & 0x007F007F007F007F | (kept & 0x7F007F007F007F00) >> 1
    kept = kept & 0x00003FFF00003FFF | (kept & 0x3FFF00003FFF0000) >> 2
    kept = kept & 0x000000000FFFFFFF | (kept & 0x0FFFFFFF00000000) >> 4
    return kept, (trailing_zeros(ends) >> 3) + 1


@kernel(readable(types.uint8), INTEGER, readable(types.int64), INTEGER, WORD, WORD, writable(types.uint64, 2))
def decimals(
    data: NDArray[np.uint8],
    at: int,
    scales: NDArray[np.int64],
    scale: int,
    most_upper: np.uint64,
    most_lower: np.uint64,
    out: NDArray[np.uint64],
) -> int:
    """Decode zigzag varints of up to 128 bits, value ``i`` with scale ``scales[i]``, and rescale them to ``scale``.

    ``out`` (uint64 [n, 2]) gets the lower and upper half of each in two's complement. Returns the offset after the
    last value, -1 if the data ends early, -2 if a number has more than 38 digits, or a rescaled one is beyond the
    halves ``most_upper`` and ``most_lower``.
    """
    for i in range(len(scales)):
        if at + 8 <= len(data) and scales[i] == scale:
            short, length = _short_varint(load64(data, at))
            if length <= np.uint64(8):
                if _beyond(np.uint64(0), (short >> _ONE) + (short & _ONE), most_upper, most_lower):
                    return -2
                at += np.int64(length)
                out[i, 0] = np.uint64(_unzigzag(short))
                out[i, 1] = np.uint64(_unzigzag(short) >> 63)
                continue
        lower, upper, shift = np.uint64(0), np.uint64(0), np.uint64(0)
        while True:
            if at >= len(data):
                return -1
            byte = np.uint64(data[at])
            at += 1
            part = byte & np.uint64(0x7F)
            if shift < np.uint64(64):
                lower |= part << shift
                if shift > np.uint64(57):
                    upper |= part >> (np.uint64(64) - shift)
            elif shift < np.uint64(128):
                upper |= part << (shift - np.uint64(64))
            if shift == np.uint64(126) and byte > np.uint64(3):
                return -2
            shift += np.uint64(7)
            if byte < np.uint64(128):
                break
        negative = (lower & _ONE) != 0
        lower = (lower >> _ONE) | (upper << np.uint64(63))
        upper >>= _ONE
        if negative:  # zigzag of a negative number is 2 * |x| - 1
            lower += _ONE
            if lower == 0:
                upper += _ONE
        if _beyond(upper, lower, _UPPER_OF_38, _LOWER_OF_38) or scales[i] > 38 or scales[i] < -38:
            return -2
        for _ in range(scale - scales[i]):
            upper, lower = _times_ten(upper, lower)
            if _beyond(upper, lower, _UPPER_OF_38, _LOWER_OF_38):
                return -2
        for _ in range(scales[i] - scale):
            upper, lower = _tenth(upper, lower)
        if _beyond(upper, lower, most_upper, most_lower):
            return -2
        if negative:
            lower = ~lower + _ONE
            upper = ~upper
            if lower == 0:
                upper += _ONE
        out[i, 0] = lower
        out[i, 1] = upper
    return at
