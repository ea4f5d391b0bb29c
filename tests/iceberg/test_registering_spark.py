"""Spark's sketches and ours in one statistics file: every reader loads the table, whoever writes last."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from sidecar.iceberg.statistics_files.merge import KeptSketch
from sidecar.iceberg.statistics_files.registering import Registration, register
from sidecar.puffin.types import THETA
from tests.iceberg.registering_cases import (
    SKETCH,
    Interloper,
    blobs_of,
    entry,
    head,
    registered,
    serial,
    write_ours,
)

pytestmark = pytest.mark.usefixtures("no_pauses")


def spark_table(spark: Any, catalog: Any, rows: int = 1000) -> Table:
    name = f"db.statistics_spark_{next(serial)}"
    spark.sql(
        f"CREATE TABLE cat.{name} USING iceberg AS "
        f"SELECT id AS a, CAST(id % 7 AS STRING) AS b, CAST(id AS DOUBLE) AS c FROM range({rows})"
    )
    table: Table = catalog.load_table(name)
    return table


def spark_sees_ndv(spark: Any, table: Table) -> dict[str, int]:
    """Distinct counts by column that Spark's cost-based optimiser plans a join with; it must plan at all."""
    name = "cat." + ".".join(table.name())
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        query = f"SELECT * FROM {name} x JOIN {name} y ON x.a = y.a WHERE x.b = '3'"
        assert spark.sql(query).count() > 0
        plan = spark.table(name)._jdf.queryExecution().optimizedPlan()
        seen = plan.collectLeaves().head().stats().attributeStats().iterator()
        counts = {}
        while seen.hasNext():
            column = seen.next()
            if column._2().distinctCount().isDefined():
                counts[column._1().name()] = int(str(column._2().distinctCount().get()))
        return counts
    finally:
        spark.conf.set("spark.sql.cbo.enabled", "false")


def assert_every_reader_loads(spark: Any, duckdb_iceberg: Any, table: Table, rows: int) -> None:
    fresh = table.catalog.load_table(table.name())
    assert len(fresh.scan().to_arrow()) == rows
    assert spark.table("cat." + ".".join(table.name())).count() == rows
    location = fresh.metadata_location.removeprefix("file:")
    assert duckdb_iceberg.execute(f"SELECT count(*) FROM iceberg_scan('{location}')").fetchone() == (rows,)


@pytest.mark.jvm
def test_sparks_sketches_survive_ours(spark: Any, catalog: Any, duckdb_iceberg: Any) -> None:
    table = spark_table(spark, catalog)
    spark.sql(f"CALL cat.system.compute_table_stats(table => '{'.'.join(table.name())}', columns => array('b'))")
    theirs = blobs_of(entry(table).statistics_path)
    assert list(theirs) == [(THETA, (2,))]
    done = register(table, head(table), [KeptSketch(1, SKETCH, 1000), KeptSketch(2, SKETCH, 99)], write_ours)
    assert blobs_of(done.statistics_path)[THETA, (2,)] == theirs[THETA, (2,)]
    assert registered(table) == {1: "1000", 2: "7"}
    assert spark_sees_ndv(spark, table) == {"a": 1000, "b": 7}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)


@pytest.mark.jvm
def test_spark_after_ours_replaces_it_and_ours_after_spark_merges(
    spark: Any, catalog: Any, duckdb_iceberg: Any
) -> None:
    table = spark_table(spark, catalog)
    ours: Registration = register(table, head(table), [KeptSketch(2, SKETCH, 5)], write_ours)
    assert spark_sees_ndv(spark, table) == {"b": 5}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)
    spark.sql(f"CALL cat.system.compute_table_stats('{'.'.join(table.name())}')")
    assert entry(table).statistics_path != ours.statistics_path
    register(table, head(table), [KeptSketch(2, SKETCH, 5)], write_ours)
    assert registered(table) == {1: "1000", 2: "7", 3: "1000"}
    assert spark_sees_ndv(spark, table) == {"a": 1000, "b": 7, "c": 1000}
    assert_every_reader_loads(spark, duckdb_iceberg, table, 1000)


@pytest.mark.jvm
def test_spark_between_our_merge_and_our_commit_survives(
    spark: Any, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spark_table(spark, catalog)
    call = f"CALL cat.system.compute_table_stats('{'.'.join(table.name())}')"
    Interloper(monkeypatch, {0: lambda: spark.sql(call)})
    done = register(table, head(table), [KeptSketch(1, SKETCH, 5)], write_ours)
    assert done.attempts == 2
    assert registered(table) == {1: "1000", 2: "7", 3: "1000"}


@pytest.mark.jvm
def test_spark_plans_after_a_column_with_a_sketch_is_dropped(spark: Any, catalog: Any) -> None:
    """Without registering again, Spark's planner fails on the entry of the dropped column."""
    table = spark_table(spark, catalog)
    register(table, head(table), [KeptSketch(2, SKETCH, 7), KeptSketch(3, SKETCH, 1000)], write_ours)
    spark.sql(f"ALTER TABLE cat.{'.'.join(table.name())} DROP COLUMN c")
    register(table, head(table), [KeptSketch(2, SKETCH, 7)], write_ours)
    assert registered(table) == {2: "7"}
    assert spark_sees_ndv(spark, table) == {"b": 7}
