"""Files written here and now, by pyarrow, DuckDB and polars: filters, dictionaries and what rows use of them."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.filters.array_hash import hash_arrow
from sidecar.parquet.bloom import FoundFilter, read_bloom_filter
from sidecar.parquet.dictionary import read_dictionary, read_used
from sidecar.parquet.footer import ColumnChunk, read_footer
from sidecar.parquet.inspect import probe_file
from sidecar.parquet.pages import wholly_dictionary
from sidecar.parquet.stored_values import entries_of
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource, Source

CODECS = ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"]


def written(table: pa.Table, **options: Any) -> BytesSource:
    out = BytesIO()
    pq.write_table(table, out, **options)
    return BytesSource(out.getvalue())


def chunks(source: Source) -> list[ColumnChunk]:
    return [chunk for group in read_footer(source).row_groups for chunk in group.columns]


TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -3, None]),
    (pa.int32(), [1, -3, None, 2**31 - 1]),
    (pa.int64(), [1, -3, None, -(2**63)]),
    (pa.uint32(), [1, 2**32 - 1]),
    (pa.uint64(), [1, 2**64 - 1]),
    (pa.float32(), [1.5, -2.25, None]),
    (pa.float64(), [1.5, float("inf"), None]),
    (pa.date32(), [0, 19000, None]),
    (pa.time32("ms"), [0, 86399999]),
    (pa.time64("us"), [0, 86399999999]),
    (pa.timestamp("ms"), [0, 10**12]),
    (pa.timestamp("us"), [0, 10**15, None]),
    (pa.timestamp("us", "UTC"), [0, 10**15, None]),
    (pa.timestamp("ns"), [0, 10**18 + 1]),
    (pa.string(), ["", "a", "ż" * 40, None]),
    (pa.binary(), [b"", b"\xff\x00", None]),
    (pa.binary(5), [b"12345", b"abcde", None]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.01"), None]),
    (pa.decimal128(18, 4), [Decimal("1.5000"), Decimal("-99999999999999.9999")]),
    (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-1234567890123456789012345678.0123456789")]),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
@pytest.mark.parametrize("integers", [False, True], ids=["flba", "integer"])
def test_dictionaries_equal_what_pyarrow_reads(kind: pa.DataType, values: list[Any], integers: bool) -> None:
    column = pa.array(values * 3, kind)
    source = written(pa.table({"c": column}), store_decimal_as_integer=integers)
    (chunk,) = chunks(source)
    assert wholly_dictionary(source, chunk)
    page = read_dictionary(source, chunk)
    entries = page.to_arrow(chunk.leaf)
    entries.validate(full=True)
    theirs = pq.read_table(pa.BufferReader(source.read(0, source.size)))["c"].unique().drop_null()
    assert entries.cast(theirs.type).to_pylist() == theirs.to_pylist()
    assert read_used(source, chunk)[1].all()
    want = hash_arrow(column, chunk.leaf.encoding)
    stored = entries_of(page, read_used(source, chunk)[1])
    assert set(stored.hashes(chunk.leaf.encoding).tolist()) == set(want.tolist())
    assert set(hash_arrow(entries, chunk.leaf.encoding).tolist()) == set(want.tolist())


def test_types_without_a_counterpart_are_named() -> None:
    table = pa.table({"c": pa.array([1, 2], pa.timestamp("ns"))})
    source = written(table, use_deprecated_int96_timestamps=True)
    (chunk,) = chunks(source)
    page = read_dictionary(source, chunk)
    assert page.num_values == 2
    with pytest.raises(UnsupportedFeatureError, match="not read"):
        page.to_arrow(chunk.leaf)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_codec_and_page_version(codec: str, version: str) -> None:
    rng = np.random.default_rng(3)
    column = pa.array([f"text {i % 97}" if i % 7 else None for i in rng.integers(0, 1000, 5000)])
    options = {"compression": codec, "data_page_version": version, "write_page_checksum": True}
    source = written(pa.table({"c": column, "l": pa.array([[1, None], [], None, [2]] * 1250)}), **options)
    for chunk, values in zip(chunks(source), (column, [1, 2]), strict=True):
        page = read_dictionary(source, chunk)
        assert read_used(source, chunk)[1].all()
        assert sorted(page.to_arrow(chunk.leaf).to_pylist(), key=str) == sorted(
            {v for v in pa.array(values).to_pylist() if v is not None}, key=str
        )
    assert verify_file(source) == []


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@given(
    indices=st.lists(st.one_of(st.none(), st.integers(0, 39)), min_size=1, max_size=400),
    repeat=st.integers(1, 30),
)
@settings(max_examples=25, deadline=None)
def test_entries_that_no_row_uses_are_told_apart(version: str, indices: list[int | None], repeat: int) -> None:
    """pyarrow writes the whole dictionary of a dictionary array, used or not."""
    dictionary = pa.array([f"entry {i}" for i in range(40)])
    rows = pa.array([i for i in indices for _ in range(repeat)], pa.int32())
    table = pa.table({"c": pa.DictionaryArray.from_arrays(rows, dictionary)})
    source = written(table, data_page_version=version, data_page_size=64, write_batch_size=16)
    (chunk,) = chunks(source)
    if not wholly_dictionary(source, chunk):
        return
    page = read_dictionary(source, chunk)
    assert page.num_values == 40
    used = read_used(source, chunk)[1]
    assert set(np.flatnonzero(used).tolist()) == {i for i in indices if i is not None}


@given(
    cells=st.lists(
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)))))),
        min_size=1,
        max_size=60,
    ),
    version=st.sampled_from(["1.0", "2.0"]),
)
@settings(max_examples=40, deadline=None)
def test_levels_of_nested_columns_are_skipped_exactly(cells: list[Any], version: str) -> None:
    column = pa.array(cells, pa.list_(pa.list_(pa.int64())))
    source = written(pa.table({"c": column}), data_page_version=version, data_page_size=32, write_batch_size=8)
    (chunk,) = chunks(source)
    values = {v for outer in cells if outer for inner in outer if inner for v in inner if v is not None}
    if wholly_dictionary(source, chunk):
        page = read_dictionary(source, chunk)
        assert set(page.to_arrow(chunk.leaf).filter(pa.array(read_used(source, chunk)[1])).to_pylist()) == values


def test_a_chunk_that_fell_back_is_not_wholly_dictionary() -> None:
    column = pa.array([f"{i:0>40}" for i in range(20000)])
    source = written(pa.table({"c": column}), dictionary_pagesize_limit=4096, write_batch_size=100)
    (chunk,) = chunks(source)
    assert 8 in chunk.encodings
    assert not wholly_dictionary(source, chunk)
    without = strip_stats(chunk)
    assert not wholly_dictionary(source, without)


def test_without_encoding_stats_every_page_header_is_looked_at() -> None:
    source = CountingSource(written(pa.table({"c": [1, 2, 3] * 40000}), data_page_size=1024))
    (chunk,) = chunks(source)
    reads = source.reads
    assert wholly_dictionary(source, chunk)
    assert source.reads == reads
    assert wholly_dictionary(source, strip_stats(chunk))
    assert source.reads > reads


def strip_stats(chunk: ColumnChunk) -> ColumnChunk:
    from dataclasses import replace

    return replace(chunk, encoding_stats=None)


def test_reading_stops_when_every_entry_was_seen() -> None:
    rows = np.random.default_rng(1).integers(0, 2**14, 1_000_000)
    source = CountingSource(written(pa.table({"c": rows}), row_group_size=1 << 20, compression="NONE"))
    (chunk,) = chunks(source)
    source.bytes_read = 0
    assert read_used(source, chunk)[1].all()
    assert source.bytes_read < chunk.total_compressed_size / 2
    source.reads = 0
    read_dictionary(source, chunk)
    assert source.reads == 1


def test_filters_of_pyarrow_hold_every_value_and_prune() -> None:
    values = list(range(0, 30000, 3))
    options = {"k": {"ndv": 10000, "fpp": 0.01}}
    source = written(pa.table({"k": pa.array(values, pa.int32())}), bloom_filter_options=options, row_group_size=5000)
    for chunk in chunks(source):
        found = read_bloom_filter(source, chunk)
        assert isinstance(found, FoundFilter)
        assert found.trusted
        group = values[chunk.row_group * 5000 : (chunk.row_group + 1) * 5000]
        assert found.filter.check(hash_arrow(pa.array(group, pa.int32()), chunk.leaf.encoding)).all()
    assert [unit.might_contain for unit in probe_file(source, "k", "29997")] == [False, True]
    absent = sum(unit.might_contain is False for k in range(1, 600, 3) for unit in probe_file(source, "k", str(k)))
    assert absent > 360
    assert probe_file(source, "k", 3)[0].might_contain is True


def test_wrong_columns_and_literals_are_the_callers() -> None:
    source = written(pa.table({"number": [1], "s": pa.array([{"x": 1}])}))
    with pytest.raises(UsageError, match="Did you mean number"):
        probe_file(source, "numbr", "1")
    with pytest.raises(UsageError, match=r"Did you mean s\.x"):
        probe_file(source, "s", "1")
    with pytest.raises(UsageError, match="does not fit"):
        probe_file(source, "number", "1.5")
    (unit,) = probe_file(source, "number", "1")
    assert unit.to_dict() == {"row_group": 0, "might_contain": None, "reason": "no filter"}


def test_files_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql(
        "copy (select i % 1000 as k, 'v' || (i % 500) as s, (i % 100)::decimal(9,2) as d, "
        f"date '2024-01-01' + (i % 365)::int as day from range(50000) t(i)) to '{path}' (row_group_size 20480)"
    )
    source = LocalSource(str(path))
    assert verify_file(source) == []
    for literal, column in (("7", "k"), ("v7", "s"), ("7.00", "d"), ("2024-02-01", "day")):
        assert all(unit.might_contain is not False for unit in probe_file(source, column, literal)), column
    for literal, column in (("1000007", "k"), ("nothing", "s")):
        assert all(unit.might_contain is False for unit in probe_file(source, column, literal)), column
    for chunk in chunks(source):
        assert wholly_dictionary(source, chunk)
        assert read_used(source, chunk)[1].all()
        theirs = pq.ParquetFile(path).read_row_group(chunk.row_group, columns=[chunk.leaf.path]).column(0)
        entries = read_dictionary(source, chunk).to_arrow(chunk.leaf)
        assert sorted(entries.cast(theirs.type).to_pylist()) == sorted(theirs.unique().to_pylist())


def test_files_of_polars(tmp_path: Path) -> None:
    path = tmp_path / "polars.parquet"
    frame = pl.DataFrame({"k": [i % 50 for i in range(5000)], "s": [f"s{i % 20}" for i in range(5000)]})
    frame.write_parquet(path)
    source = LocalSource(str(path))
    assert verify_file(source) == []
    assert [leaf.encoding.name for leaf in read_footer(source).columns] == ["int64", "byte_array"]
    for chunk in chunks(source):
        if wholly_dictionary(source, chunk):
            entries = read_dictionary(source, chunk).to_arrow(chunk.leaf)
            used = entries.filter(pa.array(read_used(source, chunk)[1]))
            assert set(used.cast(pa.large_string()).to_pylist()) == set(
                pq.read_table(path)[chunk.leaf.path].unique().cast(pa.large_string()).to_pylist()
            )


def test_many_columns_and_an_empty_file() -> None:
    wide = written(pa.table({f"c{i}": [i] for i in range(1000)}))
    footer = read_footer(wide)
    assert len(footer.columns) == 1000
    assert footer.leaf("c999") is footer.columns[999]
    empty = read_footer(written(pa.table({"a": pa.array([], pa.int64())})))
    assert empty.num_rows == 0
    assert verify_file(written(pa.table({"a": pa.array([], pa.int64())}))) == []


def test_a_long_footer_takes_two_reads() -> None:
    source = CountingSource(written(pa.table({f"column number {i}": [i] for i in range(2000)})))
    assert read_footer(source).length > 64 * 1024
    assert source.reads == 2
