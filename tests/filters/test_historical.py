"""Historical filters: the apache file as oracle, the three lemmas by name, sizes, bounds, and no false negative."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters import historical
from sidecar.filters.array_hash import hash_arrow, hash_plain_fixed
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.plain_bytes_hash import MURMUR3_X64_128, XXH64
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.sizing import MAX_BLOCKS, MAX_BYTES
from tests.filters.made_filters import historical_filter, historical_header

APACHE = Path(__file__).resolve().parents[1] / "data" / "parquet" / "apache_bloom_filter.bin"
STORED = ["hello", "parquet", "bloom", "filter"]
TEXT = Encoding.parse("byte_array")

HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=60).map(lambda v: np.array(v, np.uint64))
POWERS = st.integers(0, 6).map(lambda k: 1 << k)


def random_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)


def made(hashes: np.ndarray, z: int) -> HistoricalBloomFilter:
    return HistoricalBloomFilter.from_hashes(hashes, z)


def apache() -> HistoricalBloomFilter:
    data = APACHE.read_bytes()
    assert historical.decode_header(data) == len(data) - historical.HEADER_LENGTH
    return HistoricalBloomFilter.from_bytes(data[historical.HEADER_LENGTH :])


# --- the oracle ---------------------------------------------------------------------------------------------


def test_the_apache_file_holds_what_it_was_given() -> None:
    found = apache()
    assert [found.might_contain(value, "string", TEXT) for value in STORED] == [True] * 4
    assert [found.might_contain(value, "string", TEXT) for value in ("Hello", "parque", "", "x" * 40)] == [False] * 4


def test_the_apache_file_is_what_we_build_bit_by_bit() -> None:
    built = HistoricalBloomFilter.empty(apache().z)
    built.insert_arrow(pa.array(STORED), TEXT)
    assert built == apache()
    assert historical_header(built.num_bytes) + built.to_bytes() == APACHE.read_bytes()


def test_probing_the_historical_filter_the_new_way_denies_every_stored_value() -> None:
    """The index rule alone does it, and so does the hash alone, and both together."""
    old = apache()
    new = SplitBlockBloomFilter(old.blocks)
    assert not any(new.might_contain(value, "string", TEXT) for value in STORED)
    hashes = [MURMUR3_X64_128.digest(value.encode()) for value in STORED]
    assert not any(new.might_contain_hash(h) for h in hashes)
    assert not any(old.might_contain_hash(XXH64.digest(value.encode())) for value in STORED)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=70), min_size=1, max_size=20))
def test_the_hash_is_the_first_half_of_murmur3_with_its_seed(values: list[bytes]) -> None:
    wanted = [mmh3.hash64(value, 1361930890, x64arch=True, signed=False)[0] for value in values]
    assert hash_arrow(pa.array(values, pa.binary()), TEXT, function=MURMUR3_X64_128).tolist() == wanted
    assert [MURMUR3_X64_128.digest(value) for value in values] == wanted


@pytest.mark.parametrize(("name", "form"), [("int32", "<i"), ("int64", "<q"), ("float", "<f"), ("double", "<d")])
def test_words_hash_as_their_bytes(name: str, form: str) -> None:
    encoding = Encoding.parse(name)
    page = b"".join(struct.pack(form, number) for number in (1, 2, 77, 123456))
    width = struct.calcsize(form)
    wanted = [
        mmh3.hash64(page[at : at + width], 1361930890, x64arch=True, signed=False)[0]
        for at in range(0, len(page), width)
    ]
    assert hash_plain_fixed(page, 4, encoding, function=MURMUR3_X64_128).tolist() == wanted


@pytest.mark.parametrize("width", [1, 8, 16, 17, 33])
def test_fixed_width_values_hash_as_their_bytes(width: int) -> None:
    values = [bytes([i]) * width for i in range(5)]
    found = hash_arrow(pa.array(values, pa.binary(width)), Encoding.parse(f"flba:{width}"), function=MURMUR3_X64_128)
    assert found.tolist() == [MURMUR3_X64_128.digest(value) for value in values]


def test_the_kernel_and_python_choose_the_same_block_and_bits() -> None:
    """Twin of the kernel: the specification's text, on Python integers."""
    hashes = random_hashes(300)
    for z in (1, 2, 64, 1024):
        blocks = [[0] * 8 for _ in range(z)]
        for h in hashes.tolist():
            for j, salt in enumerate(SALT):
                blocks[(h >> 32) & (z - 1)][j] |= 1 << ((h & 0xFFFFFFFF) * salt % (1 << 32) >> 27)
        assert made(hashes, z).blocks.tolist() == blocks


SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


# --- lemmas -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(HASHES, POWERS, POWERS)
def test_lemma_fold(hashes: np.ndarray, z: int, factor: int) -> None:
    assert made(hashes, z * factor).fold(z) == made(hashes, z)


def test_folding_once_ors_the_two_halves() -> None:
    found = made(random_hashes(500), 64)
    assert (found.fold(32).blocks == (found.blocks[:32] | found.blocks[32:])).all()


@settings(deadline=None)
@given(HASHES, HASHES, POWERS, POWERS)
def test_lemma_merge(left: np.ndarray, right: np.ndarray, z: int, factor: int) -> None:
    both = np.concatenate([left, right])
    assert made(left, z * factor).merge(made(right, z)) == made(both, z)
    assert made(left, z).merge(made(right, z * factor)) == made(both, z)


def test_the_lemmas_of_the_present_form_would_deny_values() -> None:
    """Why the forms have lemmas of their own: adjacent blocks are not those that meet when the mask shrinks."""
    hashes = random_hashes(500)
    wide = made(hashes, 64)
    adjacent = SplitBlockBloomFilter(wide.blocks).fold(32).blocks
    assert not HistoricalBloomFilter(adjacent).check(hashes).all()
    repeated = np.repeat(wide.blocks, 2, axis=0)
    assert not HistoricalBloomFilter(repeated).check(hashes).all()


def test_the_two_forms_do_not_merge_and_are_not_equal() -> None:
    old, new = made(random_hashes(5), 8), SplitBlockBloomFilter.from_hashes(random_hashes(5), 8)
    with pytest.raises(UsageError, match="two forms"):
        old.merge(new)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two forms"):
        new.merge(old)  # type: ignore[arg-type]
    assert old != SplitBlockBloomFilter(old.blocks)


@pytest.mark.parametrize("to", [0, -1, 3, 96, 63])
def test_other_factors_are_refused(to: int) -> None:
    with pytest.raises(UsageError):
        made(random_hashes(10), 64).fold(to)


# --- values -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50), POWERS)
def test_no_value_is_ever_denied(values: list[int], z: int) -> None:
    encoding = Encoding.parse("int64")
    found = HistoricalBloomFilter.empty(z)
    found.insert_arrow(pa.array(values, pa.int64()), encoding)
    assert all(found.might_contain(value, "long", encoding) for value in values)


def test_zeros_and_nan_get_their_twins_unless_strict() -> None:
    values, encoding = pa.array([0.0, math.nan]), Encoding.parse("double")
    minus = MURMUR3_X64_128.digest(struct.pack("<d", -0.0))
    assert historical_filter(values, encoding, 1e-6).might_contain_hash(minus)
    assert not historical_filter(values, encoding, 1e-6, strict=True).might_contain_hash(minus)


def test_unknown_literals_are_kept() -> None:
    assert made(random_hashes(0), 1).might_contain(math.nan, "double", Encoding.parse("double"))
    assert not made(random_hashes(0), 1).might_contain(2**40, "long", Encoding.parse("int32"))


# --- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distinct", "fpp", "size"),
    [
        (0, 0.01, 32),
        (4, 0.01, 32),
        (27, 0.01, 64),
        (100, 0.01, 128),
        (1000, 0.005, 2048),
        (10**12, 0.01, MAX_BYTES),
    ],
)
def test_the_sizing_formula_of_the_time(distinct: int, fpp: float, size: int) -> None:
    assert historical.bytes_for(distinct, fpp) == size


def test_the_bits_a_value_that_the_specification_names() -> None:
    """11.54 bits are the formula's answer where half of all bits are set: 0.4 %, which the text calls about 0.5 %."""
    values = 10**6
    assert historical.bytes_for(values, 2.0**-8) == 2**21
    assert historical.bytes_for(int(2**23 / 11.55), 2.0**-8) == 2**20
    assert historical.bytes_for(int(2**23 / 11.53), 2.0**-8) == 2**21


def test_arrow_values_are_built_at_the_formula_s_size() -> None:
    few, encoding = pa.array(np.arange(10_000) % 100), Encoding.parse("int64")
    assert historical_filter(few, encoding).num_bytes == 128
    assert historical_filter(few, encoding, ndv=1000).num_bytes == historical.bytes_for(1000, 0.01)


@pytest.mark.parametrize("fpp", [0, 1, -1, 2])
def test_impossible_rates_are_refused(fpp: float) -> None:
    with pytest.raises(UsageError):
        historical.bytes_for(10, fpp)


# --- bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 31, 33, 96, 1000, 1023, 1025])
def test_bitsets_of_impossible_sizes_are_damaged(length: int) -> None:
    with pytest.raises(DamagedFileError):
        HistoricalBloomFilter.from_bytes(bytes(length))


@pytest.mark.parametrize("z", [0, -1, 3, MAX_BLOCKS * 2])
def test_impossible_numbers_of_blocks_are_refused(z: int) -> None:
    with pytest.raises(UsageError):
        HistoricalBloomFilter.empty(z)


@pytest.mark.parametrize("at", range(historical.HEADER_LENGTH))
def test_every_other_byte_of_the_header_is_refused_or_another_size(at: int) -> None:
    header = historical_header(1024)
    for flip in range(1, 256):
        changed = bytearray(header)
        changed[at] ^= flip
        number = int.from_bytes(changed[:4], "little")
        plausible = at < 4 and 32 <= number <= MAX_BYTES and number & (number - 1) == 0
        assert historical.is_header(bytes(changed)) == plausible
        if not plausible:
            with pytest.raises(DamagedFileError, match="historical"):
                historical.decode_header(bytes(changed))


def test_a_short_header_is_none() -> None:
    header = historical_header(32)
    assert [historical.is_header(header[:cut]) for cut in range(13)] == [False] * 12 + [True]


def test_no_header_of_the_present_form_looks_historical() -> None:
    from sidecar.parquet.bloom import encode_header

    sizes = [32 << k for k in range(23)] + [96, 1000, MAX_BYTES]
    assert not any(historical.is_header(encode_header(size) + bytes(32)) for size in sizes)


@pytest.mark.parametrize("form", [SplitBlockBloomFilter, HistoricalBloomFilter])
@pytest.mark.parametrize(("kind", "encoding"), [(pa.float32(), "float"), (pa.float64(), "double")])
def test_one_of_two_equal_zeros_in_a_filter_is_enough(form: Any, kind: Any, encoding: str) -> None:
    """Foreign writers insert the zero that is stored, and readers ask for either of them."""
    for stored in (0.0, -0.0):
        made = form.empty(64)
        made.insert_arrow(pa.array([stored], kind), Encoding.parse(encoding), strict=True)
        for asked in (0.0, -0.0):
            assert made.might_contain(asked, encoding, Encoding.parse(encoding))
        assert not made.might_contain(1.0, encoding, Encoding.parse(encoding))
