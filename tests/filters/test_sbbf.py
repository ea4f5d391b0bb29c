"""Split-block filters: the three lemmas by name, bytes, bounds, and no false negative by any way of making one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sidecar.bundle.filters.slicing import widen_range
from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import MAX_BLOCKS

HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=60).map(lambda v: np.array(v, np.uint64))
SIZES = st.integers(1, 40)
FACTORS = st.integers(1, 9)


def random_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)


def made(hashes: np.ndarray, z: int) -> SplitBlockBloomFilter:
    return SplitBlockBloomFilter.from_hashes(hashes, z)


# --- lemmas -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(HASHES, SIZES, FACTORS)
def test_lemma_fold(hashes: np.ndarray, z: int, factor: int) -> None:
    assert made(hashes, z * factor).fold(z) == made(hashes, z)


@settings(deadline=None)
@given(HASHES, HASHES, SIZES, FACTORS)
def test_lemma_widen(hashes: np.ndarray, others: np.ndarray, z: int, factor: int) -> None:
    narrow = made(hashes, z)
    wide = SplitBlockBloomFilter(widen_range(narrow.blocks, z * factor, 0, z * factor))
    asked = np.concatenate([hashes, others, random_hashes(200)])
    assert wide.check(asked).tolist() == narrow.check(asked).tolist()
    assert wide.fold(z) == narrow


@settings(deadline=None)
@given(HASHES, HASHES, SIZES, FACTORS)
def test_lemma_merge(left: np.ndarray, right: np.ndarray, z: int, factor: int) -> None:
    both = np.concatenate([left, right])
    assert made(left, z).merge(made(right, z)) == made(both, z)
    assert made(left, z * factor).merge(made(right, z)) == made(both, z)
    assert made(left, z).merge(made(right, z * factor)) == made(both, z)


@pytest.mark.parametrize(("small", "large"), [(64, 80), (96, 112), (3, 4), (31, 32)])
def test_other_factors_are_refused(small: int, large: int) -> None:
    with pytest.raises(UsageError, match="integer factor"):
        widen_range(made(random_hashes(10), small).blocks, large, 0, large)
    with pytest.raises(UsageError, match="integer factor"):
        made(random_hashes(10), large).fold(small)
    with pytest.raises(UsageError, match="do not merge"):
        made(random_hashes(10), large).merge(made(random_hashes(10), small))


def test_other_factors_would_deny_values() -> None:
    """Why 64 to 80 is refused: block i of 80 taken from block i * 64 // 80 loses a good part of the values."""
    hashes = random_hashes(2000)
    narrow = made(hashes, 64)
    wrong = SplitBlockBloomFilter(narrow.blocks[np.arange(80) * 64 // 80])
    assert 0.1 < 1 - wrong.check(hashes).mean() < 0.5


@pytest.mark.parametrize("to", [0, -1, -64])
def test_sizes_below_one_are_refused(to: int) -> None:
    with pytest.raises(UsageError):
        made(random_hashes(1), 64).fold(to)


# --- folding to a rate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fpp", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("distinct", [1, 50, 3000])
def test_fold_to_finds_the_smallest_size(distinct: int, fpp: float) -> None:
    hashes = random_hashes(distinct)
    folded = made(hashes, 4096).fold_to(fpp)
    assert folded.estimated_fpp() <= fpp
    assert folded.z == 1 or folded.fold(folded.z // 2).estimated_fpp() > fpp
    assert folded == made(hashes, folded.z)


def test_fold_to_leaves_what_cannot_be_folded() -> None:
    full = made(random_hashes(5000), 4)
    assert full.fold_to(0.01) is full
    odd = made(random_hashes(1), 31)
    assert odd.fold_to(0.5) is odd
    tailed = SplitBlockBloomFilter.from_bytes(bytes(1000))
    assert tailed.fold_to(0.5) is tailed
    tailed = SplitBlockBloomFilter.from_bytes(bytes(1024 + 8))
    assert tailed.fold_to(0.5) is tailed, "32 blocks fold, but the odd bytes behind them would be lost"
    assert SplitBlockBloomFilter.empty(64).fold_to(0.01).z == 1
    assert made(random_hashes(1), 96).fold_to(0.5).z == 3


def test_arrow_values_are_built_large_and_folded() -> None:
    encoding = Encoding.parse("int64")
    few = pa.array(np.arange(100_000) % 50)
    many = pa.array(np.arange(100_000))
    assert SplitBlockBloomFilter.from_arrow(few, encoding).z in (2, 4)
    assert SplitBlockBloomFilter.from_arrow(many, encoding).z == 8192
    assert SplitBlockBloomFilter.from_arrow(many, encoding, 0.1).z == 4096
    assert SplitBlockBloomFilter.from_arrow(many, encoding, ndv=1000).z == 64
    assert SplitBlockBloomFilter.from_arrow(many.slice(0, 0), encoding).z == 1


def test_strict_mode_adds_no_twins() -> None:
    values, encoding = pa.array([0.0, 1.0]), Encoding.parse("double")
    minus = xxh64_intdigest(b"\0" * 7 + b"\x80")
    assert SplitBlockBloomFilter.from_arrow(values, encoding, 1e-6).might_contain_hash(minus)
    assert not SplitBlockBloomFilter.from_arrow(values, encoding, 1e-6, strict=True).might_contain_hash(minus)


# --- asking -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(HASHES, HASHES, SIZES)
def test_one_hash_and_many_get_the_same_answer(hashes: np.ndarray, others: np.ndarray, z: int) -> None:
    found = made(hashes, z)
    asked = np.concatenate([hashes, others])
    assert [found.might_contain_hash(h) for h in asked.tolist()] == found.check(asked).tolist()
    assert all(found.might_contain_hash(h) for h in hashes.tolist())


def test_long_inputs_cross_every_chunk() -> None:
    hashes = random_hashes(50_001)
    found = made(hashes, 2048)
    piecewise = SplitBlockBloomFilter.empty(2048)
    for part in np.array_split(hashes, 7):
        piecewise.insert(part)
    assert found == piecewise
    assert found.check(hashes).all()
    assert found.check(random_hashes(10_000, 1)).mean() < 0.05


def test_hashes_may_be_strided_and_read_only() -> None:
    hashes = random_hashes(1000)
    strided = np.ascontiguousarray(np.stack([hashes, hashes], axis=1))[:, 0]
    frozen = hashes.copy()
    frozen.setflags(write=False)
    assert made(strided, 16) == made(frozen, 16) == made(hashes, 16)
    assert made(hashes, 16).check(strided).all()
    assert made(hashes, 16).check(frozen).all()


# --- bytes --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=400))
def test_bytes_come_back_whatever_their_number(bitset: bytes) -> None:
    found = SplitBlockBloomFilter.from_bytes(bitset)
    assert found.to_bytes() == bitset
    assert (found.z, len(found.tail)) == divmod(len(bitset), 32)
    assert found.num_bytes == len(bitset)


def test_bitsets_are_little_endian_words() -> None:
    assert SplitBlockBloomFilter.from_bytes(bytes(range(32))).blocks[0, 0] == 0x03020100


@pytest.mark.parametrize("length", [0, 1, 31, (128 << 20) + 1])
def test_impossible_sizes_are_damage(length: int) -> None:
    with pytest.raises(DamagedFileError, match="impossible size") as caught:
        SplitBlockBloomFilter.from_bytes(memoryview(bytes(length)), "f.parquet")
    assert (caught.value.file, caught.value.found) == ("f.parquet", length)


def test_inserting_leaves_the_source_of_bytes_alone() -> None:
    bitset = bytes(64)
    found = SplitBlockBloomFilter.from_bytes(bitset)
    found.insert(random_hashes(10))
    assert bitset == bytes(64)
    shared = SplitBlockBloomFilter(np.frombuffer(bitset, np.uint32).reshape(2, 8))
    shared.insert(random_hashes(10))
    assert bitset == bytes(64)
    assert shared == found


@pytest.mark.parametrize(
    "blocks",
    [
        np.zeros((0, 8), np.uint32),
        np.zeros((2, 7), np.uint32),
        np.zeros(8, np.uint32),
        np.zeros((1, 8), np.int32),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused(blocks: np.ndarray) -> None:
    with pytest.raises(UsageError):
        SplitBlockBloomFilter(blocks)


@pytest.mark.parametrize("z", [0, -1, MAX_BLOCKS + 1])
def test_wrong_sizes_are_refused(z: int) -> None:
    with pytest.raises(UsageError):
        SplitBlockBloomFilter.empty(z)


def test_fill_and_rate_of_extremes() -> None:
    nothing, everything = (
        SplitBlockBloomFilter.empty(3),
        SplitBlockBloomFilter(np.full((3, 8), -1, np.int64).astype(np.uint32)),
    )
    assert (nothing.fill(), nothing.estimated_fpp()) == (0, 0)
    assert (everything.fill(), everything.estimated_fpp()) == (1, 1)
    half = np.zeros((2, 8), np.uint32)
    half[0] = 0xFFFFFFFF
    assert (SplitBlockBloomFilter(half).fill(), SplitBlockBloomFilter(half).estimated_fpp()) == (0.5, 0.5)
