"""pyiceberg behind a server gets the rows of its own plans: also with an old table, and of Hive's files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import RESTError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, DecimalType, IntegerType, LongType, NestedField, StringType

import sidecar
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.mixed_tables import append_files
from tests.serving.served import Served, served
from tests.tables import create_with_rows, iceberg_schema


@pytest.fixture(scope="module")
def server(catalog: Any) -> Iterator[Served]:
    with served(catalog) as found:
        yield found


def rename(table: Table, *names: tuple[str, str]) -> None:
    for old, new in names:
        with table.update_schema() as update:
            update.rename_column(old, new)


SWAP = (("x", "between"), ("y", "x"), ("between", "y"))


@pytest.mark.parametrize("changes", [SWAP, (("x", "a"), ("y", "x")), (*SWAP, *SWAP), (("y", "z"),)], ids=len)
@pytest.mark.parametrize("page_files", [100, 1])
def test_a_client_with_an_old_table_loses_no_rows(catalog: Any, changes: Any, page_files: int) -> None:
    """It names columns as it knows them, and gets the files of today."""
    name = f"db.stale_{len(changes)}_{page_files}"

    def rows(of: str, number: int) -> pa.Table:
        """Values of the columns that were called x and y at first."""
        known = {1: f"x{number}", 2: f"y{number}"}
        return pa.table({field.name: [known[field.field_id]] * 2 for field in catalog.load_table(of).schema().fields})

    table = create_with_rows(catalog, name, [pa.table({"x": [f"x{n}"] * 2, "y": [f"y{n}"] * 2}) for n in range(4)])
    with served(catalog, page_files=page_files) as server:
        old = server.catalog().load_table(name)
        rename(table, *changes)
        table.append(rows(name, 2))
        sidecar.build(table, [field.name for field in table.schema().fields], engine="local")
        for column, value in (("x", "x1"), ("y", "y3"), ("x", "x2"), ("y", "absent")):
            wanted = sum(task.count(value) for task in table.scan().to_arrow().to_pydict().values())
            found = old.scan(f"{column} = '{value}'").to_arrow()
            assert found[column].to_pylist() == [value] * wanted
            assert old.scan(f"{column} = '{value}'").count() == wanted
            names = {field.field_id: field.name for field in table.schema().fields}
            present = server.catalog().load_table(name)
            assert present.scan(f"{names[1 + (column == 'y')]} = '{value}'").count() == wanted


PARTITION = (
    ("day", DateType(), 19724, dt.date(2024, 1, 2)),
    ("flag", BooleanType(), True, True),
    ("name", StringType(), "é\"'", "é\"'"),
    ("number", IntegerType(), 7, 7),
    ("big", LongType(), 2**40, 2**40),
)


def of_hive(catalog: Any, name: str, folder: Path, columns: Any) -> Table:
    """A table with a file that lacks the columns by which the table is divided."""
    fields = [NestedField(number, column, kind) for number, (column, kind, *_) in enumerate(columns, 2)]
    schema = Schema(NestedField(1, "id", LongType()), *fields)
    parts = [PartitionField(one.field_id, 1000 + one.field_id, IdentityTransform(), one.name) for one in fields]
    table: Table = catalog.create_table(f"db.{name}", schema, partition_spec=PartitionSpec(*parts))
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64())}), path)
    file = file_in_manifest(
        f"file:{path}",
        3,
        path.stat().st_size,
        partition=Record(*(value for _, _, value, *_ in columns)),
        column_sizes={1: 50},
        value_counts={1: 3},
        spec_id=0,
    )
    append_files(table, [file])
    return catalog.load_table(table.name())


def test_files_that_lack_the_partition_columns(catalog: Any, server: Served, tmp_path: Path) -> None:
    table = of_hive(catalog, "hive", tmp_path, PARTITION)
    found = server.catalog().load_table("db.hive").scan().to_arrow()
    assert found.to_pylist() == table.scan().to_arrow().to_pylist()
    assert found.to_pylist()[0] == {"id": 1, **{name: value for name, _, _, value in PARTITION}}


@pytest.mark.parametrize("value", [None, "1.50"])
def test_a_partition_value_that_cannot_be_said(catalog: Any, server: Served, tmp_path: Path, value: Any) -> None:
    """pyiceberg refuses NULL in an answer, and makes no decimal of a text."""
    column = ("price", DecimalType(9, 2), None if value is None else Decimal(value))
    name = f"hive_{value is None}"
    of_hive(catalog, name, tmp_path, [column])
    table = server.catalog().load_table(f"db.{name}")
    with pytest.raises(RESTError, match=r"has no column price.*scan-planning-mode to client"):
        table.scan().to_arrow()
    assert table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [1, 2, 3]
    alone = server.catalog(**{"scan-planning-mode": "client"}).load_table(f"db.{name}")
    assert alone.scan().to_arrow()["id"].to_pylist() == [1, 2, 3]


def test_files_that_have_their_partition_columns_need_no_values(catalog: Any, server: Served) -> None:
    """Also in a table that may have others."""
    schema = iceberg_schema("id long, price decimal(9, 2)")
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "price"))
    table = catalog.create_table("db.hive_new_files", schema, partition_spec=spec)
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
    prices = pa.array([None, 1, 2], pa.decimal128(9, 2))
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "price": prices}))
    found = server.catalog().load_table("db.hive_new_files").scan().to_arrow().sort_by("id")
    assert found.to_pylist() == table.scan().to_arrow().sort_by("id").to_pylist()
