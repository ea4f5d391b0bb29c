"""Expiring registrations: what a branch, a tag or another writer needs stays."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.errors import UsageError
from sidecar.iceberg.statistics_files import entry_commits
from sidecar.iceberg.statistics_files.registering import unregister
from sidecar.maintenance import expiring
from sidecar.puffin.reader import PuffinReader
from sidecar.results import ExpireReport
from sidecar.storage.source import BytesSource
from tests.maintenance.cases import (
    append_and_build,
    entries,
    head,
    make,
    metadata_folder,
    pass_days,
    register_others,
    rows,
    stored,
)

NOW = timedelta(0)


@pytest.fixture(autouse=True)
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of this moment are old enough."""
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    real = time.time
    monkeypatch.setattr(expiring.time, "time", lambda: real() + 10)


def reasons(report: ExpireReport) -> dict[int, tuple[str, list[str]]]:
    return {entry.snapshot_id: (entry.kept_because, entry.used_by) for entry in report.kept}


def test_the_nearest_sidecar_stays_and_older_ones_go(tmp_path: Path) -> None:
    table = make(tmp_path, builds=3)
    before, files = entries(table), stored(table)
    table.append(rows())  # the head has none of its own
    preview = sidecar.expire(table, older_than=NOW, dry_run=True)
    assert entries(table) == before
    report = sidecar.expire(table, older_than=NOW)
    first, second, third = before
    assert [entry.snapshot_id for entry in report.expired] == sorted([first, second])
    assert entries(table) == {third: before[third]}
    assert reasons(report) == {third: ("used", ["main"])}
    assert report.to_dict() == {**preview.to_dict(), "dry_run": False}
    assert report.unreferenced_bytes == sum(entry.file_size for entry in report.expired)
    assert stored(table) == files, "no file is deleted"
    assert sidecar.plan(table, "k = 3").funnel.kept_because["not listed in the sidecar"] == 1
    assert sidecar.expire(table, older_than=NOW).expired == []


def test_branches_and_tags_keep_what_their_plans_use(tmp_path: Path) -> None:
    table = make(tmp_path, builds=2)
    first, second = entries(table)
    table.append(rows(90))
    tagged = head(table)  # the tag's plans use the sidecar of its parent
    for n in (3, 4):
        append_and_build(table, n)
    table.manage_snapshots().create_tag(tagged, "v1").create_branch(first, "audit").commit()
    report = sidecar.expire(table, older_than=NOW)
    assert list(entries(table)) == [first, second, head(table)]
    assert reasons(report)[first] == ("used", ["audit"])
    assert reasons(report)[second] == ("used", ["v1"])


def test_a_file_that_plans_skip_does_not_count_as_the_nearest(tmp_path: Path) -> None:
    table = make(tmp_path, builds=3)
    first, second, third = entries(table)
    damaged = metadata_folder(table) / entries(table)[third].rpartition("/")[2]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    report = sidecar.expire(table, older_than=NOW)
    assert [entry.snapshot_id for entry in report.expired] == [first]
    assert reasons(report) == {second: ("used", ["main"]), third: ("unreadable", [])}
    assert len(report.warnings) == 1


def test_statistics_of_others_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    table = make(tmp_path, builds=2)
    first, second = entries(table)
    theirs = register_others(table, first)
    table.append(rows(70))
    report_theirs = register_others(table, head(table))
    report = sidecar.expire(table, older_than=NOW)
    assert report.expired == []
    assert reasons(report) == {first: ("others", []), second: ("used", ["main"]), head(table): ("others", [])}
    assert set(entries(table).values()) >= {theirs, report_theirs}


def test_of_a_sidecar_with_a_sketch_of_another_writer_the_sketch_stays(tmp_path: Path) -> None:
    table = make(tmp_path)
    first = head(table)
    theirs = _stored(table, register_others(table, first))
    sidecar.build(table, ["k", "s"], engine="local")  # merges their sketch
    append_and_build(table, 1)
    merged = entries(table)[first]
    dry = sidecar.expire(table, older_than=NOW, dry_run=True)
    assert entries(table)[first] == merged
    report = sidecar.expire(table, older_than=NOW)
    assert reasons(report) == reasons(dry)
    assert reasons(report)[first] == ("others", [])
    assert report.unreferenced_bytes == dry.unreferenced_bytes > 0
    sketch, left = (_blobs(data) for data in (theirs, _stored(table, entries(table)[first])))
    assert left == sketch
    again = entries(table)
    assert (sidecar.expire(table, older_than=NOW).unreferenced_bytes, entries(table)) == (0, again)
    pass_days(table, 9)
    assert merged in {file.path for file in sidecar.gc(table).files}
    unregister(table, [one for one in table.refresh().metadata.statistics if one.snapshot_id == first])
    pass_days(table, 9)
    assert [file.path for file in sidecar.gc(table).files] == [again[first]]


def _stored(table: Table, path: str) -> bytes:
    return (metadata_folder(table) / path.rpartition("/")[2]).read_bytes()


def _blobs(data: bytes) -> list[tuple[str, bytes]]:
    reader = PuffinReader(BytesSource(data, "a file"))
    return [(blob.type, reader.read_raw(blob)) for blob in reader.metadata.blobs]


def test_young_snapshots_and_the_last_n_stay(tmp_path: Path) -> None:
    table = make(tmp_path, builds=4)
    ids = list(entries(table))
    assert sidecar.expire(table).expired == []
    assert {because for because, _ in reasons(sidecar.expire(table)).values()} == {"young", "used"}
    report = sidecar.expire(table, older_than=NOW, retain_last=3)
    assert [entry.snapshot_id for entry in report.expired] == ids[:1]


def test_an_entry_of_a_snapshot_that_is_gone_goes_however_young(tmp_path: Path) -> None:
    table = make(tmp_path, builds=2)
    first, second = entries(table)
    (entry,) = [e for e in table.metadata.statistics if e.snapshot_id == first]
    table.update_statistics().set_statistics(entry.model_copy(update={"snapshot_id": 77})).commit()
    report = sidecar.expire(table)
    assert [entry.snapshot_id for entry in report.expired] == [77]
    assert report.unreferenced_bytes == 0, "the first snapshot still names the file"
    assert list(entries(table)) == [first, second]


@pytest.mark.parametrize("wrong", [{"older_than": timedelta(-1)}, {"retain_last": 0}], ids=str)
def test_wrong_usage(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        sidecar.expire(make(tmp_path), **wrong)  # type: ignore[arg-type]


def test_a_table_that_forbids_to_delete_keeps_its_registrations(tmp_path: Path) -> None:
    table = make(tmp_path, builds=3)
    before = entries(table)
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    report = sidecar.expire(table.refresh(), older_than=NOW)
    assert (report.expired, report.kept, entries(table)) == ([], [], before)
    assert report.left_alone == (
        "the table's property gc.enabled is false: no registration is removed and no file is deleted"
    )
