"""Which distinct counts the table's metadata names: those of text and bytes, and those of columns with named kinds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.statistics_files.merge import sketched_fields
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows

ROWS = pa.table({"k": [1, 2, 3, 3], "s": ["x", "y", "z", "z"], "d": [1.5, 2.5, 2.5, 2.5]})


@pytest.fixture
def table(own_catalog: Any) -> Any:
    return create_with_rows(own_catalog, "db.t", [ROWS])


def registered(table: Any) -> set[str]:
    """The columns whose counts of the newest snapshot engines hear of."""
    (entry,) = statistics_of(table.refresh())[table.current_snapshot().snapshot_id]
    return {table.schema().find_column_name(i) for i in sketched_fields(entry.blob_metadata)}


def counts(table: Any) -> dict[str, tuple[int | None, bool | None]]:
    """What ``status`` says: each distinct count, and whether it is registered."""
    found = {name: kinds["theta"] for name, kinds in sidecar.status(table).coverage.items()}
    return {name: (one.ndv, one.registered) for name, one in found.items()}


def delete_first_row(table: Any) -> None:
    first = min(task.file.file_path for task in table.refresh().scan().plan_files())
    delete_by_position(table, {first: [0]})


def test_of_columns_whose_kinds_nobody_named_text_is_registered_alone_and_all_are_counted(table: Any) -> None:
    sidecar.build(table, ["k", "s", "d"], engine="local", save=True)
    assert registered(table) == {"s"}
    assert counts(table) == {"k": (3, False), "s": (3, True), "d": (2, False)}
    assert "sidecar.kinds" not in table.properties
    assert sidecar.refresh(table).action == "current"
    table.append(pa.table({"k": [4], "s": ["w"], "d": [4.5]}))
    assert counts(table)["k"] == (3, False)
    assert sidecar.status(table).coverage["k"]["theta"].lower_bound == ["files-not-counted"]
    assert sidecar.refresh(table).action == "written"
    assert (registered(table), counts(table)["k"]) == ({"s"}, (4, False))


def test_a_choice_stays_until_a_build_of_columns_without_kinds(table: Any) -> None:
    report = sidecar.build(table, ["k", "s"], kinds=["bloom", "theta"], engine="local")
    assert "of k (long): where spark.sql.cbo.enabled is true" in report.warnings[0]
    assert "spark.sql.iceberg.report-column-stats" in report.warnings[0]
    for change in (
        lambda: table.append(ROWS),  # a new segment
        lambda: sidecar.build(table, ["d"], engine="local"),  # others are carried
        lambda: delete_first_row(table),  # the same file, registered again
        lambda: sidecar.build(table, full=True, engine="local"),
    ):
        change()
        sidecar.refresh(table)
        assert registered(table) == {"k", "s"}
    (advice,) = [text for text in sidecar.status(table).warnings if "spark.sql.cbo.enabled" in text]
    assert advice.endswith("which Trino does not read: sidecar build db.t --columns k --catalog cat")
    report = sidecar.build(table, ["k"], engine="local", dry_run=True)
    assert report.commits
    assert "not registered any more, as no kind was named: distinct counts of k (long)" in report.warnings
    report = sidecar.build(table, ["k"], engine="local")
    assert (report.files_carried, registered(table)) == (2, {"s"})
    assert not any("spark.sql.cbo.enabled" in text for text in sidecar.status(table).warnings)
    assert not sidecar.build(table, ["k"], engine="local", dry_run=True).commits


def test_a_later_registration_marks_counts_of_the_file_as_bounds(table: Any) -> None:
    sidecar.build(table, ["k", "s"], engine="local")
    delete_first_row(table)
    assert sidecar.refresh(table).action == "registered"
    for name in ("k", "s"):
        found = sidecar.status(table).coverage[name]["theta"]
        assert (found.ndv, found.upper_bound, found.lower_bound) == (3, ["row-deletes"], None)


def test_declared_kinds_are_named_ones_and_are_registered_by_the_next_refresh(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local", save=True)
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.kinds": "bloom,theta"})
    report = sidecar.refresh(table)
    assert (report.action, registered(table)) == ("written", {"k"})
    assert "of k (long)" in report.warnings[0]
    assert sidecar.refresh(table).action == "current"
    table.append(ROWS)
    sidecar.refresh(table)
    assert registered(table) == {"k"}


def test_what_status_says_to_do_about_counts_that_lack_files_keeps_the_choice(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local")
    sidecar.build(table, ["d"], kinds=["bloom", "theta"], engine="local")
    sidecar.build(table, ["s"], engine="local", save=True)
    table.append(ROWS)
    sidecar.refresh(table)
    steps = {step.command for step in sidecar.status(table).to_do}
    assert steps == {
        "sidecar build db.t --columns k --catalog cat",
        "sidecar build db.t --columns d --kinds bloom,theta --catalog cat",
    }
