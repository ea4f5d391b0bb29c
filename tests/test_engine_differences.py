"""The lists of differences between engines are true, complete for their rows, and are in the guide to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType

import sidecar
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.storage.locations import local_path
from tests.duckdb_predicates import duckdb_condition
from tests.engine_differences import AGREED, DIFFERENCES, ROWS, STRUCTS, Difference
from tests.engine_tables import REFUSED, TABLES, TableDifference
from tests.life.checks import rows_of
from tests.life.conditions import NO, UNSAID, YES
from tests.life.truth import right_ids, truth_of


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    floats = [("x", pa.float64()), ("p", pa.float32()), ("f", pa.float32())]
    struct = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    schema = pa.schema([("id", pa.int64()), *floats, ("s", struct)])
    made = catalog.create_table("db.differences", schema)
    columns = [list(ROWS), *zip(*ROWS.values(), strict=True), STRUCTS.values()]
    arrays = [pa.array(list(cells), field.type) for cells, field in zip(columns, schema, strict=True)]
    made.append(pa.table(arrays, schema))
    with made.update_schema() as update:
        update.update_column("p", DoubleType())
    sidecar.build(made, ["x", "p", "f", "s.n"], kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table("db.differences")


EXPECTED = [
    *DIFFERENCES,
    *(Difference(text, "", found, found, found) for text, found in AGREED.items()),
]


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected.predicate)
def test_pyiceberg_and_duckdb(table: Any, duckdb_iceberg: Any, expected: Difference) -> None:
    predicate = expected.predicate
    expression = parse_predicate(predicate, table.schema())
    assert {*table.scan(expression).to_arrow()["id"].to_pylist()} == expected.pyiceberg
    assert {*sidecar.scan(table, predicate)["id"].to_pylist()} == expected.scanned
    condition = duckdb_condition(bound_to(table.schema(), expression), table.schema())
    path = local_path(table.metadata_location)
    rows = duckdb_iceberg.execute(f"select id from iceberg_scan(?) where {condition}", [path]).fetchall()
    assert {key for (key,) in rows} == expected.duckdb
    assert sidecar.plan(table, predicate).files_kept == 1
    rows = {row[1]: row for row in rows_of(table.scan().to_arrow(), table.schema())}
    truth = truth_of(predicate, table.schema(), rows)
    assert {key for key, one in truth.items() if one.must} <= expected.scanned & expected.spark & expected.duckdb
    assert {key for key, one in truth.items() if one.may} >= expected.scanned | expected.spark | expected.duckdb


def test_what_a_door_must_give() -> None:
    """What is true counts, whatever an engine says; the answer without a sidecar counts where engines differ."""
    truth = {1: YES, 2: YES, 3: NO, 4: UNSAID, 5: UNSAID, 6: UNSAID, 7: UNSAID}
    assert right_ids(truth, {1, 3, 4}, {3, 4}, set) == {1, 2, 4}
    assert right_ids(truth, {1, 6}, {1, 5, 7}, {5, 6}.copy) == {1, 2, 5, 6}
    assert right_ids(truth, {1}, set(), set, reads=True) == {1}
    assert right_ids(truth, set(), {2}, set, reads=True) == {2}


@pytest.mark.jvm
def test_spark(spark: Any, table: Any) -> None:
    for expected in EXPECTED:
        with sidecar.spark_read(spark, "cat.db.differences", table, expected.predicate, ["id"]) as frame:
            assert {row["id"] for row in frame.collect()} == expected.spark, expected.predicate


@pytest.fixture(scope="module")
def tables(catalog: Any) -> dict[str, Any]:
    """The tables of :data:`TABLES`, by the names of their makers."""
    return {make.__name__: make(catalog, f"db.differs_{make.__name__}") for make in {one.make for one in TABLES}}


@pytest.mark.parametrize("expected", TABLES, ids=lambda expected: f"{expected.make.__name__} {expected.predicate}")
def test_pyiceberg_and_duckdb_lose_rows_of_some_tables(
    tables: dict[str, Any], duckdb_iceberg: Any, expected: TableDifference
) -> None:
    table = tables[expected.make.__name__]
    expression = parse_predicate(expected.predicate, table.schema())
    assert expected.outcome({*table.scan(expression).to_arrow()["id"].to_pylist()}) == expected.pyiceberg
    if expected.scan == REFUSED:
        with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
            sidecar.scan(table, expected.predicate)
    else:
        assert expected.outcome({*sidecar.scan(table, expected.predicate)["id"].to_pylist()}) == expected.scan
    condition = duckdb_condition(bound_to(table.schema(), expression), table.schema())
    query = f"select id from iceberg_scan(?) where {condition}"
    found = duckdb_iceberg.execute(query, [local_path(table.metadata_location)]).fetchall()
    assert expected.outcome({key for (key,) in found}) == expected.duckdb


@pytest.mark.jvm
def test_spark_reads_some_tables_wrongly(spark: Any, tables: dict[str, Any]) -> None:
    """A scan of it over the files that sidecar plans does not."""
    for expected in TABLES:
        name, table = f"cat.db.differs_{expected.make.__name__}", tables[expected.make.__name__]
        found = spark.sql(f"select id from {name} where {expected.predicate}").collect()
        assert expected.outcome({row["id"] for row in found}) == expected.spark, name
        with sidecar.spark_read(spark, name, table, expected.predicate, ["id"]) as frame:
            assert {row["id"] for row in frame.collect()} == expected.ids, name


def test_the_guide_has_the_lists() -> None:
    guide = (Path(sidecar.__file__).parent / "guide" / "spark.md").read_text(encoding="utf-8")
    for difference in (*DIFFERENCES, *TABLES):
        assert difference.line() in guide
