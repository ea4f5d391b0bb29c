"""CPU time as a multiple of a fixed piece of work: machines are not equally fast, nor is one machine at all times."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def unit_of_work() -> float:
    """CPU seconds of the fixed piece of work, now: arithmetic and sorting of an array, and a loop of Python."""
    started = time.process_time()
    numbers = np.arange(1 << 20, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for _ in range(2):
        np.sort(numbers)
    sum(range(1 << 20))
    return time.process_time() - started


def cost_of(call: Callable[[], object]) -> float:
    """CPU time of a call, in units of the work that is measured right after it."""
    started = time.process_time()
    call()
    seconds = time.process_time() - started
    return seconds / unit_of_work()
