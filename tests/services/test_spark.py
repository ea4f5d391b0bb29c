"""Spark and sidecar on one table of the REST catalog: each sees what the other has written."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import sidecar
from scripts.servers.services import Service
from tests.conftest import add_rest_catalog

pytestmark = [pytest.mark.services, pytest.mark.jvm]


def test_spark_writes_and_reads_what_sidecar_indexes(spark: Any, services: dict[str, Service], namespace: str) -> None:
    add_rest_catalog(spark, "reference", services["rest"].catalogs["rest"]["uri"])
    name = f"reference.{namespace}.t"
    spark.sql(f"CREATE NAMESPACE reference.{namespace}")
    spark.sql(f"CREATE TABLE {name} (id bigint, s string) USING iceberg")
    for start in (0, 1000):
        spark.sql(f"INSERT INTO {name} SELECT id * 7919 % 2000, concat('s', id) FROM range({start}, {start + 1000})")
    table = load_catalog("rest").load_table(f"{namespace}.t")
    sidecar.build(table, ["id"], engine="local", save=True)
    key = 1500 * 7919 % 2000
    assert sidecar.plan(table.refresh(), f"id = {key}").funnel.dropped_by_filter >= 1
    spark.sql(f"DELETE FROM {name} WHERE id = {key}")
    spark.sql(f"INSERT INTO {name} VALUES ({key}, 'again')")
    assert sidecar.scan(table.refresh(), f"id = {key}").to_pylist() == [{"id": key, "s": "again"}]
    assert sidecar.refresh(table.refresh(), engine="local").action == "written"
    assert sidecar.scan(table.refresh(), f"id = {key}").to_pylist() == [{"id": key, "s": "again"}]
    assert [row["s"] for row in spark.sql(f"SELECT s FROM {name} WHERE id = {key}").collect()] == ["again"]
    assert spark.sql(f"SELECT count(*) AS n FROM {name}").first()["n"] == 2000
