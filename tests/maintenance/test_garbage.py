"""Deleting files that nothing names: each of the five conditions alone keeps a file."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate

import sidecar
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import StorageError, UnsupportedFeatureError, UsageError
from sidecar.failpoints import observe
from sidecar.iceberg.statistics_files.registering import register_again, unregister
from sidecar.maintenance import garbage
from sidecar.maintenance.metadata_files import OtherVersions
from sidecar.many_files.stored_files import StoredFile
from sidecar.storage.source import BytesSource
from sidecar.storage.target import HELD_LENGTH
from tests.bundle.cases import copy_file
from tests.iceberg.cases import local
from tests.maintenance.cases import (
    DAY,
    append_and_build,
    entries,
    head,
    make,
    make_older,
    metadata_folder,
    others_file,
    pass_days,
    register_others,
    rows,
    stored,
    touch,
)
from tests.object_store import FolderIO
from tests.tables import new_catalog


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with two sidecars; the first is no longer registered."""
    made = make(tmp_path, builds=2)
    unregister(made, [entry for entry in made.refresh().metadata.statistics if entry.snapshot_id != head(made)])
    return made


def unnamed(table: Table) -> set[str]:
    return stored(table) - set(entries(table).values())


def test_a_sidecar_that_others_displaced_stays_until_a_refresh_has_carried_it_over(table: Table) -> None:
    displaced = entries(table)[head(table)]
    theirs = register_others(table)
    pass_days(table, 9)
    report = sidecar.gc(table)
    assert displaced in stored(table)
    assert f"{displaced} stays: it was displaced by {theirs} at " in report.warnings[0]
    table.append(rows(20))
    assert sidecar.refresh(table, engine="local").files_carried == 2
    pass_days(table, 9)
    assert displaced in {file.path for file in sidecar.gc(table).files}


def at(step: str, action: Any) -> Any:
    """Others act when a run reaches a step, once."""
    done: list[str] = []

    def act(reached: str) -> None:
        if reached == step and not done:
            done.append(step)
            action()

    return observe(act)


def test_an_old_file_that_nothing_names_goes_and_a_preview_says_so(table: Table) -> None:
    assert sidecar.gc(table).files == [], "it is young"
    (old,) = unnamed(table)
    pass_days(table, 4)
    preview = sidecar.gc(table, dry_run=True)
    assert old in stored(table)
    report = sidecar.gc(table)
    assert [file.path for file in report.files] == [old]
    assert report.to_dict() == {**preview.to_dict(), "dry_run": False}
    assert report.bytes == report.files[0].size > 0
    assert stored(table) == set(entries(table).values())
    assert sidecar.gc(table).files == []
    assert sidecar.plan(table, "k = 3").funnel.kept_because


def joined(*files: bytes) -> bytes:
    """A sidecar with the segments of others, of whatever tables."""
    return copy_file(*(SidecarFile.open(BytesSource(data)) for data in files))[0]


def test_a_file_that_partition_statistics_name_stays(table: Table) -> None:
    (old,) = unnamed(table)
    file = PartitionStatisticsFile.model_validate(
        {"snapshot-id": head(table), "statistics-path": old, "file-size-in-bytes": 1}
    )
    with table.transaction() as transaction:
        transaction._apply((SetPartitionStatisticsUpdate(partition_statistics=file),))
    make_older(table, 4)  # the metadata, too: a young one would keep the file, whatever it says of it
    others_file(table, "notes.txt")  # which says what time it is
    assert sidecar.gc(table.refresh()).files == []


def test_files_of_others_stay_however_old(table: Table, tmp_path: Path) -> None:
    (ours,) = unnamed(table)
    folder = metadata_folder(table)
    data = (folder / ours.rpartition("/")[2]).read_bytes()
    stays = [others_file(table, name) for name in ("1-x.stats", "2-x.puffin", "notes.txt", "snap-1.avro")]
    (tmp_path / "other").mkdir()
    foreign = make(tmp_path / "other", name="db.other")
    (foreign_file,) = stored(foreign)
    name = foreign_file.rpartition("/")[2]
    (folder / name).write_bytes((metadata_folder(foreign) / name).read_bytes())
    (folder / "by-trino.stats").write_bytes(data.replace(b'"created-by":"sidecar', b'"created-by":"Sidecar'))
    (folder / "of-both.stats").write_bytes(joined(data, (folder / name).read_bytes()))
    (folder.parent / "data" / "ours.stats").write_bytes(data)
    (folder / "below").mkdir()
    (folder / "below" / "ours.stats").write_bytes(data)
    before = {path for path in folder.parent.rglob("*") if path.is_file()}
    pass_days(table, 30)
    make_older(table, 30, "below/*")
    report = sidecar.gc(table)
    assert [file.path for file in report.files] == [ours]
    left = before - {path for path in folder.parent.rglob("*") if path.is_file()}
    assert left == {folder / ours.rpartition("/")[2]}
    assert len(report.warnings) == 2, stays  # the two that are no Puffin files


def test_a_young_metadata_file_that_names_it_keeps_it(table: Table) -> None:
    """Its readers may have started an hour ago."""
    make_older(table, 4, "*.stats")
    assert sidecar.gc(table).files == []
    make_older(table, 4, "*.metadata.json")
    touch(table)
    assert len(sidecar.gc(table, dry_run=True).files) == 1
    (old,) = unnamed(table)
    text = json.dumps({"statistics": [{"statistics-path": old}]}).encode()
    packed = gzip.compress(text)
    for name, data in (("v.metadata.json", text), ("v.gz.metadata.json", packed), ("v.metadata.json.gz", packed)):
        path = metadata_folder(table) / name
        path.write_bytes(data)
        assert sidecar.gc(table).files == []
        path.unlink()


@pytest.mark.parametrize(
    "data",
    [b"\x1f\x8b broken", gzip.compress(b"{}")[:10] + b"\xff" * 20, b"\x28\xb5\x2f\xfd another compression"],
    ids=["header", "contents", "unknown"],
)
def test_a_metadata_file_that_cannot_be_read_ends_the_run(table: Table, data: bytes) -> None:
    """Also an old one: it may be the version of a second name. Of an ancestor it does not matter."""
    ancestor = table.metadata_location.rpartition("/")[2]
    pass_days(table, 4)
    broken = metadata_folder(table) / "v.gz.metadata.json"
    broken.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"it is not known which files it names; file .*v\.gz.*no catalog names"):
            sidecar.gc(table)
        assert len(unnamed(table)) == 1
        make_older(table, 4, broken.name)
    broken.rename(metadata_folder(table) / ancestor)
    assert len(sidecar.gc(table).files) == 1


@pytest.mark.parametrize("copied", [False, True], ids=["in the folder", "elsewhere"])
def test_a_second_name_with_an_older_version_deletes_nothing_of_the_first(
    table: Table, tmp_path: Path, copied: bool
) -> None:
    """Somebody registers an older version of the metadata to look at it; a nightly job cleans all tables."""
    before = table.metadata_location
    append_and_build(table, 2)
    expected = stored(table)
    make_older(table, 5)
    first_version = metadata_folder(table) / before.rpartition("/")[2]
    os.utime(first_version, (first_version.stat().st_mtime - DAY,) * 2)
    (nameless,) = unnamed(table)
    if copied:
        (tmp_path / "copy").mkdir()
        shutil.copy(first_version, tmp_path / "copy" / first_version.name)
        before = f"folder://copy/{first_version.name}"
        (metadata_folder(table) / "now.txt").touch()
        first_version.unlink()
    second = table.catalog.register_table("db.second", before)
    if not copied:
        (metadata_folder(table) / "now.txt").touch()
    gone = {file.path for file in sidecar.gc(second).files}
    assert not gone & set(entries(table).values()), "they are live under the first name"
    assert gone <= {nameless}
    assert expected - gone == stored(table)


def diverged(table: Table) -> tuple[Table, str]:
    """The table under a second name that went its own way, long ago, and the sidecar that only this name has now."""
    second = table.catalog.register_table("db.second", table.refresh().metadata_location)
    append_and_build(second, 7)
    (only,) = set(entries(second).values()) - set(entries(table).values())
    make_older(second, 30)
    for n in range(3):
        append_and_build(table, 20 + n)
    unregister(table, list(table.refresh().metadata.statistics))
    pass_days(table, 9)
    return second, only


def test_a_second_name_that_went_its_own_way_keeps_its_files(table: Table) -> None:
    """Its version of the metadata is older than those of the first name. Files of the common past may go."""
    (nameless,) = unnamed(table)
    second, only = diverged(table)
    expected = set(entries(second).values())
    report = sidecar.gc(table)
    gone = {file.path for file in report.files}
    assert nameless in gone
    assert len(gone) == 4
    assert not gone & expected
    assert only in stored(second)
    versions = {second.metadata_location, *(entry.metadata_file for entry in second.metadata.metadata_log)}
    assert [text.rpartition(" ")[2] in versions for text in report.warnings] == [True]
    assert sidecar.plan(second, "k = 3").funnel.kept_because


def test_ancestors_that_the_log_has_forgotten_keep_nothing(table: Table) -> None:
    """The log has so many versions; older ones are found through the oldest of them. So a leak is not for ever."""
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "2"})
    (nameless,) = unnamed(table)
    for _ in range(7):
        touch(table)
    log = {entry.metadata_file for entry in table.refresh().metadata.metadata_log}
    folder = metadata_folder(table)
    naming = [path.name for path in folder.glob("*.metadata.json") if Path(nameless).name in path.read_text()]
    assert naming
    assert not log & {f"{table.location()}/metadata/{name}" for name in naming}
    pass_days(table, 9)
    assert [file.path for file in sidecar.gc(table).files] == [nameless]
    assert sidecar.gc(table).warnings == []


def test_where_an_ancestor_is_gone_older_versions_keep_their_files(table: Table) -> None:
    """Nothing says then whether they are ancestors too."""
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    for _ in range(4):
        touch(table)
    folder = metadata_folder(table)
    pass_days(table, 9)
    (logged,) = (entry.metadata_file for entry in table.refresh().metadata.metadata_log)
    (folder / logged.rpartition("/")[2]).unlink()
    report = sidecar.gc(table)
    assert (report.files, len(report.warnings)) == ([], 1)


@pytest.mark.parametrize("name", ["{}#1.stats", "{}?1.stats", "é{}", "a%20{}"])
def test_a_name_that_may_be_spelled_in_several_ways_stays(table: Table, name: str) -> None:
    """pyiceberg takes ``#`` and ``?`` for the end of a path: it would delete the file without the rest of the name."""
    live = entries(table)[head(table)].rpartition("/")[2]
    folder = metadata_folder(table)
    shutil.copy(folder / live, folder / name.format(live))
    pass_days(table, 4)
    report = sidecar.gc(table)
    assert len(report.files) == 1
    assert (folder / live).exists()
    assert (folder / name.format(live)).exists()


def test_a_file_from_the_future_makes_no_file_old(table: Table) -> None:
    make_older(table, -365, "snap-*")
    assert sidecar.gc(table).files == []


def test_a_metadata_file_that_is_deleted_meanwhile_says_nothing(table: Table) -> None:
    pass_days(table, 4)
    extra = metadata_folder(table) / "v.metadata.json"
    extra.write_text("{}")
    with at("gc: load", extra.unlink):
        assert len(sidecar.gc(table).files) == 1


@pytest.mark.parametrize("dry_run", [False, True], ids=["run", "preview"])
@pytest.mark.parametrize("step", ["gc: list", "gc: load", "gc: list again", "gc: load again"])
def test_an_entry_that_is_set_meanwhile_keeps_its_file(table: Table, step: str, dry_run: bool) -> None:
    """A clone or a repair names the file again, at any moment before it is deleted."""
    pass_days(table, 4)
    (old,) = unnamed(table)

    def name_it() -> None:
        other = table.catalog.load_table(table.name())
        (entry,) = other.metadata.statistics
        older = min(other.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        named = entry.model_copy(update={"statistics_path": old, "snapshot_id": older.snapshot_id})
        other.update_statistics().set_statistics(named).commit()

    with at(step, name_it):
        assert sidecar.gc(table, dry_run=dry_run).files == []
    assert old in stored(table)


def test_a_long_deletion_looks_at_the_metadata_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(garbage, "BATCH", 1)
    table = make(tmp_path, builds=2)
    first, second = sorted(table.refresh().metadata.statistics, key=lambda entry: entry.statistics_path)
    unregister(table, [first, second])
    pass_days(table, 9)

    def name_the_second() -> None:
        table.catalog.load_table(table.name()).update_statistics().set_statistics(second).commit()

    with at("gc: delete", name_the_second):
        report = sidecar.gc(table)
    assert [file.path for file in report.files] == [first.statistics_path]
    assert stored(table) == {second.statistics_path}


def test_an_entry_that_came_and_went_keeps_its_file_for_a_while(table: Table) -> None:
    """The metadata file between two looks is young, and names the file."""
    pass_days(table, 4)
    (old,) = unnamed(table)
    (entry,) = table.refresh().metadata.statistics

    def come_and_go() -> None:
        other = table.catalog.load_table(table.name())
        named = entry.model_copy(update={"statistics_path": old, "snapshot_id": 5})
        other.update_statistics().set_statistics(named).commit()
        unregister(other, [named])

    with at("gc: list again", come_and_go):
        assert sidecar.gc(table).files == []


def test_the_clock_is_that_of_the_storage(table: Table, monkeypatch: Any) -> None:
    """A machine whose clock is a year ahead deletes nothing that is young."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 365 * DAY)
    assert sidecar.gc(table).files == []


def test_below_a_day_takes_force(table: Table) -> None:
    pass_days(table, 0.5)
    with pytest.raises(UsageError, match="at least 24 hours"):
        sidecar.gc(table, older_than=timedelta(hours=23), dry_run=True)
    assert sidecar.gc(table, older_than=timedelta(hours=24)).files == []
    make_older(table, 0.1, "*.metadata.json")
    touch(table)
    assert len(sidecar.gc(table, older_than=timedelta(hours=1), force=True).files) == 1
    with pytest.raises(UsageError):
        sidecar.gc(table, older_than=timedelta(-1), force=True)


def test_a_file_that_two_snapshots_name_stays_until_both_are_gone(tmp_path: Path) -> None:
    table = make(tmp_path)
    first, (ours,) = head(table), table.refresh().metadata.statistics
    table.append(rows(40))
    assert register_again(table, ours, head(table))
    table.refresh().maintenance.expire_snapshots().by_id(first).commit()
    pass_days(table, 9)
    assert sidecar.gc(table).files == []
    unregister(table, table.refresh().metadata.statistics)
    pass_days(table, 9)
    assert len(sidecar.gc(table).files) == 1


def test_temporary_files_of_killed_runs_go_wherever_they_are(tmp_path: Path) -> None:
    """Beside sidecars and beside data files, also those with names that a FileIO takes for something else."""
    folder = tmp_path / "wh" / "t"
    table = make(tmp_path, location=str(folder))
    (folder / "data" / "part=a#b").mkdir()
    names = ["metadata/1.stats", "data/1.parquet", "data/part=a#b/2?.parquet"]
    killed = [f"{folder}/{name}.{number:032x}.sidecar-tmp" for number, name in enumerate(names)]
    others = [f"{folder}/data/part=a", f"{folder}/data/1.sidecar-tmp", f"{folder}/data/.{0:032x}.sidecar-tmp"]
    for path in [*killed, *others]:
        Path(path).write_bytes(b"half")
        os.utime(path, (time.time() - 4 * DAY,) * 2)
    young = Path(f"{folder}/data/3.parquet.{3:032x}.sidecar-tmp")
    young.write_bytes(b"half")
    preview = sidecar.gc(table, dry_run=True)
    assert [file.path for file in preview.files] == sorted(killed)
    assert preview.bytes == 4 * len(killed)
    assert sidecar.gc(table).files == preview.files
    assert not any(Path(path).exists() for path in killed)
    assert all(Path(path).exists() for path in [*others, young])
    assert table.scan().to_arrow().num_rows == 5


def half_and_whole(folder: Path) -> tuple[Path, Path]:
    """Old temporary files in a folder of data: half of a file of many row groups, and a whole one."""
    half, whole = (folder / f"x.parquet.{number:032x}.sidecar-tmp" for number in (7, 8))
    pq.write_table(pa.concat_tables([rows(100 + n) for n in range(200)]), whole, row_group_size=50)
    half.write_bytes(whole.read_bytes()[:-HELD_LENGTH])
    for path in (half, whole):
        os.utime(path, (time.time() - 4 * DAY,) * 2)
    return half, whole


def test_a_whole_temporary_file_stays_whatever_table_names_it(tmp_path: Path) -> None:
    """A killed run left it, and somebody added all files of the folder: to the table, or to one that is elsewhere."""
    table = make(tmp_path, location=str(tmp_path / "wh" / "t"))
    half, whole = half_and_whole(tmp_path / "wh" / "t" / "data")
    other = make(tmp_path / "wh", name="db.other", location=str(tmp_path / "elsewhere"))
    other.add_files([str(whole)])
    report = sidecar.gc(table)
    assert [file.path for file in report.files] == [str(half)]
    assert [f"a table may name {whole}" in text for text in report.warnings] == [True]
    assert other.scan().to_arrow().num_rows == 1005
    table.add_files([str(whole)])
    table.delete("k >= 100")
    report = sidecar.gc(table.refresh())
    assert report.files == []
    assert table.scan().to_arrow().num_rows == 5
    before = table.refresh().metadata.snapshots[1].snapshot_id
    assert table.scan(snapshot_id=before).to_arrow().num_rows == 1005


def test_the_folder_of_a_table_below_is_left_to_that_table(tmp_path: Path) -> None:
    """Its folder is in that of the table, or in the one for its data."""
    table = make(tmp_path, location=str(tmp_path / "wh"))
    below = make(tmp_path / "wh", name="db.below", location=str(tmp_path / "wh" / "db" / "below"))
    with table.transaction() as change:
        change.set_properties({"write.data.path": str(tmp_path)})
    half, _ = half_and_whole(tmp_path / "wh" / "db" / "below" / "data")
    mine, _ = half_and_whole(tmp_path / "wh" / "data")
    assert [file.path for file in sidecar.gc(table).files] == [str(mine)]
    assert [file.path for file in sidecar.gc(below).files] == [str(half)]


@pytest.mark.parametrize("value", ["false", "FALSE", "0", ""])
def test_a_table_that_forbids_it_is_left_alone_with_a_sentence(tmp_path: Path, value: str) -> None:
    """As for Spark, all but "true" is false. Only Python can go on."""
    table = make(tmp_path, builds=2, location=str(tmp_path / "wh" / "t"))
    unregister(table, list(table.refresh().metadata.statistics))
    folder = tmp_path / "wh" / "t" / "metadata"
    half, _ = half_and_whole(tmp_path / "wh" / "t" / "data")
    for path in folder.iterdir():
        os.utime(path, (path.stat().st_mtime - 4 * DAY,) * 2)
    stale = table.catalog.load_table(table.name())
    with table.refresh().transaction() as change:
        change.set_properties({"gc.enabled": value})
    for young in (timedelta(days=3), timedelta(0)):
        report = sidecar.gc(stale, older_than=young)
        assert report.left_alone == (
            "the table's property gc.enabled is false: no registration is removed and no file is deleted"
        )
        assert report.files == []
    unreferenced = sidecar.status(table.refresh()).unreferenced
    assert (unreferenced.files, unreferenced.deletable) == (3, 0)
    assert len(list(folder.glob("*.stats"))) == 2
    report = sidecar.gc(stale, force=True)
    assert report.left_alone is None
    assert len(report.files) == 3
    assert not half.exists()
    with table.refresh().transaction() as change:
        change.set_properties({"gc.enabled": "True"})
    assert sidecar.gc(stale).left_alone is None


def test_what_cannot_be_deleted_is_named_and_the_rest_goes(tmp_path: Path, monkeypatch: Any) -> None:
    table = make(tmp_path, builds=3)
    unregister(table, table.refresh().metadata.statistics)
    append_and_build(table, 9)
    pass_days(table, 9)
    refused = sorted(unnamed(table))[0]

    def answer(request: str, location: str) -> None:
        if (request, location) == ("delete", refused):
            raise PermissionError("not you")

    monkeypatch.setattr(FolderIO, "on_request", answer)
    shown: list[tuple[object, ...]] = []
    with sidecar.progress(lambda *parts: shown.append(parts)):
        report = sidecar.gc(table)
    assert len(report.files) == 2
    assert shown == [("deleting", 1, 3), ("deleting", 2, 3)]
    assert [refused in text and "PermissionError: not you" in text for text in report.failed] == [True]
    assert unnamed(table) == {refused}


def test_storage_that_does_not_list_is_refused(table: Table, monkeypatch: Any) -> None:
    class Blind:
        """An input file of a FileIO of one's own."""

    monkeypatch.setattr(FolderIO, "new_input", lambda io, location: Blind())
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be listed; file folder://.*found FolderIO"):
        garbage.list_stored_files(f"{table.location()}/metadata", table.io)


def test_local_files_are_listed_without_a_store(catalog: Any) -> None:
    """In a local folder the clock is this machine's: a table without a new commit is cleaned too."""
    table = catalog.create_table("db.local_garbage", rows().schema)
    first = append_and_build(table)
    append_and_build(table, 1)
    unregister(table, [e for e in table.refresh().metadata.statistics if e.snapshot_id == first])
    folder = Path(table.location().removeprefix("file:")) / "metadata"
    for path in folder.iterdir():
        os.utime(path, (path.stat().st_mtime - 4 * DAY,) * 2)
    assert len(sidecar.gc(table).files) == 1
    assert len(list(folder.glob("*.stats"))) == 1


def test_the_target_of_a_link_that_is_named_stays(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, "links")
    table = catalog.create_table("db.t", pa.schema([("k", pa.int64())]))
    table.append(pa.table({"k": [1, 2]}))
    path = local(sidecar.build(table, ["k"], engine="local").statistics_path)
    target = path.rename(path.with_name("1-moved.stats"))
    path.symlink_to(target.name)
    copy = path.with_name("1-copy.stats")
    shutil.copy(target, copy)
    for file in path.parent.iterdir():
        os.utime(file, (os.stat(file).st_mtime - 4 * DAY,) * 2)
    table.append(pa.table({"k": [3]}))
    found = sidecar.gc(table, dry_run=True)
    assert [Path(file.path).name for file in found.files] == [copy.name]


def test_metadata_of_the_very_second_is_young(table: Table) -> None:
    """Stores give times in seconds, so a version may have the time of what is young without being older."""
    folder, _, current = table.metadata_location.rpartition("/")
    before = table.metadata.metadata_log[-1].metadata_file.rpartition("/")[2]
    with table.io.new_input(f"{folder}/{before}").open() as stream:
        text = stream.read()
    (name,) = (name for path in unnamed(table) if (name := Path(path).name).encode() in text)
    only_there = StoredFile(name, 1, 0.0)
    versions = [StoredFile(version, 1, 100.0) for version in (before, current)]
    found = {
        young: OtherVersions(table, folder, young).without_named([only_there], versions) for young in (100.0, 100.5)
    }
    assert found == {100.0: [], 100.5: [only_there]}
