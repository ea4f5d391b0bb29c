"""Readers that skip row groups by embedded indexes, and the same files after stripping."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.embedding.strip import strip
from tests.embedding.cases import (
    assert_same_data,
    assert_same_pages,
    chunks,
    datafusion,
    opened,
    written,
)
from tests.embedding.file_cases import PLACEMENTS, embedded


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten row groups, random even keys, sorted ``n`` in many pages."""
    rng = np.random.default_rng(11)
    keys = rng.integers(0, 2**40, 10_000) * 2
    table = pa.table({"k": keys, "s": [f"s{k}" for k in keys], "n": np.arange(10_000)})
    folder = tmp_path_factory.mktemp("used")
    source = written(
        folder / "plain.parquet", table, row_group_size=1000, data_page_size=1000, write_batch_size=100,
        use_dictionary=False,
    )  # fmt: skip
    return {placement: embedded(source, ["k", "s"], placement=placement)[0] for placement in ("end", "row-group")} | {
        "plain": source
    }


@PLACEMENTS
def test_duckdb_excludes_row_groups(clustered: dict[str, Path], placement: str) -> None:
    table = pq.read_table(clustered["plain"])
    with duckdb.connect() as connection:

        def excluded(column: str, value: Any) -> list[bool]:
            sql = f"select bloom_filter_excludes from parquet_bloom_probe('{clustered[placement]}', '{column}', $1)"
            return [row[0] for row in connection.execute(sql, [value]).fetchall()]

        for row in (0, 4321, 9999):
            for column in ("k", "s"):
                value = table[column][row].as_py()
                verdict = excluded(column, value)
                assert not verdict[row // 1000]
                assert sum(verdict) >= 8
                sql = f"select n from '{clustered[placement]}' where {column} = $1"
                assert connection.execute(sql, [value]).fetchall() == [(row,)]
        lengths = connection.execute(
            f"select path_in_schema, bloom_filter_length from parquet_metadata('{clustered[placement]}')"
        ).fetchall()
    assert {name for name, length in lengths if length} == {"k", "s"}


def pruned(path: Path, sql: str) -> tuple[list[Any], dict[str, tuple[str, str]]]:
    """Rows, and what DataFusion says that it pruned: name -> (before, after)."""
    context = datafusion()
    context.register_parquet("t", str(path))
    rows = [row for batch in context.sql(sql).collect() for row in batch.to_pylist()]
    plan = str(context.sql(f"explain analyze {sql}").collect()[0].to_pydict()["plan"])
    found = re.findall(r"(\w+_pruned_\w+|page_index_\w+)=([\d.]+ ?\w*) total → ([\d.]+ ?\w*) matched", plan)
    return rows, {name: (before, after) for name, before, after in found}


@PLACEMENTS
def test_the_parquet_crate_prunes_by_filters_and_pages(clustered: dict[str, Path], placement: str) -> None:
    path = clustered[placement]
    value = pq.read_table(path)["k"][4321].as_py()
    rows, counts = pruned(path, f"select n from t where k = {value}")
    assert rows == [{"n": 4321}]
    before, after = counts["row_groups_pruned_bloom_filter"]
    assert int(before) == 10
    assert int(after) <= 2
    rows, counts = pruned(path, f"select n from t where k = {value + 1}")
    assert rows == []
    assert int(counts["row_groups_pruned_bloom_filter"][1]) <= 1
    rows, counts = pruned(path, "select n from t where n = 4321")
    assert rows == [{"n": 4321}]
    assert counts["page_index_pages_pruned"][1] == "1"
    _, without = pruned(clustered["plain"], f"select n from t where k = {value}")
    assert without["row_groups_pruned_bloom_filter"] == ("10", "10"), "the plain file prunes nothing"


# --- stripping ------------------------------------------------------------------------------------------------


def test_stripping_gives_the_file_back(clustered: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "bare.parquet"
    report = strip(str(clustered["end"]), str(target)).only
    assert target.read_bytes() == clustered["plain"].read_bytes()
    assert report.written.dead_bytes == 0
    assert report.ways() == {"bloom": {"none": 20}, "page-index": {"none": 30}}


def test_stripping_filters_between_row_groups_leaves_dead_bytes(clustered: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "bare.parquet"
    report = strip(str(clustered["row-group"]), str(target)).only
    _, footer = opened(clustered["row-group"])
    filters = [c.bloom_filter_length or 0 for c in chunks(footer) if c.row_group < 9]
    assert report.written.dead_bytes == sum(filters)
    assert_same_pages(clustered["plain"], target)
    assert_same_data(clustered["plain"], target)
    assert not any(c.bloom_filter_offset or c.offset_index_offset for c in chunks(opened(target)[1]))
