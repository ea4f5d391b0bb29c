"""What Spark's cost-based optimiser makes of distinct counts: the guide "statistics" says which settings to avoid.

Iceberg's Spark reports the distinct count of a theta sketch and no minimum and maximum. Spark takes a column without
both for one that is all NULL, unless it has text or bytes. If a test here fails, Spark or Iceberg has changed: say so
in the guide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

import sidecar

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("iceberg_in_spark")]

ROWS, DISTINCT = 1000, 100
COLUMNS = ["a", "s", "d", "n"]
CBO = "spark.sql.cbo.enabled"
REPORT = "spark.sql.iceberg.report-column-stats"
LATER = "timestamp_ntz '2024-01-05 00:00:00'"


@contextmanager
def settings(spark: Any, **values: str) -> Iterator[None]:
    """Set the optimiser's settings in the block: ``cbo`` and ``report``."""
    names = {CBO: values.get("cbo", "true"), REPORT: values.get("report", "true")}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def estimated_rows(spark: Any, query: str) -> int | None:
    """How many rows the optimiser expects of a query; ``None`` if it does not estimate rows."""
    rows = spark.sql(query)._jdf.queryExecution().optimizedPlan().stats().rowCount()
    return int(str(rows.get())) if rows.isDefined() else None


@pytest.fixture(scope="module")
def table(spark: Any, catalog: Any) -> str:
    """A table with sketches of sidecar on every column but ``u``; its name in Spark."""
    spark.sql(
        f"CREATE TABLE cat.db.estimates USING iceberg AS SELECT id % {DISTINCT} AS a, "
        f"CAST(id % {DISTINCT} AS STRING) AS s, DATE '2024-01-01' + CAST(id % {DISTINCT} AS INT) AS d, "
        f"TIMESTAMP_NTZ '2024-01-01 00:00:00' + make_dt_interval(CAST(id % {DISTINCT} AS INT)) AS n, id AS u "
        f"FROM range(0, {ROWS}, 1, 1)"
    )
    sidecar.build(catalog.load_table("db.estimates"), COLUMNS, kinds=["theta"], engine="local")
    return "cat.db.estimates"


@pytest.mark.parametrize(
    ("predicate", "with_counts", "without"),
    [
        ("a = 5", 0, ROWS),
        ("a in (5, 6)", 0, ROWS),
        ("d = date '2024-01-05'", 0, ROWS),
        (f"n = {LATER}", 0, ROWS),
        ("s = '5'", ROWS // DISTINCT, ROWS),
        ("s in ('5', '6')", 2 * ROWS // DISTINCT, ROWS),
        ("a > 5", ROWS, ROWS),
        ("a <> 5", ROWS, ROWS),
        ("u = 5", ROWS, ROWS),
    ],
)
def test_distinct_counts_make_equality_0_rows_but_for_text(
    spark: Any, table: str, predicate: str, with_counts: int, without: int
) -> None:
    query = f"SELECT * FROM {table} WHERE {predicate}"
    assert spark.sql(query).count() >= 1
    with settings(spark):
        assert estimated_rows(spark, query) == with_counts
    with settings(spark, report="false"):
        assert estimated_rows(spark, query) == without
    with settings(spark, cbo="false"):
        assert estimated_rows(spark, query) is None


@pytest.mark.parametrize("predicate", [f"n > {LATER}", f"n in ({LATER}, timestamp_ntz '2024-01-06 00:00:00')"])
def test_a_distinct_count_of_timestamp_ntz_fails_the_query(spark: Any, table: str, predicate: str) -> None:
    query = f"SELECT x.u FROM {table} x JOIN {table} y ON x.u = y.u WHERE x.{predicate}"
    with settings(spark), pytest.raises(Py4JJavaError, match="MatchError: TimestampNTZType"):
        spark.sql(query)._jdf.count()
    with settings(spark, report="false"):
        assert spark.sql(query).count() > 0


BY_TYPE = {
    "b": ("CAST(id % 100 AS STRING)", "binary", "X'35'"),
    "c": ("CAST(id % 100 AS DECIMAL(9, 2))", "decimal(9, 2)", "5.00"),
    "f": ("CAST(id % 100 AS DOUBLE)", "double", "5.0D"),
    "i": ("CAST(id % 100 AS INT)", "int", "5"),
    "k": ("id", "long", "5"),
    "s": ("CAST(id % 100 AS STRING)", "string", "'5'"),
    "t": ("timestamp_seconds(86400 * (id % 100))", "timestamp", "timestamp_seconds(86400 * 5)"),
}
"""By column of the table of the guide: how it is made, its type in Spark, and a value that rows have."""
TEXT = ("b", "s")
MATCHING = ROWS // DISTINCT


def chosen_join(spark: Any, table: str, column: str, value: str) -> str:
    """The join that Spark chooses where one side has an equality on a column, and may be broadcast below 8 KiB."""
    query = f"SELECT x.k FROM {table} x JOIN {table} y ON x.k = y.k WHERE x.{column} = {value}"
    plan = str(spark.sql(query)._jdf.queryExecution().sparkPlan().toString())
    return next(name for name in ("BroadcastHashJoin", "SortMergeJoin") if name in plan)


def test_a_default_build_registers_counts_that_spark_reads_right_and_named_theta_all(spark: Any, catalog: Any) -> None:
    """The guide's table, by type: equality without counts, with those of a default build, with all of them named."""
    made = ", ".join(f"CAST({how} AS {kind}) AS {name}" for name, (how, kind, _) in BY_TYPE.items())
    spark.sql(f"CREATE TABLE cat.db.by_type USING iceberg AS SELECT {made} FROM range(0, {ROWS}, 1, 1)")
    table, name = catalog.load_table("db.by_type"), "cat.db.by_type"

    def seen() -> dict[str, tuple[int | None, str]]:
        """By column: the rows that the optimiser expects of an equality, and the join that it chooses then."""
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "8192")
        try:
            with settings(spark):
                return {
                    column: (
                        estimated_rows(spark, f"SELECT * FROM {name} WHERE {column} = {value}"),
                        chosen_join(spark, name, column, value),
                    )
                    for column, (*_, value) in BY_TYPE.items()
                }
        finally:
            spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")

    unaware, right, harmed = (ROWS, "SortMergeJoin"), (MATCHING, "BroadcastHashJoin"), (0, "BroadcastHashJoin")
    assert seen() == dict.fromkeys(BY_TYPE, unaware)
    report = sidecar.build(table, list(BY_TYPE), engine="local")
    assert report.warnings == []
    assert seen() == {column: right if column in TEXT else unaware for column in BY_TYPE}
    report = sidecar.build(table, list(BY_TYPE), kinds=["theta"], engine="local")
    assert report.files_carried == 1
    (warning,) = report.warnings
    assert "registered distinct counts of c (decimal(9, 2)), f (double), i (int), k (long), t (timestamptz)" in warning
    assert CBO in warning
    assert REPORT in warning
    assert seen() == {column: right if column in TEXT else harmed for column in BY_TYPE}
    sidecar.refresh(table)
    assert any(warning in text for text in sidecar.status(table).warnings)
    sidecar.build(table, list(BY_TYPE), engine="local")  # what status says to do
    assert seen() == {column: right if column in TEXT else unaware for column in BY_TYPE}
    counts = {column: kinds["theta"].ndv for column, kinds in sidecar.status(table).coverage.items()}
    assert counts == {column: ROWS if column == "k" else DISTINCT for column in BY_TYPE}


def test_joins_and_groups_do_not_use_distinct_counts(spark: Any, table: str) -> None:
    joined = f"SELECT x.a FROM {table} x JOIN {table} y ON x.a = y.a"
    grouped = f"SELECT a, count(*) FROM {table} GROUP BY a"
    for report in ("true", "false"):
        with settings(spark, report=report):
            assert estimated_rows(spark, joined) == ROWS * ROWS  # there are ROWS * ROWS / DISTINCT
            assert estimated_rows(spark, grouped) is None


def test_sparks_own_statistics_do_the_same(spark: Any) -> None:
    spark.sql(f"CREATE TABLE cat.db.own_estimates USING iceberg AS SELECT id % 100 AS a FROM range({ROWS})")
    spark.sql("CALL cat.system.compute_table_stats('db.own_estimates')")
    with settings(spark):
        assert estimated_rows(spark, "SELECT * FROM cat.db.own_estimates WHERE a = 5") == 0
