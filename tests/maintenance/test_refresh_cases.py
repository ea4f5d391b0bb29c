"""Refreshes of tables that are unusual: encrypted bundles, nothing left, damaged properties, two runs at once."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.bundle.runs import (
    HISTORY_PROPERTY,
    MOST_RUNS,
    STATE_PROPERTY,
    RunRecord,
    history_of,
    history_property,
    state_of,
)
from sidecar.errors import UsageError
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.indexing import writing
from tests.iceberg.encrypted_tables import bundle_keys
from tests.tables import create_with_rows

serial = itertools.count()


def rows(number: int) -> pa.Table:
    keys = [(number + 10 * n) * 2 for n in range(40)]
    return pa.table({"id": keys, "ssn": [f"s{key}" for key in keys]})


@pytest.fixture
def table(catalog: Any) -> Any:
    return create_with_rows(catalog, f"db.refresh_case_{next(serial)}", [rows(n) for n in range(3)])


def refresh(table: Any, **options: Any) -> Any:
    return sidecar.refresh(table.refresh(), engine="local", **options)


def coverage(table: Any) -> dict[str, int | None]:
    """The files with a filter, by column."""
    found = sidecar.status(table.refresh()).coverage
    return {name: kinds["bloom"].files for name, kinds in found.items()}


def test_encrypted_indexes_stay_as_they_are_without_their_keys(table: Any) -> None:
    """Written without the key, the new file's values would be in plaintext."""
    keys = bundle_keys()
    sidecar.build(table, ["id", "ssn"], kinds=["bloom"], engine="local", encryption_keys=keys, save=True)
    table.append(rows(3))
    report = refresh(table)
    assert (report.action, report.columns, report.behind) == ("written", ["id"], {"ssn": 1})
    assert "bundle keys are not given" in report.warnings[0]
    locked = {
        blob.toc.field_id: blob.toc.lock is not None for s in sidecar.open_sidecar(table).segments for blob in s.blobs
    }
    assert locked == {1: False, 2: True}
    assert coverage(table) == {"id": 4, "ssn": 3}
    report = refresh(table, encryption_keys=keys)
    assert (report.action, report.files_indexed, report.warnings) == ("written", 1, [])
    assert coverage(table) == {"id": 4, "ssn": 4}
    plan = sidecar.plan(table.refresh(), "ssn = 's21'", encryption_keys=keys)
    assert (plan.files_covered, plan.files_kept) == (4, 0)
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "ssn:2"})
    table.append(rows(4))
    with pytest.raises(UsageError, match="bundle keys"):
        refresh(table)


def test_a_table_that_was_emptied(table: Any) -> None:
    sidecar.build(table, ["id"], engine="local")
    table.delete("id >= 0")
    assert [refresh(table).action, refresh(table).action] == ["written", "current"]
    table.append(rows(5))
    assert [refresh(table).files_indexed, refresh(table).action] == [1, "current"]
    assert coverage(table) == {"id": 1}


def test_two_refreshes_at_once_lose_nothing(table: Any) -> None:
    sidecar.build(table, ["id", "ssn"], engine="local")
    table.append(rows(3))
    other = table.catalog.load_table(table.name())
    done: list[Any] = []

    def interfere(what: str, step: int | None = None, total: int | None = None) -> None:
        if what == "slicing" and not done:
            done.append(None)
            done[0] = refresh(other)

    with sidecar.progress(interfere):
        report = refresh(table)
    assert (done[0].action, report.action) == ("written", "written")
    ((entry,),) = statistics_of(table.refresh()).values()
    assert entry.statistics_path == report.statistics_path
    assert len(statistics_of(table)) == 1
    assert coverage(table) == {"id": 4, "ssn": 4}
    assert sidecar.verify(table).problems == []
    assert refresh(table).action == "current"


def test_a_refresh_of_what_a_build_left_behind(table: Any) -> None:
    sidecar.build(table, ["id", "ssn"], kinds=["bloom"], engine="local")
    table.append(rows(3))
    sidecar.build(table, ["id"], kinds=["bloom"], engine="local")
    assert coverage(table) == {"id": 4, "ssn": 3}
    assert (refresh(table).action, refresh(table).action) == ("written", "current")
    assert coverage(table) == {"id": 4, "ssn": 4}


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "nonsense", '{"snapshot":1,"mapping":"","columns":{"x":{}}}', "[" * 9999]
)
def test_a_state_that_cannot_be_read_costs_a_look_at_the_files(
    table: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(writing, "state_property", lambda state: text)
    sidecar.build(table, ["id"], engine="local")
    assert state_of({STATE_PROPERTY: text}) is None
    report = refresh(table)
    assert (report.action, report.files_total, report.files_carried) == ("current", 3, 3)


def test_a_history_keeps_the_last_runs_and_nothing_that_is_not_one() -> None:
    def run(number: int) -> RunRecord:
        return RunRecord(f"2026-01-{number:02}T00:00:00+00:00", 1.5, "refresh", number, 5, 1, 4, 0, 10, 20)

    properties: dict[str, str] = {}
    for number in range(1, 26):
        properties = {HISTORY_PROPERTY: history_property([properties], run(number))}
    assert [one.snapshot_id for one in history_of(properties)] == list(range(26 - MOST_RUNS, 26))
    both = history_property([properties, {HISTORY_PROPERTY: history_property([], run(3))}], run(26))
    assert [one.snapshot_id for one in history_of({HISTORY_PROPERTY: both})] == list(range(27 - MOST_RUNS, 27))
    again = replace(run(3), seconds=1.6)  # within the same second
    twice = history_property([{HISTORY_PROPERTY: history_property([], run(3))}] * 2, again)
    assert history_of({HISTORY_PROPERTY: history_property([{HISTORY_PROPERTY: twice}], run(4))}) == [
        run(3),
        again,
        run(4),
    ]
    broken = [*json.loads(both)[-2:], 7, {"at": 3}, {**json.loads(both)[0], "files": "many"}]
    assert [one.snapshot_id for one in history_of({HISTORY_PROPERTY: json.dumps(broken)})] == [25, 26]
    assert history_of({HISTORY_PROPERTY: "{"}) == history_of({}) == []
