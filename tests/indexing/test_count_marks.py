"""Counts that are too low or too high say so: after a limited run, in carried sketches, and after damage."""

from __future__ import annotations

import itertools
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.bundle.sketches.count_marks import CountMarks, marked
from sidecar.cli import humanize
from sidecar.maintenance import costs
from sidecar.puffin.types import THETA_GROUPS
from sidecar.results import KindCoverage
from sidecar.storage.locations import local_path
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows

serial = itertools.count()
LACKS = ["files-not-counted"]
REMOVED = ["removed-files"]


def rows(number: int, count: int = 100) -> pa.Table:
    keys = [1000 * number + n for n in range(count)]
    return pa.table({"k": keys, "s": [f"s{key}" for key in keys]})


@pytest.fixture
def table(catalog: Any) -> Any:
    return create_with_rows(catalog, f"db.marked_{next(serial)}", [rows(n) for n in range(3)])


def counted(table: Any, column: str = "k") -> tuple[int, list[str] | None, list[str] | None]:
    """The distinct count of a column, and why it is an upper and a lower bound."""
    found = sidecar.status(table.refresh()).coverage[column]["theta"]
    return found.ndv, found.upper_bound, found.lower_bound


def test_a_limited_refresh_keeps_the_old_count_and_marks_it(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local", save=True)
    for number in (3, 4):
        table.append(rows(number))
    sidecar.refresh(table, engine="local", max_new_files=1)
    assert counted(table) == (300, None, LACKS)
    with closing(sidecar.open_sidecar(table)) as opened:
        (stored,) = [blob for blob in opened.puffin.metadata.blobs if "ndv" in blob.properties]
    assert CountMarks.of(stored.properties).lower_bound == LACKS
    assert humanize.distinct(300, KindCoverage(lower_bound=LACKS)) == "≥ 300"
    sidecar.refresh(table, engine="local")
    assert counted(table) == (500, None, None)


@pytest.mark.parametrize("before", [300, None])
def test_a_count_is_made_when_the_files_that_it_lacks_are_gone(table: Any, before: int | None) -> None:
    sidecar.build(table, ["k"] if before else ["s"], engine="local")
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.columns": "k:1"})
    number = 3
    for number in (3, 4):
        table.append(rows(number))
    limit = 1 if before else 4
    sidecar.refresh(table, engine="local", max_new_files=limit)
    assert (counted(table)[0] if before else sidecar.status(table).coverage["k"]["theta"].ndv) == before
    ranges = [(n, f"k >= {1000 * n} and k < {1000 * (n + 1)}") for n in range(5)]
    (left,) = [where for _, where in ranges if is_unlisted(table, where)]
    table.delete(left)
    report = sidecar.refresh(table, engine="local")
    assert (report.action, report.files_indexed, counted(table)) == ("written", 0, (400, None, None))
    assert sidecar.refresh(table, engine="local").action == "current"


def is_unlisted(table: Any, where: str) -> bool:
    """Whether the files with these rows have no index of the column."""
    key = int(where.split()[2]) + 5
    kept = sidecar.plan(table, f"k = {key}").funnel.kept_because
    return bool(kept.keys() - {"may match", "may match in some row groups"})


def test_the_report_of_a_build_says_so(table: Any) -> None:
    missing = Path(local_path(next(iter(table.scan().plan_files())).file.file_path) or "")
    content = missing.read_bytes()
    missing.unlink()
    report = sidecar.build(table, ["k"], engine="local")
    assert (report.columns[0].ndv.estimate, report.columns[0].ndv.lower_bound) == (200, LACKS)
    missing.write_bytes(content)
    report = sidecar.build(table, ["k"], engine="local")
    assert (report.columns[0].ndv.estimate, report.columns[0].ndv.lower_bound) == (300, None)


def test_carried_counts_are_marked_anew(table: Any) -> None:
    """A build without distinct counts keeps those of the last one, and says what changed since."""
    sidecar.build(table, ["k", "s"], engine="local")
    table.append(rows(3))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local", save=True)
    assert counted(table) == counted(table, "s") == (300, None, LACKS)
    table.delete("k < 1000")  # the first file
    sidecar.refresh(table, engine="local")
    assert counted(table) == counted(table, "s") == (300, REMOVED, LACKS)
    assert humanize.distinct(300, KindCoverage(upper_bound=REMOVED, lower_bound=LACKS)) == "≈ 300"
    sidecar.build(table, ["k", "s"], kinds=["bloom", "theta"], engine="local")
    assert counted(table) == counted(table, "s") == (300, None, None)


def test_carried_counts_are_marked_when_rows_are_deleted(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local")
    sidecar.build(table, ["s"], kinds=["bloom"], engine="local")
    path = next(iter(table.scan().plan_files())).file.file_path
    delete_by_position(table, {path: [0]})
    sidecar.build(table, ["s"], kinds=["bloom"], engine="local")
    assert counted(table)[1] == ["row-deletes"]


def test_marks_of_a_sketch_stay_when_it_is_used_again() -> None:
    old = {"ndv": "5", **CountMarks(frozenset({"later-word"}), frozenset(LACKS)).to_properties()}
    assert marked(old, CountMarks(frozenset(REMOVED))) == {
        "ndv": "5",
        "sidecar.upper-bound": "later-word,removed-files",
        "sidecar.lower-bound": "files-not-counted",
    }


def damage_sketches(table: Any) -> None:
    with closing(sidecar.open_sidecar(table)) as opened:
        (blob,) = [blob for blob in opened.puffin.metadata.blobs if blob.type == THETA_GROUPS]
        path = Path(local_path(opened.source.name) or "")
    data = bytearray(path.read_bytes())
    data[blob.offset + 60] ^= 1
    path.write_bytes(data)


def test_sketches_that_a_merge_left_out_are_counted_again_by_the_next_refresh(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local", save=True)
    damage_sketches(table)
    table.delete("k < 1000")
    sidecar.build(table, ["s"], kinds=["bloom"], engine="local")  # does not look at the sketches of k
    assert sidecar.refresh(table, engine="local").action == "written"
    assert counted(table) == (200, None, None)
    assert sidecar.refresh(table, engine="local").action == "current"


def test_a_count_that_a_limited_refresh_keeps_has_values_of_removed_files(table: Any) -> None:
    """The group that has lost a file is left out of new counts, and not of the old one."""
    sidecar.build(table, ["k"], engine="local", save=True)
    table.delete("k < 1000")
    for number in (3, 4):
        table.append(rows(number, 10))
    sidecar.refresh(table, engine="local", max_new_files=1)
    assert counted(table) == (300, REMOVED, LACKS)
    sidecar.refresh(table, engine="local")
    assert counted(table) == (220, None, None)


def test_a_count_that_is_registered_again_has_values_of_segments_without_a_live_file(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "LARGE", 0)
    before = table.current_snapshot().snapshot_id
    for number in (3, 4):
        sidecar.build(table, ["k"], kinds=["bloom", "theta"], engine="local", save=True)
        table.append(rows(number, 10))
        sidecar.expire(table, older_than=timedelta(0))
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert sidecar.refresh(table, engine="local").action == "registered"
    assert counted(table) == (310, REMOVED, None)


def test_a_count_that_no_entry_names_is_marked_when_a_new_file_takes_it_over(catalog: Any) -> None:
    """A merge forgets the removed file, and the entry of a file that was registered again names other counts alone."""
    parts = [rows(number, 100 if number else 5) for number in range(6)]
    table = create_with_rows(catalog, f"db.marked_{next(serial)}", parts)
    sidecar.build(table, ["k", "s"], engine="local")
    table.delete("k < 1000")
    assert sidecar.refresh(table, engine="local").action == "registered"
    sidecar.build(table, ["s"], kinds=["page-index"], engine="local", save=True)
    assert sidecar.refresh(table, engine="local").action == "written"
    assert counted(table) == counted(table, "s") == (505, REMOVED, None)


def test_a_count_that_no_entry_names_ends_with_the_segments_that_counted_it(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "LARGE", 0)
    sidecar.build(table, ["k", "s"], engine="local", save=True)
    table.delete("k >= 0")
    with table.update_schema() as update:
        update.delete_column("s")
    assert [sidecar.refresh(table, engine="local").action for _ in range(3)] == ["registered", "written", "current"]
    kinds = sidecar.status(table.refresh()).coverage.get("k", {})
    assert "theta" not in kinds or kinds["theta"].ndv is None
