"""``sidecar find``: conditions, exit codes and forms of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from sidecar.cli.app import app
from tests.iceberg.cases import local
from tests.tables import new_catalog


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("find")
    catalog = new_catalog(folder, "c")
    made = catalog.create_table("db.t", pa.schema([("mail", pa.string()), ("n", pa.int64())]))
    made.append(pa.table({"mail": ["ann", "ben"], "n": [-5, 2]}))
    made.delete("mail = 'ben'")
    return made


def run(table: Any, *words: str) -> Any:
    return CliRunner().invoke(app, ["find", local(table.metadata_location).as_posix(), *words])


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
