"""The loop of a theta sketch: select the hashes below the threshold."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from sidecar.kernels._jit import WORD, kernel, readable, writable


@kernel(readable(types.uint64), WORD, writable(types.uint64))
def below(hashes: NDArray[np.uint64], theta: np.uint64, out: NDArray[np.uint64]) -> int:
    """Copy every ``0 < h < theta`` to the front of ``out`` (at least as long as ``hashes``). Returns their number.

    Once the sketch is full, almost no hash passes, so the branch is predicted and the loop reads at the
    speed of memory. 0 marks empty slots in the tables of DataSketches and is never kept.
    """
    count = 0
    for i in range(len(hashes)):
        h = hashes[i]
        if h < theta and h != np.uint64(0):
            out[count] = h
            count += 1
    return count
