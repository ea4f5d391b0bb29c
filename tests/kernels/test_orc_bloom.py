"""Kernels of ORC filters beside the one-value functions that planning uses; the Java classes are their oracle."""

from __future__ import annotations

import json
import random
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from sidecar.filters.orc.bloom import positions
from sidecar.filters.orc.key_hash import hash_bytes, hash_long
from sidecar.kernels import decimals, orc_bloom
from tests.kernels.test_table import LENGTHS, spans_of

HASHES = json.loads((Path(__file__).parents[1] / "data/orc/hashes.json").read_text())["hashes"]
EDGES = [0, 1, -1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63), 1 << 40, -(1 << 40)]


def long_hashes(keys: list[int]) -> list[int]:
    out = np.full(len(keys), 0xABAD1DEA, np.uint64)
    orc_bloom.hash_longs(np.array(keys, np.int64), out)
    return [int(h) for h in out]


def bytes_hashes(keys: list[bytes]) -> list[int]:
    out = np.full(len(keys), 0xABAD1DEA, np.uint64)
    orc_bloom.hash_spans(*spans_of(keys), out)
    return [int(h) for h in out]


def test_hashes_are_those_of_the_java_classes() -> None:
    longs = [case for case in HASHES if case["key_kind"] == "long"]
    spans = [case for case in HASHES if case["key_kind"] == "bytes"]
    assert (len(longs), len(spans)) == (62, 48)
    assert long_hashes([int(c["key"]) for c in longs]) == [int(c["hash"], 16) for c in longs]
    assert bytes_hashes([bytes.fromhex(c["key"]) for c in spans]) == [int(c["hash"], 16) for c in spans]


def test_hashes_agree_with_the_twins() -> None:
    rng = random.Random(5)
    longs = EDGES + [rng.getrandbits(rng.randint(1, 63)) * rng.choice([1, -1]) for _ in range(1000)]
    assert long_hashes(longs) == list(map(hash_long, longs))
    spans = [rng.randbytes(length) for length in LENGTHS]
    assert bytes_hashes(spans) == list(map(hash_bytes, spans))
    assert long_hashes([]) == bytes_hashes([]) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=20), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_hashes_of_anything(spans: list[bytes], longs: list[int]) -> None:
    assert bytes_hashes(spans) == list(map(hash_bytes, spans))
    assert long_hashes(longs) == list(map(hash_long, longs))


@pytest.mark.parametrize(("words", "k"), [(1, 1), (1, 100), (3, 4), (150, 7), (1498, 7), (2**17 + 1, 13)])
def test_insert_and_check_agree_with_the_twin(words: int, k: int) -> None:
    rng = np.random.default_rng(words)
    edges = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64 - 2**32, 0x7FFFFFFF80000000]
    hashes = np.concatenate([np.array(edges, np.uint64), rng.integers(0, 2**64, 300, dtype=np.uint64)])
    bits: Any = np.zeros(words, np.uint64)
    orc_bloom.insert(bits, k, hashes)
    expected = {p for h in hashes.tolist() for p in positions(h, k, words * 64)}
    assert set(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()) == expected
    asked = np.concatenate([hashes, rng.integers(0, 2**64, 500, dtype=np.uint64)])
    out = np.zeros(len(asked), np.bool_)
    orc_bloom.check(bits, k, asked, out)
    assert out.tolist() == [expected.issuperset(positions(h, k, words * 64)) for h in asked.tolist()]


def test_hashes_of_several_groups_go_into_their_own_filters() -> None:
    rng = np.random.default_rng(2)
    counts = np.array([700, 0, 1, 2000, 512])
    hashes = np.repeat(rng.integers(0, 2**64, counts.sum() // 3 + 1, dtype=np.uint64), 3)[: counts.sum()]
    table: Any = np.zeros((6, 150), np.uint64)
    orc_bloom.insert_groups(table[:5], 7, hashes, counts)
    for i, part in enumerate(np.split(hashes, counts.cumsum())):
        alone: Any = np.zeros(150, np.uint64)
        orc_bloom.insert(alone, 7, part)
        assert (table[i] == alone).all(), i


def test_kernels_that_call_kernels_can_be_compiled_after_them() -> None:
    """A loaded kernel is not compiled for other arrays, such as new ones inside the kernel that calls it."""
    for called in (decimals.plain_text, orc_bloom.hash_spans, orc_bloom.insert):
        called.load()  # type: ignore[attr-defined]
    for calling in (orc_bloom.hash_decimals, orc_bloom.insert_groups):
        kernel: Any = calling
        njit(nogil=True)(kernel.dispatcher.py_func).compile(kernel._arguments)


@pytest.mark.parametrize("words", [1, 3, 15, 16, 150, 1498, 2**17 + 1])
def test_positions_are_right_beside_every_multiple_of_the_size(words: int) -> None:
    """There a quotient that is rounded is off by one; 16 words are the least whose quotients are in float."""
    bits = words * 64
    multiples = np.arange(0, 2**31 - 1, bits * max(1, 2**31 // bits // 100_000), dtype=np.uint64)
    multiples = np.concatenate([multiples, np.arange(0, 2**31 - 1, bits, dtype=np.uint64)[-1000:]])
    for rest in (0, 1, bits - 1):
        found: Any = np.zeros(words, np.uint64)
        sums = multiples + np.uint64(rest)
        orc_bloom.insert(found, 1, sums[sums < 2**31])
        set_bits = np.flatnonzero(np.unpackbits(found.view(np.uint8), bitorder="little"))
        assert set_bits.tolist() == [rest]


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 4, 5, 8, 9, 10, 17, 18, 19, 37, 38])
def test_decimals_are_hashed_as_python_writes_them(scale: int) -> None:
    numbers = {s * (10**e) + d for e in range(39) for s in (1, -1) for d in (-1, 0, 1, 5)}
    numbers |= {s * 2**e for e in range(127) for s in (1, -1)} | {1 - 10**38, 10**38 - 1, 0}
    rng = random.Random(scale)  # numbers of few digits before and after the point, around a whole number
    numbers |= {
        rng.choice([1, -1]) * (rng.randrange(10 ** rng.randint(1, 9)) * 10**scale + rng.randrange(-3, 4) * 10**zeros)
        for _ in range(300)
        for zeros in range(min(scale, 4) + 1)
    }
    ordered = sorted(n for n in numbers if abs(n) < 2**127)
    words = np.array([[n & 2**64 - 1, n >> 64 & 2**64 - 1] for n in ordered], np.uint64)
    out = np.full(len(ordered), 0xABAD1DEA, np.uint64)
    text, starts, lengths = np.empty((100, 48), np.uint8), np.empty(100, np.int64), np.empty(100, np.int64)
    orc_bloom.hash_decimals(words, scale, decimals.FOUR_DIGITS, text, starts, lengths, out)
    with localcontext() as context:
        context.prec = 80
        for number, found in zip(ordered, out.tolist(), strict=True):
            plain = f"{Decimal(number).scaleb(-scale):f}"
            shortest = plain.rstrip("0").rstrip(".") if "." in plain else plain
            assert found == hash_bytes(("0" if shortest in ("-0", "") else shortest).encode()), plain
