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
