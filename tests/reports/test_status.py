"""``status``: facts about the sidecar that plans really use, thresholds, and what to do; no data file is read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, LongType

import sidecar
from sidecar import errors
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.cli.care.care import cells
from sidecar.iceberg.refs import waiting_since
from sidecar.maintenance.garbage import find_garbage
from sidecar.reports.page.collecting import collect_facts
from sidecar.reports.status import registrations as status_registrations
from tests.maintenance.cases import (
    append_and_build,
    entries,
    head,
    make,
    make_older,
    metadata_folder,
    register_others,
    rows,
    touch,
)


def commands(status: Any) -> list[str]:
    return [step.command for step in status.to_do]


def test_it_counts_by_the_sidecar_that_plans_use_when_others_register_for_a_newer_snapshot(tmp_path: Path) -> None:
    table = make(tmp_path, builds=1)
    built = head(table)
    table.append(rows(100))
    register_others(table)
    status = sidecar.status(table.refresh(), max_behind=timedelta(0), min_coverage=0.95)
    planned = sidecar.plan(table, "k = 3")
    assert planned.sidecar is not None
    assert status.sidecar is not None
    assert status.sidecar.path == planned.sidecar.path
    (main,) = status.refs
    assert (
        (main.statistics_snapshot_id, main.snapshots_behind) == (built, planned.sidecar.snapshots_behind) == (built, 1)
    )
    assert (status.waiting.files, status.waiting.rows) == (1, 5)
    assert status.waiting.bytes == table.inspect.files()["file_size_in_bytes"].to_pylist()[0]
    assert status.rows == 10
    assert status.share_covered == status.covered["k"]["bloom"].share == 0.5
    assert [missed.threshold for missed in status.missed] == ["max_behind", "min_coverage"]
    assert status.to_do[0].to_dict() == {
        "why": "1 file is not covered",
        "command": "sidecar refresh db.t --catalog folder",
    }


def test_what_waits_is_behind_since_the_commit_of_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, builds=1)
    fresh = sidecar.status(table)
    assert (fresh.waiting.files, fresh.waiting.since, fresh.waiting.seconds) == (0, None, 0)
    table.append(rows(100))
    first = table.refresh().current_snapshot()
    assert first is not None
    table.append(rows(200))
    committed = first.timestamp_ms / 1000
    monkeypatch.setattr("sidecar.reports.status.coverage.time.time", lambda: committed + 3600)
    status = sidecar.status(table.refresh(), max_behind=timedelta(hours=1))
    assert (status.waiting.files, status.waiting.since, status.waiting.seconds) == (2, committed, 3600)
    assert status.missed == []
    (missed,) = sidecar.status(table, max_behind=timedelta(minutes=59)).missed
    assert (missed.limit, missed.found) == (59 * 60, 3600)
    assert missed.text == "2 files waiting for 1:00:00, and the limit is 0:59:00"


def test_commits_that_bring_no_files_leave_nothing_to_wait_for(tmp_path: Path) -> None:
    table = make(tmp_path, builds=2)
    table.delete("k < 5")  # the whole first file
    status = sidecar.status(table.refresh(), max_behind=timedelta(0), min_coverage=1)
    assert status.sidecar is not None
    assert status.sidecar.snapshots_behind == 1
    assert (status.waiting.files, status.share_covered, status.missed) == (0, 1.0, [])
    assert [one.ref for one in status.losable] == ["main"]
    assert commands(status) == ["sidecar refresh db.t --catalog folder"]


def test_files_without_the_column_neither_wait_nor_count_nor_do_booleans(tmp_path: Path) -> None:
    table = make(tmp_path)
    with table.refresh().update_schema() as change:
        change.add_column("late", LongType())
        change.add_column("b", BooleanType())
    new = pa.table({"k": pa.array([1], pa.int64()), "s": ["x"], "late": pa.array([7], pa.int64()), "b": [True]})
    table.refresh().append(new)
    sidecar.build(table.refresh(), ["k", "late", "b"], engine="local")
    status = sidecar.status(table.refresh(), min_coverage=100)
    assert (status.share_covered, status.missed) == (1.0, [])
    covered = status.covered
    assert covered["b"]["bloom"].to_dict() == {"files": 0, "rows": 0, "share": 1.0, "waiting": 0}
    assert covered["late"]["bloom"].to_dict() == {"files": 1, "rows": 1, "share": 1.0, "waiting": 0}
    assert covered["k"]["bloom"].to_dict() == {"files": 2, "rows": 6, "share": 1.0, "waiting": 0}


def test_no_snapshot_misses_nothing_and_no_sidecar_misses_all(tmp_path: Path) -> None:
    table = make(tmp_path, builds=0)
    limits: Any = {"max_behind": timedelta(0), "min_coverage": 1}
    empty = sidecar.status(table, **limits)
    assert (empty.snapshot_id, empty.share_covered, empty.missed, empty.to_do) == (None, None, [], [])
    table.append(rows())
    bare = sidecar.status(table.refresh(), **limits)
    assert (bare.share_covered, bare.waiting.files, bare.size_share) == (0.0, 1, None)
    assert [missed.threshold for missed in bare.missed] == ["max_behind", "min_coverage"]
    assert commands(bare) == ["sidecar advise db.t --catalog folder"]
    with table.transaction() as change:
        change.set_properties({"sidecar.columns": "k:1"})
    assert commands(sidecar.status(table.refresh())) == ["sidecar refresh db.t --catalog folder"]


def test_what_is_declared_and_not_built_waits(tmp_path: Path) -> None:
    table = make(tmp_path)
    with table.refresh().transaction() as change:
        change.set_properties({"sidecar.columns": "k:1,s:2"})
    status = sidecar.status(table.refresh(), min_coverage=0.5)
    assert (status.waiting.files, status.share_covered) == (1, 0.0)
    assert status.covered["s"]["bloom"].to_dict() == {"files": 0, "rows": 0, "share": 0.0, "waiting": 1}
    assert [missed.threshold for missed in status.missed] == ["min_coverage"]
    sidecar.refresh(table)
    fresh = sidecar.status(table.refresh(), min_coverage=1)
    assert (fresh.waiting.files, fresh.share_covered, fresh.missed, fresh.to_do) == (0, 1.0, [], [])
    assert [run.what for run in fresh.runs] == ["build", "refresh"]
    with table.transaction() as change:
        change.set_properties({"sidecar.kinds": "nosuch"})
    assert any("sidecar.kinds" in text for text in sidecar.status(table.refresh()).warnings)


def test_thresholds_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path, builds=0)
    for limits in ({"max_behind": timedelta(seconds=-1)}, {"min_coverage": 101}, {"min_coverage": float("nan")}):
        with pytest.raises(errors.UsageError):
            sidecar.status(table, **limits)  # type: ignore[arg-type]


def test_leftovers_are_counted_as_gc_finds_them(tmp_path: Path) -> None:
    table = make(tmp_path, builds=1)
    (first,) = entries(table).values()
    append_and_build(table, 1)
    size = (metadata_folder(table) / Path(first).name).stat().st_size
    assert sidecar.status(table).unreferenced.files == 0
    sidecar.expire(table, older_than=timedelta(0))
    left = sidecar.status(table.refresh()).unreferenced
    assert (left.files, left.bytes, left.deletable, left.unknown_because) == (1, size, 0, None)
    make_older(table, 4)
    touch(table)
    old = sidecar.status(table.refresh())
    assert (old.unreferenced.files, old.unreferenced.deletable) == (1, 1)
    assert commands(old) == ["sidecar care db.t --only gc --catalog folder"]
    assert (metadata_folder(table) / Path(first).name).exists()


def test_a_monitor_leaves_the_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, builds=2)
    sidecar.expire(table, older_than=timedelta(0))
    whole = sidecar.status(table)
    monkeypatch.setattr("sidecar.maintenance.garbage.list_stored_files", None)
    quick = sidecar.status(table, quick=True)
    assert quick.unreferenced.to_dict() == {
        "files": None,
        "bytes": None,
        "deletable": None,
        "unknown_because": "they were not looked for",
    }
    assert (quick.covered, quick.registered, quick.to_do) == (whole.covered, whole.registered, whole.to_do)


def test_young_leftovers_are_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether ``gc`` would delete them needs all metadata files of three days."""
    table = make(tmp_path, builds=2)
    sidecar.expire(table, older_than=timedelta(0))
    asked: list[timedelta] = []
    monkeypatch.setattr(
        status_registrations, "find_garbage", lambda *given: (asked.append(given[1]), find_garbage(*given))[1]
    )
    assert sidecar.status(table.refresh()).unreferenced.deletable == 0
    assert asked == [timedelta(0)]


def test_a_storage_that_cannot_be_listed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)

    def refuse(*_: Any) -> Any:
        raise errors.UnsupportedFeatureError("the folder cannot be listed")

    monkeypatch.setattr("sidecar.maintenance.garbage.list_stored_files", refuse)
    status = sidecar.status(table)
    assert status.unreferenced.to_dict() == {
        "files": None,
        "bytes": None,
        "deletable": None,
        "unknown_because": "the folder cannot be listed",
    }
    assert status.share_covered == 1.0


def test_what_expiry_would_take_is_what_it_takes(tmp_path: Path) -> None:
    """The forecast is compared with plans after old snapshots are gone."""
    table = make(tmp_path, builds=1)
    tagged = append_and_build(table, 1)
    table.manage_snapshots().create_tag(tagged, "kept").commit()
    table.append(rows(50))
    table.refresh()
    table.manage_snapshots().create_tag(head(table), "next").commit()
    table.refresh().append(rows(70))
    status = sidecar.status(table.refresh())
    lost = {one.ref for one in status.losable}
    assert {ref.name: ref.snapshots_behind for ref in status.refs} == {"kept": 0, "main": 2, "next": 1}
    expire_old_snapshots(table)
    after = {name: sidecar.plan(table, "k = 3", at=name).sidecar for name in ("kept", "main", "next")}
    assert {name for name, used in after.items() if used is None} == lost == set()

    table.append(rows(90))
    status = sidecar.status(table.refresh())
    assert status.losable == []
    expire_old_snapshots(table)
    assert sidecar.plan(table, "k = 3").sidecar is not None  # though no snapshot leads back to the tagged one any more
    table.manage_snapshots().remove_tag("kept").commit()
    assert {one.ref for one in sidecar.status(table.refresh()).losable} == {"main", "next"}
    expire_old_snapshots(table)
    assert [sidecar.plan(table, "k = 3", at=name).sidecar for name in ("main", "next")] == [None, None]


def expire_old_snapshots(table: Table) -> None:
    """Keep the snapshots of branches and tags alone, with their statistics."""
    heads = {ref.snapshot_id for ref in table.refresh().metadata.refs.values()}
    gone = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
    for snapshot_id in gone:
        if snapshot_id in entries(table):
            table.update_statistics().remove_statistics(snapshot_id).commit()
        table.refresh().maintenance.expire_snapshots().by_id(snapshot_id).commit()
    table.refresh()


def test_the_last_runs_are_those_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    run = {
        "at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5,
        "what": "refresh",
        "snapshot_id": 1,
        "files": 3,
        "indexed": 1,
        "carried": 2,
        "left": 0,
        "bytes_read": 10,
        "bytes_carried": 20,
    }
    from sidecar.reports.status import table_status as status

    read = status.history_of
    text = json.dumps([run, {"at": "damaged"}])
    monkeypatch.setattr(status, "history_of", lambda properties: read({**properties, "sidecar.history": text}))
    assert [one.to_dict() for one in sidecar.status(table).runs] == [run]


def test_many_segments_ask_for_a_refresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, builds=2)
    monkeypatch.setattr("sidecar.reports.status.table_status.MANY_SEGMENTS", len(sidecar.status(table).segments) - 1)
    assert commands(sidecar.status(table)) == ["sidecar refresh db.t --catalog folder"]


@pytest.fixture(scope="module")
def lookups(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """70 files: so many that plans ask filters before they read records of files."""
    table = make(tmp_path_factory.mktemp("lookups"), builds=0)
    with table.transaction() as change:
        for n in range(70):
            keys = np.arange(200) * 70 * 2 + 2 * n
            change.append(pa.table({"k": keys, "s": [f"s{key}" for key in keys]}))
    sidecar.build(table.refresh(), ["k", "s"], fpp=0.2, engine="local")
    return table.refresh()


def test_a_lookup_costs_what_a_plan_reads(lookups: Table) -> None:
    status = sidecar.status(lookups)
    for column, predicate in (("k", "k = 71"), ("s", "s = 's71'")):
        planned, cost = sidecar.plan(lookups, predicate), status.lookups[column]
        assert planned.files_covered == 70
        # A plan also reads, at once, the records of the files that are left.
        assert (cost.reads, planned.index_reads) == (2, 3)
        assert planned.index_bytes_read / 2 < cost.bytes_read < planned.index_bytes_read
        assert (cost.segments, cost.row_groups) == (1, 70)


def test_the_rate_by_probes_is_near_that_of_all_bits(lookups: Table) -> None:
    from sidecar.bundle.fill import read_fill

    status = sidecar.status(lookups)
    opened = sidecar.open_sidecar(lookups)
    for field_id, column in ((1, "k"), (2, "s")):
        segment = opened.segments[0]
        exact = read_fill([segment.bundles[field_id]]).estimated_fpp
        cost = status.lookups[column]
        assert exact is not None
        assert cost.rate is not None
        spread = (exact.mean / (cost.probes * cost.row_groups)) ** 0.5
        assert abs(cost.rate - exact.mean) < 4 * spread
    opened.close()


def test_no_data_file_is_read(lookups: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = type(lookups.io).new_input
    monkeypatch.setattr(type(lookups.io), "new_input", lambda io, path: (opened.append(path), real(io, path))[1])
    status = sidecar.status(lookups)
    assert status.files.listed == 70
    assert opened
    assert not [path for path in opened if path.endswith(".parquet")]


def test_an_older_snapshot_is_built_and_not_refreshed(tmp_path: Path) -> None:
    """A refresh is about the head of a branch, and would never index what the older snapshot lacks."""
    table = make(tmp_path, builds=1)
    table.append(rows())
    old = head(table)
    table.append(rows())
    assert commands(sidecar.status(table.refresh())) == ["sidecar refresh db.t --catalog folder"]
    steps = commands(sidecar.status(table, at=old))
    assert steps == [f"sidecar build db.t --at {old} --catalog folder"]


class _Walked(list[Any]):
    """Snapshots of a table that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_to_walk_back_from_many_tags_does_not_go_through_all_snapshots_at_each_step(tmp_path: Path) -> None:
    table = make(tmp_path)
    own, ref = table.metadata.snapshots[-1], table.metadata.refs["main"]
    many = [own.model_copy(update={"snapshot_id": n + 1, "parent_snapshot_id": n}) for n in range(400)]
    many[0] = many[0].model_copy(update={"parent_snapshot_id": own.snapshot_id})
    walked = _Walked([own, *many])
    tags = {f"t{n}": ref.model_copy(update={"snapshot_id": 400 - n}) for n in range(20)}
    table.metadata = table.metadata.model_copy(update={"snapshots": walked, "refs": tags})
    refs, _ = status_registrations.describe_refs(table)
    assert [one.snapshots_behind for one in refs] == sorted(range(381, 401), key=lambda n: f"t{400 - n}")
    assert walked.walks <= 5 * len(tags)
    since = waiting_since(table, [DataFileIdentity("f", 1, 1, n) for n in range(1, 401)])
    assert since == (own.timestamp_ms / 1000, True)
    assert walked.walks <= 5 * len(tags) + 2


def test_expiry_of_snapshots_does_not_let_a_file_wait_anew(tmp_path: Path) -> None:
    table = make(tmp_path)
    built = table.refresh().metadata.snapshots[-1]
    for n in (10, 20):
        table.append(rows(n))
    table.refresh().maintenance.expire_snapshots().by_id(table.metadata.snapshots[-2].snapshot_id).commit()
    waiting = sidecar.status(table.refresh()).waiting
    assert (waiting.files, waiting.since, waiting.or_longer) == (2, built.timestamp_ms / 1000, False)
    assert sidecar.status(table, max_behind=timedelta(days=9)).missed == []
    table.maintenance.expire_snapshots().by_id(built.snapshot_id).commit()
    (missed,) = sidecar.status(table.refresh(), max_behind=timedelta(days=9)).missed
    assert "or longer, and the limit is 9 days" in missed.text


def test_counts_of_an_older_snapshot_are_bounds(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert sidecar.status(table).coverage["k"]["theta"].lower_bound is None
    table.append(rows(5))
    late = sidecar.status(table.refresh()).coverage["k"]["theta"]
    assert (late.ndv, late.lower_bound, late.upper_bound) == (5, ["files-not-counted"], None)
    table.delete("k < 5")
    late = sidecar.status(table.refresh()).coverage["k"]["theta"]
    assert (late.ndv, late.lower_bound, late.upper_bound) == (5, ["files-not-counted"], ["removed-files"])
    (on_page,) = collect_facts(table, with_advice=False).distinct
    assert (on_page.lower_bound, on_page.upper_bound) == (late.lower_bound, late.upper_bound)


def test_another_rate_than_that_of_the_filters_is_work_for_a_refresh(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert commands(sidecar.status(table)) == []
    with table.transaction() as change:
        change.set_properties({"sidecar.columns": "k:1", "sidecar.fpp": "0.0003"})
    (step,) = sidecar.status(table.refresh()).to_do
    assert step.why == "filters of k have another rate than is declared: 1 file to be indexed again"
    assert sidecar.refresh(table).files_indexed == 1
    assert commands(sidecar.status(table.refresh())) == []


def test_a_refresh_that_would_fail_is_not_advised(tmp_path: Path) -> None:
    table = make(tmp_path)
    with table.refresh().transaction() as change:
        change.set_properties({"sidecar.columns": "k:1"})
    path = entries(table.refresh())[head(table)]
    with table.io.new_input(path).open() as stream:
        data = stream.read()
    with table.io.new_output(path).create(overwrite=True) as stream:
        stream.write(data[:-4] + b"XXXX")
    with pytest.raises(errors.SidecarError, match="--force"):
        sidecar.refresh(table)
    assert commands(sidecar.status(table)) == ["sidecar build db.t --force --catalog folder"]
    sidecar.build(table.refresh(), force=True)
    assert commands(sidecar.status(table.refresh())) == []


def test_a_lost_data_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, builds=2)
    assert sidecar.status(table).lost == []
    lost = min(task.file.file_path for task in table.scan().plan_files())
    table.io.delete(lost)
    found = sidecar.status(table)
    assert found.lost == [lost]
    assert found.to_do[0].why == f"1 data file is lost: restore, or remove from the table, {lost}"
    assert found.to_do[0].command == "sidecar verify db.t --data --catalog folder"
    assert sidecar.status(table, quick=True).lost is None
    (night,) = sidecar.care(table, only=["refresh", "check"]).tables
    assert night.check is not None
    assert lost in night.check.to_do[0].why
    assert night.exit_code == 1, "a table without all of its rows is not fine"
    assert cells(night)["result"] == night.check.to_do[0].why  # not: nothing to do
    (night,) = sidecar.care(table, only=["check"]).tables
    assert cells(night)["result"] == found.to_do[0].why
    monkeypatch.setattr("sidecar.reports.status.lost_files.MOST_FILES", 1)
    assert sidecar.status(table).lost is None
