"""Two's complement numbers of many bytes: how many of them only repeat the sign."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import kernel


@kernel
def sign_bytes(rows: NDArray[np.uint8], out: NDArray[np.int64]) -> None:
    """``out[i]``: leading bytes of the big-endian number ``rows[i]`` that can go without changing its value.

    A byte can if it is 0x00 or 0xFF as the sign wants, and the byte after it has the sign bit right.
    """
    last = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        sign = 0xFF if rows[i, 0] >= 0x80 else 0x00
        at = 0
        while at < last and rows[i, at] == sign and (rows[i, at + 1] >= 0x80) == (sign == 0xFF):
            at += 1
        out[i] = at


@kernel
def plain_text(
    halves: NDArray[np.uint64],
    scale: int,
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Shortest plain ASCII of 128-bit decimals: ``-?digits[.digits]`` without trailing zeros of a fraction.

    ``halves`` (uint64 [n, 2]) holds the upper and lower half of each unscaled number in two's complement.
    Number ``i`` is written to the end of row ``i`` of ``text`` (uint8 [>= n, w], w at least ``scale`` + 4 and 42);
    ``starts`` and ``lengths`` (int64 [n]) say where it stands in the rows laid end to end.
    """
    width = text.shape[1]
    limbs = np.empty(4, np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    for i in range(len(halves)):
        upper, lower = halves[i, 0], halves[i, 1]
        negative = (upper >> np.uint64(63)) != 0
        if negative:
            lower = ~lower + np.uint64(1)
            upper = ~upper + np.uint64(lower == 0)
        limbs[0], limbs[1] = upper >> np.uint64(32), upper & low32
        limbs[2], limbs[3] = lower >> np.uint64(32), lower & low32
        at = width
        digit = 0
        started = False
        left = True
        while left or digit <= scale:  # nine digits a round, from the last
            rest = np.uint64(0)
            left = False
            for j in range(4):
                number = (rest << np.uint64(32)) | limbs[j]
                limbs[j] = number // np.uint64(1_000_000_000)
                rest = number % np.uint64(1_000_000_000)
                left = left or limbs[j] != 0
            for _ in range(9):
                value = rest % np.uint64(10)
                rest //= np.uint64(10)
                if digit == scale:
                    if started:
                        at -= 1
                        text[i, at] = 46
                    started = True
                if digit > scale and rest == 0 and value == 0 and not left:
                    break
                if started or value != 0:
                    started = True
                    at -= 1
                    text[i, at] = 48 + value
                digit += 1
        if negative:
            at -= 1
            text[i, at] = 45
        starts[i] = i * width + at
        lengths[i] = width - at
