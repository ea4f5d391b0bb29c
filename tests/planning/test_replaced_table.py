"""Snapshots from before CREATE OR REPLACE: a column of another type under the same name, and thus the same field id."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.types import IntegerType, LongType, NestedField

import sidecar
from sidecar.errors import UsageError

OLD = pa.schema([("id", pa.int64()), ("x", pa.string()), ("p", pa.string())])
NEW = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "x", IntegerType()),
    NestedField(4, "q", IntegerType()),
    schema_id=1,
)


def replaced(catalog: Any, name: str) -> tuple[Table, int]:
    """A table as Iceberg's REPLACE leaves it, and its last snapshot from before."""
    table: Table = catalog.create_table(name, OLD)
    with table.update_spec() as spec:
        spec.add_identity("p")
    for n in range(3):
        table.append(pa.table({"id": [n], "x": [f"a{n}"], "p": [f"part{n}"]}))
    sidecar.build(table, ["x"], kinds=["bloom", "page-index"], engine="local")
    before = catalog.load_table(name).current_snapshot().snapshot_id
    updates = (
        AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=5)),
        SetDefaultSpecUpdate(spec_id=-1),
        AddSchemaUpdate(schema_=NEW),
        SetCurrentSchemaUpdate(schema_id=1),
        RemoveSnapshotRefUpdate(ref_name="main"),
    )
    with catalog.load_table(name).transaction() as transaction:
        transaction._apply(updates)
    table = catalog.load_table(name)
    table.append(pa.table({"id": [10], "x": pa.array([7], pa.int32()), "q": pa.array([8], pa.int32())}))
    return catalog.load_table(name), before


EXPECTED: dict[str, list[int]] = {
    "true": [0, 1, 2],
    "x = 'a1'": [1],
    "x > 'a0' and id < 2": [1],
    "p = 'part2'": [2],
    "id in (0, 2)": [0, 2],
    "x is null": [],
}


def test_an_old_snapshot_is_read_by_its_own_schema(catalog: Any) -> None:
    table, before = replaced(catalog, "db.replaced")
    everything = {row["id"]: row for row in table.scan(snapshot_id=before).to_arrow().to_pylist()}
    for predicate, ids in EXPECTED.items():
        planned = sidecar.plan(table, predicate, at=before)
        assert planned.warnings == ()
        found = sorted(planned.to_arrow().to_pylist(), key=lambda row: row["id"])
        assert found == [everything[key] for key in ids], predicate
        assert sidecar.scan(table, predicate, at=before).num_rows == len(ids)
    assert sidecar.plan(table, "x = 'a1'", at=before).files_kept == 1
    keys = sidecar.scan(table, "true", at=before, keys={"x": ["a0", "a2"]})
    assert sorted(keys["id"].to_pylist()) == [0, 2]
    with pytest.raises(UsageError, match="not quoted"):
        sidecar.plan(table, "x = 7", at=before)


def test_the_present_snapshot_is_read_by_the_present_schema(catalog: Any) -> None:
    table, _ = replaced(catalog, "db.replaced_present")
    assert sidecar.scan(table, "x = 7 and q = 8").to_pylist() == [{"id": 10, "x": 7, "q": 8}]
    with pytest.raises(UsageError, match="no column 'p'"):
        sidecar.plan(table, "p = 'part1'")


@pytest.mark.jvm
def test_what_spark_replaced(spark: Any, catalog: Any) -> None:
    spark.sql("create table cat.db.replaced_spark using iceberg as select 1L as id, 'a1' as x, 2 as gone")
    before = catalog.load_table("db.replaced_spark").current_snapshot().snapshot_id
    spark.sql("create or replace table cat.db.replaced_spark using iceberg as select 5L as id, 7 as x")
    table = catalog.load_table("db.replaced_spark")
    assert table.schema().find_field("x").field_id == table.schemas()[0].find_field("x").field_id
    expected = spark.sql(f"select * from cat.db.replaced_spark version as of {before} where x = 'a1'").collect()
    assert [tuple(row) for row in expected] == [(1, "a1", 2)]
    for predicate in ("x = 'a1'", "id = 1", "gone = 2", "true"):
        assert sidecar.scan(table, predicate, at=before).to_pylist() == [{"id": 1, "x": "a1", "gone": 2}]
    assert sidecar.scan(table, "x = 7").to_pylist() == [{"id": 5, "x": 7}]
