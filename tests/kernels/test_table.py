"""Every kernel beside its slow Python twin and an outside oracle, in one table."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.kernels import decimals, murmur3, sbbf, theta, xxh64
from tests.kernels import twins

SEED = np.uint64(9001)
LENGTHS = [*range(0, 100), 127, 128, 129, 255, 256, 1000, 4095, 4096]


def random_values(width: int | None, count: int = 400) -> list[bytes]:
    rng = random.Random(width or 7)
    if width is None:
        return [rng.randbytes(length) for length in LENGTHS]
    edges = [bytes(width), b"\xff" * width, b"\x00" * (width - 1) + b"\x80", b"\xff" * (width - 1) + b"\x7f"]
    return edges + [rng.randbytes(width) for _ in range(count)]


def as_words(values: Sequence[bytes], width: int) -> Any:
    return np.frombuffer(b"".join(values), np.uint32 if width == 4 else np.uint64)


def as_bytes(values: Sequence[bytes]) -> Any:
    return np.frombuffer(b"".join(values), np.uint8)


def spans_of(values: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """The values in reverse order with gaps between them: spans need not be adjacent or rising."""
    data, starts = b"", []
    for value in reversed(values):
        data += b"gap"
        starts.append(len(data))
        data += value
    lengths = np.array([len(v) for v in values], np.int64)
    return np.frombuffer(data, np.uint8), np.array(starts[::-1], np.int64), lengths


@dataclass(frozen=True)
class Row:
    """``run`` hashes values by a kernel into ``out``; ``twin`` and ``oracle`` hash one value."""

    name: str
    width: int | None
    run: Callable[[Sequence[bytes], Any], None]
    twin: Callable[[bytes], int]
    oracle: Callable[[bytes], int]


def murmur_twin(value: bytes) -> int:
    return twins.murmur3_h1(value, 9001)


def murmur_oracle(value: bytes) -> int:
    return int(mmh3.hash64(value, seed=9001, x64arch=True, signed=False)[0])


XXH = (twins.xxh64, xxhash.xxh64_intdigest)
MURMUR = (murmur_twin, murmur_oracle)
HASHES = [
    Row("xxh64.hash_fixed4", 4, lambda v, out: xxh64.hash_fixed4(as_words(v, 4), out), *XXH),
    Row("xxh64.hash_fixed8", 8, lambda v, out: xxh64.hash_fixed8(as_words(v, 8), out), *XXH),
    *(
        Row(f"xxh64.hash_fixed-{w}", w, lambda v, out, w=w: xxh64.hash_fixed(as_bytes(v), w, out), *XXH)
        for w in (1, 2, 5, 12, 16, 33)
    ),
    Row("xxh64.hash_spans", None, lambda v, out: xxh64.hash_spans(*spans_of(v), out), *XXH),
    Row("murmur3.hash_fixed4", 4, lambda v, out: murmur3.hash_fixed4(as_words(v, 4), SEED, out), *MURMUR),
    Row("murmur3.hash_fixed8", 8, lambda v, out: murmur3.hash_fixed8(as_words(v, 8), SEED, out), *MURMUR),
    Row("murmur3.hash_spans", None, lambda v, out: murmur3.hash_spans(*spans_of(v), SEED, out), *MURMUR),
]


@pytest.mark.parametrize("row", HASHES, ids=lambda row: row.name)
def test_hash_kernels_agree_with_twin_and_oracle(row: Row) -> None:
    values = random_values(row.width)
    out = np.full(len(values), 0xABAD1DEA, np.uint64)
    row.run(values, out)
    assert out.tolist() == [row.twin(v) for v in values]
    assert out.tolist() == [row.oracle(v) for v in values]


@pytest.mark.parametrize("row", HASHES, ids=lambda row: row.name)
def test_hash_kernels_take_nothing(row: Row) -> None:
    out = np.full(0, 0, np.uint64)
    row.run([], out)
    assert out.size == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20), st.sampled_from([0, 9001, (1 << 64) - 1]))
def test_hashes_of_any_bytes_and_seeds(values: list[bytes], seed: int) -> None:
    data, starts, lengths = spans_of(values)
    out = np.empty(len(values), np.uint64)
    xxh64.hash_spans(data, starts, lengths, out)
    assert out.tolist() == [xxhash.xxh64_intdigest(v) for v in values]
    murmur3.hash_spans(data, starts, lengths, np.uint64(seed), out)
    assert out.tolist() == [twins.murmur3_h1(v, seed) for v in values]


def test_spans_at_every_edge_of_small_buffers() -> None:
    """Every span of buffers of up to 70 bytes: words are loaded from around it, never from beyond the buffer."""
    for size in range(71):
        data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        data.setflags(write=False)  # as in the other tests, so that kernels are compiled for one type only
        spans = [(a, b - a) for a in range(size + 1) for b in {a, min(a + 9, size), size - size // 3, size} if a <= b]
        starts, lengths = (np.array(column, np.int64) for column in zip(*spans, strict=True))
        values = [data[a : a + n].tobytes() for a, n in spans]
        out = np.empty(len(spans), np.uint64)
        xxh64.hash_spans(data, starts, lengths, out)
        assert out.tolist() == [xxhash.xxh64_intdigest(v) for v in values]
        murmur3.hash_spans(data, starts, lengths, SEED, out)
        assert out.tolist() == [murmur_oracle(v) for v in values]


@pytest.mark.parametrize("count", [7, 8, 9, 640])
def test_values_of_mixed_lengths_are_hashed_together(count: int) -> None:
    """Vectors hash several values at once: some of these have stripes and blocks that others do not have."""
    rng = random.Random(count)
    values = [rng.randbytes(rng.choice((0, 3, 15, 16, 31, 32, 33, 47, 48, 70, 200))) for _ in range(count)]
    data, starts, lengths = spans_of(values)
    out = np.empty(count, np.uint64)
    xxh64.hash_spans(data, starts, lengths, out)
    assert out.tolist() == [xxhash.xxh64_intdigest(v) for v in values]
    murmur3.hash_spans(data, starts, lengths, SEED, out)
    assert out.tolist() == [murmur_oracle(v) for v in values]


@pytest.mark.parametrize("size", [16, 31, 32, 33, 47, 48, 49, 100])
def test_no_byte_beside_the_data_is_loaded(size: int) -> None:
    """The data ends or begins beside memory that nobody may read. A load that leaves it ends the process."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 3 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for closed in (address, address + 2 * page):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(closed), page, 0) == 0
    open_page = np.frombuffer(area, np.uint8, page, page)
    open_page[:] = np.random.default_rng(size).integers(0, 256, page, dtype=np.uint8)
    spans = [(at, length) for at in range(0, size + 1, 3) for length in (0, 1, 7, 8, 15, 16, 31, 32, 33, 48, size - at)]
    starts, lengths = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    lengths = np.minimum(lengths, size - starts)
    for data in (open_page[:size], open_page[page - size :]):
        values = [data[a : a + n].tobytes() for a, n in zip(starts, lengths, strict=True)]
        out = np.empty(len(spans), np.uint64)
        xxh64.hash_spans(data, starts, lengths, out)
        assert out.tolist() == [xxhash.xxh64_intdigest(v) for v in values]
        murmur3.hash_spans(data, starts, lengths, SEED, out)
        assert out.tolist() == [murmur_oracle(v) for v in values]


# --- split blocks -------------------------------------------------------------------------------------------


def random_hashes(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)


EDGE_HASHES = np.array([0, 1, twins.M32, twins.M32 + 1, twins.M64, twins.M64 - twins.M32, 1 << 63], np.uint64)


@pytest.mark.parametrize("z", [1, 2, 3, 31, 64, 1000, 4096])
def test_sbbf_kernels_agree_with_the_twin(z: int) -> None:
    hashes = np.concatenate([EDGE_HASHES, random_hashes(3 * z, z)])
    blocks, slow = np.zeros((z, 8), np.uint32), twins.empty_blocks(z)
    sbbf.insert(blocks, hashes)
    twins.sbbf_insert(slow, hashes.tolist())
    assert blocks.tolist() == slow
    asked = np.concatenate([hashes, random_hashes(1000, z + 1)])
    out = np.zeros(len(asked), np.bool_)
    sbbf.check(blocks, asked, out)
    assert out.tolist() == [twins.sbbf_check(slow, h) for h in asked.tolist()]
    assert out[: len(hashes)].all()
    assert not out.all()


@pytest.mark.parametrize("z", [1, 5, 64])
@pytest.mark.parametrize("shift", range(0, 32, 4))
def test_sbbf_blocks_need_no_alignment(z: int, shift: int) -> None:
    """A bitset lies anywhere in a file: the vector loads must take words at any 4-byte boundary."""
    room = np.zeros(z * 32 + 32, np.uint8)
    blocks = room[shift : shift + z * 32].view(np.uint32).reshape(z, 8)
    hashes = random_hashes(100)
    sbbf.insert(blocks, hashes)
    slow = twins.empty_blocks(z)
    twins.sbbf_insert(slow, hashes.tolist())
    assert blocks.tolist() == slow
    assert not room[:shift].any()
    assert not room[shift + z * 32 :].any()


@pytest.mark.parametrize(("z", "factor"), [(1, 1), (4, 2), (64, 64), (60, 5), (96, 3)])
def test_fold_kernel_agrees_with_the_twin(z: int, factor: int) -> None:
    blocks = np.random.default_rng(z).integers(0, 1 << 32, (z, 8), dtype=np.uint32)
    out = np.full((z // factor, 8), 0xABAD1DEA, np.uint32)
    sbbf.fold(blocks, factor, out)
    assert out.tolist() == twins.sbbf_fold(blocks.tolist(), factor)


def test_sbbf_bits_are_those_of_the_parquet_project() -> None:
    """``bloom_filter.xxhash.bin`` of parquet-testing: 1024 bytes that hold four strings."""
    hashes = np.array([xxhash.xxh64_intdigest(s) for s in (b"hello", b"parquet", b"bloom", b"filter")], np.uint64)
    blocks = np.zeros((32, 8), np.uint32)
    sbbf.insert(blocks, hashes)
    assert struct.pack("<256I", *blocks.reshape(-1).tolist()) == XXHASH_BIN


def _parquet_testing_bits() -> bytes:
    from pathlib import Path

    data = (Path(__file__).parents[1] / "data/parquet/apache_bloom_filter.xxhash.bin").read_bytes()
    return data[-1024:]


XXHASH_BIN = _parquet_testing_bits()


# --- theta --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 1 << 20, 1 << 62, (1 << 63) - 1])
def test_theta_kernel_agrees_with_the_twin(limit: int) -> None:
    hashes = np.concatenate([np.array([0, 1, limit - 1, limit], np.uint64), random_hashes(5000) >> np.uint64(1)])
    hashes[10:20] >>= np.uint64(45)
    out = np.full(len(hashes), 0, np.uint64)
    count = theta.below(hashes, np.uint64(limit), out)
    assert out[:count].tolist() == twins.theta_below(hashes.tolist(), limit)


# --- decimals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
def test_sign_bytes_agree_with_the_twin(width: int) -> None:
    """The oracle is Java's BigInteger.toByteArray in Python's words: bits of the magnitude, one for the sign."""
    edges = {e * (1 << bit) + d for bit in range(8 * width - 1) for e in (1, -1) for d in (-1, 0, 1)}
    limit = 1 << (8 * width - 1)
    numbers = [n for n in sorted(edges) if -limit <= n < limit]
    rows = [n.to_bytes(width, "big", signed=True) for n in numbers]
    out = np.full(len(rows), -1, np.int64)
    decimals.sign_bytes(as_bytes(rows).reshape(-1, width), out)
    assert out.tolist() == [twins.sign_bytes(row) for row in rows]
    assert out.tolist() == [width - ((n if n >= 0 else ~n).bit_length() // 8 + 1) for n in numbers]


# --- arrays -------------------------------------------------------------------------------------------------


def test_a_kernel_takes_arrays_of_any_layout_and_compiles_once() -> None:
    """Read-only, with gaps, at odd addresses: each would be a type of its own to numba."""
    values = random_hashes(64)
    expected, out = np.empty(64, np.uint64), np.empty(64, np.uint64)
    xxh64.hash_fixed8(values, expected)
    frozen = values.copy()
    frozen.setflags(write=False)
    odd = np.zeros(64 * 8 + 1, np.uint8)[1:].view(np.uint64)
    odd[:] = values
    for layout in (frozen, values.repeat(2)[::2], odd):
        xxh64.hash_fixed8(layout, out)
        assert out.tolist() == expected.tolist()
    kernel: Any = xxh64.hash_fixed8
    assert len(kernel.dispatcher.signatures) == 1


def test_an_array_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        theta.below(np.zeros(3, np.float64), SEED, np.empty(3, np.uint64))
    with pytest.raises(TypeError, match="No matching definition"):
        theta.below(random_hashes(3), SEED, np.empty(6, np.uint64)[::2])
