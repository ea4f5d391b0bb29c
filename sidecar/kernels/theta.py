"""The one loop of a theta sketch: which hashes lie below the threshold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidecar.kernels._jit import kernel


@kernel
def below(hashes: NDArray[np.uint64], theta: np.uint64, out: NDArray[np.uint64]) -> int:
    """Copy every ``0 < h < theta`` to the front of ``out`` (at least as long); returns how many there are.

    Once the sketch is full nearly no hash passes, so the branch is predicted and the loop reads at the
    speed of memory. 0 is the empty slot of DataSketches' tables and is never retained.
    """
    count = 0
    for i in range(len(hashes)):
        h = hashes[i]
        if h < theta and h != np.uint64(0):
            out[count] = h
            count += 1
    return count
