"""Loops over decimals: redundant sign bytes of big-endian numbers, and plain text of 128-bit numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import INTEGER, helper, kernel, readable, writable

FOUR_DIGITS: NDArray[np.uint32] = (
    (np.arange(10**4)[:, None] // [1000, 100, 10, 1] % 10).astype(np.uint8).view("<u4").ravel()
)
"""The four digits of each number below 10,000, a byte each, the first digit in the lowest: uint32 [10,000]."""


@kernel(readable(types.uint8, 2), writable(types.int64))
def sign_bytes(rows: NDArray[np.uint8], out: NDArray[np.int64]) -> None:
    """Set ``out[i]`` to the number of leading bytes of the big-endian number ``rows[i]`` that only repeat its sign.

    Such a byte is 0x00 or 0xFF, as the sign requires, and the sign bit of the byte after it is the same.
    """
    last = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        sign = 0xFF if rows[i, 0] >= 0x80 else 0x00
        at = 0
        while at < last and rows[i, at] == sign and (rows[i, at + 1] >= 0x80) == (sign == 0xFF):
            at += 1
        out[i] = at


@helper
def _by_billion(upper: Any, lower: Any) -> Any:
    """Divide by a billion. Returns upper and lower half of the quotient, rounded down, and the remainder."""
    billion, low32, half = np.uint64(1_000_000_000), np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = ((upper % billion) << half) | (lower >> half)
    last = ((middle % billion) << half) | (lower & low32)
    return upper // billion, ((middle // billion) << half) | (last // billion), last % billion


@kernel(readable(types.uint64, 2), INTEGER, writable(types.uint8, 2), writable(types.int64), writable(types.int64))
def plain_text(
    words: NDArray[np.uint64],
    scale: int,
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Write 128-bit decimals as shortest plain ASCII: ``-?digits[.digits]``, without trailing zeros in the fraction.

    ``words`` (uint64 [n, 2]) has the lower and upper half of each unscaled number in two's complement.
    Number ``i`` is written to the end of row ``i`` of ``text`` (uint8 [>= n, w], w at least ``scale`` + 4 and 42).
    ``starts`` and ``lengths`` (int64 [n]) get its place in the flattened ``text``.
    """
    width = text.shape[1]
    flat = text.reshape(-1)
    ten = np.uint64(10)
    for i in range(len(words)):
        lower, upper = words[i, 0], words[i, 1]
        negative = (upper >> np.uint64(63)) != 0
        if negative:
            lower = ~lower + np.uint64(1)
            upper = ~upper + np.uint64(lower == 0)
        end = at = (i + 1) * width
        digit = 0
        started = False
        left = True
        while left:  # nine digits a round, the lowest first; the last round takes all that fits into 64 bits
            left = upper != 0
            part = lower
            if left:
                upper, lower, part = _by_billion(upper, lower)
            stop = digit + 9
            while (digit < stop) if left else (part != 0 or digit <= scale):
                value = part % ten
                part //= ten
                if digit == scale:
                    if started:
                        at -= 1
                        flat[at] = 46
                    started = True
                if started or value != 0:
                    started = True
                    at -= 1
                    flat[at] = 48 + value
                digit += 1
        if negative:
            at -= 1
            flat[at] = 45
        starts[i] = at
        lengths[i] = end - at
