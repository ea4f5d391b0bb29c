"""A refresh does what there is to do and no more: nothing, an entry, a file; old entries go unless they are needed."""

from __future__ import annotations

import itertools
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.runs import history_of
from sidecar.errors import CommitConflictError, UsageError
from sidecar.failpoints import observe
from sidecar.iceberg.listing import list_snapshot
from sidecar.indexing.request import BuildMeans
from sidecar.maintenance import costs, sidecar_update
from sidecar.maintenance.refreshing import refresh_thoroughly
from sidecar.puffin.types import THETA
from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files
from tests.iceberg.registering_cases import blobs_of, set_foreign
from tests.life.files import data_files
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
serial = itertools.count()


def rows(number: int, count: int = 40) -> pa.Table:
    """Rows of file ``number``: keys are spread, so that bounds rule nothing out."""
    keys = [(number + 10 * n) * 2 for n in range(count)]
    return pa.table({"k": keys, "s": [f"v{key}" for key in keys]}, schema=SCHEMA)


@pytest.fixture
def table(catalog: Any) -> Any:
    """Three files with a sidecar of both columns; it is declared."""
    made = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(n) for n in range(3)])
    sidecar.build(made, ["k", "s"], kinds=["bloom"], engine="local", save=True)
    return made


def refresh(table: Any, **options: Any) -> Any:
    return sidecar.refresh(table, **{"engine": "local", **options})


def entries(table: Any) -> dict[int, str]:
    now = table.catalog.load_table(table.name())
    return {entry.snapshot_id: entry.statistics_path for entry in now.metadata.statistics}


def head(table: Any) -> int:
    snapshot_id: int = table.refresh().current_snapshot().snapshot_id
    return snapshot_id


def kept(table: Any, key: int) -> int:
    plan = sidecar.plan(table, f"k = {key}")
    assert plan.warnings == ()
    return plan.files_kept


def test_nothing_to_do(table: Any) -> None:
    before = entries(table)
    report = refresh(table)
    assert (report.action, report.files_total, report.warnings) == ("current", None, [])
    assert [report.statistics_path] == list(before.values())
    assert entries(table) == before


def test_a_new_file_is_indexed_and_the_old_entry_goes(table: Any) -> None:
    old = head(table)
    table.append(rows(3))
    versions = len(table.metadata.metadata_log)
    report = refresh(table)
    assert (report.action, report.files_indexed, report.files_carried, report.unregistered) == ("written", 1, 3, [old])
    assert len(table.refresh().metadata.metadata_log) == versions + 1, "both are one commit"
    assert entries(table) == {head(table): report.statistics_path}
    assert (kept(table, 21), kept(table, 26)) == (0, 1)
    assert refresh(table).action == "current"


def test_a_commit_without_new_files_takes_an_entry_and_no_copy(table: Any) -> None:
    before = entries(table)
    old = head(table)
    table.overwrite(rows(0).slice(0, 0), overwrite_filter="k = 1")  # a snapshot that changes no file
    assert head(table) != old
    versions = len(table.metadata.metadata_log)
    report = refresh(table)
    assert (report.action, report.files_indexed, report.unregistered) == ("registered", 0, [old])
    assert len(table.refresh().metadata.metadata_log) == versions + 1, "both are one commit"
    assert entries(table) == {head(table): before[old]}
    assert refresh(table).action == "current"
    assert kept(table, 21) == 0


def test_a_file_that_is_gone_is_found_out_and_everything_is_built_again(table: Any) -> None:
    path = Path(local(refresh(table).statistics_path))
    path.unlink()
    sidecar.repair(table)
    report = refresh(table)
    assert (report.action, report.files_indexed) == ("written", 3)
    assert kept(table, 21) == 0


def test_the_entry_that_a_tag_or_branch_needs_stays(table: Any) -> None:
    old = head(table)
    table.manage_snapshots().create_tag(old, "checked").create_branch(old, "audit").commit()
    table.append(rows(3))
    assert refresh(table).unregistered == []
    between = head(table)
    table.append(rows(4))
    assert refresh(table).unregistered == [between]
    assert entries(table).keys() == {old, head(table)}
    assert sidecar.plan(table, "k = 21", at="checked").files_kept == 0
    table.append(rows(5), branch="audit")
    assert refresh(table, at="audit").unregistered == []  # the tag still needs it
    assert sidecar.plan(table.refresh(), "k = 21", at="audit").files_kept == 0
    table.manage_snapshots().remove_tag("checked").commit()
    table.append(rows(6), branch="audit")
    assert len(refresh(table.refresh(), at="audit").unregistered) == 1


def test_of_an_entry_with_blobs_of_others_these_stay_alone(table: Any) -> None:
    old = head(table)
    theirs = blobs_of(set_foreign(table, {1: "40"}, [("their-type", [1], b"bytes")]))
    assert refresh(table).action == "written"  # which merges their blobs
    table.append(rows(3))
    for _ in range(2):
        report = refresh(table)
        assert report.unregistered == []
        assert entries(table).keys() == {old, head(table)}
        (left,) = [one for one in table.metadata.statistics if one.snapshot_id == old]
        assert blobs_of(left.statistics_path) == theirs
        assert [(one.fields, one.properties["ndv"]) for one in left.blob_metadata] == [([1], "40")]
        assert kept(table, 21) == 0


def test_statistics_of_others_each_night_leave_no_copies_of_the_sidecar(table: Any) -> None:
    for number in range(3, 6):
        set_foreign(table, {1: "40"}, [("their-type", [1], b"bytes")])
        table.append(rows(number))
        if number == 4:
            set_foreign(table, {1: "40"})
        assert refresh(table).files_indexed == 1
    registered = [set(blobs_of(path)) for path in entries(table).values()]
    assert sum(any(name.startswith("sidecar") for name, _ in blobs) for blobs in registered) == 1
    assert sum((THETA, (1,)) in blobs for blobs in registered) == len(registered) - 1


def test_an_entry_of_others_on_the_snapshot_is_merged(table: Any) -> None:
    table.append(rows(3))
    refresh(table)
    table.overwrite(rows(0).slice(0, 0), overwrite_filter="k = 1")
    set_foreign(table, {1: "40"})
    report = refresh(table)
    assert (report.action, report.files_indexed) == ("written", 0)
    (entry,) = [e for e in table.refresh().metadata.statistics if e.snapshot_id == head(table)]
    assert [(b.fields, b.properties["ndv"]) for b in entry.blob_metadata] == [([1], "40")]
    assert kept(table, 21) == 0


def test_after_a_rollback_plans_and_the_refresh_use_the_sidecar_of_the_later_snapshot(table: Any) -> None:
    before = head(table)
    table.append(rows(3))
    later, written = head(table), refresh(table).statistics_path
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert head(table) == before
    assert kept(table, 21) == 0
    used = sidecar.status(table).sidecar
    assert used is not None
    assert (used.snapshot_id, used.snapshots_behind) == (later, 0)
    report = refresh(table)
    assert (report.action, report.files_indexed, report.statistics_path) == ("registered", 0, written)
    assert sidecar.verify(table.refresh()).problems == []
    table.append(rows(4))
    assert kept(table.refresh(), 28) == 1  # the new file alone: nothing is known of it
    report = refresh(table)
    assert (report.files_indexed, report.unregistered) == (1, [before])
    assert (kept(table, 28), kept(table, 26)) == (1, 0)
    assert later in entries(table)  # its snapshot may be published again


def test_a_sidecar_that_statistics_of_others_displaced_is_carried_over(catalog: Any) -> None:
    table = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(n) for n in range(3)])
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")  # it declares nothing
    (built,) = entries(table).values()
    set_foreign(table, {1: "40"}, [("their-type", [1], b"bytes")])
    with table.refresh().transaction() as change:
        change.set_properties({"touched": "later"})
    assert kept(table, 21) == 3
    status = sidecar.status(table)
    (warning,) = status.warnings
    theirs = table.metadata.statistics[0].statistics_path
    assert f"{built} was registered before, displaced by {theirs} at 20" in warning
    assert status.to_do[0].command.startswith("sidecar refresh")
    assert "displaced by" in refresh(table, dry_run=True).reason
    table.append(rows(3))
    report = refresh(table)
    assert (report.action, report.files_indexed, report.files_carried) == ("written", 1, 3)
    assert kept(table, 21) == 0
    assert theirs in entries(table).values()


def test_what_a_refresh_has_removed_is_set_again_if_its_own_file_is_gone(table: Any) -> None:
    before = entries(table)
    table.append(rows(3))

    def act(step: str) -> None:
        if step == "register: check":
            (path,) = entries(table).values()
            Path(local(path)).unlink()

    with observe(act), pytest.raises(CommitConflictError):
        refresh(table)
    assert entries(table) == before
    assert refresh(table).files_carried == 3


def test_what_the_table_dropped_goes(table: Any) -> None:
    with table.update_schema() as update:
        update.delete_column("s")
    report = refresh(table)
    assert (report.action, report.files_indexed) == ("written", 0)
    (segment,) = sidecar.open_sidecar(table.refresh()).segments
    assert segment.bundles.keys() == {1}
    assert any("'s' (field 2) is gone" in warning for warning in report.warnings)
    assert refresh(table).action == "current"


def test_a_changed_declaration_is_work(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.column.2.kinds": "bloom,page-index"})
    assert refresh(table, dry_run=True).files_indexed == 3
    report = refresh(table)
    assert (report.action, report.files_indexed) == ("written", 3)
    assert refresh(table).action == "current"


def test_a_file_that_cannot_be_read_keeps_limited_runs_from_no_other_one(table: Any) -> None:
    for number in (3, 4):
        table.append(rows(number))
    path = local(list_snapshot(table).files[0].path)
    path.write_bytes(path.read_bytes()[:-4] + b"gone")
    done = [refresh(table, max_new_files=1) for _ in range(3)]
    assert [len(r.files_failed) for r in done] == [1, 0, 1]
    assert [(r.action, r.files_indexed, r.files_left) for r in done] == [
        ("written", 0, 1),  # the sidecar lists the file, so that it is tried last
        ("written", 1, 1),
        ("current", 0, 0),
    ]


def test_a_segment_of_files_that_cannot_be_read_is_written_once(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large sidecar keeps it apart from its base, so nothing else has these files."""
    monkeypatch.setattr(costs, "MERGED_AT_ONCE", 0)
    refresh(table)
    table.append(rows(3))
    path = local(list_snapshot(table).files[0].path)
    path.write_bytes(path.read_bytes()[:-4] + b"gone")
    assert [refresh(table).action for _ in range(3)] == ["written", "current", "current"]
    assert refresh_thoroughly(table, BuildMeans("local")).action == "current"


def test_a_limit_leaves_files_and_loses_none(table: Any) -> None:
    for number in (3, 4, 5):
        table.append(rows(number))
    done = [refresh(table, max_new_files=2) for _ in range(3)]
    assert [(r.action, r.files_indexed, r.files_left) for r in done] == [
        ("written", 2, 1),
        ("written", 1, 0),
        ("current", 0, 0),
    ]
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.fpp": "0.0001"})
    report = refresh(table, max_new_files=1)
    assert (report.files_indexed, report.files_left) == (1, 5)
    assert kept(table, 21) == 0  # the others still have their filters of the earlier rate
    while report.files_left:
        report = refresh(table, max_new_files=2)
    assert refresh(table).action == "current"
    with pytest.raises(UsageError):
        refresh(table, max_new_files=0)


def test_a_large_sidecar_waits_until_enough_is_missing(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LARGE", 1000)
    before = entries(table)
    table.append(rows(3, 1))
    report = refresh(table)
    assert (report.action, report.files_left, entries(table)) == ("postponed", 1, before)
    assert report.uncovered == pytest.approx(1 / 121)
    assert refresh(table, dry_run=True).action == "postponed"
    with monkeypatch.context() as patch:
        patch.setattr(costs, "NOT_LONG", timedelta(seconds=-1))
        assert refresh(table, dry_run=True).action == "written"
    in_two_hours, actions = time.time() + 7200, []
    with monkeypatch.context() as patch:
        patch.setattr(sidecar_update.time, "time", lambda: in_two_hours)
        for hourly, limit in ((costs.HOURLY, 9), (1000, 9), (1000, 1)):
            patch.setattr(costs, "HOURLY", hourly)
            (cared,) = sidecar.care(table, max_behind=timedelta(hours=limit), dry_run=True).tables
            actions.append(cared.refresh and cared.refresh.action)
    assert actions == ["written", "postponed", "written"], "a larger one waits for longer, but no longer than the limit"
    added = head(table)
    with monkeypatch.context() as patch:
        patch.setattr(sidecar_update.time, "time", lambda: in_two_hours)
        table.append(rows(4, 0))
        table.maintenance.expire_snapshots().by_id(added).commit()
        assert refresh(table, dry_run=True).action == "written", "the file waits since the commit that has expired"
    monkeypatch.setattr(costs, "FEW_ROWS", 0.005)
    assert refresh(table).action == "written"


def test_a_dry_run_writes_nothing(table: Any) -> None:
    table.append(rows(3))
    before, files = entries(table), set(Path(local(table.location())).rglob("*"))
    report = refresh(table, dry_run=True)
    assert (report.action, report.files_indexed, report.files_left, report.dry_run) == ("written", 1, 0, True)
    assert (entries(table), set(Path(local(table.location())).rglob("*"))) == (before, files)


def test_a_table_without_rows_or_without_a_declaration_is_no_error(catalog: Any, table: Any) -> None:
    empty = catalog.create_table(f"db.refreshed_{next(serial)}", SCHEMA)
    assert refresh(empty).action == "empty"
    plain = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(0)])
    report = refresh(plain)
    assert (report.action, len(report.warnings)) == ("undeclared", 1)
    sidecar.build(plain, ["k"], engine="local")
    assert refresh(plain).columns == ["k"]


def test_a_file_that_cannot_be_read_is_tried_again(table: Any) -> None:
    known = {task.file.file_path for task in table.scan().plan_files()}
    table.append(rows(3))
    table.append(rows(4))
    lost = Path(local(next(t.file.file_path for t in table.scan().plan_files() if t.file.file_path not in known)))
    content = lost.read_bytes()
    lost.unlink()
    report = refresh(table)
    assert (report.files_indexed, list(map(Path, map(local, report.files_failed)))) == (1, [lost])
    lost.write_bytes(content)
    assert (refresh(table).files_indexed, refresh(table).action) == (1, "current")


def test_a_file_of_another_size_is_tried_again_and_makes_no_copy_each_time(table: Any) -> None:
    known = {task.file.file_path for task in table.scan().plan_files()}
    table.append(rows(3))
    odd = Path(local(next(t.file.file_path for t in table.scan().plan_files() if t.file.file_path not in known)))
    content = odd.read_bytes()
    odd.write_bytes(content[:4] + b"more" + content[4:])
    assert (refresh(table).action, refresh(table).action) == ("written", "current")
    before = entries(table)
    again = refresh(table)
    assert (again.action, again.files_indexed, list(map(local, again.files_failed))) == ("current", 0, [odd])
    assert again.statistics_path == before[head(table)]
    assert sidecar.build(table, engine="local").files_failed.keys() == again.files_failed.keys()
    assert entries(table) == before
    odd.write_bytes(content)
    assert (refresh(table).files_indexed, refresh(table).action) == (1, "current")


def test_a_build_that_can_index_no_file_registers_nothing(catalog: Any) -> None:
    made = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(0)])
    (odd,) = (Path(local(task.file.file_path)) for task in made.scan().plan_files())
    odd.write_bytes(odd.read_bytes() + b"more")
    built = sidecar.build(made, ["k"], engine="local", save=True)
    assert (built.statistics_path, len(built.files_failed)) == (None, 1)
    assert built.warnings == ["no data file could be indexed, so no sidecar was registered"]
    refreshed = refresh(made)
    assert (refreshed.action, len(refreshed.files_failed), entries(made)) == ("current", 1, {})


def test_a_table_that_was_dropped_is_not_current(table: Any, catalog: Any) -> None:
    catalog.drop_table(table.name())
    with pytest.raises(UsageError, match="no longer exists"):
        refresh(table)
    catalog.create_table(table.name(), SCHEMA)
    with pytest.raises(UsageError, match="was dropped, and another one has its name"):
        refresh(table)


def test_a_history_of_the_last_runs(table: Any) -> None:
    for number in range(3, 6):
        table.append(rows(number))
        refresh(table)
    runs = history_of(sidecar.open_sidecar(table.refresh()).puffin.metadata.properties)
    assert [(run.what, run.files, run.indexed, run.carried, run.left) for run in runs] == [
        ("build", 3, 3, 0, 0),
        *(("refresh", 3 + n, 1, 2 + n, 0) for n in (1, 2, 3)),
    ]
    assert all(run.bytes_read and run.seconds > 0 for run in runs)
    assert [bool(run.bytes_carried) for run in runs] == [False, True, True, True]


def distinct(table: Any) -> tuple[int | None, list[str] | None]:
    """The distinct count of ``k``, and why it is an upper bound."""
    counted = sidecar.status(table.refresh()).coverage["k"]["theta"]
    return counted.ndv, counted.upper_bound


def test_distinct_counts_are_marked_and_then_counted_again(catalog: Any) -> None:
    table = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(0), rows(1), rows(2, 2)])
    sidecar.build(table, ["k"], engine="local", save=True)
    table.delete("k in (4, 24)")  # the file of two rows: less than 5 % of its group
    assert refresh(table).action == "registered"
    assert distinct(table) == (82, ["removed-files"])
    assert refresh(table).action == "current"
    table.delete(f"k in ({', '.join(map(str, rows(1)['k'].to_pylist()))})")
    assert refresh(table).action == "written"
    assert distinct(table) == (40, None)
    assert refresh(table).action == "current"


def test_copies_of_a_file_in_one_commit_are_indexed_once(table: Any) -> None:
    """Their fingerprint finds none of them: each refresh read them again."""
    append_files(table, data_files(table, rows(3)) * 2)
    assert (refresh(table).files_indexed, refresh(table).action) == (2, "current")
    for number in (4, 5):
        table.append(rows(number))
        report = refresh(table)
        assert (report.files_indexed, report.files_carried) == (1, number + 1)
        status = sidecar.status(table.refresh())
        assert status.coverage["k"]["bloom"].files == number + 2
        assert (kept(table, 21), kept(table, 26)) == (0, 2)
    table.delete("k = 6")
    assert refresh(table).files_carried == 5
    assert sidecar.verify(table.refresh()).problems == []


def test_after_a_rollback_no_file_is_counted_again(catalog: Any) -> None:
    """Sketches of what was rolled back are apart, even in a small table; the count has no values of them."""
    table = create_with_rows(catalog, f"db.refreshed_{next(serial)}", [rows(n) for n in range(3)])
    sidecar.build(table, ["k"], engine="local", save=True)
    before, last = head(table), None
    for number in range(3, 6):
        last = head(table)
        table.append(rows(number))
        assert refresh(table).files_indexed == 1
    for snapshot_id, count in ((last, 5), (before, 3)):
        table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()
        report = refresh(table.refresh())
        assert (report.action, report.files_indexed, report.files_carried) == ("written", 0, count)
        assert distinct(table) == (40 * count, None)
        assert refresh(table).action == "current"


def test_a_table_without_field_ids_says_why_nothing_was_indexed(catalog: Any, tmp_path: Path) -> None:
    made = catalog.create_table(f"db.refreshed_{next(serial)}", SCHEMA)
    pq.write_table(rows(0), tmp_path / "a.parquet")
    made.add_files([str(tmp_path / "a.parquet")])
    assert sidecar.build(made, ["k"], engine="local", dry_run=True).warnings == []
    with made.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    assert sidecar.build(made, ["k"], engine="local").warnings == [
        "nothing was indexed: file has no field ids and the table no name mapping"
    ]
