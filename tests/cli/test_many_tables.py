"""build, status and verify of many tables: one line a table, errors beside results, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from tests.cli import running
from tests.tables import configure, create_with_rows, new_catalog

Run = Callable[..., Any]


def numbers(start: int) -> pa.Table:
    return pa.table({"k": list(range(start, start + 100))})


@pytest.fixture
def run(tmp_path: Any) -> Iterator[Run]:
    folder = tmp_path
    catalog = new_catalog(folder, "many", "db", "db.deep")
    create_with_rows(catalog, "db.a", [numbers(0), numbers(100)])
    create_with_rows(catalog, "db.b", [numbers(0)])
    create_with_rows(catalog, "db.deep.c", [numbers(0)])
    create_with_rows(catalog, "db.strange", [pa.table({"other": [1]})])
    catalog.create_table("db.empty", numbers(0).schema)

    def invoke(*args: str, code: int | None = None) -> Any:
        return running.run(*args, "--catalog", "many", code=code)

    with pytest.MonkeyPatch.context() as patch:
        configure(patch, catalog)
        yield invoke


def test_build_goes_on_past_a_table_that_fails(run: Run) -> None:
    result = run("build", "db.*", "--columns", "k", "--engine", "local", "--json", code=1)
    data = json.loads(result.stdout)
    assert [one["table"] for one in data["tables"]] == ["db.a", "db.b", "db.empty", "db.strange"]
    assert data["summary"] == {"tables": 4, "failed": 1}
    assert "no column 'k'" in data["tables"][3]["error"]["message"]
    assert [one.get("files", {}).get("indexed") for one in data["tables"]] == [2, 1, 0, None]
    assert data["exit"] == 1
    for name in ("db.a", "db.b"):
        table = sidecar.open_table(name, "many")
        assert sidecar.status(table).to_dict()["coverage"]["k"]["bloom"]["files"] == len(table.inspect.files())
    assert sidecar.open_table("db.deep.c", "many").metadata.statistics == []


def test_a_second_build_has_nothing_new_and_succeeds(run: Run) -> None:
    for done in ("built", "nothing new"):
        line = ("build", "db.a", "db.b", "db.deep.*", "--columns", "k", "--engine", "local")
        result = run(*line, "--format", "jsonl")
        assert (result.exit_code, result.stderr) == (0, "")
        tables = [json.loads(one) for one in result.stdout.splitlines()]
        assert [one["table"] for one in tables] == ["db.a", "db.b", "db.deep.c"]
        assert all((one["carried"]["files"] == 0) == (done == "built") for one in tables)
        assert all(one["file_size"] > 0 for one in tables)


@pytest.mark.parametrize("command", ["status", "verify"])
def test_each_result_is_that_of_the_table_alone(run: Run, command: str) -> None:
    run("build", "db.a", "--columns", "k", "--engine", "local")
    many = json.loads(run(command, "db.**", "--json").stdout)
    assert [one["table"] for one in many["tables"]] == ["db.a", "db.b", "db.deep.c", "db.empty", "db.strange"]
    for one in many["tables"]:
        alone = json.loads(run(command, one["table"], "--json").stdout)
        run_facts = {"command", "at", "seconds", "exit", "table"}
        for data in (one, alone):
            data.get("waiting", {}).pop("seconds", None)  # which goes on while the test runs
        assert {k: v for k, v in one.items() if k != "table"} == {k: v for k, v in alone.items() if k not in run_facts}


def test_verify_fails_if_one_table_has_a_problem(run: Run) -> None:
    run("build", "db.a", "--columns", "k", "--engine", "local")
    assert run("verify", "db.a", "db.empty", "--data").exit_code == 0
    failed = run("verify", "db.a", "db.b", "--data")
    assert failed.exit_code == 1  # there is no sidecar
    assert "2 tables, 1 failed" in failed.stdout
    assert "neither the snapshot nor another one has a sidecar" in failed.stdout


def test_a_missing_table_is_a_line_and_a_glob_without_a_match_is_wrong_usage(run: Run) -> None:
    result = run("status", "db.nosuch", "db.a", code=1)
    assert "the catalog 'many' has no table 'db.nosuch'" in result.stdout
    assert "2 tables, 1 failed" in result.stdout
    nothing = run("status", "nosuch.*")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "no table of the catalog 'many' matches 'nosuch.*'" in nothing.stderr


def test_a_file_that_fails_is_named_in_the_line_of_its_table(run: Run) -> None:
    def index_new_files() -> Any:
        return run("build", "db.*", "--columns", "k", "--engine", "local")

    index_new_files()
    table = sidecar.open_table("db.a", "many")
    known = {task.file.file_path for task in table.scan().plan_files()}
    for start in (200, 300):
        table.append(numbers(start))
    lost = next(task.file.file_path for task in table.scan().plan_files() if task.file.file_path not in known)
    file = Path(lost.removeprefix("file:"))
    content = file.read_bytes()
    file.unlink()
    failed = index_new_files()
    assert failed.exit_code == 1
    assert f"\ndb.a: not indexed: {lost}: cannot open the file" in failed.stdout
    file.write_bytes(content)
    again = json.loads(run("build", "db.a*", "--columns", "k", "--engine", "local", "--json").stdout)
    assert (again["exit"], again["tables"][0]["carried"]["files"]) == (0, 3)
    assert again["tables"][0]["files"] == {"total": 4, "indexed": 1, "covered": 4, "failed": 0}


def test_one_table_is_as_before(run: Run) -> None:
    missing = run("status", "db.nosuch")
    assert (missing.exit_code, missing.stderr.startswith("error: ")) == (2, True)
    assert json.loads(run("status", "db.a", "--json").stdout)["table"] == "db.a"
    assert run("status", "db.a", "db.a").stdout.count("db.a") == 1
    assert run("status", "db.a*").stdout.rstrip().endswith("\n1 table")


def test_warnings_name_their_tables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sidecar.reports.status import table_status as status

    real = status.status
    monkeypatch.setattr(
        "sidecar.reports.status.table_status.status",
        lambda *args, **options: replace(real(*args, **options), warnings=["something is odd"]),
    )
    result = run("status", "db.a", "db.b")
    assert result.stderr.splitlines() == ["warning: db.a, db.b: something is odd"]


def test_status_fails_if_a_table_misses_a_threshold(run: Run) -> None:
    run("build", "db.a", "--columns", "k", "--engine", "local")
    limits = ("--max-behind", "0s", "--min-coverage", "95%")
    fine = run("status", "db.a", *limits, "--json")
    assert (fine.exit_code, json.loads(fine.stdout)["missed"]) == (0, [])
    many = run("status", "db.a", "db.b", "db.empty", *limits, "--json")
    data = json.loads(many.stdout)
    assert (many.exit_code, data["exit"], data["summary"]) == (1, 1, {"tables": 3, "failed": 1})
    missed = [[missed["threshold"] for missed in one["missed"]] for one in data["tables"]]
    assert missed == [[], ["max_behind", "min_coverage"], []]
    drawn = run("status", "db.b", *limits, code=1)
    assert "missed: 0 % of the rows covered, and the limit is 95 %" in drawn.stdout
    assert run("status", "db.a", "--min-coverage", "95 percent").exit_code == 2
    assert run("status", "db.b").exit_code == 0


def test_report_writes_one_page_of_many_tables(run: Run, tmp_path: Path) -> None:
    run("build", "db.a", "--columns", "k", "--engine", "local")
    path = tmp_path / "lake.html"
    result = run("report", "db.*", "db.nosuch", "--no-advice", "-o", str(path), "--json")
    data = json.loads(result.stdout)
    errors = {one["table"]: one["error"] is not None for one in data["tables"]}
    assert errors == {"db.a": False, "db.b": False, "db.empty": False, "db.strange": False, "db.nosuch": True}
    assert (result.exit_code, data["exit"], data["bytes"]) == (1, 1, path.stat().st_size)
    assert "warning: db.nosuch: " in result.stderr
    again = run("report", "db.a", "--no-advice", "-o", str(path))
    assert (again.exit_code, "db.nosuch" in path.read_text()) == (0, False)
    path.write_text("mine")
    again = run("report", "db.a", "--no-advice", "-o", str(path))
    assert (again.exit_code, "exists already" in again.stderr, path.read_text()) == (2, True, "mine")
    assert run("report", "db.nosuch", "-o", str(tmp_path / "none.html")).exit_code == 2
    assert not (tmp_path / "none.html").exists()
