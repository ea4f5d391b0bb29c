"""After a build, every engine still loads and scans the table, and Spark's optimiser sees our NDV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sidecar
from sidecar.storage.locations import local_path

ROWS, DISTINCT = 4_000, 500


@pytest.fixture(scope="module")
def built(catalog: Any) -> Any:
    """A table of four appends, indexed; the object is loaded anew after the build."""
    random = np.random.default_rng(7)
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    table = catalog.create_table("db.engines", schema)
    for part in range(4):
        keys = random.integers(0, DISTINCT, ROWS // 4) + part * DISTINCT
        table.append(pa.table({"k": keys, "s": [f"text {key}" for key in keys]}, schema=schema))
    sidecar.build(table, ["k", "s"], kinds=["bloom", "theta"], engine="local")
    return catalog.load_table("db.engines")


def distinct(table: Any, column: str) -> int:
    return len(table.scan().to_arrow()[column].unique())


def test_pyiceberg_loads_and_scans(built: Any) -> None:
    assert built.scan(row_filter="k = 700").to_arrow().num_rows > 0
    (entry,) = built.metadata.statistics
    assert {blob.type for blob in entry.blob_metadata} == {"apache-datasketches-theta-v1"}


@pytest.mark.jvm
def test_spark_loads_scans_and_its_optimiser_sees_our_ndv(built: Any, spark: Any) -> None:
    assert spark.table("cat.db.engines").count() == ROWS
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        frame = spark.sql("select a.k from cat.db.engines a join cat.db.engines b on a.k = b.k where a.s = 'text 3'")
        assert frame.count() > 0
        relation = spark.table("cat.db.engines")._jdf.queryExecution().optimizedPlan()
        stats = relation.stats().attributeStats()
        seen = {}
        for attribute in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(relation.output()):
            column = stats.get(attribute).get()
            seen[attribute.name()] = int(column.distinctCount().get())
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
    assert seen == {name: distinct(built, name) for name in ("k", "s")}


def test_duckdb_scans(built: Any, duckdb_iceberg: Any) -> None:
    path = local_path(built.metadata_location)
    (count,) = duckdb_iceberg.execute("select count(*) from iceberg_scan(?)", [path]).fetchone()
    assert count == ROWS
    (count,) = duckdb_iceberg.execute("select count(*) from iceberg_scan(?) where k = 700", [path]).fetchone()
    assert count == built.scan(row_filter="k = 700").to_arrow().num_rows
