"""Predicts the size and the false-positive rate of the split-block filter that a build makes of so many values.

A build makes the filter for the number of values, and halves it while the rate that its bits show is at most the
target. Near the target the bits decide by chance. In a filter of z blocks a block has k values (Poisson), and a word of
k values has the share f of its 32 bits set, with the moments

    mean of f    1 - a                                a = (31/32)^k
    mean of f^2  1 - 2 a + a/32 + (31/32) (30/32)^k

The rate that the bits show is the mean over the blocks of the product of f over eight words. Its variance follows, and
the part that comes with the number of values is taken out, because that number is fixed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sidecar.filters.sizing import BLOCK_BYTES, blocks_for, false_positive_rate


class ExpectedFilter(NamedTuple):
    """The mean size in bytes of a filter, and its mean false-positive rate."""

    size: float
    rate: float


@lru_cache(maxsize=4096)
def expected_filter(values: int, distinct: int, fpp: float, max_bits: float | None) -> ExpectedFilter:
    """Return what a build makes of ``values`` values, ``distinct`` of them different.

    ``fpp`` is the target rate, ``max_bits`` the most bits per value (``None`` for no limit).
    """
    blocks = blocks_for(values, fpp, max_bits_per_value=max_bits)
    size = rate = 0.0
    likely = 1.0  # that the build comes to this size
    while likely > 1e-6:
        halved = _chance_to_halve(blocks // 2, distinct, fpp) if blocks > 1 else 0.0
        size += likely * (1 - halved) * blocks * BLOCK_BYTES
        rate += likely * (1 - halved) * false_positive_rate(blocks, distinct)
        likely *= halved
        blocks //= 2
    return ExpectedFilter(size, rate)


def _chance_to_halve(blocks: int, distinct: int, fpp: float) -> float:
    """Return the chance that the bits of a filter of this size show at most the target rate."""
    mean = false_positive_rate(blocks, distinct)
    deviation = _deviation(distinct / blocks) / math.sqrt(blocks)
    if not deviation:
        return float(mean <= fpp)
    return 0.5 * math.erfc((mean - fpp) / deviation / math.sqrt(2))


def _deviation(load: float) -> float:
    """Return the standard deviation of the rate of one block among blocks of ``load`` values on average."""
    if not 0 < load < 2_000:
        return 0.0
    spread = 12 * math.sqrt(load) + 12
    k = np.arange(max(0, int(load - spread)), int(load + spread) + 1)
    chance = np.exp(k * math.log(load) - load - np.array([math.lgamma(n + 1) for n in k.tolist()]))
    unset = (31 / 32) ** k
    rate = (1 - unset) ** 8
    square = np.maximum(1 - 2 * unset + unset / 32 + 31 / 32 * (30 / 32) ** k, 0) ** 8
    mean = float((chance * rate).sum())
    with_count = float((chance * rate * (k - load)).sum()) ** 2 / load
    return math.sqrt(max(float((chance * square).sum()) - mean**2 - with_count, 0.0))
