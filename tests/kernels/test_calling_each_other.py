"""Kernels that call each other give the same answers, whichever of them is called first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core.caching import NullCache

from sidecar.kernels import _jit
from sidecar.kernels._jit import Kernel, readable, writable


def _pair() -> tuple[Kernel, Kernel]:
    """Two kernels that are not compiled: one adds numbers up, the other calls it with memory that it may write."""

    def add_up(numbers: Any) -> Any:
        total = 0
        for number in numbers:
            total += number
        return total

    inner = Kernel(add_up, (readable(types.int64),))

    def set_and_add_up(numbers: Any) -> Any:
        numbers[0] = 1
        return inner(numbers)

    outer = Kernel(set_and_add_up, (writable(types.int64),))
    for one in (inner, outer):
        one.dispatcher._cache = NullCache()  # so that both are compiled
    return inner, outer


@pytest.mark.parametrize("first", [0, 1])
def test_either_may_be_the_first(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(_jit, "KERNELS", [])
    pair = _pair()
    numbers = np.array([0, 2, 3])
    pair[first](numbers)
    numbers[0] = 0
    assert [one(numbers) for one in pair] == [5, 6]
    assert [len(one.dispatcher.signatures) for one in pair] == [1, 1]
