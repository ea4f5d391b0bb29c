"""``care``: each step in its order, one failure that does not stop the others, limits, and one exit code."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar import errors
from sidecar.iceberg import many_tables
from sidecar.maintenance import costs
from sidecar.reports import caring
from tests.cli import running
from tests.maintenance.cases import DAY, append_and_build, entries, make, metadata_folder, pass_days, rows, stored
from tests.tables import configure

ORDER = ["repair", "refresh", "expire", "gc", "check"]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three tables: ``db.t`` with a sidecar that lacks a file, one without a snapshot, and one of which the sidecar is
    damaged."""
    table = make(tmp_path, builds=2)
    table.append(rows(10))
    folder = Path(table.io.properties["folder"])
    make(folder, 0, "db.new")
    damaged = make(folder, 0, "db.odd")
    damaged.append(rows())
    sidecar.build(damaged.refresh(), ["k"], engine="local", save=True)
    (path,) = metadata_folder(damaged).glob("*.stats")
    path.write_bytes(path.read_bytes()[:-9])
    configure(monkeypatch, table.catalog)
    return table


def run(line: str) -> Any:
    return running.run(*line.split(), "--catalog", "folder", "--engine", "local")


def fail(*_: Any, **__: Any) -> Any:
    raise errors.StorageError("the store is away")


def test_a_night(lake: Any, tmp_path: Path) -> None:
    """A refresh never loses what a damaged file may have, so its table fails, and nothing of it is deleted."""
    page = tmp_path / "lake.html"
    for _ in range(2):
        done = run(f"care db.* --min-coverage 95 --report {page} --json")
        data = json.loads(done.stdout)
        new, odd, whole = data["tables"]
        assert (done.exit_code, data["exit"], data["page"]["path"]) == (1, 1, str(page))
        assert [one["table"] for one in data["tables"]] == ["db.new", "db.odd", "db.t"]
        assert data["summary"] == {"tables": 3, "failed": 1, "under_a_limit": 1, "with_lost_files": 0, "left_alone": 0}
        assert (new["refresh"]["action"], new["errors"], new["check"]["share_covered"]) == ("empty", {}, None)
        assert (whole["refresh"]["files_total"], whole["check"]["share_covered"]) in ((3, 1.0), (None, 1.0))
        assert (odd["errors"]["refresh"]["kind"], odd["refresh"], odd["expire"], odd["gc"]) == (
            "damaged-file",
            None,
            None,
            None,
        )
        assert (odd["repair"]["repairs"], odd["check"]["share_covered"]) == ([], 0.0)
        assert all(line.startswith("warning: db.odd: ") for line in done.stderr.splitlines())
        assert page.read_text().startswith("<!DOCTYPE html>")
    assert whole["refresh"]["action"] == "current"
    assert sidecar.plan(lake.refresh(), "k = 3").funnel.listed == 3


def test_jsonl_and_text_are_a_line_a_table(lake: Any) -> None:
    done = run("care db.* --format jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert [(one["table"], list(one["errors"]), one["exit"]) for one in lines] == [
        ("db.new", [], 0),
        ("db.odd", ["refresh"], 1),
        ("db.t", [], 0),
    ]
    shown = run("care db.* --min-coverage 95%").stdout
    for words in (
        "no snapshot yet",
        "nothing to do",
        "refresh: a statistics file",
        "3 tables, 1 failed, 1 under a limit",
    ):
        assert words in shown


def test_a_failed_table_does_not_stop_the_others(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caring, "repair", fail)
    done = sidecar.care(["db.t", "db.nosuch", lake], catalog="folder", engine="local")
    assert [list(one.errors) for one in done.tables] == [["repair"], ["open"], ["repair"]]
    assert [one.refresh is not None and one.gc is not None for one in done.tables] == [True, False, True]
    assert done.exit_code == 1


def test_a_page_that_cannot_be_written_is_said_and_logged(
    lake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caring, "write_page", fail)
    done = run("care db.t --report lake.html")
    said = "there is no page: the store is away"
    assert (done.exit_code, f"warning: {said}" in done.stderr) == (1, True)
    assert said in caplog.messages


def test_a_job_expires_and_deletes(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append_and_build(lake, 11)
    append_and_build(lake, 12)
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr("sidecar.maintenance.expiring.time.time", lambda: real() + 6 * DAY)
        done = json.loads(run("care db.t --only expire --json").stdout)["tables"][0]
    assert (len(done["expire"]["expired"]), len(done["expire"]["kept"]), done["gc"]) == (3, 1, None)
    pass_days(lake, 4)
    done = json.loads(run("care db.t --json").stdout)["tables"][0]
    assert (len(done["gc"]["files"]), done["gc"]["bytes"] > 0, done["gc"]["failed"]) == (3, True, [])
    assert set(entries(lake).values()) <= stored(lake)


def test_a_line_has_the_hint_and_the_bad_file_beside_the_missed_limit(lake: Any) -> None:
    assert "sidecar build db.odd --force" in " ".join(run("care db.odd").stdout.split())
    lake.append(rows(11))
    newest = max((metadata_folder(lake).parent / "data").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-9])
    shown = " ".join(run("care db.t --min-coverage 100%").stdout.split())
    assert "and the limit is 100 %; not indexed: " in shown
    assert newest.name in shown.replace(" ", "")


def test_a_missed_limit_is_no_failure_and_exits_with_1(lake: Any) -> None:
    done = sidecar.care(lake, only=["check"], min_coverage=95, max_behind=timedelta(0))
    (table,) = done.tables
    assert (table.has_failed, [one.threshold for one in table.missed]) == (False, ["max_behind", "min_coverage"])
    assert (done.exit_code, done.counts()["failed"], done.counts()["under_a_limit"]) == (1, 0, 1)
    assert (table.repair, table.refresh, table.expire, table.gc) == (None, None, None, None)


def test_a_table_that_declares_nothing_misses_no_coverage(lake: Any) -> None:
    made = lake.catalog.create_table("db.plain", lake.schema())
    made.append(rows())
    assert sidecar.care(made, only=["check"], min_coverage=95, max_behind=timedelta(0)).exit_code == 0
    with made.transaction() as change:
        change.set_properties({"sidecar.columns": "k"})
    assert sidecar.care(made, only=["check"], min_coverage=95).exit_code == 1


def test_the_steps_come_in_their_order_and_only_those_that_are_named(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for step in (*ORDER[:-1], "status"):
        name = "refresh_thoroughly" if step == "refresh" else step
        real = getattr(caring, name)
        monkeypatch.setattr(
            caring, name, lambda *a, _step=step, _real=real, **o: (taken.append(_step), _real(*a, **o))[1]
        )
    sidecar.care(lake, engine="local")
    assert taken == [*ORDER[:-1], "status"]
    taken.clear()
    sidecar.care(lake, only=["gc", "refresh"], engine="local")
    assert taken == ["refresh", "gc"]


def test_a_dry_run_changes_nothing(lake: Any, tmp_path: Path) -> None:
    pass_days(lake, 9)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = sidecar.care("db.*", catalog="folder", report=tmp_path / "page.html", engine="local", dry_run=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (table,) = [one for one in done.tables if one.table == "db.t"]
    assert table.refresh is not None
    assert (table.refresh.action, done.page, done.dry_run) == ("written", None, True)


def test_gc_enabled_false_keeps_registrations_and_files(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append_and_build(lake, 11)
    sidecar.refresh(lake.refresh(), engine="local")
    pass_days(lake, 9)
    with lake.refresh().transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    before = entries(lake), stored(lake)
    monkeypatch.setattr("sidecar.maintenance.expiring.time.time", lambda: 2e9)
    done = run("care db.t --only expire --only gc")
    assert (done.exit_code, done.stdout.count("gc.enabled is false")) == (0, 1)
    assert (entries(lake), stored(lake)) == before


def test_a_table_that_can_be_registered_nowhere_is_left_alone(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(table: Any) -> None:
        if table.name() == ("db", "t"):
            raise errors.UnsupportedFeatureError("pyiceberg cannot write tables of format version 3 here")

    monkeypatch.setattr(caring, "check_registrable", refuse)
    before = entries(lake)
    done = run("care db.t db.new --json")
    one = json.loads(done.stdout)["tables"][0]
    assert (done.exit_code, one["left_alone"], one["refresh"], entries(lake)) == (
        4,
        "pyiceberg cannot write tables of format version 3 here",
        None,
        before,
    )
    assert one["check"]["waiting"]["files"] == 1
    assert run("care db.t --min-coverage 95%").exit_code == 1


def test_a_table_that_is_not_known_is_left_alone(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise errors.UnsupportedFeatureError("pyiceberg refuses its metadata")

    monkeypatch.setattr(many_tables, "load_table", refuse)
    done = sidecar.care("db.t", catalog=lake.catalog)
    assert (done.exit_code, done.tables[0].left_alone) == (4, "pyiceberg refuses its metadata")


def test_a_night_merges_a_large_sidecar_too(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MERGED_AT_ONCE", 1)
    (done,) = sidecar.care(lake, engine="local").tables
    assert done.refresh is not None
    assert done.refresh.files_indexed == 1
    opened = sidecar.open_sidecar(lake.refresh())
    assert (len(opened.segments), opened.source.size) == (1, done.refresh.file_size)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--only sweep", "unknown step 'sweep'"),
        ("--older-than 2h", "at least 24 hours"),
        ("--only refresh --min-coverage 95%", "min_coverage is for the step 'check', which is not one of only"),
        ("--only refresh --max-behind 1h", "max_behind is for the step 'check'"),
        ("--only check --report page.html", "report is for the step 'report'"),
        ("--min-coverage 101", "a share of rows"),
        ("--report data.parquet", "no page: a page is no data file"),
    ],
)
def test_wrong_usage_changes_nothing(lake: Any, options: str, said: str) -> None:
    before = entries(lake), stored(lake)
    done = run(f"care db.t {options}")
    assert said in done.stderr
    assert done.exit_code in (1, 2)
    assert done.exit_code == 1 or (entries(lake), stored(lake)) == before


@pytest.mark.parametrize("word", ["compact", "expire", "gc", "repair", "config"])
def test_a_command_that_went_says_what_to_type(word: str) -> None:
    done = running.run(word, "db.t")
    assert (done.exit_code, f"There is no command '{word}'. Type: sidecar " in done.stderr) == (2, True)
