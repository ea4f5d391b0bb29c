"""NULL lists and maps stay NULL, whatever is in them. pyiceberg 0.12 makes empty ones of those that have structs."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

import sidecar
from sidecar.reading import arrow_reader, table_files
from tests.iceberg.mixed_tables import append_files, orc_file, parquet_file


def list_of(number: int, kind: IcebergType) -> ListType:
    return ListType(number, kind, element_required=False)


def map_of(number: int, kind: IcebergType) -> MapType:
    return MapType(number, StringType(), number + 1, kind, value_required=False)


INNER = StructType(NestedField(20, "a", LongType()), NestedField(21, "b", StringType()))
SCHEMA = Schema(
    NestedField(1, "k", LongType()),
    NestedField(2, "l", list_of(30, INNER)),
    NestedField(3, "m", map_of(32, INNER)),
    NestedField(4, "st", StructType(NestedField(22, "l", list_of(34, INNER)))),
    NestedField(5, "ll", list_of(36, list_of(38, StructType(NestedField(23, "a", LongType()))))),
    NestedField(6, "ml", map_of(40, list_of(42, StructType(NestedField(24, "a", LongType()))))),
    NestedField(7, "lm", list_of(44, map_of(46, LongType()))),
    NestedField(8, "n", list_of(48, LongType())),
)
ONE = {"a": 1, "b": "x"}
COLUMNS: dict[str, list[Any]] = {
    "k": [0, 1, 2, 3, 4],
    "l": [None, [], [None], [ONE, None, ONE], None],
    "m": [None, [], [("p", None)], [("p", ONE), ("q", None)], None],
    "st": [None, {"l": None}, {"l": []}, {"l": [ONE, None]}, {"l": None}],
    "ll": [None, [], [None], [[], [{"a": 1}, None]], [None, None]],
    "ml": [None, [], [("p", None)], [("p", []), ("q", [None])], None],
    "lm": [None, [], [None], [[], [("p", 1), ("q", None)]], [None]],
    "n": [None, [], [None], [1, 2], None],
}


def rows_of(table: Table, predicate: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    found = sidecar.scan(table, predicate, columns).to_pylist()
    with sidecar.scan_batches(table, predicate, columns) as batches:
        assert batches.read_all().to_pylist() == found
    return sorted(found, key=lambda row: row["k"])


@pytest.mark.parametrize("form", ["parquet", "pages", "orc"])
@pytest.mark.parametrize("change", ["nothing", "added field"])
def test_null_lists_and_maps(catalog: Any, form: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "pages":
        monkeypatch.setattr(table_files, "SMALL", 0)
        monkeypatch.setattr(table_files, "TOO_MUCH", math.inf)
        monkeypatch.setattr(arrow_reader, "SMALL", 0)
    table = catalog.create_table(f"db.nested_nulls_{form}_{change[:5]}", SCHEMA)
    made = pa.table(COLUMNS, table.schema().as_arrow())
    append_files(table, [orc_file(table, made) if form == "orc" else parquet_file(table, made)])
    columns = ["k", "l", "m", "st"]
    expected = [{name: row[name] for name in columns} for row in made.to_pylist()]
    if change == "nothing":
        assert rows_of(table, "true") == made.to_pylist()
    else:
        with table.update_schema() as update:
            for path in (("l", "c"), ("m", "c"), ("st", "l", "c")):
                update.add_column(path, LongType())
        for value in (one for row in expected for one in _structs(row)):
            value["c"] = None
    for predicate, keys in (("true", range(5)), ("k >= 1", range(1, 5)), ("k in (0, 3)", (0, 3)), ("k = 4", (4,))):
        assert rows_of(table, predicate, columns) == [expected[key] for key in keys], predicate
    sidecar.build(table, ["k"], kinds=["bloom", "page-index"], engine="local")
    assert rows_of(table.refresh(), "k = 0", columns) == expected[:1]


def _structs(row: dict[str, Any]) -> list[dict[str, Any]]:
    lists = [row["l"], (row["st"] or {}).get("l"), [value for _, value in row["m"] or ()]]
    return [one for some in lists for one in some or () if one is not None]
