"""Rates and sizes: the published table and example of the Parquet specification, computed and measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sidecar.errors import UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import MAX_BLOCKS, auto_fpp, blocks_for, false_positive_rate

TABLE = [(6.0, 0.10), (10.5, 0.01), (16.9, 0.001), (26.4, 0.0001), (41.0, 0.00001)]
EXAMPLE = [(13_107, 0.0004), (26_214, 0.0126), (52_428, 0.18)]


@pytest.mark.parametrize(("bits", "rate"), TABLE)
def test_published_table_is_computed(bits: float, rate: float) -> None:
    blocks = 1 << 14
    assert false_positive_rate(blocks, round(blocks * 256 / bits)) == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize(("distinct", "rate"), EXAMPLE)
def test_published_example_is_computed(distinct: int, rate: float) -> None:
    assert false_positive_rate(1024, distinct) == pytest.approx(rate, rel=0.06)


def random_hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)


def measured(blocks: int, distinct: int, asked: int, filters: int) -> tuple[int, int]:
    """Found among values that were never inserted, over several filters of different values."""
    found = 0
    for seed in range(filters):
        made = SplitBlockBloomFilter.from_hashes(random_hashes(distinct, 2 * seed), blocks)
        found += int(np.count_nonzero(made.check(random_hashes(asked, 2 * seed + 1))))
    return found, asked * filters


CASES = [(4096, round(4096 * 256 / bits)) for bits, _ in TABLE] + [(1024, distinct) for distinct, _ in EXAMPLE]


@pytest.mark.parametrize(("blocks", "distinct"), CASES)
def test_computed_rates_are_measured(blocks: int, distinct: int) -> None:
    """Within five standard deviations of the sample, and of the spread between filters."""
    rate = false_positive_rate(blocks, distinct)
    found, asked = measured(blocks, distinct, 500_000, 4)
    error = 5 * math.sqrt(asked * rate * (1 - rate)) + asked * rate * 0.02
    assert abs(found - asked * rate) < error


@pytest.mark.parametrize(("blocks", "distinct"), CASES)
def test_bits_show_their_own_rate(blocks: int, distinct: int) -> None:
    made = SplitBlockBloomFilter.from_hashes(random_hashes(distinct, 7), blocks)
    assert made.estimated_fpp() == pytest.approx(false_positive_rate(blocks, distinct), rel=0.1)


@pytest.mark.parametrize("load", [0.001, 0.5, 1, 6, 40, 300, 1999, 2001, 10_000])
def test_rate_is_the_exact_mixture(load: float) -> None:
    """Beside a closed form of the same sum: E[(1 - q^K)^8] of a Poisson K by the binomial theorem."""
    blocks = 1000
    closed = sum(math.comb(8, j) * (-1) ** j * math.exp(-load * (1 - (31 / 32) ** j)) for j in range(9))
    assert false_positive_rate(blocks, round(load * blocks)) == pytest.approx(closed, rel=1e-3, abs=1e-12)


def test_rate_at_the_edges() -> None:
    assert false_positive_rate(1, 0) == 0
    assert 0 < false_positive_rate(1, 1) < 1e-8
    assert false_positive_rate(1, 10**9) == 1
    rates = [false_positive_rate(64, n) for n in range(0, 40_000, 500)]
    assert rates == sorted(rates)


@pytest.mark.parametrize("distinct", [1, 13, 100, 20_000, 1_000_000])
@pytest.mark.parametrize("fpp", [0.5, 0.1, 0.01, 0.001, 1e-5])
def test_blocks_are_the_smallest_power_of_two_that_meets_the_target(distinct: int, fpp: float) -> None:
    blocks = blocks_for(distinct, fpp)
    assert blocks & (blocks - 1) == 0
    assert false_positive_rate(blocks, distinct) <= fpp
    assert blocks == 1 or false_positive_rate(blocks // 2, distinct) > fpp


def test_blocks_are_bounded() -> None:
    assert blocks_for(0, 0.01) == 1
    assert blocks_for(10**12, 0.01) == MAX_BLOCKS == 1 << 22
    assert blocks_for(1024, 1e-9, max_bits_per_value=32) == 128
    assert blocks_for(1, 1e-9, max_bits_per_value=32) == 1
    assert blocks_for(1024, 0.5, max_bits_per_value=32) == blocks_for(1024, 0.5)


@pytest.mark.parametrize("fpp", [0, 1, -1, 2, math.nan])
def test_rates_out_of_range_are_refused(fpp: float) -> None:
    with pytest.raises(UsageError):
        blocks_for(10, fpp)
    with pytest.raises(UsageError):
        SplitBlockBloomFilter.empty(4).fold_to(fpp)


def test_automatic_target_finds_about_one_false_unit() -> None:
    assert auto_fpp(0) == auto_fpp(1) == auto_fpp(100) == 0.01
    assert auto_fpp(658) == 1 / 658
