"""Theta sketches: what is retained, unions, bounds, and bytes that DataSketches reads and writes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.theta import MAX_THETA, ThetaSketch

datasketches = pytest.importorskip("datasketches", reason="datasketches has no wheel for this Python")

K = 4096


def hashes_of(first: int, count: int) -> np.ndarray:
    return theta_hashes(pa.array(np.arange(first, first + count)), "long")


def sketch_of(first: int, count: int, lg_k: int = 12) -> ThetaSketch:
    return ThetaSketch.from_arrow(pa.array(np.arange(first, first + count)), "long", lg_k)


def theirs(first: int, count: int, lg_k: int = 12) -> datasketches.update_theta_sketch:
    sketch = datasketches.update_theta_sketch(lg_k)
    for value in range(first, first + count):
        sketch.update(value)
    return sketch


# --- what is retained ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 100, K - 1, K, K + 1, 2 * K, 300_000])
def test_retained_are_the_smallest_hashes_below_theta(count: int) -> None:
    sketch, every = sketch_of(0, count), np.unique(hashes_of(0, count))
    assert sketch.retained.tolist() == every[every < sketch.theta].tolist() == every[:K].tolist()
    assert sketch.is_exact == (count <= K)
    assert sketch.theta == (MAX_THETA if count <= K else every[K])


@pytest.mark.parametrize("lg_k", [7, 10, 12, 16])
def test_lg_k_bounds_what_is_retained(lg_k: int) -> None:
    assert len(sketch_of(0, 200_000, lg_k).retained) == 1 << lg_k
    assert abs(sketch_of(0, 200_000, lg_k).estimate / 200_000 - 1) < 5 / 2 ** (lg_k / 2)


@pytest.mark.parametrize("lg_k", [0, 6, 21, 64, -1])
def test_lg_k_out_of_range_is_refused(lg_k: int) -> None:
    with pytest.raises(UsageError, match="lg_k"):
        ThetaSketch(lg_k)


def test_order_repeats_and_portions_change_nothing() -> None:
    hashes = hashes_of(0, 50_000)
    shuffled = np.random.default_rng(1).permutation(np.concatenate([hashes, hashes]))
    portions = ThetaSketch()
    for part in np.array_split(shuffled, 31):
        portions.update(part)
    whole = sketch_of(0, 50_000)
    assert portions.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("lg_k", [7, 12])
@pytest.mark.parametrize("distinct", [1, 3, 100, 5_000, 60_000])
@pytest.mark.parametrize("order", ["shuffled", "ascending", "descending", "sampled are the largest", "zeros between"])
def test_samples_that_mislead_change_nothing(order: str, distinct: int, lg_k: int) -> None:
    hashes = np.resize(np.random.default_rng(distinct).permutation(hashes_of(0, distinct)), 80_000)
    if order in ("ascending", "descending"):
        hashes = np.sort(hashes)[:: 1 if order == "ascending" else -1]
    elif order == "sampled are the largest":
        hashes = np.append(hashes.reshape(16, -1).max(0, keepdims=True), hashes.reshape(16, -1)[1:], axis=0).T.ravel()
    elif order == "zeros between":
        hashes[::16] = 0
    sketch, every = ThetaSketch(lg_k), np.unique(hashes[hashes > 0])
    sketch.update(hashes)
    k = 1 << lg_k
    assert sketch.retained.tolist() == every[:k].tolist()
    assert sketch.theta == (every[k] if len(every) > k else MAX_THETA)


def test_zero_is_no_hash() -> None:
    sketch = ThetaSketch()
    sketch.update(np.array([0, 5], np.uint64))
    assert sketch.retained.tolist() == [5]


# --- unions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(0, 0), (10, 0), (10, 20), (3000, 3000), (100, 50_000), (50_000, 70_000)])
def test_union_equals_datasketches_union(counts: tuple[int, int]) -> None:
    left, right = counts
    union = ThetaSketch.union([sketch_of(0, left), sketch_of(right // 2, right)])
    oracle = datasketches.theta_union(12)
    oracle.update(datasketches.compact_theta_sketch.deserialize(sketch_of(0, left).to_bytes()))
    oracle.update(datasketches.compact_theta_sketch.deserialize(sketch_of(right // 2, right).to_bytes()))
    result = oracle.get_result()
    assert len(union.retained) <= K
    limit = min(union.theta, result.theta64)
    assert [h for h in union.retained.tolist() if h < limit] == sorted(h for h in result if h < limit)
    assert union.estimate == pytest.approx(result.get_estimate(), rel=0.05)


def test_union_of_parts_is_the_sketch_of_all() -> None:
    parts = [sketch_of(at, 1000) for at in range(0, 20_000, 1000)]
    union, whole = ThetaSketch.union(parts), sketch_of(0, 20_000)
    assert union.to_bytes() == whole.to_bytes()


def test_union_of_nothing_is_empty() -> None:
    assert ThetaSketch.union([]).to_bytes() == ThetaSketch().to_bytes()


def test_union_respects_the_smallest_theta() -> None:
    small, large = sketch_of(0, 100_000, 10), sketch_of(50_000, 100_000)
    every = np.unique(np.concatenate([hashes_of(0, 100_000), hashes_of(50_000, 100_000)]))
    for order in ([small, large], [large, small], [ThetaSketch(), large, small]):
        union = ThetaSketch.union(order)
        assert union.theta <= min(small.theta, large.theta)
        assert union.retained.tolist() == every[every < union.theta].tolist()


# --- estimates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 4096, 5000, 100_000, 1_000_000])
def test_estimates_and_bounds_are_those_of_datasketches(count: int) -> None:
    sketch = sketch_of(0, count)
    oracle = datasketches.compact_theta_sketch.deserialize(sketch.to_bytes())
    assert sketch.estimate == pytest.approx(oracle.get_estimate(), rel=1e-12)
    assert sketch.ndv == int(oracle.get_estimate())
    for n_std in (1, 2, 3):
        assert sketch.lower_bound(n_std) == pytest.approx(oracle.get_lower_bound(n_std), rel=1e-9)
        assert sketch.upper_bound(n_std) == pytest.approx(oracle.get_upper_bound(n_std), rel=1e-9)


def test_true_counts_lie_within_the_bounds() -> None:
    """Three standard deviations: 997 of 1000; of 60 sketches at most one may miss."""
    misses = 0
    for seed in range(60):
        count = 5000 + 1777 * seed
        sketch = sketch_of(seed << 40, count)
        misses += not sketch.lower_bound(3) <= count <= sketch.upper_bound(3)
        assert sketch.lower_bound(1) <= sketch.estimate <= sketch.upper_bound(1)
    assert misses <= 1


@pytest.mark.parametrize("n_std", [0, 4, -1])
def test_other_deviations_are_refused(n_std: int) -> None:
    with pytest.raises(UsageError):
        sketch_of(0, 10_000).lower_bound(n_std)


# --- bytes --------------------------------------------------------------------------------------------------


def test_layout_of_an_empty_sketch() -> None:
    assert ThetaSketch().to_bytes() == bytes.fromhex("01 03 03 00 00 1e 00 00")


def test_layout_of_a_single_value() -> None:
    (only,) = sketch_of(7, 1).retained.tolist()
    assert sketch_of(7, 1).to_bytes() == bytes.fromhex("01 03 03 00 00 3a cc 93") + struct.pack("<Q", only)


def test_layout_of_an_exact_sketch() -> None:
    sketch = sketch_of(0, 3)
    head = bytes.fromhex("02 03 03 00 00 1a cc 93 03 00 00 00 00 00 80 3f")
    assert sketch.to_bytes() == head + struct.pack("<3Q", *sketch.retained.tolist())


def test_layout_of_an_estimating_sketch() -> None:
    sketch = sketch_of(0, 10_000)
    head = bytes.fromhex("03 03 03 00 00 1a cc 93 00 10 00 00 00 00 80 3f")
    assert sketch.to_bytes()[:24] == head + struct.pack("<Q", sketch.theta)
    assert len(sketch.to_bytes()) == 24 + 8 * K


@pytest.mark.parametrize("count", [0, 1, 2, 4096, 4097, 50_000])
def test_datasketches_reads_our_bytes(count: int) -> None:
    sketch = sketch_of(0, count)
    oracle = datasketches.compact_theta_sketch.deserialize(sketch.to_bytes())
    assert list(oracle) == sketch.retained.tolist()
    assert oracle.is_empty() == (count == 0)
    assert oracle.is_ordered()
    assert oracle.theta64 == sketch.theta


@pytest.mark.parametrize("count", [0, 1, 2, 4096, 5000, 50_000])
@pytest.mark.parametrize("ordered", [True, False])
def test_bytes_of_datasketches_are_read(count: int, ordered: bool) -> None:
    oracle = theirs(0, count).compact(ordered)
    sketch = ThetaSketch.from_bytes(oracle.serialize(), 13)
    assert sketch.retained.tolist() == sorted(oracle)
    assert sketch.estimate == pytest.approx(oracle.get_estimate(), rel=1e-12)
    whole = sketch_of(0, count)
    limit = min(whole.theta, sketch.theta)
    assert [h for h in whole.retained.tolist() if h < limit] == sorted(h for h in oracle if h < limit)
    assert len(ThetaSketch.from_bytes(oracle.serialize()).retained) <= K


@pytest.mark.parametrize("count", [0, 1, 2, 4097])
def test_bytes_come_back(count: int) -> None:
    data = sketch_of(0, count).to_bytes()
    assert ThetaSketch.from_bytes(data).to_bytes() == data


def test_nothing_below_a_small_theta_is_no_empty_sketch() -> None:
    sketch = ThetaSketch()
    sketch.theta = 1000
    assert ThetaSketch.from_bytes(sketch.to_bytes()).theta == 1000
    assert not datasketches.compact_theta_sketch.deserialize(sketch.to_bytes()).is_empty()


UNKNOWN = {
    "serial version 4": (1, 4),
    "serial version 2": (1, 2),
    "another family": (2, 2),
    "big-endian": (5, 0x1B),
    "not compact": (5, 0x12),
    "another seed": (6, 0xCD),
    "preamble of 4": (0, 4),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_other_forms_are_not_supported(what: str) -> None:
    data = bytearray(sketch_of(0, 10).to_bytes())
    at, value = UNKNOWN[what]
    data[at] = value
    with pytest.raises(UnsupportedFeatureError) as caught:
        ThetaSketch.from_bytes(bytes(data), name="t.stats")
    assert caught.value.file == "t.stats"


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing": lambda exact, estimating: b"",
    "seven bytes": lambda exact, estimating: exact[:7],
    "no count": lambda exact, estimating: exact[:12],
    "one hash less": lambda exact, estimating: exact[:-8],
    "half a hash": lambda exact, estimating: exact[:-4],
    "one hash more": lambda exact, estimating: exact + bytes(8),
    "a count of four thousand million": lambda exact, estimating: exact[:8] + b"\xff" * 4 + exact[12:],
    "no theta": lambda exact, estimating: estimating[:16],
    "a hash of zero": lambda exact, estimating: exact[:16] + bytes(8) + exact[24:],
    "a hash above theta": lambda exact, estimating: exact[:-8] + b"\xff" * 8,
    "theta of zero": lambda exact, estimating: estimating[:16] + bytes(8) + estimating[24:],
    "theta of zero over nothing": lambda exact, estimating: estimating[:8] + bytes(4) + estimating[12:16] + bytes(8),
    "theta beyond 63 bits": lambda exact, estimating: estimating[:16] + b"\xff" * 8 + estimating[24:],
}
"""Damaged sketches, of an exact one and of an estimating one."""


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named(what: str) -> None:
    data = DAMAGE[what](sketch_of(0, 10).to_bytes(), sketch_of(0, 5000).to_bytes())
    with pytest.raises(DamagedFileError) as caught:
        ThetaSketch.from_bytes(data, name="t.stats")
    assert caught.value.file == "t.stats"


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_any_bytes_give_a_sketch_or_our_error(noise: bytes, at: int, value: int) -> None:
    flipped = bytearray(sketch_of(0, 20).to_bytes())
    flipped[at % len(flipped)] = value
    for data in (noise, bytes(flipped), bytes(flipped[: at % len(flipped)])):
        try:
            sketch = ThetaSketch.from_bytes(data)
        except SidecarError:
            continue
        assert sketch.lower_bound() <= sketch.estimate <= sketch.upper_bound()
