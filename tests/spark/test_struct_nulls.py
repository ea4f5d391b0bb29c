"""``spark_read`` of a required field of an optional struct: rows whose struct is NULL, in files that Spark wrote."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StructType

import sidecar
from tests.spark.frames import collected

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("iceberg_in_spark")]

STRUCT = StructType(NestedField(3, "x", LongType(), required=True), NestedField(4, "o", DoubleType(), required=False))
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", STRUCT, required=False))
ROWS = """
    select 1L as id, named_struct('x', 10L, 'o', 1.0D) as s
    union all select 2L, null
    union all select 3L, named_struct('x', 30L, 'o', cast(null as double))
"""
MATCHING = {
    "s.x is null": {2},
    "s.x is not null": {1, 3},
    "not (s.x is null)": {1, 3},
    "s.x is null or id = 1": {1, 2},
    "s.o is null": {2, 3},
    "s is null": {2},
}


def test_null_structs(spark: Any, catalog: Any) -> None:
    """A file for each row. In ORC files, Spark's counts leave out NULL structs, and Spark itself loses their rows."""
    asked, frames = [], []
    with ExitStack() as stack:
        for kind in ("parquet", "orc"):
            name = f"db.spark_null_structs_{kind}"
            catalog.create_table(name, SCHEMA, properties={"write.format.default": kind, "format-version": "2"})
            spark.sql(f"insert into cat.{name} {ROWS}")
            table = catalog.load_table(name)
            sidecar.build(table, ["id"], engine="local")
            for text, expected in MATCHING.items():
                assert {*sidecar.scan(table, text)["id"].to_pylist()} == expected, (kind, text)
                asked.append((kind, text))
                frames.append(stack.enter_context(sidecar.spark_read(spark, f"cat.{name}", table, text, ["id"])))
        found = collected(frames)
    for (kind, text), rows in zip(asked, found, strict=True):
        assert {row["id"] for row in rows} == MATCHING[text], (kind, text)
