"""Level histograms and index folds beside slow twins: the values unpacked one by one."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sidecar.kernels import levels
from sidecar.kernels.rle import BAD_INDEX, ENDS_EARLY, unaligned_words
from tests.kernels.orc_twins import varint


def packed_run(values: list[int], width: int) -> bytes:
    groups = -(-len(values) // 8)
    bits = sum(value << (i * width) for i, value in enumerate(values))
    return varint(groups << 1 | 1) + bits.to_bytes(groups * width, "little")


def repeated_run(value: int, times: int, width: int) -> bytes:
    return varint(times << 1) + value.to_bytes((width + 7) // 8, "little")


def random_hybrid(width: int, highest: int) -> tuple[bytes, list[int]]:
    data, values = b"", []
    for _ in range(random.randrange(1, 6)):
        if random.random() < 0.5:
            run = [random.randint(0, highest) for _ in range(8 * random.randrange(1, 6))]
            data, values = data + packed_run(run, width), values + run
        else:
            value, times = random.randint(0, highest), random.randrange(1, 50)
            data, values = data + repeated_run(value, times, width), values + [value] * times
    return data, values


def as_array(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9, 13])
def test_histogram_counts_each_level(width: int) -> None:
    random.seed(width)
    for _ in range(60):
        highest = (1 << width) - 1
        data, values = random_hybrid(width, highest)
        count = random.randint(0, len(values))
        out = np.zeros(highest + 1, np.int64)
        assert levels.histogram(as_array(data), unaligned_words(as_array(data)), 0, len(data), width, count, out) == 0
        assert {i: n for i, n in enumerate(out.tolist()) if n} == dict(Counter(values[:count]))


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_histogram_of_bit_packed_levels(width: int) -> None:
    random.seed(width)
    for count in range(40):
        values = [random.randrange(1 << width) for _ in range(count)]
        bits = "".join(f"{value:0{width}b}" for value in values)
        data = bytes(int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))
        out = np.zeros(1 << width, np.int64)
        assert levels.histogram_bit_packed(as_array(data), 0, len(data), width, count, out) == 0
        assert {i: n for i, n in enumerate(out.tolist()) if n} == dict(Counter(values))
        if data:
            short = levels.histogram_bit_packed(as_array(data), 0, len(data) - 1, width, count, out)
            assert short == ENDS_EARLY


@pytest.mark.parametrize("width", [1, 2, 4, 7, 11, 20])
def test_fold_finds_extremes_sizes_and_nan(width: int) -> None:
    random.seed(width)
    entries = min(1 << width, 500)
    ranks = np.array(random.sample(range(entries), entries), np.int64)
    sizes = np.array([random.randrange(9) for _ in range(entries)], np.int64)
    nan = np.array([random.random() < 0.2 for _ in range(entries)])
    most = np.iinfo(np.int64).max
    for _ in range(60):
        data, values = random_hybrid(width, entries - 1)
        count = random.randint(1, len(values))
        array = as_array(data)
        out = np.array([most, -1, most, -1, 0, 0], np.int64)
        tables = (ranks, sizes, nan, out)
        assert levels.fold_indices(array, unaligned_words(array), 0, len(data), width, count, *tables) == 0
        used = values[:count]
        plain = [int(ranks[i]) for i in used if not nan[i]]
        others = [int(ranks[i]) for i in used if nan[i]]
        assert out[levels.LOW] == min(plain, default=most)
        assert out[levels.HIGH] == max(plain, default=-1)
        assert out[levels.NAN_LOW] == min(others, default=most)
        assert out[levels.NAN_HIGH] == max(others, default=-1)
        assert out[levels.NAN_COUNT] == len(others)
        assert out[levels.BYTES] == sum(int(sizes[i]) for i in used)


def test_bytes_that_end_early_and_values_beyond_are_told() -> None:
    out = np.zeros(4, np.int64)
    tables = (np.arange(4), np.zeros(4, np.int64), np.zeros(4, np.bool_), np.zeros(6, np.int64))
    for data in (packed_run([0, 1, 2, 3] * 4, 2), repeated_run(3, 16, 2)):
        for end in range(len(data)):
            array = as_array(data)
            assert levels.histogram(array, unaligned_words(array), 0, end, 2, 16, out) == ENDS_EARLY
            words = unaligned_words(array)
            assert levels.fold_indices(array, words, 0, end, 2, 16, *tables) == ENDS_EARLY
    for data in (packed_run([5] * 8, 3), repeated_run(5, 8, 3)):
        array = as_array(data)
        assert levels.histogram(array, unaligned_words(array), 0, len(data), 3, 8, out) == BAD_INDEX
        words = unaligned_words(array)
        assert levels.fold_indices(array, words, 0, len(data), 3, 8, *tables) == BAD_INDEX


def test_a_run_of_any_length_takes_one_step() -> None:
    data = as_array(repeated_run(1, (1 << 31) - 1, 1))
    out = np.zeros(2, np.int64)
    assert levels.histogram(data, unaligned_words(data), 0, len(data), 1, (1 << 31) - 1, out) == 0
    assert out.tolist() == [0, (1 << 31) - 1]
