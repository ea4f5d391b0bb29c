"""``sidecar refresh`` and ``build --save`` on the command line: options, lines for people and for programs."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.cli.care.spans import duration, share
from sidecar.errors import UsageError
from sidecar.reports.page.writing import PageReport, ReportedTable
from tests.cli.running import run
from tests.tables import configure, create_with_rows, new_catalog


def rows(start: int) -> pa.Table:
    return pa.table({"k": list(range(start, start + 100))})


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = new_catalog(tmp_path, "care")
    configure(monkeypatch, made)
    monkeypatch.setenv("SIDECAR_CATALOG", "care")
    create_with_rows(made, "db.a", [rows(0), rows(50)])
    create_with_rows(made, "db.b", [rows(0)])
    return made


def test_saved_once_and_refreshed_after_each_change(catalog: Any) -> None:
    run("build", "db.a", "--columns", "k", "--kinds", "bloom", "--save", "--engine", "local", code=0)
    assert catalog.load_table("db.a").properties["sidecar.columns"] == "k:1"
    catalog.load_table("db.a").append(rows(100))
    planned = run("refresh", "db.a", "--dry-run")
    assert planned.stdout.startswith("dry run: nothing is written")
    assert "to be indexed: 1" in planned.stdout
    result = run("refresh", "db.*", "--engine", "local", code=0)
    assert [
        found for line in result.stdout.splitlines() for found in ("1 indexed", "nothing is declared") if found in line
    ] == ["1 indexed", "nothing is declared"]
    assert "warning: db.b: no column of the table 'db.b' is to be indexed" in result.stderr


@pytest.mark.parametrize("command", ["refresh", "care"])
def test_what_many_tables_lack_is_one_warning(command: str, catalog: Any) -> None:
    for name in ("db.c", "db.d", "db.e"):
        create_with_rows(catalog, name, [rows(0)])
    warned = [line for line in run(command, "db.*", "--engine", "local").stderr.splitlines() if "to be indexed" in line]
    assert len(warned) == 1
    assert warned[0].startswith("warning: 5 tables (db.a, db.b, db.c, ...): no column of the table 'TABLE' is to be")
    few = run(command, "db.a", "db.b", "--engine", "local").stderr
    assert "warning: db.a, db.b: no column of the table 'TABLE' is to be" in few


def test_what_a_page_lacks_of_many_tables_is_one_warning(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [ReportedTable(f"db.{name}", f"no db.{name}" if name == "e" else None, ["is damaged"]) for name in "abcde"]
    monkeypatch.setattr(sidecar, "report", lambda *_, **__: PageReport("page.html", 1, tables, 0.1), raising=False)
    assert run("report", "db.*").stderr.splitlines() == [
        "warning: 5 tables (db.a, db.b, db.c, ...): is damaged",
        "warning: db.e: no db.e",
    ]


def test_one_table_is_one_line_of_json_with_the_same_keys(catalog: Any) -> None:
    run("build", "db.a", "--columns", "k", "--engine", "local")
    alone = json.loads(run("refresh", "db.a", "--format", "jsonl").stdout)
    first, second = map(json.loads, run("refresh", "db.*", "--format", "jsonl").stdout.splitlines())
    whole = json.loads(run("refresh", "db.*", "--json").stdout)
    assert [one["action"] for one in whole["tables"]] == ["current", "undeclared"]
    assert (whole["summary"], whole["exit"]) == ({"tables": 2, "failed": 0}, 0)
    mixed = run("refresh", "db.a", "db.nosuch", "--format", "jsonl")
    assert [json.loads(line)["exit"] for line in mixed.stdout.splitlines()] == [0, 2]
    assert mixed.exit_code == 1
    assert alone.keys() == first.keys() == second.keys()
    assert [(one["table"], one["action"], one["exit"]) for one in (alone, first, second)] == [
        ("db.a", "current", 0),
        ("db.a", "current", 0),
        ("db.b", "undeclared", 0),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-new-files", "0"], "at least 1"),
        (["--at", "nosuch"], "no branch or tag 'nosuch'"),
    ],
)
def test_a_wrong_option_is_wrong_usage(catalog: Any, words: list[str], told: str) -> None:
    result = run("refresh", "db.a", *words, code=2)
    assert told in result.stdout + result.stderr


def test_spans_and_shares() -> None:
    assert [duration(text, "-") for text in ("90s", "30m", "1.5h", "5d")] == [
        timedelta(seconds=90),
        timedelta(minutes=30),
        timedelta(minutes=90),
        timedelta(days=5),
    ]
    assert [share(text, "-") for text in ("1%", "0.01", "0", "100%", "95")] == [0.01, 0.01, 0.0, 1.0, 0.95]
    for wrong in ("", "1", "h", "-1h", "1 h", "1e3s", "٣h"):
        with pytest.raises(UsageError):
            duration(wrong, "--max-behind")
    for wrong in ("", "%", "100.1", "-1%", "101%", "nan"):
        with pytest.raises(UsageError):
            share(wrong, "--min-coverage")
