"""One call speaks one language: predicate, keys, columns and rows have the names of the schema that Spark reads in."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

import sidecar
from sidecar.errors import UsageError
from tests.cli.running import run
from tests.iceberg.table_cases import swap
from tests.tables import create_with_rows, iceberg_schema

ROWS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])


class Swapped(NamedTuple):
    table: Table
    first: int
    """The snapshot from before, also the tag ``old``: a is 1 and 2, b is 100 and 200."""
    last: int
    """The current snapshot."""


def rows(a: list[int], b: list[int]) -> pa.Table:
    return pa.table({"a": a, "b": b, "c": [f"c{one}" for one in a]}, ROWS)


@pytest.fixture(scope="module")
def swapped(catalog: Any) -> Swapped:
    """Since the branch ``dev`` got its file, the names of ``a`` and ``b`` were swapped; then ``main`` got one too."""
    table = catalog.create_table("db.snapshot_names", ROWS, properties={"format-version": "2"})
    for key in (1, 2):
        table.append(rows([key], [100 * key]))
    first = table.current_snapshot().snapshot_id
    sidecar.build(table, ["a", "b"], kinds=["bloom", "page-index"], engine="local")
    with table.manage_snapshots() as manage:
        manage.create_branch(first, "dev").create_tag(first, "old")
    table.append(rows([3], [300]), branch="dev")
    swap(table)
    table.append(rows([400], [4]).select(["b", "a", "c"]))
    table = catalog.load_table("db.snapshot_names")
    return Swapped(table, first, table.current_snapshot().snapshot_id)


def found(table: Table, predicate: str, **how: Any) -> list[tuple[int, int]]:
    """The pairs of ``a`` and ``b`` that a scan gives, after a look at every other way to get them."""
    answer = sidecar.scan(table, predicate, **how)
    assert answer.schema.names[:2] == [*sidecar.plan(table, predicate, **how).table.schema().column_names][:2]
    pairs = sorted((row["a"], row["b"]) for row in answer.to_pylist())
    for column, place in (("a", 0), ("b", 1)):
        alone = sidecar.scan_batches(table, predicate, [column], **how).read_all()
        assert sorted(alone[column].to_pylist()) == sorted(pair[place] for pair in pairs)
        keys = sidecar.scan(table, "true", keys={column: pa.array([pair[place] for pair in pairs], pa.int64())}, **how)
        assert sorted((row["a"], row["b"]) for row in keys.to_pylist()) == pairs
    return pairs


@pytest.mark.parametrize("how", ["snapshot", "digits", "tag"])
def test_a_snapshot_and_a_tag_are_read_in_their_own_schema(swapped: Swapped, how: str) -> None:
    named: dict[str, Any] = {"at": {"snapshot": swapped.first, "digits": str(swapped.first), "tag": "old"}[how]}
    assert found(swapped.table, "a = 1", **named) == [(1, 100)]
    assert found(swapped.table, "b = 200", **named) == [(2, 200)]
    assert found(swapped.table, "a = 100 or b = 1", **named) == []
    assert found(swapped.table, "a < 50", **named) == [(1, 100), (2, 200)]
    assert sidecar.plan(swapped.table, "a = 2", **named).files_kept == 1


@pytest.mark.parametrize("named", [{}, {"at": "main"}, {"at": "dev"}])
def test_a_branch_is_read_in_the_present_schema(swapped: Swapped, named: dict[str, str]) -> None:
    last = (300, 3) if named == {"at": "dev"} else (400, 4)
    assert found(swapped.table, "b = 1", **named) == [(100, 1)]
    assert found(swapped.table, f"a = {last[0]}", **named) == [last]
    assert found(swapped.table, "a = 1 or b = 100", **named) == []
    assert found(swapped.table, "b < 50", **named) == [(100, 1), (200, 2), last]


def test_the_current_snapshot_by_its_id_has_its_own_schema(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.current_by_id", [rows([1], [100])], ROWS)
    current = table.current_snapshot().snapshot_id
    swap(table)
    assert found(table, "a = 1", at=current) == [(1, 100)]
    assert found(table, "a = 100") == [(100, 1)]
    assert found(table, "a = 100", at="main") == [(100, 1)]


def replace_column(table: Table, name: str) -> None:
    """Give a column a type to which the old one cannot be promoted, as CREATE OR REPLACE TABLE does."""
    fields = [
        NestedField(field.field_id, field.name, IntegerType() if field.name == name else field.field_type)
        for field in table.schema().fields
    ]
    new = max(table.schemas()) + 1
    with table.transaction() as transaction:
        transaction._apply(
            (AddSchemaUpdate(schema_=Schema(*fields, schema_id=new)), SetCurrentSchemaUpdate(schema_id=new))
        )


def test_another_column_of_an_unreadable_type_changes_no_names(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.unreadable", [rows([1], [100])], ROWS)
    before = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as manage:
        manage.create_branch(before, "dev").create_tag(before, "old")
    swap(table)
    for _ in range(2):
        assert found(table, "a = 1", at=before) == found(table, "a = 1", at="old") == [(1, 100)]
        assert found(table, "a = 100", at=before) == []
        replace_column(table, "c")
    with pytest.raises(UsageError, match=r"cannot read the snapshot .*column c; expected int; found string"):
        sidecar.plan(table, "a = 100", at="dev")
    assert sidecar.status(table, at="dev").files.live == 1


def test_find_speaks_the_same_language(swapped: Swapped) -> None:
    table, first, _ = swapped
    for named in (
        {"at": first},
        {"at": "old"},
        {"at": "dev"},
        {},
    ):  # a name means every column that has had it
        for column in ("a", "b"):
            (answer,) = sidecar.find(table, {column: 1}, **named).conditions  # type: ignore[arg-type]
            assert (answer.answer, answer.rows) == ("found", 1)


@pytest.mark.parametrize("named", ["snapshot", "old", "dev", "main"])
def test_what_is_indexed_is_named_in_the_schema_of_the_snapshot(catalog: Any, named: str) -> None:
    table = create_with_rows(catalog, f"db.indexed_names_{named}", [rows([1], [100])], ROWS)
    before = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as manage:
        manage.create_branch(before, "dev").create_tag(before, "old")
    swap(table)
    how: dict[str, Any] = {"at": before if named == "snapshot" else named}
    sidecar.build(table, ["a"], engine="local", **how)
    with closing(sidecar.open_sidecar(table)) as opened:
        indexed = {field_id for segment in opened.segments for field_id in segment.fields}
    is_older = named in ("snapshot", "old")
    assert indexed == {table.schemas()[0].find_field("a" if is_older else "b").field_id}
    assert [*sidecar.status(table, **how).coverage] == ["a"]
    assert [*sidecar.status(table, **how).covered] == ["a"]
    assert [one.name for one in sidecar.advise(table, ["a"], **how).columns] == ["a"]
    assert sidecar.verify(table, data=True, **how).problems == []
    assert [*sidecar.status(table).coverage] == ["b" if is_older else "a"]
    assert sidecar.plan(table, "a = 7", **how).funnel.indexed == 1


def test_what_status_says_to_do_is_about_the_snapshot(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.names_to_do", [rows([1], [100])], ROWS, columns=["a"])
    table.append(rows([2], [200]))
    later = table.current_snapshot().snapshot_id
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "c"})
    swap(table)
    for how, name, options in (({"at": later}, "a", f"--at {later}"), ({}, "b", "")):
        status = sidecar.status(table, **how)  # type: ignore[arg-type]
        (command,) = [step.command for step in status.to_do if " build " in step.command]
        assert f"--columns {name} --kinds bloom" in command
        assert ("--at" in command, options in command) == (bool(options), True)


def test_a_column_that_is_wider_today_has_its_own_type_in_the_snapshot(catalog: Any) -> None:
    schema = iceberg_schema("x float, n int")
    table = catalog.create_table("db.wider_today", schema)
    table.append(pa.table({"x": pa.array([0.1], pa.float32()), "n": pa.array([7], pa.int32())}))
    before = table.current_snapshot().snapshot_id
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("x", DoubleType())
        update.add_column("more", StringType())
    sidecar.build(table, ["x", "n"], kinds=["bloom", "page-index"], engine="local")
    for named in ({}, {"at": before}):
        assert sidecar.scan(table, "n = 7 and x = 0.1", **named).num_rows == 1  # type: ignore[arg-type]
        assert sidecar.scan(table, "n = 8", **named).num_rows == 0  # type: ignore[arg-type]
    assert sidecar.scan(table, "n = 7", at=before).schema.types == [pa.float32(), pa.int32()]
    assert sidecar.scan(table, "n = 7").schema.types[:2] == [pa.float64(), pa.int64()]
    with pytest.raises(UsageError, match="no column 'more'"):
        sidecar.plan(table, "more is null", at=before)
    # A number for a FLOAT column is rounded to 32 bits, one for a DOUBLE column is not.
    assert sidecar.find(table, {"x": "0.1"}, at=before).answer == "found"
    assert sidecar.find(table, {"x": "0.1"}).answer == "absent"
    table.append(pa.table({"x": [0.5], "n": [8], "more": ["y"]}))
    assert sidecar.find(table, {"x": "0.1"}, all_snapshots=True).answer == "found"


def test_snapshots_from_before_and_after_a_change_of_partitions(catalog: Any) -> None:
    """The present spec has a column that the older schema lacks; the older one has a column that was dropped since."""
    table = catalog.create_table("db.other_partitions", ROWS)
    with table.update_spec() as spec:
        spec.add_identity("a")
    table.append(rows([1, 2], [100, 200]))
    before = table.current_snapshot().snapshot_id
    with table.update_spec() as spec:
        spec.remove_field("a")
    with table.update_schema() as update:
        update.add_column("d", LongType())
    with table.update_spec() as spec:
        spec.add_identity("d")
    table.append(pa.table({"a": [3], "b": [300], "c": ["x"], "d": [9]}))
    with table.update_schema() as update:
        update.rename_column("a", "gone")
    sidecar.build(table, ["b"], engine="local")
    table = catalog.load_table("db.other_partitions")
    for predicate, expected in (("a = 2", [200]), ("a = 1 or b = 200", [100, 200]), ("a is null", []), ("b = 300", [])):
        assert sorted(sidecar.scan(table, predicate, at=before)["b"].to_pylist()) == expected
    assert sidecar.plan(table, "a = 2", at=before).files_kept == 1
    assert sidecar.scan(table, "d = 9 and gone = 3")["b"].to_pylist() == [300]


def test_the_command_line_speaks_it_too(swapped: Swapped) -> None:
    path, first = swapped.table.metadata_location, str(swapped.first)
    for options, expected in (
        (["--at", first, "--columns", "a"], [{"a": 1}]),
        (["--at", "old", "--columns", "a,b"], [{"a": 1, "b": 100}]),
        (["--at", "dev", "--columns", "a"], []),
    ):
        done = run("scan", path, "a = 1", "--json", *options)
        assert [json.loads(line) for line in done.stdout.splitlines()] == expected, options
