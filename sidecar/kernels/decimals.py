"""Decimals: redundant sign bytes of big-endian numbers, and plain text of 128-bit numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import helper, kernel, readable, writable

LONGEST_TEXT = 48
"""Bytes in which the text of every 128-bit decimal of a scale up to 38 has room."""

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


@helper
def plain_text(lower: Any, upper: Any, negative: Any, scale: int, text: NDArray[np.uint8]) -> int:
    """Write a decimal as shortest plain ASCII: ``-?digits[.digits]``, without trailing zeros in the fraction.

    ``lower`` and ``upper`` are the halves of the unscaled number without its sign. The text is at the end of ``text``
    (uint8 [:data:`LONGEST_TEXT`]). Returns where it begins.
    """
    ten = np.uint64(10)
    at = len(text)
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
                    text[at] = 46
                started = True
            if started or value != 0:
                started = True
                at -= 1
                text[at] = 48 + value
            digit += 1
    if negative:
        at -= 1
        text[at] = 45
    return at
