"""Equality deletes of others: which files they reach, and by which statistics they may be left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampType

import sidecar
from sidecar.errors import UnsupportedFeatureError
from tests.iceberg.mixed_tables import append_files, parquet_file
from tests.iceberg.table_cases import delete_by_values

SCHEMA = Schema(
    NestedField(1, "k", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "st", StructType(NestedField(5, "part", StringType()))),
)
ALL_ROWS = {"part": "a", "at": 0, "st": {"part": "a"}}
PARTITIONS = {
    "identity": ([(2, "identity")], ("a",), (None,)),
    "truncate": ([(2, "truncate[1]")], ("a",), (None,)),
    "bucket": ([(2, "bucket[4]")], (2,), (None,)),
    "day": ([(3, "day")], (0,), (None,)),
    "of a struct": ([(5, "identity")], ("a",), (None,)),
    "two": ([(2, "identity"), (3, "day")], ("a", None), (None, None)),
    "one dropped": ([(3, "void"), (2, "identity")], (None, "a"), (None, None)),
}


def rows(*keys: int, **others: Any) -> pa.Table:
    schema = pa.schema([("k", pa.int64()), ("part", pa.string()), ("at", pa.timestamp("us"))])
    schema = schema.append(pa.field("st", pa.struct([("part", pa.string())])))
    return pa.Table.from_pylist([{"k": key, **others} for key in keys], schema)


def create(catalog: Any, name: str, fields: list[tuple[int, str]], in_partitions: list[tuple[pa.Table, Any]]) -> Table:
    """A table with a data file for each of ``in_partitions``."""
    spec = [PartitionField(source, 1000 + at, parse_transform(t), f"p{at}") for at, (source, t) in enumerate(fields)]
    table: Table = catalog.create_table(
        f"db.equality_{name.replace(' ', '_')}", SCHEMA, partition_spec=PartitionSpec(*spec)
    )
    append_files(table, [parquet_file(table, part, Record(*values)) for part, values in in_partitions])
    return table


def fates(table: Table, key: int) -> tuple[int, int, int]:
    """How many rows with a key are live, deleted and in doubt, by ``find``."""
    (found,) = sidecar.find(table, {"k": key}).snapshots
    return found.rows_live, found.rows_deleted, found.rows_in_doubt


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_delete_of_the_null_partition_reaches_no_other_one(catalog: Any, name: str) -> None:
    """A streaming writer makes one. Spark reads the rows of the other partitions."""
    fields, other, null = PARTITIONS[name]
    asked = {"day": "at is not null", "of a struct": "st.part = 'a'"}.get(name, "part = 'a'")
    table = create(catalog, name, fields, [(rows(1, 2, **ALL_ROWS), other), (rows(1, 3), null)])
    delete_by_values(table, pa.table({"k": [1, 2]}), [1], table.spec(), Record(*null))
    assert fates(table, 1) == (1, 1, 0)
    assert fates(table, 2) == (1, 0, 0)
    assert fates(table, 3) == (1, 0, 0)
    for _ in range(2):
        with pytest.raises(UnsupportedFeatureError, match="equality deletes may apply"):
            sidecar.plan(table, "k = 1")
        assert sidecar.scan(table, f"k = 1 and {asked}")["k"].to_pylist() == [1]
        assert sidecar.plan(table, "k = 1", allow_equality_deletes=True).equality_deletes
        sidecar.build(table, ["k"], engine="local")
        table.refresh()


def test_a_delete_of_a_spec_whose_fields_were_dropped_reaches_every_file(catalog: Any) -> None:
    table = create(catalog, "dropped", [(2, "void")], [(rows(1), (None,))])
    with table.update_spec() as update:
        update.add_field("part", IdentityTransform(), "by_part")
    append_files(table, [parquet_file(table, rows(1, **ALL_ROWS), Record(None, "a"))])
    assert isinstance(table.specs()[0].fields[0].transform, VoidTransform)
    delete_by_values(table, pa.table({"k": [1]}), [1], table.specs()[0], Record(None))
    assert fates(table, 1) == (0, 2, 0)
    with pytest.raises(UnsupportedFeatureError, match="equality deletes may apply"):
        sidecar.plan(table, "part = 'a'")


def test_a_delete_that_was_written_without_a_partition_is_in_doubt(catalog: Any) -> None:
    """Its manifest has no partition field, but names a spec with one. Spark applies it to NULL alone, DuckDB to all."""
    files = [(rows(1, **ALL_ROWS), ("a",)), (rows(1), (None,))]
    table = create(catalog, "no_partition", [(2, "identity")], files)
    delete_by_values(table, pa.table({"k": [1, 2]}), [1], PartitionSpec(), Record())
    assert fates(table, 1) == (0, 0, 2)
    with pytest.raises(UnsupportedFeatureError, match="equality deletes may apply"):
        sidecar.plan(table, "part = 'a'")


def test_a_delete_reaches_older_files_of_its_spec_alone(catalog: Any) -> None:
    table = create(catalog, "evolved", [(2, "identity")], [(rows(1, **ALL_ROWS), ("a",))])
    with table.update_spec() as update:
        update.remove_field("p0")
        update.add_field("part", parse_transform("truncate[5]"), "cut")
    append_files(
        table,
        [parquet_file(table, rows(1, **ALL_ROWS), Record(None, "a") if len(table.spec().fields) == 2 else Record("a"))],
    )
    delete_by_values(table, pa.table({"k": [1]}), [1], table.specs()[0], Record("a"))
    assert fates(table, 1) == (1, 1, 0)
    append_files(table, [parquet_file(table, rows(1, **ALL_ROWS), Record("a"))])
    assert fates(table, 1) == (2, 1, 0)
    assert fates(table, 9) == (0, 0, 0)
