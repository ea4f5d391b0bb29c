"""embed TABLE on the command line: text, JSON, dry runs, exit codes and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.cli import running
from tests.tables import configure, new_catalog

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    catalog = new_catalog(tmp_path, "cli")
    configure(monkeypatch, catalog)
    return catalog


@pytest.fixture
def table(lake: Any) -> Table:
    made: Table = lake.create_table("db.t", SCHEMA)
    for part in range(3):
        keys = range(part, 900, 3)
        made.append(pa.table({"k": keys, "s": [f"text {k}" for k in keys]}, schema=SCHEMA))
    return made


def run(*args: str, code: int | None = None) -> Any:
    return running.run("embed", *args, code=code)


WANTED = ("--bloom", "k,s", "--page-index", "--catalog", "cli")


def test_the_files_are_replaced_and_the_report_says_so(table: Table) -> None:
    before = table.scan().to_arrow().sort_by("k")
    result = run("db.t", *WANTED, code=0)
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert f"{snapshot.snapshot_id} (replace), on {snapshot.parent_snapshot_id}" in result.stdout
    assert "3 of 3 replaced" in result.stdout
    assert table.scan().to_arrow().sort_by("k") == before
    again = run("db.t", *WANTED, code=0)
    assert "nothing to commit" in again.stdout
    assert "it already has all requested indexes" in again.stdout


def test_json_names_every_file_and_index(table: Table) -> None:
    old = {task.file.file_path for task in table.scan().plan_files()}
    data = json.loads(run("db.t", *WANTED, "--json").stdout)
    new = {task.file.file_path for task in table.refresh().scan().plan_files()}
    assert data["files"] == {"total": 3, "replaced": 3, "left_alone": 0, "failed": 0}
    assert {file["old_path"] for file in data["replaced"]} == old
    assert {file["new_path"] for file in data["replaced"]} == new
    assert data["size"] > data["size_before"]
    counted = {(i["column"], i["kind"]): (i["way"], i["count"]) for i in data["indexes"]}
    assert counted == {
        ("k", "bloom"): ("dictionary", 3),
        ("s", "bloom"): ("dictionary", 3),
        ("k", "page-index"): ("values", 3),
        ("s", "page-index"): ("values", 3),
    }
    assert (data["dry_run"], data["rebuild_needed"]) == (False, False)


def test_a_dry_run_prints_the_plan_and_changes_nothing(table: Table) -> None:
    location = table.metadata_location
    result = run("db.t", *WANTED, "--dry-run", code=0)
    assert "3 of 3 to be replaced" in result.stdout
    assert "nothing written" in result.stdout
    for task in table.scan().plan_files():
        assert f"to be replaced: {task.file.file_path}" in result.stdout
    assert table.refresh().metadata_location == location
    data = json.loads(run("db.t", *WANTED, "--dry-run", "--json").stdout)
    assert data["dry_run"]
    assert data["snapshot_id"] is None
    assert [file["new_path"] for file in data["replaced"]] == [None] * 3


def test_a_broken_file_is_exit_code_1_and_named(table: Table) -> None:
    chosen = next(iter(table.scan().plan_files())).file.file_path
    path = Path(chosen.removeprefix("file:"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    result = run("db.t", *WANTED, code=1)
    assert "2 of 3 replaced; 1 left alone, 1 of them broken" in result.stdout
    assert f"left alone: {chosen}: the file begins as a Parquet file" in result.stdout


def test_a_sidecar_that_is_left_behind_is_a_warning(table: Table) -> None:
    import sidecar

    sidecar.build(table, ["k"], engine="local")
    result = run("db.t", *WANTED, "--no-refresh", code=0)
    assert "warning: the sidecar file:" in result.stderr
    assert "refresh it" in result.stderr


def test_the_sidecar_is_refreshed(table: Table) -> None:
    import sidecar

    sidecar.build(table, ["k"], engine="local")
    result = run("db.t", *WANTED)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "(written: 3 files indexed)" in result.stdout


def test_a_table_of_version_1_is_one_sentence(lake: Any) -> None:
    lake.create_table("db.old", SCHEMA, properties={"format-version": "1"})
    result = run("db.old", *WANTED, code=1)
    assert result.stderr.startswith("error: the table has format version 1: ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["db.t", "--catalog", "cli"], "nothing to embed"),
        (["db.t", "--bloom", "nosuch", "--catalog", "cli"], "no column 'nosuch'"),
        (["db.nosuch", "--page-index", "--catalog", "cli"], "no table 'db.nosuch'"),
        (["./a.parquet", "--page-index"], "into names the new file"),
        (
            ["./a.parquet", "./b.parquet", "--page-index", "--catalog", "cli"],
            "--catalog is for tables and URLs, but a local path was given",
        ),
    ],
)
@pytest.mark.usefixtures("table")
def test_wrong_usage_is_exit_code_2(args: list[str], message: str) -> None:
    result = run(*args, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.output
