"""What a pruned scan of a plain file reads, counted below it, page by page."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, UsageError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.parquet.pages import walk_pages
from sidecar.reading.file_scanning import FileScan, open_scan
from sidecar.storage.source import BytesSource

ROWS = 200_000


class Recorded(BytesSource):
    """Remembers every range that was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.ranges: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, offset + length))
        return super().read(offset, length)

    def touches(self, start: int, end: int) -> bool:
        return any(a < end and start < b for a, b in self.ranges[1:])  # the first is the file's tail

    def data_pages(self) -> Counter[str]:
        """Data pages of each leaf that were read, wholly or in part."""
        source = BytesSource(bytes(self._data))
        return Counter(
            chunk.leaf.path
            for group in read_footer(source).row_groups
            for chunk in group.columns
            for page in walk_pages(source, chunk)
            if page.is_data and self.touches(page.offset, page.end)
        )

    def indexes(self) -> int:
        """Page indexes and Bloom filters that were read, wholly or in part."""
        footer = read_footer(BytesSource(bytes(self._data)))
        places = [
            (offset, length)
            for group in footer.row_groups
            for c in group.columns
            for offset, length in (
                (c.column_index_offset, c.column_index_length),
                (c.offset_index_offset, c.offset_index_length),
                (c.bloom_filter_offset, c.bloom_filter_length),
            )
        ]
        return sum(self.touches(offset, offset + length) for offset, length in places if offset and length)


@cache
def table() -> pa.Table:
    rows, rng = ROWS, np.random.default_rng(5)
    return pa.table(
        {
            "k": pa.array(np.arange(rows) * 3),
            "noise": rng.integers(0, 2**62, rows),
            "real": rng.random(rows),
            "text": pa.array([f"{i:08x}" * 4 for i in rng.integers(0, 2**32, rows)]),
            "pair": pa.array([{"a": int(i), "b": {"c": str(i)}} for i in range(rows)]),
            "list": pa.array([[i] * (i % 4) for i in range(rows)]),
        }
    )


def write(data: pa.Table, **options: Any) -> bytes:
    sink = BytesIO()
    defaults: dict[str, Any] = {
        "row_group_size": 100_000,
        "compression": "none",
        "use_dictionary": False,
        "write_page_index": True,
        "data_page_size": 64 * 1024,
    }
    pq.write_table(data, sink, **(defaults | options))
    return sink.getvalue()


@pytest.fixture(scope="module")
def data() -> bytes:
    return write(table())


def scanned(data: bytes, predicate: str, columns: list[str] | None = None) -> tuple[pa.Table, Recorded, FileScan]:
    source = Recorded(data)
    with open_scan(source, predicate, columns) as scan:
        return scan.to_table(), source, scan


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_lookup_on_a_sorted_column_reads_one_data_page_of_each_projected_leaf(version: str) -> None:
    data = write(table(), data_page_version=version)
    rows, source, scan = scanned(data, "k = 300003")
    assert rows["k"].to_pylist() == [300003]
    pages = {leaf.path: 1 for leaf in read_footer(BytesSource(data)).columns}
    assert len(pages) == 7
    assert source.data_pages() == pages
    assert scan.report.data_pages == 7
    assert source.indexes() > 0


def test_a_lookup_of_some_columns_reads_nothing_of_the_others(data: bytes) -> None:
    rows, source, _ = scanned(data, "k = 300003", ["text", "pair.b"])
    assert rows.column_names == ["text", "pair"]
    assert rows["pair"].to_pylist() == [{"b": {"c": "100001"}}]
    assert source.data_pages() == {"k": 1, "text": 1, "pair.b.c": 1}


@pytest.mark.parametrize(
    "predicate",
    [
        "true",
        "k != 3",
        "k not in (3, 6)",
        "k >= 0",  # the statistics say that all do
        "k < 5000000 and noise >= 0",
        "k is not null",  # and that there are no nulls
        "k = 3 or real is not nan",  # the OR cannot be narrowed down
        "k = 3 or text not like '0%'",
        "pair is not null",
    ],
)
def test_a_scan_that_no_index_can_help_reads_none_of_it(data: bytes, predicate: str) -> None:
    rows, source, scan = scanned(data, predicate, ["k"])
    assert rows.num_rows > 0.9 * ROWS
    assert source.indexes() == 0
    assert scan.report.index_reads == 0


@pytest.mark.parametrize("predicate", ["k = 600001", "k < 0", "k > 700000 and noise = 5", "k is null", "false"])
def test_what_statistics_settle_reads_the_footer_alone(data: bytes, predicate: str) -> None:
    rows, source, scan = scanned(data, predicate)
    assert rows.num_rows == 0
    assert rows.schema.equals(pq.read_schema(BytesIO(data)))
    assert len(source.ranges) == 1
    assert scan.report.dropped["statistics"] == 2


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_one_percent_of_the_pages_is_less_than_three_percent_of_the_bytes(codec: str) -> None:
    data = write(table(), compression=codec, data_page_size=8 * 1024)
    first = 120_000
    rows, source, scan = scanned(data, f"k >= {3 * first} and k < {3 * (first + 900)}")
    assert rows.equals(table().slice(first, 900))
    source_of_all = BytesSource(data)
    chunks = [c for g in read_footer(source_of_all).row_groups for c in g.columns]
    pages = sum(page.is_data for chunk in chunks for page in walk_pages(source_of_all, chunk))
    assert 0.008 < scan.report.data_pages / pages < 0.013
    read = sum(end - start for start, end in source.ranges)
    assert read == scan.report.bytes_read
    assert read < 0.03 * len(data)


def test_rows_that_match_far_apart_are_read_as_their_pages(data: bytes) -> None:
    rows, source, _ = scanned(data, "k in (9, 60000, 250002, 599997)")
    assert rows["k"].to_pylist() == [9, 60000, 250002, 599997]
    pages = source.data_pages()
    assert pages["k"] == 4
    assert max(pages.values()) <= 4


def test_the_leaves_of_a_list_are_read_by_their_own_pages() -> None:
    """One leaf has more pages than the other: few of either are read, and no offset index is doubted."""
    rows = 20_000
    lists = [[{"number": row, "text": f"{row:020}"}] * (row % 4) for row in range(rows)]
    content = pa.table({"k": pa.array(range(rows), pa.int64()), "list": lists})
    data = write(content, row_group_size=rows, data_page_size=4 * 1024, write_batch_size=64)
    found, source, scan = scanned(data, "k >= 7000 and k < 7003")
    assert found.equals(content.slice(7000, 3))
    assert scan.report.warnings == []
    read, whole = source.data_pages(), scanned(data, "k >= 0")[1].data_pages()
    number, text = "list.list.element.number", "list.list.element.text"
    assert whole[number] < whole[text]
    assert {leaf: 10 * count <= whole[leaf] for leaf, count in read.items()} == {
        "k": True,
        number: True,
        text: True,
    }, (read, whole)


def test_positions_of_rows(data: bytes) -> None:
    with open_scan(BytesSource(data), "k in (0, 3, 6, 300003) or k between 450000 and 450009", ["k"]) as scan:
        found = list(scan.found())
    positions = [0, 1, 2, 100_001, 150_000, 150_001, 150_002, 150_003]
    assert [p for f in found for p in f.positions.tolist()] == positions
    rows = [k for f in found for k in f.rows["k"].to_pylist()]
    assert rows == [0, 3, 6, 300003, 450000, 450003, 450006, 450009]


def test_a_limit_ends_the_reading(data: bytes) -> None:
    source = Recorded(data)
    with open_scan(source, "k >= 30", ["k"], limit=5) as scan:
        assert scan.to_table()["k"].to_pylist() == [30, 33, 36, 39, 42]
    assert scan.report.row_groups_read == 1
    with pytest.raises(UsageError, match="negative"):
        sidecar.scan(source, "k >= 30", limit=-1)
    assert sidecar.scan(source, "k >= 30", limit=0).num_rows == 0


# --- filters and dictionaries -------------------------------------------------------------------------------


@cache
def scattered() -> bytes:
    """Even numbers in no order, in two row groups with filters."""
    values = np.arange(100_000) * 7919 % 1_000_003 * 2
    options = {"x": {"ndv": 50_000, "fpp": 0.001}}
    return write(pa.table({"x": values}), row_group_size=50_000, bloom_filter_options=options)


@cache
def absent_value(data: bytes) -> int:
    """A value inside the bounds of every page that no filter takes for there."""
    source = BytesSource(data)
    footer = read_footer(source)
    filters = [read_bloom_filter(source, group.columns[0]) for group in footer.row_groups]
    return next(
        value
        for value in range(1_000_001, 1_001_001, 2)
        if not any(f is None or f.filter.might_contain(value, "long", footer.columns[0].encoding) for f in filters)
    )


def test_a_filter_drops_row_groups_that_bounds_keep() -> None:
    data = scattered()
    rows, source, scan = scanned(data, f"x = {absent_value(data)}")
    assert rows.num_rows == 0
    assert scan.report.dropped["filter"] == 2
    assert not source.data_pages()
    present = pq.read_table(BytesIO(data))["x"][70_000].as_py()
    rows, _, scan = scanned(data, f"x = {present}")
    assert rows["x"].to_pylist() == [present]
    assert scan.report.dropped["filter"] == 1


@pytest.mark.parametrize("absent_first", [True, False])
def test_a_list_of_which_the_filter_knows_one_value_finds_its_rows(absent_first: bool) -> None:
    data = scattered()
    rows = pq.read_table(BytesIO(data))
    absent = absent_value(data)
    for position in (0, 49_999, 50_000, 99_999):
        present = rows["x"][position].as_py()
        asked = f"x in ({absent}, {present})" if absent_first else f"x in ({present}, {absent})"
        found, _, scan = scanned(data, asked)
        assert found.equals(rows.filter(pc.field("x") == present))
        assert scan.report.dropped["filter"] == 1


def test_a_filter_larger_than_the_pages_that_are_left_is_not_read() -> None:
    data = write(
        pa.table({"k": np.arange(100_000) * 2}),
        bloom_filter_options={"k": {"ndv": 100_000, "fpp": 0.0001}},
    )
    rows, source, scan = scanned(data, "k = 100001")
    assert rows.num_rows == 0
    footer = read_footer(BytesSource(data))
    chunk = footer.row_groups[0].columns[0]
    assert chunk.bloom_filter_offset
    assert chunk.bloom_filter_length
    start = chunk.bloom_filter_offset
    assert not source.touches(start, start + chunk.bloom_filter_length)
    assert source.data_pages() == {"k": 1}
    assert scan.report.dropped["filter"] == 0


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize(
    ("values", "asked"),
    [
        (pa.array([1, 5, 9], pa.int64()), "x = 4"),
        (pa.array([1, 5, 9], pa.int32()), "x in (2, 3)"),
        (pa.array(["ape", "cat", "emu"]), "x = 'dog'"),
        (pa.array([b"ab", b"cd", b"ef"], pa.binary(2)), "x = '0x6364ff'"),
        (pa.array([1.5, -0.0, 2.5]), "x = 1.0"),
    ],
    ids=["int64", "int32", "string", "fixed", "double"],
)
def test_a_chunk_wholly_in_a_dictionary_is_probed_by_it(values: Any, asked: str, codec: str) -> None:
    rows = pa.table({"x": values.take(pa.array(np.arange(30_000) % 3))})
    data = write(rows, use_dictionary=True, compression=codec, row_group_size=10_000)
    if "ff" in asked:
        with pytest.raises(UsageError):
            sidecar.scan(BytesSource(data), asked)
        asked = "x = '0x6365'"
    found, source, scan = scanned(data, asked)
    assert found.num_rows == 0
    assert scan.report.dropped["dictionary"] == 3
    assert not source.data_pages()
    for value in ("x = 0.0",) if pa.types.is_floating(values.type) else ():
        assert sidecar.scan(BytesSource(data), value).num_rows == 10_000


@pytest.mark.parametrize("asked", itertools.permutations(["cat", "dog", "dot"]), ids=" ".join)
def test_a_list_of_which_the_dictionary_holds_one_value_finds_its_rows(asked: tuple[str, ...]) -> None:
    rows = pa.table({"x": pa.array(["ape", "cat", "emu"]).take(pa.array(np.arange(30_000) % 3))})
    data = write(rows, use_dictionary=True, row_group_size=10_000)
    found, _, scan = scanned(data, f"x in {asked}")
    assert found.equals(rows.filter(pc.field("x") == "cat"))
    assert scan.report.dropped["dictionary"] == 0


def test_a_dictionary_that_holds_the_value_is_fetched_once() -> None:
    data = write(pa.table({"x": [f"v{i % 50}" for i in range(50_000)]}), use_dictionary=True)
    _, source, _ = scanned(data, "x = 'v7'")
    chunk = read_footer(BytesSource(data)).row_groups[0].columns[0]
    assert sum(start <= chunk.start < end for start, end in source.ranges[1:]) <= 2  # probe, then whole chunk


def test_small_chunks_of_a_row_group_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many files in memory as there are row groups. What is wrong with a chunk is found one by one."""
    rows = pa.table({f"c{n}": pa.array([n, None, 3, n] * 10) for n in range(12)} | {"l": [[1], [], None, [2, 3]] * 10})
    sink = BytesIO()
    pq.write_table(rows, sink, row_group_size=10, compression="none")
    opened = list[Any]()
    read = pq.ParquetFile.read
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *given, **options: opened.append(1) or read(*given, **options))
    assert sidecar.scan(BytesSource(sink.getvalue())).equals(rows)
    assert len(opened) == 4
    data = bytearray(sink.getvalue())
    chunk = pq.read_metadata(BytesIO(sink.getvalue())).row_group(2).column(7)
    data[chunk.data_page_offset] ^= 0xFF
    with pytest.raises(DamagedFileError, match="column c7"):
        sidecar.scan(BytesSource(bytes(data)))
