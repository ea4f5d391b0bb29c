"""Columns that a table drops or renames: their indexes go, the others stay, and nobody is sent in circles."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.errors import UsageError
from tests.iceberg.registering_cases import set_foreign
from tests.tables import create_with_rows

serial = itertools.count()


def rows(start: int = 0) -> pa.Table:
    numbers = list(range(start, start + 40))
    return pa.table({"a": numbers, "b": [n * 2 for n in numbers], "c": [f"c{n}" for n in numbers]})


@pytest.fixture
def table(catalog: Any) -> Any:
    return create_with_rows(catalog, f"db.dropped_{next(serial)}", [rows()])


def drop(table: Any, *names: str) -> None:
    with table.update_schema() as update:
        for name in names:
            update.delete_column(name)


def refresh(table: Any, **options: Any) -> Any:
    return sidecar.refresh(table, engine="local", **options)


def entries(table: Any) -> dict[int, str]:
    return {entry.snapshot_id: entry.statistics_path for entry in table.refresh().metadata.statistics}


def verbs(table: Any) -> list[str]:
    """The commands that ``status`` tells to type."""
    return [step.command.split()[1] for step in sidecar.status(table.refresh()).to_do]


def test_a_sidecar_without_a_live_column_is_unregistered(table: Any) -> None:
    sidecar.build(table, ["a", "b"], engine="local", save=True)
    built = table.current_snapshot().snapshot_id
    drop(table, "a", "b")
    assert (refresh(table, dry_run=True).action, len(entries(table))) == ("removed", 1)
    report = refresh(table)
    assert (report.action, report.unregistered, report.statistics_path) == ("removed", [built], None)
    assert any("'a' (field 1) is gone" in warning for warning in report.warnings)
    assert entries(table) == {}
    assert refresh(table).action == "undeclared"
    assert verbs(table) == ["advise"]


def test_what_was_built_and_never_declared_goes_with_its_column(table: Any) -> None:
    sidecar.build(table, ["a"], engine="local")
    drop(table, "a")
    assert (refresh(table).action, entries(table)) == ("removed", {})


def test_columns_that_are_not_declared_stay(table: Any) -> None:
    sidecar.build(table, ["c"], engine="local")
    sidecar.build(table, ["a"], engine="local", save=True)
    drop(table, "a")
    table.append(rows(100).drop(["a"]))
    report = refresh(table)
    assert (report.action, report.files_indexed, report.behind, len(report.unregistered)) == ("written", 0, {"c": 1}, 1)
    opened = sidecar.open_sidecar(table.refresh())
    assert {field_id for segment in opened.segments for field_id in segment.bundles} == {3}
    assert {blob.fields for blob in opened.puffin.metadata.blobs if len(blob.fields) == 1} == {(3,)}
    opened.close()
    assert sidecar.plan(table, "c = 'c101x'").files_kept == 1  # that of the new file
    assert refresh(table).action == "undeclared"
    (step,) = sidecar.status(table).to_do
    assert "build" in step.command
    assert step.command.endswith("--columns c --kinds bloom,theta --catalog cat")


def test_the_blobs_of_others_stay(table: Any) -> None:
    sidecar.build(table, ["a"], engine="local", save=True)
    set_foreign(table, {2: "40"}, [("their-type", [2], b"bytes")])
    refresh(table)
    drop(table, "a")
    report = refresh(table)
    assert (report.action, report.unregistered) == ("written", [])
    (entry,) = table.refresh().metadata.statistics
    assert [(blob.fields, blob.properties["ndv"]) for blob in entry.blob_metadata] == [([2], "40")]
    assert refresh(table).action == "undeclared"


def test_the_sidecar_of_a_tag_stays(table: Any) -> None:
    sidecar.build(table, ["a"], kinds=["bloom"], engine="local", save=True)
    built = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(built, "checked").commit()
    table.append(rows(100))
    drop(table, "a")
    assert (refresh(table).action, entries(table).keys()) == ("undeclared", {built})
    assert verbs(table) == ["advise"]


def test_a_column_that_is_behind_and_not_declared_is_a_build(table: Any) -> None:
    sidecar.build(table, ["b"], kinds=["page-index"], engine="local")
    sidecar.build(table, ["a"], kinds=["bloom"], engine="local", save=True)
    table.append(rows(100))
    assert verbs(table) == ["refresh", "build"]
    refresh(table)
    status = sidecar.status(table.refresh(), min_coverage=0.9)
    assert (status.waiting.files, status.share_covered) == (0, 0.5)
    (step,) = status.to_do
    assert step.command.endswith(" --columns b --kinds page-index --catalog cat")
    sidecar.build(table, ["b"], kinds=["page-index"], engine="local")
    assert verbs(table) == []


def test_a_name_without_an_id_does_not_stop_the_other_columns(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a,c"})
    refresh(table)
    with table.update_schema() as update:
        update.rename_column("a", "the,name")
    table.append(rows(100).rename_columns(["the,name", "b", "c"]))
    report = refresh(table)
    assert (report.action, report.columns, report.files_indexed) == ("written", ["c"], 1)
    (warning,) = [text for text in report.warnings if "sidecar.columns" in text]
    assert "no column 'a'" in warning
    assert "write the%2Cname:1 instead" in warning
    again = refresh(table)
    assert (again.action, again.warnings) == ("current", [warning])
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "the%2Cname:1,c"})
    assert (refresh(table).columns, refresh(table).action) == (["the,name", "c"], "current")


def test_names_without_ids_alone_are_an_error(table: Any) -> None:
    sidecar.build(table, ["a"], engine="local")
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "a"})
    with table.update_schema() as update:
        update.rename_column("a", "renamed")
    with pytest.raises(UsageError) as raised:
        refresh(table)
    assert "sidecar.columns" in raised.value.what
    assert "write renamed:1 instead" in str(raised.value.hint)
    assert len(entries(table)) == 1
