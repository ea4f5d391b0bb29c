"""How large a split-block Bloom filter must be: the exact rate of its block loads, not the classic formula.

n values fall into z blocks at random, so a block holds k of them with the Poisson probability of mean
n / z. A block of k values has set each of the 32 bits of a word with probability 1 - (31/32)^k, and a value
that is not there passes if its bit is set in all eight words:

    rate(z, n) = sum over k of  Poisson(k; n / z) * (1 - (31/32)^k)^8

This reproduces the table of the Parquet specification ("Sizing an SBBF"); the classic formula does not, as
it leaves the spread of the loads out. Sizes are powers of two, so that filters fold.
"""

from __future__ import annotations

import math
from functools import lru_cache

from sidecar.errors import UsageError

BLOCK_BYTES = 32
BLOCK_BITS = 256
MAX_BYTES = 128 * 1024 * 1024
"""Largest bitset that the readers in use accept."""
MAX_BLOCKS = MAX_BYTES // BLOCK_BYTES
MAX_BITS_PER_VALUE = 32
"""Limit of ``fpp="auto"``: beyond it a lower rate costs more storage than it saves reads."""
DEFAULT_FPP = 0.01


@lru_cache(maxsize=4096)
def false_positive_rate(blocks: int, distinct: int) -> float:
    """Probability that a value never inserted is found, with ``distinct`` values in ``blocks`` blocks."""
    if distinct <= 0:
        return 0.0
    load = distinct / blocks
    if load > 2_000:
        return 1.0 if load > 5_000 else (1 - (31 / 32) ** load) ** 8
    spread = 12 * math.sqrt(load) + 12
    rate = 0.0
    for k in range(max(0, int(load - spread)), int(load + spread) + 1):
        poisson = math.exp(k * math.log(load) - load - math.lgamma(k + 1))
        rate += float(poisson * (1 - (31 / 32) ** k) ** 8)
    return min(rate, 1.0)


def blocks_for(distinct: int, fpp: float, *, max_bits_per_value: float | None = None) -> int:
    """Smallest power of two of blocks whose rate for ``distinct`` values is at most ``fpp``.

    Never more than 128 MiB; with ``max_bits_per_value`` never more than that many bits for each value
    (but one block at least), whatever the rate then is.
    """
    check_fpp(fpp)
    most = MAX_BLOCKS
    if max_bits_per_value is not None:
        most = max(1, min(most, int(distinct * max_bits_per_value) // BLOCK_BITS))
    blocks = 1
    while blocks * 2 <= most and false_positive_rate(blocks, distinct) > fpp:
        blocks *= 2
    return blocks


def auto_fpp(units: int) -> float:
    """The target of ``fpp="auto"``: a lookup over ``units`` filters finds about one false unit at most."""
    return min(DEFAULT_FPP, 1 / max(units, 1))


def check_fpp(fpp: float) -> float:
    """``fpp`` itself, or :class:`UsageError` unless it lies between 0 and 1."""
    if not 0 < fpp < 1:
        raise UsageError("a false-positive rate lies between 0 and 1", found=fpp)
    return fpp
