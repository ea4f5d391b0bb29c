"""ORC filters: sizes and bits as the Java classes have them, filters as the writers made them, and the errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.orc.bloom import MAX_HASHES, OrcBloomFilter, positions, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.key_hash import hash_bytes, hash_long
from tests.filters import orc_vectors
from tests.filters.made_filters import orc_filter, orc_filter_of_hashes

HASHES = orc_vectors.load("hashes.json")["hashes"]
PARAMS = orc_vectors.load("hashes.json")["params"]
JAVA = orc_vectors.load("filters_java.json")
PYARROW = orc_vectors.load("filters_pyarrow.json")


@pytest.mark.parametrize(("entries", "fpp", "k", "m"), PARAMS)
def test_sizes_are_those_of_the_java_classes(entries: int, fpp: float, k: int, m: int) -> None:
    assert size_for(entries, fpp) == (m, k)


def key_hash(case: dict[str, Any]) -> int:
    return hash_long(int(case["key"])) if case["key_kind"] == "long" else hash_bytes(bytes.fromhex(case["key"]))


def test_hashes_and_positions_are_those_of_the_java_classes() -> None:
    assert len(HASHES) == 110
    for case in HASHES:
        h = key_hash(case)
        assert f"{h:016x}" == case["hash"], case
        assert list(positions(h, 7, 9600)) == case["positions_k7_m9600"], case


def test_unsigned_and_signed_keys_hash_alike() -> None:
    assert hash_long(-5) == hash_long(2**64 - 5)


# --- filters of the writers -------------------------------------------------------------------------------


def rebuilt(values: Any, encoding: str) -> list[tuple[int, int, str]]:
    made = [
        orc_filter(group, OrcEncoding.parse(encoding), 1000, 0.01, strict=True) for group in orc_vectors.groups(values)
    ]
    return [(f.k, f.m, f.to_bytes().hex()) for f in made]


def written(entries: Any) -> list[tuple[int, int, str]]:
    return [(entry["k"], entry["m"], entry["bitset"]) for entry in entries]


@pytest.mark.parametrize("name", orc_vectors.java_columns())
def test_filters_of_java_are_rebuilt_bit_for_bit(name: str) -> None:
    values, encoding = orc_vectors.java_columns()[name]
    assert rebuilt(values, encoding) == written(JAVA["BLOOM_FILTER_UTF8"][name])


@pytest.mark.parametrize("name", orc_vectors.pyarrow_columns())
def test_filters_of_pyarrow_are_rebuilt_bit_for_bit(name: str) -> None:
    values, encoding = orc_vectors.pyarrow_columns()[name]
    assert rebuilt(values, encoding) == written(PYARROW["BLOOM_FILTER_UTF8"][name])


def test_other_forms_of_java_are_rebuilt_bit_for_bit() -> None:
    variants = JAVA["variants_where_different"]
    instants = orc_vectors.java_timestamps("c_ts", wall=False)
    assert rebuilt(instants, "orc/timestamp:java:UTC") == written(JAVA["BLOOM_FILTER_where_different"]["c_ts"])
    assert rebuilt(instants, "orc/timestamp:java:UTC") == written(
        variants["BLOOM_FILTER_UTF8, useUTCTimestamp=true"]["c_ts"]
    )
    decimal64 = variants["BLOOM_FILTER_UTF8, file version UNSTABLE-PRE-2.0 (decimal64)"]
    for name, filters in decimal64.items():
        values, encoding = orc_vectors.java_columns()[name]
        assert rebuilt(values, encoding.replace("decimal:", "decimal64:")) == written(filters)
    assert set(decimal64) == {"c_dec10", "c_dec18"}


def test_what_the_vectors_do_not_cover_is_known() -> None:
    assert set(JAVA["BLOOM_FILTER_UTF8"]) - set(orc_vectors.java_columns()) == {"c_bool"}
    corrupt = {"c_bool", "c_tiny"}
    assert set(PYARROW["BLOOM_FILTER_UTF8"]) - set(orc_vectors.pyarrow_columns()) == corrupt
    tiny, encoding = orc_vectors.java_columns()["c_tiny"]
    assert rebuilt(tiny, encoding) != written(PYARROW["BLOOM_FILTER_UTF8"]["c_tiny"])


# --- the filter itself ------------------------------------------------------------------------------------


def some_hashes(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=40),
    st.integers(1, 40).map(lambda words: words * 64),
    st.integers(1, MAX_HASHES),
)
def test_no_inserted_hash_is_denied(hashes: list[int], m: int, k: int) -> None:
    made = orc_filter_of_hashes(np.array(hashes, np.uint64), m, k)
    assert made.check(np.array(hashes, np.uint64)).all()
    assert all(made.might_contain_hash(h) for h in hashes)
    bits = {p for h in hashes for p in positions(h, k, m)}
    assert made.fill() == len(bits) / m
    assert all(made.to_bytes()[p >> 3] >> (p & 7) & 1 for p in bits)


def test_one_hash_is_checked_as_many_are() -> None:
    made = orc_filter_of_hashes(some_hashes(1000), *size_for(1000, 0.05))
    asked = some_hashes(5000, seed=2)
    assert made.check(asked).tolist() == [made.might_contain_hash(h) for h in asked.tolist()]


@pytest.mark.parametrize("fpp", [0.5, 0.05, 0.01, 0.001])
def test_rate_is_near_the_one_that_was_asked_for(fpp: float) -> None:
    made = orc_filter_of_hashes(some_hashes(10_000), *size_for(10_000, fpp))
    measured = made.check(some_hashes(400_000, seed=2)).mean()
    assert measured == pytest.approx(fpp, rel=0.15, abs=1e-4)
    assert made.estimated_fpp() == pytest.approx(measured, rel=0.15, abs=1e-4)


def test_merge_is_the_filter_of_both_sets() -> None:
    a, b = some_hashes(500), some_hashes(700, seed=2)
    m, k = size_for(1000, 0.01)
    both = orc_filter_of_hashes(np.concatenate([a, b]), m, k)
    assert orc_filter_of_hashes(a, m, k).merge(orc_filter_of_hashes(b, m, k)) == both
    for other in (OrcBloomFilter.empty(m + 64, k), OrcBloomFilter.empty(m, k + 1)):
        with pytest.raises(UsageError, match="different sizes do not merge"):
            both.merge(other)
        assert both != other


def test_bytes_go_round_and_a_filter_from_a_file_may_grow() -> None:
    made = orc_filter_of_hashes(some_hashes(100), 1280, 7)
    data = made.to_bytes()
    again = OrcBloomFilter.from_bytes(data, 7)
    assert (again, again.m, again.num_bytes, again.to_bytes()) == (made, 1280, 160, data)
    again.insert(some_hashes(100, seed=2))
    assert again != made
    assert data == made.to_bytes()


@pytest.mark.parametrize(
    ("size", "k"), [(0, 7), (7, 7), (12, 7), (8, 0), (8, -1), (8, 101), (8, 10_000), (128 * 2**20 + 8, 7)]
)
def test_impossible_filters_are_damage(size: int, k: int) -> None:
    """A k of 10,000 is what the pre-release messages of the oldest files look like."""
    with pytest.raises(DamagedFileError, match=r"file a\.orc"):
        OrcBloomFilter.from_bytes(bytes(size), k, "a.orc")


@pytest.mark.parametrize(("entries", "fpp"), [(1000, 0.0), (1000, 1.0), (1, 1e-60), (2**40, 0.01)])
def test_impossible_sizes_are_refused(entries: int, fpp: float) -> None:
    with pytest.raises(UsageError):
        size_for(entries, fpp)


@pytest.mark.parametrize(("m", "k"), [(0, 7), (100, 7), (64, 0), (64, 101)])
def test_empty_filters_of_impossible_sizes_are_refused(m: int, k: int) -> None:
    with pytest.raises(UsageError):
        OrcBloomFilter.empty(m, k)


@pytest.mark.parametrize("words", [np.zeros(4, np.int64), np.zeros((2, 2), np.uint64), np.zeros(0, np.uint64)])
def test_words_of_another_shape_are_refused(words: Any) -> None:
    with pytest.raises(UsageError):
        OrcBloomFilter(words, 7)


def test_might_contain_asks_for_every_key_and_keeps_what_is_not_certain() -> None:
    encoding = OrcEncoding.parse("orc/double")
    made = orc_filter(pa.array([-0.0, 1.5]), encoding, 1000, strict=True)
    assert made.might_contain(0.0, "double", encoding)
    assert made.might_contain(1.5, "double", encoding)
    assert not made.might_contain(2.5, "double", encoding)
    assert made.might_contain(float("nan"), "double", encoding)
    assert made.might_contain(1, "long", encoding)
    assert not made.might_contain(2**70, "long", OrcEncoding.parse("orc/long"))


def test_an_empty_filter_is_all_zero() -> None:
    made = orc_filter(pa.array([None, None], pa.int32()), OrcEncoding.parse("orc/long"), 1000)
    assert (made.k, made.m, made.to_bytes()) == (7, 9600, bytes(1200))
    assert repr(made) == "OrcBloomFilter(m=9600, k=7, fill=0.000)"


def test_asking_compiles_nothing() -> None:
    script = (
        "import sys; from sidecar.filters.orc.bloom import OrcBloomFilter as F; "
        "from sidecar.filters.orc.encoding import OrcEncoding as E; "
        "f = F.empty(640, 7); assert not f.might_contain('x', 'string', E.parse('orc/bytes')); "
        "assert 'numba' not in sys.modules and 'sidecar.kernels' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
