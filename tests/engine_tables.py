"""Tables of which an engine loses rows, or finds deleted ones: the list of these, for tests and the guide."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files, parquet_file
from tests.iceberg.table_cases import commit_files, delete_by_position, delete_by_values, deletion_vectors

RIGHT, LOST, DELETED, REFUSED = "right", "rows lost", "deleted rows", "refused"


class TableDifference(NamedTuple):
    """What engines find with ``predicate`` in a table; ``ids`` are right."""

    what: str
    predicate: str
    ids: set[int]
    make: Callable[[Any, str], Table]
    pyiceberg: str
    scan: str
    spark: str
    duckdb: str

    def line(self) -> str:
        """Its line in the guide to Spark."""
        answers = (self.pyiceberg, self.scan, self.spark, self.duckdb)
        return f"| {self.what} | `{self.predicate}` | {' | '.join(answers)} |"

    def outcome(self, found: set[int]) -> str:
        """What an engine's rows are."""
        return LOST if self.ids - found else DELETED if found - self.ids else RIGHT


def create(catalog: Any, name: str, kind: str, transform: str | None = None) -> Table:
    """A table of ``id`` and ``x``, partitioned by ``x`` if a transform is given."""
    x = NestedField.model_validate({"id": 2, "name": "x", "type": kind, "required": False})
    parts = [] if transform is None else [PartitionField(2, 1000, parse_transform(transform), "part")]
    schema = Schema(NestedField(1, "id", LongType()), x)
    made: Table = catalog.create_table(name, schema, partition_spec=PartitionSpec(*parts))
    return made


def rows(table: Table, *ids: int, **x: Any) -> pa.Table:
    """Rows with these ids; without ``x`` they lack the column."""
    found = {"id": pa.array(ids, pa.int64())}
    if x:
        found["x"] = pa.array([x["x"]] * len(ids), table.schema().as_arrow().field("x").type)
    return pa.table(found)


def default_of_a_date(catalog: Any, name: str) -> Table:
    """The column was added with an initial default, to a table of version 3."""
    table = create(catalog, name, "date")
    append_files(
        table, [parquet_file(table, rows(table, 1)), parquet_file(table, rows(table, 2, x=dt.date(2000, 1, 1)))]
    )
    path = local(table.metadata_location)
    metadata = json.loads(path.read_text("utf-8"))
    metadata |= {"format-version": 3, "next-row-id": 0}
    for schema in metadata["schemas"]:
        schema["fields"][1]["initial-default"] = "2024-01-31"
    path.write_text(json.dumps(metadata), "utf-8")
    return catalog.load_table(name)  # type: ignore[no-any-return]


def partition_of_a_double(catalog: Any, name: str) -> Table:
    """The files lack the column, as those of Hive do."""
    table = create(catalog, name, "double", "identity")
    append_files(table, [parquet_file(table, rows(table, at), Record(x)) for at, x in enumerate((2.222, 7.5))])
    return table


def least_int(catalog: Any, name: str) -> Table:
    """Java wraps the partition value around."""
    table = create(catalog, name, "int", "truncate[10]")
    least = parquet_file(table, rows(table, 1, x=-(2**31)), Record(2**31 - 2))
    append_files(table, [least, parquet_file(table, rows(table, 2, x=5), Record(0))])
    return table


def padded_delete(catalog: Any, name: str) -> Table:
    """An equality delete of ids, whose other columns are NULL."""
    table = create(catalog, name, "long")
    append_files(table, [parquet_file(table, pa.table({"id": [1, 2], "x": [10, 20]}))])
    padded = pa.table({"id": pa.array([1], pa.int64()), "x": pa.array([None], pa.int64())})
    counts = {"value_counts": {1: 1, 2: 1}, "null_value_counts": {1: 0, 2: 1}}
    delete_by_values(table, padded, [1], table.spec(), Record(), **counts)
    return table


def vectors_of_a_moved_table(catalog: Any, name: str) -> Table:
    """Manifests have the new paths, the blobs of deletion vectors the old ones."""
    table = create(catalog, name, "long")
    append_files(table, [parquet_file(table, pa.table({"id": [1, 2, 3], "x": [10, 20, 30]}))])
    (task,) = table.scan().plan_files()
    vectors = deletion_vectors(table, {task.file.file_path: [0]}, old=table.location(), new="s3://old/place")
    commit_files(table, vectors, table.spec(), 7)
    path = local(catalog.load_table(name).metadata_location)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"format-version": 3, "next-row-id": 0}), "utf-8")
    return catalog.load_table(name)  # type: ignore[no-any-return]


def positions_of_nan(catalog: Any, name: str) -> Table:
    """A position delete file of the partition of NaN, for two files."""
    table = create(catalog, name, "double", "identity")
    parts = [rows(table, at, at + 1, x=math.nan) for at in (1, 3)]
    append_files(table, [parquet_file(table, part, Record(math.nan)) for part in parts])
    paths = [task.file.file_path for task in table.scan().plan_files()]
    delete_by_position(table, {path: [0] for path in paths}, 0, Record(math.nan))
    return catalog.load_table(name)  # type: ignore[no-any-return]


TABLES = [
    TableDifference(
        "initial default of a date, time, timestamp or UUID",
        "x = '2024-01-31'", {1}, default_of_a_date, LOST, RIGHT, RIGHT, RIGHT,
    ),
    TableDifference(
        "double that only the partition has", "x = 2.222", {0}, partition_of_a_double, LOST, RIGHT, RIGHT, RIGHT
    ),
    TableDifference(
        "least int under `truncate`, by Java", "x = -2147483648", {1}, least_int, LOST, RIGHT, RIGHT, RIGHT
    ),
    TableDifference("the same, in a range", "x < 0", {1}, least_int, LOST, RIGHT, LOST, LOST),
    TableDifference(
        "equality deletes filled up with NULL", "x = 10", set(), padded_delete, DELETED, REFUSED, DELETED, RIGHT
    ),
    TableDifference(
        "deletion vectors of a table moved by its metadata",
        "x > 0", {2, 3}, vectors_of_a_moved_table, DELETED, RIGHT, RIGHT, RIGHT,
    ),
    TableDifference(
        "position deletes of the partition of NaN", "id > 0", {2, 4}, positions_of_nan, DELETED, RIGHT, RIGHT, RIGHT
    ),
]  # fmt: skip
