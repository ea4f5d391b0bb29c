"""The commands of a scheduled job: expire and gc as a person and as a job types them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.utils.config import Config
from typer.testing import CliRunner

from sidecar.cli.app import app
from sidecar.cli.care import gc
from sidecar.maintenance import expiring
from tests.maintenance.cases import entries, make, pass_days, stored


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table with three sidecars, and a function that runs a command line."""
    table = make(tmp_path, builds=3)
    for key, value in table.catalog.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__FOLDER__{key.upper().replace('-', '_')}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when pyiceberg is imported
    real = time.time
    monkeypatch.setattr(expiring.time, "time", lambda: real() + 10)

    def run(line: str, answer: str | None = None) -> Any:
        return CliRunner().invoke(app, [*line.split(), "--catalog", "folder"], input=answer, prog_name="sidecar")

    return table, run


def test_a_job_expires_and_deletes(lake: Any) -> None:
    table, run = lake
    done = run("expire db.t --older-than 0s --json")
    report = json.loads(done.stdout)
    assert (done.exit_code, len(report["expired"]), len(report["kept"])) == (0, 2, 1)
    pass_days(table, 4)
    done = run("gc db.t --yes --json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (len(report["files"]), report["bytes"] > 0, report["failed"]) == (2, True, [])
    assert stored(table) == set(entries(table).values())


def test_a_person_sees_what_is_done(lake: Any) -> None:
    table, run = lake
    done = run("expire db.t --older-than 0s --dry-run").stdout
    assert "would be removed" in done
    assert done.count("kept, used by main") == 1
    run("expire db.t --older-than 0s")
    pass_days(table, 4)
    preview = run("gc db.t --dry-run").stdout
    assert "would be deleted: 2 files" in preview
    assert "deleted: 2 files" in run("gc db.t --yes").stdout
    assert "nothing to expire: 1 entry stays" in run("expire db.t").stdout


@pytest.mark.parametrize(("answer", "left"), [("n", 3), ("y", 1)])
def test_a_person_is_asked(lake: Any, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    table, run = lake
    run("expire db.t --older-than 0s")
    pass_days(table, 4)
    monkeypatch.setattr(gc, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    done = run("gc db.t", answer)
    assert "Delete 2 files (" in done.stderr
    assert (len(stored(table)), done.exit_code) == (left, int(answer == "n"))


def test_many_tables_are_a_line_each(lake: Any) -> None:
    _, run = lake
    done = run("expire db.* --older-than 0s --format jsonl")
    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (line["table"], len(line["expired"]), len(line["kept"])) == ("db.t", 2, 1)
    assert "nothing to expire" in run("expire db.* --older-than 0s").stdout
    assert "nothing to delete" in run("gc db.* --yes").stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gc db.t", "nobody can be asked"),
        ("gc db.t --json --older-than 3d", "Add --yes"),
        ("gc db.t --yes --older-than 2h", "below 24 hours"),
        ("gc db.t --yes --older-than 3", "a span of time"),
        ("expire db.t --older-than soon", "a span of time"),
        ("expire db.t --retain-last 0", "--retain-last"),
    ],
)
def test_wrong_usage_deletes_nothing(lake: Any, line: str, said: str) -> None:
    table, run = lake
    before = stored(table), entries(table)
    done = run(line)
    assert done.exit_code == 2
    assert said in done.stderr
    assert (stored(table), entries(table)) == before


def test_a_table_that_forbids_to_delete_is_left_alone_whatever_is_typed(lake: Any) -> None:
    """``--force`` is about the age of files; a property of the table is stronger."""
    table, run = lake
    run("expire db.t --older-than 0s")
    pass_days(table, 4)
    with table.refresh().transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    for line in ("gc db.t --yes", "gc db.t --yes --force --older-than 1h", "gc db.* --yes --force"):
        done = run(line)
        assert (done.exit_code, "gc.enabled is false" in done.stdout) == (0, True)
    report = json.loads(run("gc db.t --yes --json").stdout)
    assert report["left_alone"].endswith("is false: no file is deleted.")
    assert len(stored(table)) == 3
