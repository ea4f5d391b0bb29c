"""Pruned scans of files written here: the rows of a full read, for many predicates, types and layouts."""

from __future__ import annotations

import random
import re
from functools import cache
from io import BytesIO
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.reading.scanning import scan
from tests.reading.cases import WRITERS, all_types, check, written
from tests.reading.random_predicates import Predicates, columns_of

pytestmark = pytest.mark.usefixtures("each_footer_decoded_once")


@cache
def table_of(seed: int) -> pa.Table:
    return all_types(random.Random(seed))


@pytest.mark.parametrize("writer", WRITERS)
def test_random_predicates_give_the_rows_of_a_full_read(writer: str) -> None:
    seed = 100 + list(WRITERS).index(writer)
    data = written(table_of(seed), **WRITERS[writer])
    full = pq.read_table(BytesIO(data))
    totals = check(data, full, seed, 65, warnings=True)  # pyarrow lists pages without rows
    assert totals["found"]
    if "no page index" not in writer:
        assert totals["may_match"] < 0.8 * totals["rows"]


NUMBERS = ["id", "flag", "i8", "i16", "i32", "i64", "u8", "u32", "u64", "f16", "f32", "f64", "clean", "d9"]
OTHERS = ["id", "d18", "d38", "date", "t_ms", "t_us", "ts_ms", "ts_us", "ts_ns", "tz", "s", "word", "dict"]
OTHERS += ["bin", "fixed", "uuid", "pair", "list", "items", "map"]
DUCKDB_WRITERS = ["v1 snappy dictionary", "v2 zstd", "v1 none", "v2 none, integers"]
PREDICATES = 65


def for_duckdb(text: str) -> str:
    """The predicate as DuckDB spells binary values."""
    return re.sub(r"'0x([0-9a-f]*)'", r"from_hex('\1')", text)


def found_by_duckdb(path: Path, texts: list[str]) -> list[list[int]]:
    """For each predicate, the ids of the rows that meet it, in their order. DuckDB is asked for all at once."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"create table rows as select * from '{path}'")
        met = ", ".join(f"({for_duckdb(text)})" for text in texts)
        rows = connection.execute(f"select id, {met} from rows order by id").fetchall()
    return [[row[0] for row in rows if row[number]] for number in range(1, len(texts) + 1)]


@pytest.mark.parametrize("columns", [NUMBERS, OTHERS], ids=["numbers", "others"])
@pytest.mark.parametrize("writer", DUCKDB_WRITERS)
def test_duckdb_finds_the_same_rows_where_it_agrees_on_null_and_nan(
    writer: str, columns: list[str], tmp_path: Path
) -> None:
    """Left out: NOT IN, and NaN in > and >=, which DuckDB takes for the largest number."""
    seed = 7 + len(writer)
    path = tmp_path / "file.parquet"
    path.write_bytes(written(table_of(seed).select(columns), **WRITERS[writer]))
    source = Predicates(columns_of(pq.read_table(path)), random.Random(seed), for_duckdb=True)
    texts = [source.next()[0] for _ in range(PREDICATES)]
    asked: set[str] = set()
    found = 0
    for text, theirs in zip(texts, found_by_duckdb(path, texts), strict=True):
        ours = scan(str(path), text, ["id"])["id"].to_pylist()
        assert ours == theirs, text
        asked |= {column.name for column in source.columns if re.search(rf"\b{column.name}\b", text)}
        found += len(ours)
    assert found
    assert len(asked) > 0.9 * len(source.columns)
