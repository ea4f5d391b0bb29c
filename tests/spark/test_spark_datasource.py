"""The Python data source: Spark's rows for Spark's filters, from the files that a sidecar leaves over."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import sidecar

pytest.importorskip("pyspark.sql.datasource", reason="the extra [spark] is not installed")

from pyspark.sql import datasource as ds

from sidecar.errors import UsageError
from sidecar.spark.datasource import SidecarDataSource, SidecarReader, as_iceberg

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
PLAIN = Schema(
    NestedField(1, "k", LongType()), NestedField(2, "s", StringType()), NestedField(3, "f", DoubleType())
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


def ask(filters: list[Any], table: Any) -> tuple[set[int], list[Any]]:
    reader = SidecarReader(table, table.schema(), None)
    returned = list(reader.pushFilters(filters))
    return {int(k) for p in reader.partitions() for b in reader.read(p) for k in b["k"].to_pylist()}, returned


def test_filters_choose_files_and_are_all_handed_back(table: Any) -> None:
    filters = [ds.IsNotNull(("s",)), ds.EqualTo(("s",), "text 77")]
    found, returned = ask(filters, table)
    assert returned == filters
    assert found == set(range(77 % FILES, FILES * ROWS, FILES))


@pytest.mark.parametrize(
    "pushed",
    [
        ds.EqualTo(("z",), datetime(1970, 1, 1, 0, 1, 17)),
        ds.EqualTo(("k",), None),
        ds.EqualTo(("f",), float("nan")),
        ds.EqualTo(("gone",), 1),
        ds.EqualTo(("k",), "x"),
        ds.StringContains(("s",), "77"),
        ds.Not(ds.EqualNullSafe(("k",), 3)),
        ds.Not(ds.StringEndsWith(("s",), "7")),
    ],
    ids=str,
)
def test_what_is_not_understood_chooses_nothing(table: Any, pushed: Any) -> None:
    assert as_iceberg(pushed, table.schema()) is None
    found, _ = ask([pushed], table)
    assert found == set(range(FILES * ROWS)) - {100}


def test_nan_is_larger_than_all_numbers() -> None:
    for pushed in (ds.GreaterThan(("f",), 1e9), ds.Not(ds.LessThan(("f",), 1e9))):
        assert "IsNaN" in repr(as_iceberg(pushed, PLAIN))
    assert "IsNaN" not in repr(as_iceberg(ds.GreaterThan(("k",), 5), PLAIN))


@pytest.mark.jvm
def test_rows_are_those_of_spark_itself(spark: Any, source: Any, table: Any) -> None:
    """Random conditions on all columns, NULL and NaN included; Spark's own Iceberg reader is the oracle."""
    ours, theirs = source(), spark.table(f"cat.{NAME}")
    assert ours.columns == theirs.columns
    draw = random.Random(5)

    def leaf() -> str:
        n = draw.randrange(-5, FILES * ROWS + 5)
        return draw.choice(
            [
                f"k = {n}",
                f"i <=> {n}",
                f"not (i = {n})",
                f"i not in ({n}, 7)",
                f"s = 'text {n}'",
                f"s like 'text {n}%'",
                f"f > {n / 2}",
                f"not (f < {n / 2})",
                f"f = {n / 2}",
                "isnan(f)",
                f"n = {n / 4}",
                f"d = date_add(date'2020-01-01', {n})",
                f"t = timestamp_ntz'1970-01-01 00:00:00' + interval '{abs(n)}.{abs(n) * 3:06}' second",
                f"z = timestamp_seconds({n})",
                "i is null",
            ]
        )

    for _ in range(6):
        condition = f"({leaf()}) {draw.choice(['and', 'or'])} ({leaf()})"
        if draw.random() < 0.6:
            condition = leaf()
        found = sorted(row["k"] for row in ours.where(condition).select("k").collect())
        assert found == sorted(r["k"] for r in theirs.where(condition).select("k").collect()), condition


@pytest.mark.jvm
def test_files_are_partitions(source: Any) -> None:
    assert source().rdd.getNumPartitions() == FILES
    assert source().where("s = 'text 77'").rdd.getNumPartitions() == 1


@pytest.mark.jvm
def test_columns_and_snapshots(source: Any, table: Any) -> None:
    frame = source(columns="s,l")
    assert frame.columns == ["s", "l"]
    assert frame.where("s = 'text 77'").collect() == [("text 77", [77, 77])]
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
    ):
        with pytest.raises(UsageError, match=said):
            SidecarDataSource({**known, option: value}).schema()
