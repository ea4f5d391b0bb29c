"""``sidecar find``: conditions, exit codes and forms of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import running
from tests.iceberg.cases import local
from tests.tables import configure, new_catalog


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("find")
    catalog = new_catalog(folder, "c")
    made = catalog.create_table("db.t", pa.schema([("mail", pa.string()), ("n", pa.int64())]))
    made.append(pa.table({"mail": ["ann", "ben"], "n": [-5, 2]}))
    made.delete("mail = 'ben'")
    return made


def run(table: Any, *words: str, code: int | None = None) -> Any:
    return running.run("find", local(table.metadata_location).as_posix(), *words, code=code)


def test_exit_codes(table: Any) -> None:
    assert run(table, "mail=ben").exit_code == 0
    assert run(table, "mail=ben", "--strict").exit_code == 1  # the entry of the removed file has it as a bound
    assert run(table, "mail=ben", "--all-snapshots").exit_code == 1
    assert run(table, "n=-5").exit_code == 1
    assert run(table, "mail").exit_code == 2
    (data_file,) = _live(table)
    bytes_ = data_file.read_bytes()
    data_file.unlink()
    try:
        found = run(table, "mail=ann")
    finally:
        data_file.write_bytes(bytes_)
    assert found.exit_code == 3
    assert "not asked: data file" in found.stdout


def _live(table: Any) -> list[Path]:
    return [local(task.file.file_path) for task in table.scan().plan_files()]


def test_values_of_a_file_as_json_and_rows(table: Any, tmp_path: Path) -> None:
    values = tmp_path / "people.txt"
    values.write_text("ann\nben\n")
    found = run(table, "mail", "--values", str(values), "--json")
    data = json.loads(found.stdout)
    assert (found.exit_code, data["exit"], data["answer"]) == (1, 1, "found")
    assert [(one["value"], one["answer"]) for one in data["conditions"]] == [("ann", "found"), ("ben", "absent")]
    rows = run(table, "mail", "--values", str(values), "--format", "csv").stdout.splitlines()
    assert rows[1].startswith("mail,ann,found,1,1")


def test_the_text_says_where_live_and_deleted_rows_are(table: Any) -> None:
    text = run(table, "mail=ben", "--all-snapshots").stdout
    assert "1 live" in text
    assert "removed entry of a manifest" in text


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tables that name the mail of a person in other ways, one without it, and a file that no snapshot names."""
    catalog = new_catalog(tmp_path_factory.mktemp("people"), "people", "hr")
    for name, column in (("users", "mail"), ("staff", "email"), ("rooms", "room")):
        made = catalog.create_table(f"hr.{name}", pa.schema([(column, pa.string()), ("user_id", pa.int64())]))
        made.append(pa.table({column: [f"{name}@x", "ann@x"], "user_id": [7, 42]}))
    made.delete("user_id = 42")
    return catalog


def ask(people: Any, *words: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, people)
        return running.run("find", *words, "--catalog", "people")


def test_many_persons_in_many_tables_are_one_document(people: Any, tmp_path: Path) -> None:
    values = tmp_path / "people.csv"
    values.write_text("mail|email,user_id\nann@x,42\nben@x,\n")
    found = ask(people, "hr.*", "--values", str(values), "--json")
    data = json.loads(found.stdout)
    assert (found.exit_code, data["answer"], data["failed"]) == (1, "found", {})
    answers = {
        (one["table"], each["column"], each["value"]): (each["answer"], each.get("impossible"))
        for one in data["tables"]
        for each in one["conditions"]
    }
    lacks = "the table has no column of this name"
    assert answers == {
        ("hr.rooms", "mail|email", "ann@x"): ("absent", lacks),
        ("hr.rooms", "mail|email", "ben@x"): ("absent", lacks),
        ("hr.rooms", "user_id", "42"): ("absent", None),
        ("hr.staff", "mail|email", "ann@x"): ("found", None),
        ("hr.staff", "mail|email", "ben@x"): ("absent", None),
        ("hr.staff", "user_id", "42"): ("found", None),
        ("hr.users", "mail|email", "ann@x"): ("found", None),
        ("hr.users", "mail|email", "ben@x"): ("absent", None),
        ("hr.users", "user_id", "42"): ("found", None),
    }
    assert "hr.staff" in ask(people, "hr.*", "mail|email=ann@x").stdout
    assert ask(people, "hr.*", "mail|email=nobody@x").exit_code == 0
    assert ask(people, "hr.users", "mail|email=ann@x").exit_code == 1
    unknown = ask(people, "hr.*", "mial=ann@x")
    assert (unknown.exit_code, "no table has the column; column mial" in unknown.stderr) == (2, True)
    other_case = ask(people, "hr.*", "Mail|room=nobody@x")  # Spark takes both for one name
    assert (other_case.exit_code, "Name all of them: 'Mail|room|mail'." in other_case.stdout) == (3, True)
    rows = ask(people, "hr.*", "user_id=42", "--format", "csv").stdout.splitlines()
    assert rows[0].startswith("table,column,value,answer")
    assert len(rows) == 4


@pytest.mark.parametrize("place", ["data/left.parquet", "data/_temporary/0/left.parquet"])
def test_files_that_no_snapshot_names_are_read(people: Any, place: str) -> None:
    made = people.create_table(f"hr.left_{len(place)}", pa.schema([("mail", pa.string())]))
    made.append(pa.table({"mail": ["ben@x"]}))
    (named,) = _live(made)
    left = local(made.location()) / place
    left.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"mail": ["carl@x"]}, schema=made.schema().as_arrow()), left)
    name = ".".join(made.name())
    assert ask(people, name, "mail=carl@x").exit_code == 0
    found = ask(people, name, "mail=carl@x", "--orphans", "--json")
    data = json.loads(found.stdout)
    assert (found.exit_code, data["answer"], data["orphans"]) == (1, "found", 1)
    assert [(local(one["file"]), one["rows"], one["snapshots"]) for one in data["files"]] == [(left, 1, [])]
    assert "no retained snapshot names it" in ask(people, name, "mail=carl@x", "--orphans").stdout
    assert ask(people, name, "mail=nobody@x", "--orphans").exit_code == 0
    for ending in ("_0", ".parquet.inprogress"):
        left = left.rename(left.with_name(f"left{ending}"))
        assert ask(people, name, "mail=carl@x", "--orphans").exit_code == 1
    far = local(made.location()).with_name(f"far{len(place)}")  # behind a link to a folder, which has one to itself
    far.mkdir()
    (far / "again").symlink_to(far)
    (left.parent / "linked").symlink_to(far)
    far_file = left.rename(far / "left.parquet")
    data = json.loads(ask(people, name, "mail=carl@x", "--orphans", "--json").stdout)
    assert (data["answer"], data["orphans"]) == ("found", 1)
    (left.parent / "linked").unlink()
    (left.parent / "other").symlink_to(named.parent)  # another path of a file that a snapshot names
    assert json.loads(ask(people, name, "mail=ben@x", "--orphans", "--json").stdout)["orphans"] == 0
    (left.parent / "other").unlink()
    far_file.rename(left)
    for column, field_id in (("mail", b"7"), ("town", b"1")):  # of a table that was here before
        field = pa.field(column, pa.string(), metadata={b"PARQUET:field_id": field_id})
        pq.write_table(pa.table({column: ["eve@x"]}, schema=pa.schema([field])), left)
        assert ask(people, name, "mail=nobody@x", "--orphans").exit_code == 3
    left.write_bytes(named.read_bytes()[:-9])
    assert ask(people, name, "mail=nobody@x", "--orphans").exit_code == 3
    people.drop_table(name)


def test_a_file_without_a_snapshot_may_have_the_column_that_its_table_lacks(people: Any) -> None:
    rooms = people.load_table("hr.rooms")
    left = local(rooms.location()) / "data" / "left.parquet"
    pq.write_table(pa.table({"mail": ["carl@x"]}), left)
    asked = ("hr.*", "mail|email=nobody@x", "--orphans")
    assert ask(people, *asked).exit_code == 3
    left.unlink()
    assert ask(people, *asked).exit_code == 0
