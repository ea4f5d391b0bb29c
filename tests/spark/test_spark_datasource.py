"""The Python data source: the rows of a predicate, from the files that a sidecar leaves over."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue

import sidecar

pytest.importorskip("pyspark.sql.datasource", reason="the extra [spark] is not installed")

from pyspark.sql.types import StructType

from sidecar.errors import UsageError
from sidecar.spark.datasource import SidecarDataSource, SidecarReader

NAME, FILES, ROWS = "db.source", 6, 50
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("n", pa.decimal128(9, 2)),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("b", pa.binary()),
        ("l", pa.list_(pa.int64())),
    ]
)


def rows(part: int) -> pa.Table:
    numbers = [row * FILES + part for row in range(ROWS)]
    columns: dict[str, list[Any]] = {
        "k": numbers,
        "i": [None if n % 5 == 0 else n for n in numbers],
        "s": [f"text {n}" for n in numbers],
        "f": [float("nan") if n % 7 == 0 else n / 2 for n in numbers],
        "n": [Decimal(n) / 4 for n in numbers],
        "d": [date(2020, 1, 1) + timedelta(days=n) for n in numbers],
        "t": [datetime(1970, 1, 1) + timedelta(microseconds=n * 1_000_003) for n in numbers],
        "z": [n * 1_000_000 for n in numbers],
        "b": [n.to_bytes(3, "big") for n in numbers],
        "l": [[n] * (n % 3) for n in numbers],
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names}, SCHEMA)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    table = catalog.create_table(NAME, SCHEMA)
    for part in range(FILES):
        table.append(rows(part))
    table.delete("k = 100")
    sidecar.build(table, [name for name in SCHEMA.names if name != "l"], engine="local", fpp=1e-4)
    return catalog.load_table(NAME)


@pytest.fixture(scope="module")
def source(spark: Any, table: Any, catalog: Any) -> Any:
    sidecar.register_spark(spark)

    def load(**options: str) -> Any:
        reader = spark.read.format("sidecar").option("table", NAME).option("catalog", "cat")
        for key in ("uri", "warehouse"):
            reader = reader.option(f"catalog.{key}", catalog.properties[key])
        return reader.option("catalog.type", "sql").options(**options).load()

    return load


@pytest.mark.parametrize(
    "predicate",
    ["s = 'text 77'", "f = 39.0", "k > 290 or i is null", "not (f < 100)", "n = 19.25", ""],
)
def test_rows_are_those_of_pyiceberg_from_surviving_files(table: Any, predicate: str) -> None:
    reader = SidecarReader(table, table.schema(), predicate or AlwaysTrue())
    kept = sidecar.plan(table, predicate or AlwaysTrue()).kept_files
    parts = list(reader.partitions())
    assert len(parts) == len(kept)
    found = sorted(k for part in parts for batch in reader.read(part) for k in batch["k"].to_pylist())
    assert found == sorted(table.scan(row_filter=predicate or AlwaysTrue()).to_arrow()["k"].to_pylist())


def test_a_predicate_speaks_of_columns_that_are_not_read(table: Any) -> None:
    reader = SidecarReader(table, table.schema().select("k"), "s = 'text 77'")
    (part,) = reader.partitions()
    assert [batch.to_pydict() for batch in reader.read(part)] == [{"k": [77]}]


@pytest.mark.jvm
def test_spark_reads_the_rows(spark: Any, source: Any) -> None:
    ours, theirs = source(predicate="s = 'text 79' or k in (100, 102)"), spark.table(f"cat.{NAME}")
    assert ours.columns == theirs.columns
    assert ours.rdd.getNumPartitions() == 2
    wanted = theirs.where("s = 'text 79' or k in (100, 102)").orderBy("k").collect()
    assert ours.orderBy("k").collect() == wanted
    assert [row["k"] for row in wanted] == [79, 102]


@pytest.mark.jvm
def test_a_frame_can_be_asked_again(source: Any) -> None:
    """With filters pushed down, Spark would answer the second count from the first one's partitions."""
    frame = source(columns="k,s")
    assert frame.where("s = 'text 77'").count() == 1
    assert frame.count() == FILES * ROWS - 1


@pytest.mark.jvm
def test_columns_and_snapshots(source: Any, table: Any) -> None:
    frame = source(columns="s,l", predicate="s = 'text 77'")
    assert frame.columns == ["s", "l"]
    assert frame.collect() == [("text 77", [77, 77])]
    first = table.metadata.snapshots[0].snapshot_id
    assert source(**{"snapshot-id": str(first)}).count() == ROWS


def test_wrong_options_are_one_sentence(table: Any, catalog: Any) -> None:
    known = {"table": NAME, "catalog": "cat", "catalog.type": "sql"}
    known |= {f"catalog.{key}": catalog.properties[key] for key in ("uri", "warehouse")}
    for option, value, said in (
        ("table", "db.nowhere", "db.nowhere"),
        ("columns", "nothing", "the table has no column 'nothing'"),
        ("snapshot-id", "x", "snapshot-id is no number"),
        ("table", "", "no table is named"),
        ("predicate", "nothing = 1", "nothing"),
    ):
        opened = SidecarDataSource({**known, option: value})
        with pytest.raises(UsageError, match=said):
            opened.reader(StructType())
