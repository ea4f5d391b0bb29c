"""Pruned scans of files written here: the rows of a full read, for many predicates, types and layouts."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from random_predicates import Predicates, columns_of
from scan_cases import WRITERS, all_types, check, written

from sidecar.iceberg.file_scanning import scan_file


@pytest.mark.parametrize("writer", WRITERS)
def test_random_predicates_give_the_rows_of_a_full_read(writer: str) -> None:
    seed = 100 + list(WRITERS).index(writer)
    data = written(all_types(random.Random(seed)), **WRITERS[writer])
    full = pq.read_table(BytesIO(data))
    totals = check(data, full, seed, 65, warnings=True)  # pyarrow lists pages without rows
    assert totals["found"]
    if "no page index" not in writer:
        assert totals["may_match"] < 0.8 * totals["rows"]


DUCKDB_COLUMNS = ["id", "flag", "i8", "i16", "i32", "i64", "u8", "u32", "u64", "f32", "f64", "clean"]
DUCKDB_COLUMNS += ["d9", "d18", "d38", "date", "ts_us", "s", "word", "dict"]


@pytest.mark.parametrize("writer", ["v1 snappy dictionary", "v2 zstd"])
def test_duckdb_finds_the_same_rows_where_it_agrees_on_null_and_nan(writer: str, tmp_path: Path) -> None:
    """Left out: NOT IN, and NaN in > and >=, which DuckDB takes for the largest number."""
    seed = 7 + len(writer)
    path = tmp_path / "file.parquet"
    path.write_bytes(written(all_types(random.Random(seed)).select(DUCKDB_COLUMNS), **WRITERS[writer]))
    source = Predicates(columns_of(pq.read_table(path)), random.Random(seed), for_duckdb=True)
    found = 0
    for _ in range(100):
        text, _ = source.next()
        theirs = duckdb.sql(f"select id from '{path}' where {text} order by id").fetchall()
        ours = scan_file(str(path), text, ["id"])["id"].to_pylist()
        assert ours == [row[0] for row in theirs], text
        found += len(ours)
    assert found
