"""parquet-java and Spark read embedded files: the filters and page indexes are found, believed and used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.embedding.embed import embed
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.page_indexes.page_index import OffsetIndex
from tests.embedding.cases import chunks, flat, leaf_paths, nested, opened, written
from tests.embedding.parquet_java import ParquetJava
from tests.parquet.single_indexes import read_column_index, read_offset_index
from tests.spark.frames import collected

pytestmark = pytest.mark.jvm
PLACEMENTS = pytest.mark.parametrize("placement", ["end", "row-group"])
ROWS = 10_000
ODD = ("wide", "empty", "holes")


@pytest.fixture(scope="module")
def java(spark: Any) -> ParquetJava:
    return ParquetJava(spark._jvm)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten row groups of random even keys beyond 32 bits, and ``n``, sorted, in many pages."""
    rng = np.random.default_rng(11)
    keys = rng.integers(2**32, 2**40, ROWS) * 2
    table = pa.table(
        {"k": keys, "s": [f"s{k}" for k in keys], "n": np.arange(ROWS) + 2**40, "d": rng.normal(size=ROWS)}
    )
    folder = tmp_path_factory.mktemp("java")
    files = {"plain": folder / "plain.parquet"}
    written(
        files["plain"],
        table,
        row_group_size=1000,
        data_page_size=1000,
        write_batch_size=100,
        use_dictionary=False,
    )
    for placement in ("end", "row-group"):
        files[placement] = folder / f"{placement}.parquet"
        embed(str(files["plain"]), into=str(files[placement]), bloom=["k", "s"], page_index=True, placement=placement)
    return files


@PLACEMENTS
def test_row_groups_are_skipped_by_filters(java: ParquetJava, clustered: dict[str, Path], placement: str) -> None:
    table = pq.read_table(clustered["plain"])
    path = clustered[placement]
    for column in ("k", "s"):
        for row in (0, 1234, 9999):
            present = table[column][row].as_py()
            assert 1 <= java.row_groups(path, java.equals(column, present), useBloomFilter=True) <= 3
    absent = [int(table["k"][row].as_py()) + 1 for row in range(0, ROWS, 500)]
    left = [java.row_groups(path, java.equals("k", value), useBloomFilter=True) for value in absent]
    assert sum(left) <= 10, f"{left} of 10 each: more than 5 % false"
    left = [java.row_groups(path, java.equals("s", f"s{value}"), useBloomFilter=True) for value in absent]
    assert sum(left) <= 10
    for value in absent[:3]:
        assert java.row_groups(path, java.equals("k", value), useBloomFilter=False) == 10
        assert java.row_groups(clustered["plain"], java.equals("k", value), useBloomFilter=True) == 10


@PLACEMENTS
def test_pages_are_skipped_by_page_indexes(java: ParquetJava, clustered: dict[str, Path], placement: str) -> None:
    for row in (0, 4321, 9999):
        predicate = java.equals("n", row + 2**40)
        assert 1 <= java.rows(clustered[placement], predicate) <= 200
        assert java.rows(clustered["plain"], predicate) == ROWS
    assert java.rows(clustered[placement], java.equals("n", 2**41)) == 0


@PLACEMENTS
def test_every_index_is_read_as_it_was_written(java: ParquetJava, tmp_path: Path, placement: str) -> None:
    most_pages = 0
    for name, table, dictionary in (
        ("flat", flat(2000), True),
        ("nested", nested(1000), True),
        ("pages", flat(2000), False),
    ):
        source = written(
            tmp_path / f"{name}.parquet",
            table,
            row_group_size=700,
            data_page_size=2000,
            write_batch_size=100,
            use_dictionary=dictionary,
        )
        path = tmp_path / f"{name}-{placement}.parquet"
        columns = leaf_paths(source)
        embed(str(source), into=str(path), bloom=columns, page_index=True, placement=placement)
        file, footer = opened(path)
        reader = java.open(path)
        blocks = list(reader.getFooter().getBlocks())
        theirs = [column for block in blocks for column in block.getColumns()]
        pages = [found for block in blocks for found in java.offset_indexes(reader, block)]
        found = 0
        for chunk, column, their_pages in zip(chunks(footer), theirs, pages, strict=True):
            offsets, index = read_offset_index(file, footer, chunk), read_column_index(file, footer, chunk)
            their_index = reader.readColumnIndex(column)
            assert offsets is not None
            assert their_pages == pages_of(offsets)
            if index is not None and their_index is not None:
                assert list(their_index.getNullPages()) == index.null_pages
                assert list(their_index.getNullCounts()) == index.null_counts
                assert java.bytes_of(their_index.getMinValues()) == index.min_values
                assert java.bytes_of(their_index.getMaxValues()) == index.max_values
                found += 1
            ours, their_filter = read_bloom_filter(file, chunk), reader.readBloomFilter(column)
            assert (ours is None) == (their_filter is None)
            if ours is not None:
                assert their_filter.getBitsetSize() == ours.bitset_length
        reader.close()
        assert found >= len(columns), "column indexes that parquet-java accepts"
        most_pages = max(most_pages, *map(len, pages))
    assert most_pages > 3


def odd_files(folder: Path) -> dict[str, Path]:
    """A thousand columns; no row group; row groups without rows at the start, in the middle and at the end."""
    files = {name: folder / f"{name}.parquet" for name in ODD}
    written(files["wide"], pa.table({f"c{n}": np.arange(50) * n + 2**40 for n in range(1000)}))
    table = flat(500)
    pq.ParquetWriter(files["empty"], table.schema).close()
    with pq.ParquetWriter(files["holes"], table.schema) as writer:
        for start, rows in ((0, 0), (0, 300), (0, 0), (300, 200), (0, 0)):
            writer.write_table(table.slice(start, rows))
    return files


@pytest.fixture(scope="module")
def odd(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """The odd files, each with its rows as Spark reads them."""
    files = odd_files(tmp_path_factory.mktemp("odd"))
    return {name: (path, list(map(repr, spark.read.parquet(str(path)).collect()))) for name, path in files.items()}


@PLACEMENTS
@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_are_read_with_their_indexes(
    spark: Any,
    java: ParquetJava,
    odd: dict[str, tuple[Path, list[str]]],
    tmp_path: Path,
    placement: str,
    name: str,
) -> None:
    source, rows = odd[name]
    path = tmp_path / "embedded.parquet"
    columns = [c for c in leaf_paths(source) if c not in ("flag", "none")]
    options: dict[str, Any] = {"placement": placement}
    embed(str(source), into=str(path), bloom=columns, page_index=True, **options)
    reader = java.open(path)
    file, footer = opened(path)
    filters = 0
    for block, group in zip(reader.getFooter().getBlocks(), footer.row_groups, strict=True):
        if group.num_rows:
            ours = [read_offset_index(file, footer, chunk) for chunk in group.columns]
            pages = [[] if offsets is None else pages_of(offsets) for offsets in ours]
            assert java.offset_indexes(reader, block) == pages
        filters += java.count_filters(reader, block)
    reader.close()
    assert filters == {"wide": 1000, "empty": 0, "holes": filters}[name]
    assert name != "holes" or filters >= 2 * len(columns)
    frame = spark.read.parquet(str(path))
    assert list(map(repr, frame.collect())) == rows
    if name == "wide":
        assert frame.where(f"c999 = {2**40 + 999 * 7}").select("c0").collect()[0][0] == 2**40
        assert java.row_groups(path, java.equals("c7", 2**40 + 1), useBloomFilter=True) == 0
    if name == "holes":
        key = pq.read_table(source)["k"][321].as_py()
        assert [row["k"] for row in frame.where(f"k = {key}").collect()] == [key]


def pages_of(offsets: OffsetIndex) -> list[tuple[int, ...]]:
    return list(zip(offsets.offsets, offsets.compressed_page_sizes, offsets.first_row_indexes, strict=True))


@PLACEMENTS
def test_spark_reads_the_right_rows(spark: Any, clustered: dict[str, Path], tmp_path: Path, placement: str) -> None:
    table = pq.read_table(clustered["plain"])
    frame = spark.read.parquet(str(clustered[placement]))
    wanted = {f"n between {2**40 + 990} and {2**40 + 1010}": [*range(2**40 + 990, 2**40 + 1011)]}
    for row in (0, 4321, 9999):
        key, text = table["k"][row].as_py(), table["s"][row].as_py()
        n = row + 2**40
        for predicate in (
            f"k = {key}",
            f"s = '{text}'",
            f"n = {n}",
            f"n >= {n} and n < {n} + 1",
            f"k in ({key}, 7)",
        ):
            wanted[predicate] = [n]
        wanted[f"k = {key + 1}"] = []
    found = collected([frame.where(predicate).select("n") for predicate in wanted])
    assert {p: [row["n"] for row in rows] for p, rows in zip(wanted, found, strict=True)} == wanted
    assert frame.exceptAll(spark.read.parquet(str(clustered["plain"]))).count() == 0
    assert frame.count() == ROWS


@PLACEMENTS
@pytest.mark.parametrize(
    ("table", "predicates"),
    [
        (
            flat(3000),
            ("d = 0.0", "d = -0.0", "d = double('NaN')", "d > 2", "f > 2", "i is null", "small = 'x1'"),
        ),
        (nested(1500), ("id = 77", "pair.x = 8589934592", "tags is null", "pair.y is not null")),
    ],
    ids=["flat", "nested"],
)
def test_spark_loses_no_row_by_our_indexes(
    spark: Any, tmp_path: Path, placement: str, table: pa.Table, predicates: tuple[str, ...]
) -> None:
    """The writer leaves no statistics: Spark would lose NaN by them already."""
    source = written(
        tmp_path / "plain.parquet",
        table,
        row_group_size=1000,
        data_page_size=2000,
        write_batch_size=100,
        write_statistics=False,
    )
    path = tmp_path / "embedded.parquet"
    embed(str(source), into=str(path), bloom=leaf_paths(source), page_index=True, placement=placement)
    asked = ("true", *predicates)
    plain, found = (
        collected([spark.read.parquet(str(file)).where(predicate) for predicate in asked]) for file in (source, path)
    )
    for predicate, expected, rows in zip(asked, plain, found, strict=True):
        assert expected, predicate
        assert list(map(repr, rows)) == list(map(repr, expected)), predicate
