"""Computes the size of a split-block Bloom filter from the exact false-positive rate of its blocks.

n values fall into z blocks at random, so a block holds k of them with the Poisson probability of mean
n / z. In a block of k values, each of the 32 bits of a word is set with probability 1 - (31/32)^k. A value that was
not inserted passes if its bit is set in all eight words:

    rate(z, n) = sum over k of  Poisson(k; n / z) * (1 - (31/32)^k)^8

This gives the table of the Parquet specification ("Sizing an SBBF"). The classic formula for Bloom filters does not,
because it ignores that blocks are loaded unevenly. Sizes are powers of two, so that filters can be folded.
"""

from __future__ import annotations

import math
from functools import lru_cache

from sidecar.errors import UsageError

BLOCK_BYTES = 32
BLOCK_BITS = 256
MAX_BYTES = 128 * 1024 * 1024
"""Bytes of the largest bitset that current readers accept."""
MAX_BLOCKS = MAX_BYTES // BLOCK_BYTES
MAX_BITS_PER_VALUE = 32
"""Limit of ``fpp="auto"``, in bits: beyond it, the storage of a lower rate costs more than the reads that it saves."""
DEFAULT_FPP = 0.01
HEAVY_SHARE = 0.25
"""Filters are worth a word if they are this share of what a file has, and half of it goes at the usual rate."""


@lru_cache(maxsize=4096)
def false_positive_rate(blocks: int, distinct: int) -> float:
    """Return the probability that a value never inserted is found, with ``distinct`` values in ``blocks`` blocks."""
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


def folded_bytes(size: int, fill: float, fpp: float = DEFAULT_FPP) -> int:
    """Return the bytes of a filter of ``size`` bytes after it was halved while it kept the rate ``fpp``.

    ``fill`` is the share of its bits that are set; that of each half is taken to be the same.
    """
    while size > BLOCK_BYTES and (fill := 1 - (1 - fill) ** 2) ** 8 <= fpp:
        size //= 2
    return size


def blocks_for(distinct: int, fpp: float, *, max_bits_per_value: float | None = None) -> int:
    """Return the smallest power of two of blocks whose rate for ``distinct`` values is at most ``fpp``.

    The limits of 128 MiB and of ``max_bits_per_value`` bits for each value (at least one block) come before the rate.
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
    """Return the rate of ``fpp="auto"``: a lookup over ``units`` filters then has at most about one false positive."""
    return min(DEFAULT_FPP, 1 / max(units, 1))


def fpp_for_keys(keys: int) -> float:
    """Return a rate with which filters help a plan that looks ``keys`` values up: a tenth of a false one is expected.

    Raises :class:`UsageError` for no key.
    """
    if keys < 1:
        raise UsageError("filters are built for one key or more", found=keys)
    return float(10.0 ** -math.ceil(math.log10(10 * keys)))


def check_fpp(fpp: float) -> float:
    """Return ``fpp``. Raises :class:`UsageError` unless it is between 0 and 1, both excluded."""
    if not 0 < fpp < 1:
        raise UsageError("the false-positive rate is out of range", expected="a number between 0 and 1", found=fpp)
    return fpp
