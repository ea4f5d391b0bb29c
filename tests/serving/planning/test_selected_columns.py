"""Who may replace files gets no residual by which a reader skips rows. Who cannot, gets the filter."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from sidecar.serving.answers import Caller
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.planning.selected_columns import may_replace_files, reads_all_columns
from tests.serving.planning.asking import JAVA, PYICEBERG, ask, equal, page
from tests.tables import create_with_rows

GO = Caller("iceberg-go/0.7.0", "0.14.1")


def schema_of(*columns: tuple[str, IcebergType], schema_id: int = 0) -> Schema:
    fields = (NestedField(number, name, kind) for number, (name, kind) in enumerate(columns, 1))
    return Schema(*fields, schema_id=schema_id)


POINT = StructType(
    NestedField(11, "x", IntegerType()), NestedField(12, "y", StructType(NestedField(13, "z", LongType())))
)
NESTED = schema_of(
    ("id", LongType()),
    ("point", POINT),
    ("list", ListType(21, IntegerType())),
    ("points", ListType(22, StructType(NestedField(23, "a", IntegerType())))),
    ("map", MapType(24, StringType(), 25, StructType(NestedField(26, "b", IntegerType())))),
    ("a.b", LongType()),
    ("X", StringType()),
    ("nothing", UnknownType()),
)
SPARK = ["id", "_file", "point", "a.b", "X", "point.x", "point.y", "point.y.z", "list.element", "points.element.a"]
SPARK += ["map.value.b"]
"""As Spark names all of these columns in a DELETE: a map's key is not among them if its value is a struct."""


def without(*names: str) -> list[str]:
    return [one for one in SPARK if not one.startswith(names) and one != "_file"]


@pytest.mark.parametrize(
    ("select", "is_all"),
    [
        (None, True),
        ([], True),
        (SPARK, True),
        ([one.upper() for one in SPARK], True),
        ([*SPARK, *SPARK, "_pos", "unknown"], True),
        (["x", "ID", "point", "list", "points", "map", "a.b"], True),
        (without("point.y"), True),  # a part of a column counts as all of it
        (without("id"), False),
        (without("X"), False),
        (without("list"), False),
        (without("point", "points"), False),
        (without("map"), False),
        (without("a.b"), False),
        ([*without("a.b"), "a"], False),
        (without("point."), True),
    ],
)
def test_all_columns_of_a_schema(select: list[str] | None, is_all: bool) -> None:
    assert reads_all_columns(select, NESTED) == is_all


OLDER = schema_of(("id", LongType()), ("s", StringType()))
NEWER = schema_of(("id", LongType()), ("t", StringType()), ("n", LongType()), schema_id=1)


@pytest.mark.parametrize(
    ("select", "may_replace"),
    [
        (["id"], False),
        (["id", "T"], False),
        (["id", "n"], False),
        (["id", "n", "_pos", "_partition.n"], False),
        (["id", "t", "n"], True),
        (["id", "s"], True),  # all columns of a client that has loaded the table before its last change
        (["id", "s", "n"], True),  # of no schema that the table still has
        (["id", "of a schema that is gone"], True),
        (["id", "_file"], True),  # Spark's statements need to know which files they replace
        (None, True),
        ([], True),
    ],
)
def test_whose_schema_may_be_any_of_the_tables(select: list[str] | None, may_replace: bool) -> None:
    assert may_replace_files(select, [NEWER, OLDER]) == may_replace


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    parts = [pa.table({"n": pa.array(range(at, 40, 4), pa.int64()), "s": [f"v{n}" for n in range(at, 40, 4)]})
             for at in range(4)]  # fmt: skip
    return create_with_rows(catalog, "db.selected_columns", parts, columns=["s"])


def hidden(filter: dict[str, Any]) -> dict[str, Any]:
    return {**filter, "term": {"type": "transform", "transform": "identity", "term": filter["term"]}}


NARROW, WIDE = ["s"], ["n", "s"]


@pytest.mark.parametrize(
    ("caller", "select", "residual"),
    [
        (JAVA, NARROW, equal("s", "v5")),
        (JAVA, WIDE, hidden(equal("s", "v5"))),
        (JAVA, None, hidden(equal("s", "v5"))),
        (JAVA, [*NARROW, "_file"], hidden(equal("s", "v5"))),
        (PYICEBERG, NARROW, equal("s", "v5")),
        (PYICEBERG, None, equal("s", "v5")),  # it filters rows itself, and counts files without reading them
        (GO, NARROW, equal("s", "v5")),
        (GO, None, None),  # it makes the residual of its own filter
    ],
)
def test_residuals_of_clients(table: Table, caller: Caller, select: list[str] | None, residual: Any) -> None:
    found = ask(ScanPlanner(), table, equal("s", "v5"), caller, select=select)
    (task,) = found["file-scan-tasks"]
    assert task.get("residual-filter") == residual
    # Nobody replaces files of a catalog that takes no commits.
    (task,) = ask(ScanPlanner(is_read_only=True), table, equal("s", "v5"), caller, select=select)["file-scan-tasks"]
    assert task["residual-filter"] == equal("s", "v5")


def test_a_read_only_catalog_needs_no_file_for_deletes(table: Table) -> None:
    assert len(ask(ScanPlanner(), table, equal("s", "v5, absent"))["file-scan-tasks"]) == 1
    assert not ask(ScanPlanner(is_read_only=True), table, equal("s", "v5, absent"))["file-scan-tasks"]


def test_readers_and_writers_share_a_kept_plan_and_no_residual(table: Table) -> None:
    planner = ScanPlanner(page_files=1)
    wide = {"type": "not-eq", "term": "s", "value": "v5"}
    for select, residual in ((NARROW, wide), (WIDE, hidden(wide)), (NARROW, wide)):
        found = ask(planner, table, wide, select=select)
        assert len(found["plan-tasks"]) == 3
        rest = [page(planner, table, token) for token in found["plan-tasks"]]
        tasks = [task for part in (found, *rest) for task in part["file-scan-tasks"]]
        assert [task["residual-filter"] for task in tasks] == [residual] * 4


def test_pages_of_a_writer_stay_a_writers_when_the_table_changes(catalog: Any) -> None:
    """What a plan was asked for is no longer all of a schema when the rest of it is asked for."""
    parts = [pa.table({"n": pa.array([n], pa.int64())}) for n in range(3)]
    table = create_with_rows(catalog, "db.selected_later", parts)
    condition = {"type": "gt-eq", "term": "n", "value": 0}
    for_writer = ask(ScanPlanner(bytes(16), page_files=1), table, condition, select=["n"])
    with table.update_schema() as update:
        update.add_column("later", LongType())
    changed = json.loads(table.metadata.model_dump_json())
    changed["schemas"] = [one for one in changed["schemas"] if one["schema-id"] == changed["current-schema-id"]]
    table.metadata = type(table.metadata).model_validate(changed)  # the older schema has expired
    for token in for_writer["plan-tasks"]:
        (task,) = page(ScanPlanner(bytes(16)), table, token)["file-scan-tasks"]
        assert task["residual-filter"] == hidden(condition)
    for_reader = ask(ScanPlanner(), table, condition, select=["n"])["file-scan-tasks"]
    assert [task["residual-filter"] for task in for_reader] == [condition] * 3
