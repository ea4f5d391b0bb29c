"""Daft plans by pyiceberg and wants a value for each partition field. It runs where Daft is installed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, NestedField, StringType

import sidecar
from tests.serving.served import served

daft = pytest.importorskip("daft", reason="Daft is not installed")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LongType(), pa.array([1, 2, 3], pa.int64())),
        (IntegerType(), pa.array([1, 2, 3], pa.int32())),
        (StringType(), pa.array(["a", "b", "c"])),
        (BooleanType(), pa.array([True, False, True])),
        (DateType(), pa.array([dt.date(2024, 1, 1), dt.date(1950, 1, 2), dt.date(2024, 1, 3)])),
    ],
    ids=lambda one: str(one) if isinstance(one, IcebergType) else "",
)
def test_partitioned_tables(catalog: Any, kind: IcebergType, values: pa.Array) -> None:
    name = f"db.daft_{kind}"
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table(name, schema, partition_spec=spec)
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": values}))
    sidecar.build(table, ["id"], engine="local")
    with served(catalog) as server:
        through = server.catalog().load_table(name)
        for condition in (daft.col("id") > 0, daft.col("id") == 2, daft.col("p") == values[1].as_py()):
            found, wanted = (daft.read_iceberg(one).where(condition).to_pylist() for one in (through, table))
            assert sorted(found, key=str) == sorted(wanted, key=str) != []
        assert min(facts.files_kept for facts in server.facts) == 1
