"""README's table of engines is true for those that need a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.table import Table

import sidecar
from tests.reading_engines import (
    LOOKUP,
    NO_NEED,
    SPARK_READ,
    SPARK_SQL,
    EngineTables,
    Lookup,
    claims,
    make_tables,
    without_files,
    without_groups,
)
from tests.serving.served import Served, served

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def tables(catalog: Any) -> EngineTables:
    return make_tables(catalog, "engines_spark")


@pytest.fixture(scope="module")
def server(spark: Any, catalog: Any) -> Iterator[Served]:
    with served(catalog) as found:
        for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": found.url}.items():
            spark.conf.set(f"spark.sql.catalog.engines{key}", value)
        yield found


def asking(spark: Any, catalog: str) -> Lookup:
    def ask(table: Table) -> list[int]:
        query = f"select id from {catalog}.{'.'.join(table.name())} where {LOOKUP}"
        return [row.id for row in spark.sql(query).collect()]

    return ask


def test_spark_sql(spark: Any, server: Served, tables: EngineTables) -> None:
    planned = len(server.facts)
    through = without_files(asking(spark, "engines"), tables)
    assert len(server.facts) > planned
    ask = asking(spark, "cat")
    assert claims()[SPARK_SQL] == (without_files(ask, tables), through, without_groups(ask, tables))


def test_spark_read(spark: Any, tables: EngineTables) -> None:
    def ask(table: Table) -> list[int]:
        with sidecar.spark_read(spark, f"cat.{'.'.join(table.name())}", table, LOOKUP, ["id"]) as frame:
            return [row.id for row in frame.collect()]

    assert claims()[SPARK_READ] == (without_files(ask, tables), NO_NEED, without_groups(ask, tables))
