"""Hashes taken from pages are those of the values that pyarrow reads, in every encoding, codec and page version."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.array_hash import hash_arrow
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index, take_values
from sidecar.parquet.stored_values import PageHasher, StoredValues, Values, check_typed
from sidecar.storage.source import BytesSource
from tests.parquet.page_files import CODECS, LZO, rewrite, write

NUMBERS = [0, 1, -1, 5, None, 2**31 - 1, -(2**31), 77, None, 12] * 20
TEXTS = ["", "a", None, "ż" * 40, "value", "valuf", None, "x" * 200] * 25
COLUMNS: dict[str, tuple[pa.Array[Any], list[str]]] = {
    "int32": (pa.array(NUMBERS, pa.int32()), ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    "int64": (pa.array(NUMBERS, pa.int64()), ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    "float": (pa.array([0.0, -0.0, 1.5, None, float("nan")] * 40, pa.float32()), ["PLAIN", "BYTE_STREAM_SPLIT"]),
    "double": (pa.array([0.0, -0.0, 1.5, None, float("nan")] * 40), ["PLAIN", "BYTE_STREAM_SPLIT"]),
    "string": (pa.array(TEXTS), ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]),
    "flba": (pa.array([b"12345", None, b"abcde"] * 60, pa.binary(5)), ["PLAIN", "BYTE_STREAM_SPLIT"]),
    "decimal": (pa.array([Decimal("1.50"), None, Decimal("-9.99")] * 50, pa.decimal128(15, 2)), ["PLAIN"]),
    "uint32": (pa.array([1, 2**32 - 1, None] * 60, pa.uint32()), ["PLAIN", "DELTA_BINARY_PACKED"]),
    "timestamp": (pa.array([1, -5, None] * 60, pa.timestamp("ns")), ["PLAIN", "DELTA_BINARY_PACKED"]),
    "list": (pa.array([["a", None], [], None, ["b", "c", "d"]] * 50), ["PLAIN", "DELTA_BYTE_ARRAY"]),
}  # fmt: skip
CASES = [(name, encoding) for name, (_, encodings) in COLUMNS.items() for encoding in (*encodings, "dictionary")]


def hashes(data: bytes, *, bounds: bool, column: int = 0) -> tuple[set[int], bool]:
    """What the pages of the first row group's column give, and whether that is all."""
    source = BytesSource(data)
    footer = read_footer(source)
    chunk = footer.row_groups[0].columns[column]
    found: list[int] = []
    hasher = PageHasher(chunk.leaf, lambda some: found.extend(some.tolist()))
    if bounds:
        build_page_index(source, footer, chunk, hasher)
    else:
        take_values(source, chunk, footer.row_groups[0].num_rows, hasher)
    return set(found), hasher.complete


def expected(data: bytes) -> set[int]:
    leaf = read_footer(BytesSource(data)).columns[0]
    values = pq.read_table(pa.BufferReader(data), arrow_extensions_enabled=False)["c"].combine_chunks()
    if pa.types.is_list(values.type):
        values = values.flatten()
    return set(hash_arrow(values, leaf.encoding).tolist())


def file_of(name: str, encoding: str, **options: Any) -> bytes:
    table = pa.table({"c": COLUMNS[name][0]})
    if encoding == "dictionary":
        return write(table, use_dictionary=True, **options)
    leaf = "c.list.element" if name == "list" else "c"
    return write(table, column_encoding={leaf: encoding}, **options)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(("name", "encoding"), CASES)
def test_every_encoding(name: str, encoding: str, version: str) -> None:
    data = file_of(name, encoding, data_page_version=version)
    want = expected(data)
    assert len(want) >= 2
    for bounds in (False, True):
        assert hashes(data, bounds=bounds) == (want, True)


def typed(data: bytes) -> tuple[set[int], bool]:
    """Hashes of the values that the pages give in the file's Arrow type, entries in use alone."""
    source = BytesSource(data)
    footer = read_footer(source)
    chunk = footer.row_groups[0].columns[0]
    found: set[int] = set()

    def take(values: Values) -> None:
        found.update(hash_arrow(values.typed(chunk.leaf), chunk.leaf.encoding).tolist())

    taker = StoredValues(chunk.leaf, take, only_used=True)
    take_values(source, chunk, footer.row_groups[0].num_rows, taker)
    return found, taker.complete


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(("name", "encoding"), CASES)
def test_values_of_every_type(name: str, encoding: str, version: str) -> None:
    data = file_of(name, encoding, data_page_version=version)
    check_typed(read_footer(BytesSource(data)).columns[0])
    assert typed(data) == (expected(data), True)


def test_entries_that_no_row_uses_are_left_out() -> None:
    """A chunk that fell back from a dictionary with entries of its own."""
    words = pa.array([f"word {n}" for n in range(300)])
    indices = pa.array([1, 5, 5, None, 17] * 400, pa.int32())
    table = pa.table({"c": pa.DictionaryArray.from_arrays(indices, words)})
    data = write(table, use_dictionary=True, store_schema=False)
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    assert read_dictionary(BytesSource(data), chunk).num_values == 300
    want = hash_arrow(words.take(pa.array([1, 5, 17])), chunk.leaf.encoding).tolist()
    assert typed(data) == (set(want), True)
    everything = hash_arrow(words, chunk.leaf.encoding).tolist()
    assert hashes(data, bounds=False) == (set(everything), True)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array([1.5], pa.float16()),
        pa.array([Decimal("1.5")], pa.decimal256(60, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_types_that_only_pyarrow_knows_are_refused(values: pa.Array[Any]) -> None:
    leaf = read_footer(BytesSource(write(pa.table({"c": values})))).columns[0]
    with pytest.raises(UnsupportedFeatureError):
        check_typed(leaf)


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "dictionary"])
def test_every_codec(codec: str, encoding: str) -> None:
    plain = file_of("string", encoding)
    assert hashes(rewrite(plain, CODECS[codec]), bounds=False) == (expected(plain), True)


def test_a_chunk_that_fell_back_from_its_dictionary() -> None:
    values = [f"value {n}" for n in range(2000)]
    data = write(pa.table({"c": values}), use_dictionary=True, dictionary_pagesize_limit=500)
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    assert {0, 8} <= set(chunk.encodings)
    assert hashes(data, bounds=True) == (expected(data), True)


def test_what_cannot_be_decoded_is_not_complete() -> None:
    data = rewrite(file_of("string", "PLAIN"), LZO)
    for bounds in (False, True):
        _, complete = hashes(data, bounds=bounds)
        assert not complete


def test_values_beyond_a_page_are_damage() -> None:
    data = bytearray(file_of("string", "PLAIN", data_page_version="1.0"))
    at = data.index(b"\x05\0\0\0value")
    data[at + 1] = 0xFF
    with pytest.raises(DamagedFileError, match="longer than the rest of its page"):
        hashes(bytes(data), bounds=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=8)), max_size=4)), max_size=60),
    st.sampled_from(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "dictionary"]),
    st.sampled_from(["1.0", "2.0"]),
    st.sampled_from(["none", "snappy", "zstd"]),
)
def test_any_lists(rows: list[Any], encoding: str, version: str, codec: str) -> None:
    table = pa.table({"c": pa.array(rows, pa.list_(pa.string()))})
    options: dict[str, Any] = {"data_page_version": version, "compression": codec}
    if encoding == "dictionary":
        options["use_dictionary"] = True
    else:
        options["column_encoding"] = {"c.list.element": encoding}
    data = write(table, **options)
    if not rows:
        return
    # not as pyarrow reads them: pyarrow 26 loses the rows of a DELTA_BYTE_ARRAY page of empty strings alone
    values = pa.array([value for row in rows for value in row or ()], pa.string())
    want = set(hash_arrow(values, read_footer(BytesSource(data)).columns[0].encoding).tolist())
    assert hashes(data, bounds=False) == (want, True)


def test_a_long_column_of_many_batches() -> None:
    values = [f"{n:x}" * (n % 50) for n in np.random.default_rng(1).integers(0, 2**40, 60_000).tolist()]
    data = write(
        pa.table({"c": values}), column_encoding={"c": "DELTA_BYTE_ARRAY"}, data_page_size=100_000,
        write_batch_size=1024, max_rows_per_page=20_000,
    )  # fmt: skip
    assert hashes(data, bounds=False) == (expected(data), True)
