"""One page of a column chunk is held against its filter, bounds and nulls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.data_files.chunk_check import GivenIndexes, ask_pages
from sidecar.errors import DamagedFileError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.page_indexes.page_index import read_page_indexes
from sidecar.storage.local import LocalSource
from sidecar.storage.ranges import digest_ranges
from sidecar.storage.source import CountingSource
from tests.embedding.cases import nested, opened
from tests.embedding.witness_cases import extracted, indexed_file, write


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    return indexed_file(tmp_path)


def _chunks(path: Path) -> Iterator[tuple[Any, Any, Any, GivenIndexes]]:
    """Each chunk of a file, and the indexes that the file has of it."""
    source, footer = opened(path)
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            found = read_bloom_filter(source, chunk) if chunk.bloom_filter_offset else None
            yield source, footer, chunk, GivenIndexes(found and found.filter, column, offset)


VARIANTS = {
    "dictionaries": {"use_dictionary": True},
    "v2 pages": {"data_page_version": "2.0", "compression": "zstd"},
    "delta": {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_nested_columns_nulls_and_floats_deny_nothing_of_their_own(tmp_path: Path, variant: str) -> None:
    """Values are looked up: each chunk that has a value denies an empty filter."""
    table = nested()
    numbers = [None] * 900 + [float(n % 50) if n % 7 else float("nan") for n in range(2100)]
    table = table.append_column("f", pa.array(numbers, pa.float64()))
    bare, path = tmp_path / "bare.parquet", tmp_path / "a.parquet"
    pq.write_table(table, bare, data_page_size=1500, **VARIANTS[variant])
    leaves = [leaf.path for leaf in opened(bare)[1].columns]
    sidecar.embed(str(bare), into=str(path), bloom=leaves, page_index=True)
    for whole in (False, True):
        for source, footer, chunk, given in _chunks(path):
            said = ask_pages(source, footer, chunk, given, whole=whole)
            assert (said.contradiction, said.not_compared) == ("", ""), chunk.leaf.path
            assert said.values > 0
            empty = GivenIndexes(SplitBlockBloomFilter.empty(8))
            assert "denies" in ask_pages(source, footer, chunk, empty, whole=whole).contradiction, chunk.leaf.path


def test_pages_of_nulls_are_passed_over_up_to_one_with_values(tmp_path: Path) -> None:
    values = pa.array([None] * 100_000 + list(range(100_000)), pa.int64())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": values}), path, use_dictionary=False, data_page_size=4096, write_page_index=True)
    ((source, footer, chunk, _),) = _chunks(path)
    given = GivenIndexes(SplitBlockBloomFilter.empty(8))
    assert ask_pages(source, footer, chunk, given, whole=False).contradiction


def test_a_large_dictionary_is_not_read_where_the_last_page_does_without(tmp_path: Path) -> None:
    path, values = tmp_path / "a.parquet", np.random.default_rng(1).permutation(100_000) * 7 + 1
    options: dict[str, Any] = {"dictionary_pagesize_limit": 256 << 10, "compression": "none"}
    pq.write_table(pa.table({"k": values}), path, write_page_index=True, max_rows_per_page=5_000, **options)
    ((source, footer, chunk, given),) = _chunks(path)
    column, offset = given.column_index, given.offset_index
    assert column is not None
    assert offset is not None
    counted, last = CountingSource(source), offset.num_pages - 1
    empty = SplitBlockBloomFilter.empty(8)
    said = ask_pages(counted, footer, chunk, GivenIndexes(empty, column, offset), whole=False)
    assert (said.pages, said.values, "denies" in said.contradiction) == (
        1,
        100_000 - offset.first_row_indexes[last],
        True,
    )
    assert counted.bytes_read < 128 << 10 < chunk.data_page_offset - chunk.start
    assert not (said := ask_pages(source, footer, chunk, given, whole=False)).contradiction + said.misplaced

    def asked(column: Any = column, offset: Any = offset) -> Any:
        return ask_pages(source, footer, chunk, GivenIndexes(None, column, offset), whole=False)

    high = [*column.min_values[:last], (1 << 40).to_bytes(8, "little")]
    assert f"page {last} has a value below" in asked(replace(column, min_values=high)).contradiction
    rows = replace(offset, first_row_indexes=offset.first_row_indexes + np.eye(1, last + 1, last, dtype=np.int64)[0])
    assert f"first_row_index of page {last}" in asked(offset=rows).misplaced
    moved = replace(offset, offsets=offset.offsets + 1)  # no page begins there, so the first one is read
    assert "offset of page 0" in asked(offset=moved).misplaced


@pytest.mark.parametrize(
    ("low", "high", "nulls", "problem"),
    [(5, 100, 0, "below its min_value"), (0, 50, 0, "above its max_value"), (0, 100, 3, "nulls")],
)
def test_a_page_is_held_against_its_bounds_and_nulls(
    tmp_path: Path, low: int, high: int, nulls: int, problem: str
) -> None:
    """The page index is that of another file, whose values do not reach as far, or that has nulls."""
    paths = []
    for name, numbers in (("a", [0, 100, *range(1, 99)]), ("b", [low, high, *range(low, low + 98)])):
        values: list[int | None] = list(numbers)
        if name == "b":
            values = [*values[:2], *[None] * nulls, *(min(v, high) for v in numbers[2 + nulls :])]
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), paths[-1], write_page_index=True)
    ((source, footer, chunk, _),) = _chunks(paths[0])
    ((_, _, _, other),) = _chunks(paths[1])
    for whole in (False, True):
        given = GivenIndexes(None, other.column_index)
        assert problem in ask_pages(source, footer, chunk, given, whole=whole).contradiction


def test_cut_bounds_are_outer_bounds(tmp_path: Path) -> None:
    """Long strings are cut; what lies between the cut bound and the value is no contradiction."""
    path = tmp_path / "a.parquet"
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"s": ["ä" * 200 + str(n) for n in range(500)]}), bare, use_dictionary=False)
    sidecar.embed(str(bare), into=str(path), bloom=["s"], page_index=True)
    ((source, footer, chunk, given),) = _chunks(path)
    assert len(given.column_index.max_values[0]) < 100  # type: ignore[union-attr]
    assert ask_pages(source, footer, chunk, given, whole=True).contradiction == ""


def test_one_page_costs_few_reads(tmp_path: Path) -> None:
    """A witness reads the dictionary and one page of a chunk of 2 MB, not the chunk."""
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(1).integers(0, 3000, 1_000_000)
    pq.write_table(
        pa.table({"k": values, "r": values * 2**40}),
        path,
        use_dictionary=["k"],
        compression="none",
        data_page_size=20_000,
        write_page_index=True,
    )
    for source, footer, chunk, given in _chunks(path):
        counted = CountingSource(source)
        given = GivenIndexes(SplitBlockBloomFilter(np.full((8, 8), 2**32 - 1, np.uint32)), None, given.offset_index)
        said = ask_pages(counted, footer, chunk, given, whole=False)
        assert (said.pages, said.contradiction) == (1, "")
        assert counted.reads <= 4
        assert counted.bytes_read <= 100_000 < chunk.total_compressed_size


def test_what_cannot_be_looked_at_is_not_taken_without_a_proof(tmp_path: Path) -> None:
    """A page whose checksum is wrong: with the table's word for it the filter stays, without it nobody knows."""
    bare, path = write(tmp_path / "bare" / "a.parquet", 1, write_page_checksum=True), tmp_path / "a.parquet"
    sidecar.embed(str(bare), into=str(path), bloom=["k", "s"], page_index=True)
    puffin = extracted(path, digest=False)
    data = bytearray(bare.read_bytes())
    data[opened(bare)[1].row_groups[1].columns[0].data_page_offset + 200] ^= 1
    bare.write_bytes(data)
    report = sidecar.embed(str(bare), into=str(tmp_path / "out.parquet"), from_=puffin).only
    assert any("nothing proves" in text for text in report.warnings())
    assert [text[:24] for text in report.witness.not_compared] == ["column k, row group 1: t"]
    ways = {(o.column, o.row_group, o.way) for o in report.outcomes if o.kind == "bloom"}
    assert ways == {(c, g, "exact") for c in "s" for g in range(3)} | {
        ("k", 0, "values"),
        ("k", 1, "none"),
        ("k", 2, "values"),
    }


def test_overlapping_chunks_are_not_read_again_and_again(indexed: Path) -> None:
    source = LocalSource(str(indexed))
    with pytest.raises(DamagedFileError, match="longer than the file"):
        digest_ranges(source, [(4, source.size - 4)] * 1000)


def test_a_chunk_of_negative_size_has_no_digest(indexed: Path) -> None:
    with pytest.raises(DamagedFileError, match="negative length"):
        digest_ranges(LocalSource(str(indexed)), [(4, 8), (4, -8)])
