"""Codecs, the RLE kernels beside slow twins, and hand-made defects of page headers."""

from __future__ import annotations

import gzip
import random
import struct
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.kernels import rle
from sidecar.parquet.compression import MAX_PAGE, decompress
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.levels import open_page
from sidecar.parquet.pages import DATA_PAGE_V2, DICTIONARY_PAGE, walk_pages, wholly_dictionary
from sidecar.parquet.scan.part_file import split_chunk
from sidecar.parquet.thrift import I32, STRUCT, Struct, decode_struct, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.source import BytesSource
from tests.kernels.orc_twins import varint
from tests.parquet.test_fresh import chunks, written

TEXT = b"".join(b"line %d\n" % i for i in range(300))


def hadoop(*parts: bytes) -> bytes:
    """Frames of one block each, as Hadoop's codec writes them."""
    blocks = [(len(part), lz4.block.compress(part, store_size=False)) for part in parts]
    return b"".join(struct.pack(">II", size, len(block)) + block for size, block in blocks)


def two_blocks_in_a_frame(first: bytes, second: bytes) -> bytes:
    blocks = [lz4.block.compress(part, store_size=False) for part in (first, second)]
    return struct.pack(">I", len(first) + len(second)) + b"".join(
        struct.pack(">I", len(block)) + block for block in blocks
    )


SKIPPED_FRAME = struct.pack("<II", 0x184D2A50, 3) + b"abc"
BODIES = [
    ("UNCOMPRESSED", TEXT),
    ("SNAPPY", pa.Codec("snappy").compress(TEXT, asbytes=True)),
    ("GZIP", gzip.compress(TEXT)),
    ("GZIP", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    ("BROTLI", pa.Codec("brotli").compress(TEXT, asbytes=True)),
    ("ZSTD", pa.Codec("zstd").compress(TEXT, asbytes=True)),
    ("ZSTD", zstandard.compress(TEXT[:1000]) + zstandard.compress(TEXT[1000:])),
    ("ZSTD", zstandard.compress(TEXT) + SKIPPED_FRAME),
    ("ZSTD", zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    ("LZ4_RAW", lz4.block.compress(TEXT, store_size=False)),
    ("LZ4", hadoop(TEXT)),
    ("LZ4", hadoop(TEXT[:1000], TEXT[1000:])),
    ("LZ4", two_blocks_in_a_frame(TEXT[:1000], TEXT[1000:])),
    ("LZ4", lz4.block.compress(TEXT, store_size=False)),
]


@pytest.mark.parametrize(("codec", "data"), BODIES)
def test_codecs(codec: str, data: bytes) -> None:
    assert decompress(codec, data, len(TEXT)) == TEXT
    assert decompress(codec, memoryview(b"before" + data)[6:], len(TEXT)) == TEXT
    for size in (len(TEXT) - 1, len(TEXT) + 1, 3 * len(TEXT)):
        with pytest.raises(DamagedFileError):
            decompress(codec, data, size)
    for cut in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(DamagedFileError):
            decompress(codec, data[:cut], len(TEXT))


def test_bytes_after_a_frame_are_no_part_of_a_page() -> None:
    with pytest.raises(DamagedFileError):
        decompress("ZSTD", zstandard.compress(TEXT) + b"more", len(TEXT))


@pytest.mark.parametrize(("codec", "data"), BODIES)
def test_damaged_bodies_give_a_value_or_our_error(codec: str, data: bytes) -> None:
    rng = random.Random(5)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        try:
            found = decompress(codec, bytes(damaged), len(TEXT))
        except DamagedFileError:
            continue
        assert len(found) == len(TEXT)


def test_codecs_that_are_not_read_are_named() -> None:
    for codec in ("LZO", "8"):
        with pytest.raises(UnsupportedFeatureError, match="codec"):
            decompress(codec, TEXT, len(TEXT))
    with pytest.raises(UnsupportedFeatureError, match="too large"):
        decompress("SNAPPY", TEXT, MAX_PAGE + 1)


def encode_hybrid(runs: list[tuple[bool, list[int]]], width: int) -> tuple[bytes, list[int]]:
    """The slow twin: bytes of runs (packed, or the first value repeated) and the values that they hold."""
    out, values = bytearray(), []
    for packed, items in runs:
        if packed:
            items = [*items, *([0] * (-len(items) % 8))]
            number = sum(item << (i * width) for i, item in enumerate(items))
            out += varint(len(items) // 8 << 1 | 1) + number.to_bytes(len(items) * width // 8, "little")
            values += items
        else:
            out += varint(len(items) << 1) + items[0].to_bytes((width + 7) // 8, "little")
            values += [items[0]] * len(items)
    return bytes(out), values


@st.composite
def hybrids(draw: st.DrawFn) -> tuple[int, bytes, list[int]]:
    width = draw(st.integers(1, 20))
    item = st.integers(0, min(2**width - 1, 5000))
    runs = draw(st.lists(st.tuples(st.booleans(), st.lists(item, min_size=1, max_size=40)), min_size=1, max_size=6))
    return width, *encode_hybrid(runs, width)


@given(hybrids(), st.integers(0, 300), st.binary(max_size=9))
@settings(max_examples=150, deadline=None)
def test_marking_equals_its_slow_twin(case: tuple[int, bytes, list[int]], count: int, behind: bytes) -> None:
    width, encoded, values = case
    count = min(count, len(values))
    data = np.frombuffer(encoded + behind, np.uint8)
    used = np.zeros(5001, np.bool_)
    assert rle.mark_used(data, rle.unaligned_words(data), 0, len(encoded), width, count, used) == 0
    assert set(np.flatnonzero(used).tolist()) == set(values[:count])
    for level in {*values[:3], 1}:
        assert rle.count_level(data, 0, len(encoded), width, count, level) == values[:count].count(level)


@given(hybrids(), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_a_cut_hybrid_is_noticed(case: tuple[int, bytes, list[int]], cut: int) -> None:
    width, encoded, values = case
    data = np.frombuffer(encoded, np.uint8)
    end = max(len(encoded) - 1 - cut, 0)
    used = np.zeros(5001, np.bool_)
    padded = len(values) + 8  # more than all runs hold
    assert rle.mark_used(data, rle.unaligned_words(data), 0, end, width, padded, used) < 0
    assert rle.count_level(data, 0, end, width, padded, 1) < 0


def test_an_index_beyond_the_dictionary_is_noticed() -> None:
    for packed in (True, False):
        encoded, values = encode_hybrid([(packed, [3] * 8)], 4)
        data = np.frombuffer(encoded, np.uint8)
        used = np.zeros(3, np.bool_)
        words = rle.unaligned_words(data)
        assert rle.mark_used(data, words, 0, len(data), 4, len(values), used) == rle.BAD_INDEX
        assert not used.any()


@given(st.lists(st.binary(max_size=40), max_size=30))
@settings(max_examples=100, deadline=None)
def test_byte_arrays_are_split(values: list[bytes]) -> None:
    plain = b"".join(struct.pack("<I", len(value)) + value for value in values)
    data = np.frombuffer(plain, np.uint8)
    out = np.empty(len(data), np.uint8)
    offsets = np.empty(len(values) + 1, np.int32)
    words, out_words = rle.unaligned_words(data), rle.unaligned_words(out)
    length = rle.split_byte_arrays(data, words, len(values), out, out_words, offsets)
    assert length == sum(map(len, values))
    assert [out[a:b].tobytes() for a, b in pairwise(offsets)] == values
    more = np.empty(len(values) + 2, np.int32)
    assert rle.split_byte_arrays(data, words, len(values) + 1, out, out_words, more) < 0


def dictionary_chunk() -> tuple[bytearray, ColumnChunk]:
    source = written(pa.table({"c": [1, 2, 3, 2] * 50}), compression="NONE", data_page_size=64, write_batch_size=20)
    (chunk,) = chunks(source)
    return bytearray(source.read(0, source.size)), replace(chunk, encoding_stats=None)


def test_a_late_dictionary_page_is_named() -> None:
    data, chunk = dictionary_chunk()
    pages = list(walk_pages(BytesSource(bytes(data)), chunk))
    dictionary, second = (
        bytes(data[pages[0].offset : pages[0].end]),
        bytes(data[pages[1].offset : pages[1].end]),
    )
    data[pages[0].offset : pages[1].end] = second + dictionary
    moved = replace(chunk, dictionary_page_offset=None, data_page_offset=chunk.start)
    assert [page.type for page in walk_pages(BytesSource(bytes(data)), moved)][1] == DICTIONARY_PAGE
    with pytest.raises(DamagedFileError, match="dictionary page is not the chunk's first"):
        wholly_dictionary(BytesSource(bytes(data)), moved)
    problems = [problem.problem for problem in verify_file(BytesSource(bytes(data)))]
    assert any("not the chunk's first page" in problem for problem in problems)


def test_pages_of_unknown_types_are_stepped_over() -> None:
    data, chunk = dictionary_chunk()
    header = encode_struct(Struct({1: (I32, 9), 2: (I32, 4), 3: (I32, 4), 40: (STRUCT, Struct())}))
    pages = list(walk_pages(BytesSource(bytes(data)), chunk))
    data[pages[0].end : pages[0].end] = header + b"abcd"
    longer = replace(chunk, total_compressed_size=chunk.total_compressed_size + len(header) + 4)
    source = BytesSource(bytes(data))
    assert [page.type for page in walk_pages(source, longer)][:3] == [DICTIONARY_PAGE, 9, 0]
    assert wholly_dictionary(source, longer)


@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "bb", "ccc"]], ids=["fixed", "variable"])
@pytest.mark.parametrize("counted", [0, 2, 4])
def test_a_dictionary_that_counts_other_values_is_damaged(values: list[object], counted: int) -> None:
    """A filter from a dictionary that is cut short would deny the values that are missing."""
    source = written(pa.table({"c": values * 5}), compression="NONE")
    (chunk,) = chunks(source)
    data = bytearray(source.read(0, source.size))
    header, end = decode_struct(bytes(data), chunk.start)
    assert read_dictionary(source, chunk).num_values == 3
    header.fields[7][1].fields[1] = (I32, counted)
    data[chunk.start : end] = encode_struct(header)
    with pytest.raises(DamagedFileError, match="dictionary page"):
        read_dictionary(BytesSource(bytes(data)), chunk)


def test_a_missing_page_is_no_proof() -> None:
    data, chunk = dictionary_chunk()
    pages = list(walk_pages(BytesSource(bytes(data)), chunk))
    shorter = replace(chunk, total_compressed_size=pages[-1].offset - chunk.start)
    with pytest.raises(DamagedFileError, match="a different number of values"):
        wholly_dictionary(BytesSource(bytes(data)), shorter)
    with pytest.raises(DamagedFileError):
        list(walk_pages(BytesSource(bytes(data)), replace(chunk, total_compressed_size=pages[-1].end - 5)))


def test_eight_times_the_pages_take_eight_times_the_time() -> None:
    data = written(pa.table({"k": pa.array([7], pa.int64())}), use_dictionary=False, compression="none")
    (chunk,) = chunks(data)
    raw = data.read(chunk.start, chunk.total_compressed_size)

    def seconds(count: int) -> float:
        start = time.process_time()
        pages = split_chunk(replace(chunk, num_values=count), raw * count)
        assert pages.values == [1] * count
        return time.process_time() - start

    few = min(seconds(2_500) for _ in range(3))
    assert seconds(20_000) < 20 * few


@pytest.mark.parametrize(("length", "stated"), [(5, 9), (4, 3)])
def test_levels_are_neither_longer_than_the_page_nor_than_it_says(length: int, stated: int) -> None:
    page: Any = SimpleNamespace(type=DATA_PAGE_V2, rep_length=0, def_length=length, uncompressed_size=stated)
    with pytest.raises(DamagedFileError, match="the levels of a page are longer than the page"):
        open_page("UNCOMPRESSED", page, b"\x00" * 4, cast("Any", None))
