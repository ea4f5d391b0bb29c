"""IS NULL on a required field in an optional struct: rows whose struct is NULL are never planned away."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StructType

import sidecar

STRUCT = StructType(NestedField(2, "b", LongType(), required=True))
SCHEMA = Schema(NestedField(1, "a", STRUCT, required=False), NestedField(3, "n", LongType(), required=False))


@pytest.fixture(scope="module", params=["plain", "partitioned"])
def table(request: pytest.FixtureRequest, catalog: Any) -> Any:
    fields = [PartitionField(3, 1000, IdentityTransform(), "n")] if request.param == "partitioned" else []
    made = catalog.create_table(f"db.struct_nulls_{request.param}", SCHEMA, partition_spec=PartitionSpec(*fields))
    kind = made.schema().as_arrow()
    for number in (1, 2):
        made.append(pa.table({"a": [{"b": number}, None], "n": [number, number]}, kind))
    sidecar.build(made, ["n", "a.b"], engine="local")
    return made


@pytest.mark.parametrize(
    ("predicate", "files"),
    [
        ("a.b is null", 2),
        ("not (a.b is not null)", 2),
        ("a.b is null and n = 2", 1),
        ("a.b is null or n = 7", 2),
        ("a.b = 2", 1),
    ],
)
def test_files_with_a_null_struct_are_kept(table: Any, predicate: str, files: int) -> None:
    planned = sidecar.plan(table, predicate)
    assert len(planned.tasks) == files
    assert planned.to_arrow().num_rows == table.scan(predicate).to_arrow().num_rows
