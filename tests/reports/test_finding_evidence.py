"""The evidence of a search: what was asked, what ruled files out, what could not be asked, what outlives the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import sidecar
from sidecar.bundle.units.reader import UnitsReader
from sidecar.errors import DamagedFileError
from sidecar.reports.finding.find import find
from sidecar.reports.finding.rows import RowCounter
from tests.iceberg.cases import delete_by_equality, local, replaced
from tests.iceberg.mixed_tables import append_orc
from tests.iceberg.table_cases import commit_files, delete_by_position, deletion_vectors
from tests.reports.find_cases import asked_once
from tests.tables import create_with_rows, iceberg_schema

PERSON = "person-17@example.com"
SCHEMA = iceberg_schema("id long, mail string, part long")


def people(start: int, count: int = 40) -> pa.Table:
    """Mails spread over the files, so that bounds of each file have all of them in between."""
    ids = list(range(start, start + count))
    return pa.table({"id": ids, "mail": [f"person-{n * 37 % 100}@example.com" for n in ids], "part": [start] * count})


@pytest.fixture
def table(catalog: Any, request: Any) -> Iterator[Table]:
    name = f"db.{request.node.name[:60].replace('[', '_').replace(']', '')}"
    made = create_with_rows(catalog, name, [people(0), people(40)], SCHEMA)
    yield made
    catalog.drop_table(name)


def path_with(table: Table, mail: str = PERSON) -> str:
    """The path of the only file that has a mail, by pyiceberg."""
    (path,) = {
        task.file.file_path
        for task in table.scan(EqualTo("mail", mail)).plan_files()  # type: ignore[call-arg]
        if mail in pa.parquet.read_table(str(local(task.file.file_path)))["mail"].to_pylist()
    }
    return path


def test_each_file_is_asked_once_however_many_snapshots_have_it(table: Table, monkeypatch: Any) -> None:
    table.append(people(80, 5))
    read: list[str] = []
    plain = RowCounter._read
    monkeypatch.setattr(
        RowCounter, "_read", lambda self, task, deletes: read.append(task.file.file_path) or plain(self, task, deletes)
    )
    report = find(table, {"mail": PERSON}, all_snapshots=True)
    assert len(report.snapshots) == 3
    assert sorted(read) == sorted(one.file for one in report.files_read) == sorted(set(read))
    (found,) = report.files
    shown = {one.snapshot_id for one in found.snapshots}
    assert shown == {
        s.snapshot_id for s in table.metadata.snapshots if path_with(table) in paths_in(table, s.snapshot_id)
    }


def test_a_file_is_read_once_for_each_set_of_deletes(table: Table, monkeypatch: Any) -> None:
    delete_by_position(table, {path_with(table, "person-18@example.com"): [0], path_with(table): [0]})
    table.refresh()
    table.append(people(80, 5))
    table.append(people(90, 5))
    read: list[str] = []
    plain = RowCounter._read
    monkeypatch.setattr(
        RowCounter, "_read", lambda self, task, deletes: read.append(task.file.file_path) or plain(self, task, deletes)
    )
    report = find(table, {"mail": PERSON}, all_snapshots=True)
    assert len(report.files[0].snapshots) >= 3
    assert read.count(path_with(table)) == 2


def paths_in(table: Table, snapshot_id: int) -> set[str]:
    return {task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()}


def test_refs_and_staged_snapshots_are_named(table: Table) -> None:
    first = table.current_snapshot()
    assert first is not None
    table.append(people(200, 3))
    staged = table.current_snapshot()
    assert staged is not None
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).create_tag(first.snapshot_id, "before").commit()
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").commit()
    table.append(people(300, 3), branch="audit")
    report = find(table, {"id": [201, 301, 5]}, all_snapshots=True)
    shown = {one.snapshot_id: one for one in report.snapshots}
    assert shown[staged.snapshot_id].staged
    assert not shown[staged.snapshot_id].branches
    assert shown[staged.snapshot_id].rows_live == 2
    assert set(shown[first.snapshot_id].branches) == {"main", "audit"}
    assert shown[first.snapshot_id].tags == ["before"]
    on_branch = find(table, {"id": 301}, at="audit")
    assert on_branch.answer == "found"
    assert on_branch.snapshots[0].branches == ["audit"]
    assert find(table, {"id": [201, 301]}).answer == "absent"


def test_what_rules_files_out_is_named(catalog: Any) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
    table = catalog.create_table("db.find_ruled_out", SCHEMA, partition_spec=spec)
    table.append(pa.concat_tables([people(0), people(40)]))
    table.append(people(80, 40))
    table.append(people(120, 40))
    sidecar.build(table, ["mail"], engine="local")
    by_part = find(table, {"part": 0})
    assert by_part.ruled_out_by == {"partition summary of the manifest": 2, "partition": 1}
    assert find(table, {"id": 85}).ruled_out_by == {"bounds in the manifest": 3}
    absent = find(table, {"mail": "person-555@example.com"})
    assert absent.answer == "absent"
    assert absent.ruled_out_by == {"filter of the sidecar": 4}
    assert {one.index for one in absent.files_ruled_out} == {table.metadata.statistics[0].statistics_path}
    everything = find(table, {"part": 0}, read_all=True)
    table.delete("id = 1")  # which puts the other file of its manifest into a new manifest
    again = find(table, {"mail": "person-555@example.com"}, all_snapshots=True)
    assert asked_once(again)
    assert len(again.snapshots) == 4
    assert everything.ruled_out_by == {}
    assert len(everything.files_read) == 4


@pytest.mark.parametrize("damage", [None, b"", b"PAR1 no parquet PAR1"], ids=["gone", "empty", "foreign"])
def test_a_file_that_cannot_be_read_is_never_absent(table: Table, damage: bytes | None) -> None:
    path = path_with(table)
    with replaced(local(path), damage):
        report = find(table, {"mail": PERSON, "id": 5})
    assert report.answer == "found"  # the other file has an id 5, or this one would be missed too
    (mail,) = [one for one in report.conditions if one.column == "mail"]
    assert mail.answer == "not proven"
    assert ("data file", path) in {(one.what, one.file) for one in report.not_asked}
    with replaced(local(path), damage):
        assert find(table, {"mail": PERSON}).exit_code() == 3


def test_a_manifest_that_cannot_be_read_is_never_absent(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = snapshot.manifests(table.io)[0].manifest_path
    for path, what in ((manifest, "manifest"), (snapshot.manifest_list, "manifest list")):
        for damage in (None, local(path).read_bytes()[:-40]):
            with replaced(local(path), damage):
                report = find(table, {"mail": "nobody"})
            assert report.answer == "not proven", (what, damage)
            assert [(one.what, one.file) for one in report.not_asked] == [(what, path)]


def test_rows_deleted_by_position_are_told_apart_and_remain_found(table: Table) -> None:
    path = path_with(table)
    mails = pa.parquet.read_table(str(local(path)))["mail"].to_pylist()
    before = table.current_snapshot()
    delete_by_position(table, {path: [mails.index(PERSON)]})
    table.refresh()
    report = find(table, {"mail": PERSON}, all_snapshots=True)
    assert report.answer == "found"
    shown = {one.snapshot_id: (one.rows_live, one.rows_deleted) for one in report.snapshots}
    assert before is not None
    assert shown[before.snapshot_id] == (1, 0)
    assert shown[report.snapshots[0].snapshot_id] == (0, 1)
    gone = next(file for file in local(path).parent.iterdir() if file.name.startswith("position-delete"))
    with replaced(gone, None):
        doubt = find(table, {"mail": PERSON})
    assert doubt.answer == "found"
    assert doubt.snapshots[0].rows_in_doubt == 1
    assert doubt.not_asked[0].what == "delete file"


def test_equality_deletes_are_named_and_their_own_values_are_found(table: Table) -> None:
    ids = {"PARQUET:field_id": "2"}
    deletes = pa.table([[PERSON, "nobody@example.com"]], schema=pa.schema([pa.field("mail", pa.string(), True, ids)]))
    delete_by_equality(table, deletes, [2])
    table.refresh()
    report = find(table, {"mail": [PERSON, "person-18@example.com", "nobody@example.com"]})
    rows = {file.value: file.snapshots[0] for file in report.files}
    assert (rows[PERSON].live, rows[PERSON].deleted) == (0, 1)
    assert (rows["person-18@example.com"].live, rows["person-18@example.com"].deleted) == (1, 0)
    answers = {one.value: one for one in report.conditions}
    assert answers["nobody@example.com"].answer == "found"
    assert answers["nobody@example.com"].delete_files == 1
    (delete,) = report.equality_deletes
    assert delete.rows == {PERSON: 1, "nobody@example.com": 1}
    by_id = find(table, {"id": 5})  # whether the delete of a mail deletes that row is not known
    assert by_id.files[0].snapshots[0].in_doubt == 1
    assert by_id.files[0].snapshots[0].equality_deletes == [delete.file]


def _raise_damage(*args: Any) -> None:
    raise DamagedFileError("the units of the files do not add up")


def test_entries_are_looked_for_where_the_manifest_list_does_not_count_the_removed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(f"person-{n * 37 % 100}@example.com" for n in range(80))
    table.delete(f"mail = '{first}'")
    table.refresh()
    nothing = SimpleNamespace(manifest=lambda line: False)
    monkeypatch.setattr("sidecar.reports.finding.files.evaluators_of", lambda scan: nothing)
    monkeypatch.setattr(ManifestFile, "deleted_files_count", property(lambda self: None))
    report = find(table, {"mail": first})
    assert (report.answer, {one.kind for one in report.traces}) == ("absent", {"removed entry of a manifest"})


def test_bounds_and_sidecars_outlive_the_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar.build(table, ["mail"], kinds=["bloom", "page-index", "theta"], engine="local")
    first = min(f"person-{n * 37 % 100}@example.com" for n in range(80))  # the lower bound of a file
    table.delete(f"mail = '{first}'")
    table.refresh()
    report = find(table, {"mail": first})
    assert report.answer == "absent"
    assert report.exit_code() == 0
    assert report.exit_code(strict=True) == 1
    kinds = {one.kind for one in report.traces}
    assert {"removed entry of a manifest", "page index in a sidecar", "file bounds in a sidecar"} <= kinds
    (answer,) = report.sidecars
    assert answer.registered_for
    assert len(answer.admits) == 1
    assert answer.sketch_has == [first]
    with monkeypatch.context() as patch:
        patch.setattr(UnitsReader, "first_units", _raise_damage)
        of_nobody = [one.of for one in find(table, {"mail": first}).traces if one.kind == "page index in a sidecar"]
    assert of_nobody == ["a file of a segment"]
    entry = table.metadata.statistics[0]
    with table.update_statistics() as update:
        update.remove_statistics(entry.snapshot_id)
    (left,) = find(table, {"mail": first}).sidecars
    assert left.registered_for == []
    assert left.admits == answer.admits
    local(entry.statistics_path).write_bytes(b"no Puffin file")
    (damaged,) = find(table, {"mail": "nobody"}).sidecars
    assert damaged.problem
    assert find(table, {"mail": "nobody"}).exit_code(strict=True) == 3
    local(entry.statistics_path).unlink()


def test_bounds_of_orc_files_are_traces_after_a_rename_too(catalog: Any) -> None:
    table = catalog.create_table("db.find_orc", iceberg_schema("mail string"))
    append_orc(table, pa.table({"mail": ["ann@example.com", "ben@example.com"]}))
    with table.update_schema() as update:
        update.rename_column("mail", "address")
    report = find(table, {"address": "ann@example.com"})
    kinds = {(one.kind, one.column, one.bound) for one in report.traces if one.file.endswith(".orc")}
    assert kinds == {(kind, "address", "lower") for kind in ("file statistics", "stripe statistics", "row index")}
    assert find(table, {"address": "bea@example.com"}).traces == []


def test_partition_values_and_cut_bounds_are_traces(catalog: Any) -> None:
    schema = iceberg_schema("mail string, note string")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "mail"))
    table = catalog.create_table("db.find_partitioned", schema, partition_spec=spec)
    note = "a note that is longer than bounds"
    table.append(pa.table({"mail": ["ann@example.com"], "note": [note]}))
    report = find(table, {"mail": "ann@example.com", "note": [note, note + "!"]})
    kinds = {(one.kind, one.value, one.cut) for one in report.traces if one.bound == "both"}
    assert ("partition", "ann@example.com", False) in kinds
    assert ("partition summary", "ann@example.com", False) in kinds
    assert ("manifest", note, True) in kinds
    assert ("manifest", note + "!", True) in kinds
    answers = {one.value: one.answer for one in report.conditions}
    assert answers[note] == "found"
    assert answers[note + "!"] == "absent"


def test_the_report_is_json_and_says_what_it_does_not_cover(table: Table) -> None:
    report = find(table, {"mail": PERSON})
    data = json.loads(json.dumps(report.to_dict()))
    assert data["answer"] == "found"
    assert data["metadata_file"] == table.metadata_location
    assert any("all_snapshots" in text for text in data["beyond"])
    assert Path(local(data["files"][0]["file"])).is_file()


def test_an_empty_table_has_nothing(catalog: Any) -> None:
    table = catalog.create_table("db.find_empty", SCHEMA)
    report = find(table, {"mail": PERSON}, all_snapshots=True)
    assert report.answer == "absent"
    assert report.snapshots == []


def test_rows_deleted_by_a_deletion_vector_are_told_apart(table: Table) -> None:
    path = path_with(table)
    mails = pa.parquet.read_table(str(local(path)))["mail"].to_pylist()
    commit_files(table, deletion_vectors(table, {path: [mails.index(PERSON)]}), table.spec(), 77)
    table.refresh()
    report = find(table, {"mail": [PERSON, mails[0]]})
    rows = {file.value: (file.snapshots[0].live, file.snapshots[0].deleted) for file in report.files}
    assert rows == {PERSON: (0, 1), mails[0]: (1, 0)}
