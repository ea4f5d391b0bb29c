"""Spark's own Iceberg reader on the files that a sidecar leaves over: the rows of the normal read, fewer files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import UsageError
from sidecar.storage.locations import local_path
from tests.conftest import spark_version
from tests.tables import create_with_rows, iceberg_schema

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("iceberg_in_spark")]

NAME, FILES, ROWS = "cat.db.native", 8, 40
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
        ("st", pa.struct([("a b", pa.int64())])),
    ]
)
EPOCH = datetime(1970, 1, 1)


def rows(part: int) -> pa.Table:
    numbers = [(row * FILES + part) for row in range(ROWS)]
    columns = {
        "k": numbers,
        "i": [None if n % 5 == 0 else n for n in numbers],
        "s": [f"text {n}" for n in numbers],
        "f": [float("nan") if n % 7 == 0 else n / 2 for n in numbers],
        "n": [Decimal(n) / 4 for n in numbers],
        "d": [date(2020, 1, 1) + timedelta(days=n) for n in numbers],
        "t": [EPOCH + timedelta(microseconds=n * 1_000_003) for n in numbers],
        "z": [EPOCH.replace(tzinfo=timezone.utc) + timedelta(microseconds=n * 999_983) for n in numbers],
        "b": [n.to_bytes(3, "big") for n in numbers],
        "st": [{"a b": n} for n in numbers],
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names}, SCHEMA)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    table = create_with_rows(catalog, "db.native", map(rows, range(FILES)), SCHEMA)
    columns = [name for name in SCHEMA.names if name != "st"] + ["st.a b"]
    sidecar.build(table, columns, engine="local", fpp=1e-4)
    return catalog.load_table("db.native")


def files_of(frame: Any) -> set[str]:
    return {row[0] for row in frame.select("_file").collect()}


@pytest.fixture(scope="module")
def java_table(spark: Any, table: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, NAME)


def staged(spark: Any, java_table: Any) -> tuple[int, int]:
    """Task sets and cached tables that the session's runtime holds."""
    manager = spark._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    cache = loader.loadClass("org.apache.iceberg.spark.SparkTableCache")
    java, gateway = spark._jvm.java.lang, spark.sparkContext._gateway
    get = cache.getMethod("get", gateway.new_array(java.Class, 0))
    held = get.invoke(None, gateway.new_array(java.Object, 0))
    return manager.fetchSetIds(java_table).size(), held.size()


@pytest.fixture(autouse=True)
def leaves_nothing_staged(spark: Any, java_table: Any) -> Iterator[None]:
    before = staged(spark, java_table)
    yield
    assert staged(spark, java_table) == before


PREDICATES = [
    "k = 77",
    "i = 77",
    "s = 'text 77'",
    "s in ('text 77', 'text 90', 'text 5000')",
    "f = 39.0",
    "n = 19.25",
    "d = '2020-03-18'",
    "t = '1970-01-01T00:01:17.000231'",
    "z = '1970-01-01T00:01:16.998691+00:00'",
    "not (k != 77) and i is not null",
    "k = 77 or (k = 78 and not s = 'text 77')",
]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_only_surviving_files_are_read(spark: Any, table: Any, predicate: str) -> None:
    kept = sidecar.plan(table, predicate).kept_files
    assert len(kept) <= 3
    with sidecar.spark_read(spark, NAME, table, predicate) as frame:
        rows = frame.select("k", "_file").collect()
        found = sorted(row["k"] for row in rows)
        assert {row["_file"] for row in rows} <= set(kept)
        (scan,) = [
            node
            for node in _nodes(frame._jdf.queryExecution().executedPlan())
            if node.nodeName().startswith("BatchScan")
        ]
        if spark_version() != "4.0":  # its runtime describes all scans alike
            assert "IcebergStagedScan" in scan.simpleString(1000)
    assert found
    assert found == sorted(sidecar.scan(table, predicate)["k"].to_pylist())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def test_metrics_show_that_surviving_files_alone_were_opened(spark: Any, table: Any) -> None:
    with sidecar.spark_read(spark, NAME, table, "s = 'text 77'") as frame:
        execution = frame._jdf.queryExecution()
        assert execution.executedPlan().executeCollect() is not None
        scan = next(n for n in _nodes(execution.executedPlan()) if n.nodeName().startswith("BatchScan"))
        assert scan.metrics().apply("numSplits").value() == 1
        assert scan.metrics().apply("numOutputRows").value() == ROWS


def test_files_that_do_not_survive_need_not_exist(spark: Any, table: Any) -> None:
    kept = {*sidecar.plan(table, "s = 'text 77'").kept_files}
    gone = [local_path(t.file.file_path) for t in table.scan().plan_files() if t.file.file_path not in kept]
    assert len(gone) == FILES - 1
    for path in gone:
        os.rename(path, f"{path}.gone")
    try:
        with sidecar.spark_read(spark, NAME, table, "s = 'text 77'", ["k"]) as frame:
            assert [row["k"] for row in frame.collect()] == [77]
    finally:
        for path in gone:
            os.rename(f"{path}.gone", path)


KEYS: list[tuple[str, Any]] = [
    ("k", pa.array([77, 78, None, 5000, 77])),
    ("s", pa.array(["text 77", "text 78"]).dictionary_encode()),
    ("f", pa.array([float("nan"), 39.0, 0.0, -0.0])),
    ("z", pa.array([77 * 999_983], pa.timestamp("us", "UTC"))),
    ("st.a b", pa.array([77, 79])),
]


@pytest.mark.parametrize(("column", "keys"), KEYS, ids=[column for column, _ in KEYS])
def test_keys(spark: Any, table: Any, column: str, keys: Any) -> None:
    text = "k < 200" if column == "f" else "true"
    with sidecar.spark_read(spark, NAME, table, text, ["k"], keys={column: keys}) as frame:
        found = sorted(row["k"] for row in frame.collect())
        assert frame.columns == ["k"]
    planned = sidecar.plan(table, text, keys={column: keys})
    assert found == sorted(planned.to_arrow()["k"].to_pylist())
    assert found
    assert planned.files_kept < FILES or column == "f"


def test_columns_are_selected_nested_ones_too(spark: Any, table: Any) -> None:
    with sidecar.spark_read(spark, NAME, table, "k = 77", ["s", "st.a b"]) as frame:
        assert [tuple(row) for row in frame.collect()] == [("text 77", 77)]


def test_no_file_survives(spark: Any, table: Any) -> None:
    with sidecar.spark_read(spark, NAME, table, "s = 'text 5000'", ["k"]) as frame:
        assert frame.collect() == []


def test_binary_values(spark: Any, table: Any) -> None:
    from pyiceberg.expressions import EqualTo

    with sidecar.spark_read(spark, NAME, table, EqualTo("b", (77).to_bytes(3, "big")), ["k"]) as frame:
        assert [row["k"] for row in frame.collect()] == [77]


def test_uuids(spark: Any, catalog: Any) -> None:
    """Spark reads them as text."""
    schema = iceberg_schema("k long, u uuid")
    table = catalog.create_table("db.native_uuids", schema)
    made = [UUID(int=n << 100) for n in range(4)]
    for key, value in enumerate(made):
        table.append(pa.Table.from_pylist([{"k": key, "u": value.bytes}], schema=schema.as_arrow()))
    sidecar.build(table, ["u"], engine="local", fpp=1e-4)
    for text, expected in {
        f"u = '{made[2]}'": [2],
        f"u in ('{made[1]}', '{made[3]}')": [1, 3],
        f"u < '{made[2]}'": [0, 1],
        f"u != '{made[0]}'": [1, 2, 3],
    }.items():
        with sidecar.spark_read(spark, "cat.db.native_uuids", table, text, ["k"]) as frame:
            assert sorted(row["k"] for row in frame.collect()) == expected, text


def test_nan_and_null_mean_what_they_mean_to_spark(spark: Any, table: Any) -> None:
    everything = spark.table(NAME)
    for predicate, condition in {
        "f is nan": "isnan(f)",
        "f > 100": "f > 100",
        "i != 6": "i != 6",
        "i not in (6, 7)": "i not in (6, 7)",
        "i is null and k < 50": "i is null and k < 50",
    }.items():
        with sidecar.spark_read(spark, NAME, table, predicate, ["k"]) as frame:
            assert {r["k"] for r in frame.collect()} == {r["k"] for r in everything.where(condition).collect()}


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_apply(spark: Any, catalog: Any, version: int) -> None:
    name = f"db.native_deletes_{version}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string) tblproperties"
        f" ('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    spark.range(100).selectExpr("id k", "concat('t', id) s").repartition(4).writeTo(f"cat.{name}").append()
    spark.sql(f"delete from cat.{name} where k = 50")
    table = sidecar.open_table(f"cat.{name}", spark=spark)
    sidecar.build(table, ["s"], engine="local", fpp=1e-4)
    for key, rows in {50: [], 51: [(51, "t51")]}.items():
        with sidecar.spark_read(spark, f"cat.{name}", table, f"s = 't{key}'") as frame:
            assert [tuple(row) for row in frame.collect()] == rows


def test_equality_deletes_apply(spark: Any, catalog: Any) -> None:
    """They are what pyiceberg cannot do: a plan for Spark does not mind them."""
    parts = [pa.table({"k": range(start, start + 100)}) for start in (0, 100)]
    table = create_with_rows(catalog, "db.native_equality", parts)
    sidecar.build(table, ["k"], engine="local", fpp=1e-4)
    key = pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})
    path = f"{table.location()}/data/equality-delete.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table([pa.array([50])], schema=pa.schema([key])), stream)
    native = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, "cat.db.native_equality"
    )
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    files = spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(native.spec())
    files = files.ofEqualityDeletes(ids).withPath(path).withFormat("PARQUET").withRecordCount(1)
    files = files.withFileSizeInBytes(len(table.io.new_input(path)))
    native.newRowDelta().addDeletes(files.build()).commit()
    table = catalog.load_table("db.native_equality")
    for value, count in {50: 0, 51: 1, 151: 1}.items():
        with sidecar.spark_read(spark, "cat.db.native_equality", table, f"k = {value}") as frame:
            assert frame.count() == count
            assert len(files_of(frame)) == count
    everything = pa.array([49, 50, 51, 5000])
    with sidecar.spark_read(spark, "cat.db.native_equality", table, "true", keys={"k": everything}) as frame:
        assert sorted(row["k"] for row in frame.collect()) == [49, 51]


def test_a_newer_snapshot_in_spark_is_what_is_read(spark: Any, catalog: Any) -> None:
    table = create_with_rows(catalog, "db.native_newer", [pa.table({"k": [1, 2]})], pa.schema([("k", pa.int64())]))
    sidecar.build(table, ["k"], engine="local")
    spark.sql("insert into cat.db.native_newer values (3)")
    with sidecar.spark_read(spark, "cat.db.native_newer", table, "k = 3") as frame:
        assert frame.count() == 1


def test_another_table_is_refused(spark: Any, table: Any, catalog: Any) -> None:
    other = catalog.create_table("db.native_other", SCHEMA)
    with (
        pytest.raises(UsageError, match="are different tables"),
        sidecar.spark_read(spark, NAME, other, "k = 1"),
    ):
        pass


def test_what_cannot_be_handed_over_is_read_as_always(spark: Any, table: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Connect:
        """A session without a JVM."""

        def table(self, name: str) -> Any:
            return spark.table(name)

    with (
        caplog.at_level(logging.WARNING),
        sidecar.spark_read(Connect(), NAME, table, "k = 77", ["k"]) as frame,
    ):
        assert [row["k"] for row in frame.collect()] == [77]
    assert "Connect cannot take a list of files" in caplog.text
