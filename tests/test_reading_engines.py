"""README's table of engines is true: each one is run. ``test_reading_engines_spark.py`` has those that need Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datafusion
import polars
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

import sidecar
from sidecar.storage.locations import local_path
from tests.iceberg.cases import local
from tests.reading_engines import (
    LOOKUP,
    NO_NEED,
    NOT_RUN,
    SPARK_READ,
    SPARK_SQL,
    VALUE,
    EngineTables,
    claims,
    data_files,
    make_tables,
    without_files,
    without_groups,
)
from tests.serving.served import Served, served

SCAN, PYICEBERG, POLARS, DUCKDB = "`sidecar scan`", "pyiceberg 0.12", "polars `scan_iceberg`", "DuckDB 1.5"
DATAFUSION = "DataFusion, Parquet files"


@pytest.fixture(scope="module")
def tables(catalog: Any) -> EngineTables:
    return make_tables(catalog, "engines")


@pytest.fixture(scope="module")
def server(catalog: Any) -> Iterator[Served]:
    with served(catalog) as found:
        yield found


@pytest.fixture(scope="module")
def rest(server: Served) -> RestCatalog:
    return server.catalog()


def ask_sidecar(table: Table) -> list[int]:
    return sidecar.scan(table, LOOKUP)["id"].to_pylist()  # type: ignore[no-any-return]


def ask_pyiceberg(table: Table) -> list[int]:
    return table.scan(LOOKUP).to_arrow()["id"].to_pylist()  # type: ignore[no-any-return]


def ask_polars(table: Table) -> list[int]:
    return polars.scan_iceberg(table).filter(polars.col("s") == VALUE).collect()["id"].to_list()


def ask_datafusion(table: Table) -> list[int]:
    """Read the data files one by one: DataFusion knows no Iceberg."""
    context, found = datafusion.SessionContext(), []
    for path in data_files(table):
        frame = context.read_parquet(str(local(path))).filter(datafusion.col("s") == datafusion.lit(VALUE))
        found += frame.select("id").to_pydict()["id"]
    return found


def test_the_table_has_these_engines() -> None:
    assert [*claims()] == [SCAN, SPARK_READ, SPARK_SQL, PYICEBERG, POLARS, DUCKDB, DATAFUSION]
    for package, engine in {"pyiceberg": PYICEBERG, "duckdb": DUCKDB, "pyspark": SPARK_SQL.partition(",")[0]}.items():
        assert version(package).startswith(engine.rpartition(" ")[2])


def test_sidecar(tables: EngineTables) -> None:
    assert claims()[SCAN] == (without_files(ask_sidecar, tables), NO_NEED, without_groups(ask_sidecar, tables))


@pytest.mark.parametrize(("engine", "ask"), [(PYICEBERG, ask_pyiceberg), (POLARS, ask_polars)])
def test_engines_that_plan_with_pyiceberg(
    tables: EngineTables, server: Served, rest: RestCatalog, engine: str, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # as it does unless polars_iceberg is installed
    planned = len(server.facts)
    through = without_files(lambda table: ask(rest.load_table(table.name())), tables)
    assert len(server.facts) > planned
    assert claims()[engine] == (without_files(ask, tables), through, without_groups(ask, tables))


def test_duckdb(tables: EngineTables, duckdb_iceberg: Any) -> None:
    def ask(table: Table) -> list[int]:
        place = local_path(table.metadata_location)
        found = duckdb_iceberg.execute(f"select id from iceberg_scan('{place}') where {LOOKUP}")
        return [key for (key,) in found.fetchall()]

    alone, _, embedded = claims()[DUCKDB]
    assert (alone, embedded) == (without_files(ask, tables), without_groups(ask, tables))


def test_duckdb_through_the_server(tables: EngineTables, server: Served, duckdb_iceberg: Any) -> None:
    httpfs = pytest.importorskip("duckdb_extension_httpfs", reason="DuckDB's extension httpfs is not installed")
    (extension,) = Path(httpfs.__file__).parent.rglob("*.duckdb_extension")
    duckdb_iceberg.execute(f"LOAD '{extension}'")
    duckdb_iceberg.execute(f"ATTACH 'any' AS served (TYPE iceberg, ENDPOINT '{server.url}', AUTHORIZATION_TYPE 'none')")

    def ask(table: Table) -> list[int]:
        found = duckdb_iceberg.execute(f"select id from served.{'.'.join(table.name())} where {LOOKUP}")
        return [key for (key,) in found.fetchall()]

    try:
        assert claims()[DUCKDB][1] == without_files(ask, tables)
    finally:
        duckdb_iceberg.execute("DETACH served")


def test_datafusion(tables: EngineTables) -> None:
    assert claims()[DATAFUSION] == (NOT_RUN, NOT_RUN, without_groups(ask_datafusion, tables))
