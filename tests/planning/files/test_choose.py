"""Manifests that a segment lists, and what would go wrong with those that cannot be trusted or have moved."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table

from sidecar.bundle.model import FileEntry
from sidecar.bundle.segment import Segment
from sidecar.iceberg.manifests import read_manifests
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning import planner
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.iceberg.cases import local
from tests.planning.listed_cases import WAYS, assert_same_tasks, build, task_values, way
from tests.planning.plan_cases import LONGS, create_longs, key, longs
from tests.planning.test_listed_damage import with_first_file


def add_files(table: Table, folder: Path, seeds: range, rows: int = 200) -> Table:
    """One commit, with a file for each seed."""
    for seed in seeds:
        pq.write_table(longs(seed, rows), folder / f"{seed}.parquet")
    table.add_files([f"file:{folder}/{seed}.parquet" for seed in seeds])
    return table.refresh()


def replace_sidecar(table: Table, data: bytes) -> Table:
    """Give the table's sidecar these bytes, and the table the size of them."""
    entry = table.metadata.statistics[-1]
    local(entry.statistics_path).write_bytes(data)
    footer = int.from_bytes(data[-12:-8], "little") + 16
    sizes = {"file_size_in_bytes": len(data), "file_footer_size_in_bytes": footer}
    with table.update_statistics() as update:
        update.set_statistics(entry.model_copy(update=sizes))
    return table.refresh()


def merge_manifests(table: Table, rows: pa.Table) -> None:
    """Append rows, and have one manifest for all files, which no segment lists."""
    with table.transaction() as tx:
        tx.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    table.append(rows)
    table.refresh()


def test_a_manifest_that_is_listed_twice_is_opened_and_the_others_are_not(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_longs(catalog, "db.choose_twice", 3)
    monkeypatch.setattr(planner, "read_manifests", lambda *given: (lines := read_manifests(*given))[:1] + lines)
    for settings in WAYS[:2]:
        with way(**settings):
            planned = [plan(table, f"k = {key(seed)}") for seed in range(3)]
        assert {(one.manifests.opened, one.manifests.listed) for one in planned} == {(2, 2)}
        assert sorted(read(one).num_rows for one in planned) == [1, 1, 2]


def remove_file(table: Table, seed: int) -> Table:
    """Delete all rows of one file, so that the other files of its manifest are in another one."""
    assert longs(seed)["v"][0].as_py() == f"{seed}-0"
    table.delete(f"v >= '{seed}-0' and v <= '{seed}-99'")
    return table.refresh()


def test_the_files_of_a_manifest_that_is_listed_twice_count_once(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its segment would seem to have no file of another manifest, and its filters would not be asked there."""
    table = catalog.create_table("db.choose_counted", LONGS)
    for seeds in (range(2), range(2, 4)):
        add_files(table, tmp_path, seeds)
    table = remove_file(build(table, ["k"]), 3)

    def twice(*given: Any) -> Any:
        lines = read_manifests(*given)
        return [line for line in lines if line.added_files_count == 2] + lines

    monkeypatch.setattr(planner, "read_manifests", twice)
    planned = plan(table, f"k = {key(0)}")
    assert (planned.files_total, planned.files_kept, planned.funnel.dropped_by_filter) == (5, 2, 3)


@pytest.fixture
def rewritten(catalog: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Two manifests of one file each. The entries were there before, so records have all numbers themselves."""
    table = catalog.create_table(f"db.choose_{re.sub('[^a-z0-9]', '_', request.node.name)}", LONGS)
    for seeds in (range(2), range(2, 4)):
        add_files(table, tmp_path, seeds)
    for seed in (1, 3):
        remove_file(table, seed)
    table = build(table, ["k"])
    lines = read_manifests(table.io, table.current_snapshot().manifest_list)
    assert sorted((line.existing_files_count, line.added_files_count) for line in lines)[-2:] == [(1, 0), (1, 0)]
    return table


def test_two_manifests_that_claim_one_range_of_files_are_opened(rewritten: Table) -> None:
    """Else the file of the one would stand in for the file of the other."""
    path = rewritten.metadata.statistics[-1].statistics_path
    for first_file in (0, 1):
        table = replace_sidecar(rewritten, with_first_file(local(path).read_bytes(), 1, first_file))
        for seed in (0, 2):
            for planned in assert_same_tasks(table, f"k = {key(seed)}"):
                assert read(planned)["v"].to_pylist() == [f"{seed}-17"]
                assert planned.manifests.opened >= 1


def content_at(record: bytes, path: str) -> int:
    """Where a record has the content of its file: in front of its path and the length of that, of two bytes."""
    assert 64 <= len(path.encode()) < 8192
    return record.index(path.encode()) - 3


@pytest.mark.parametrize("what", ["deleted", "of a delete file"])
@pytest.mark.parametrize(
    ("settings", "asked"), [(WAYS[0], f"k in ({key(0)}, {key(2)})"), (WAYS[3], "k > -99")], ids=["decoded", "walked"]
)
def test_a_record_that_is_not_of_a_live_data_file_opens_its_manifest(
    rewritten: Table, monkeypatch: pytest.MonkeyPatch, what: str, settings: dict[str, Any], asked: str
) -> None:
    normal = plan(rewritten, asked)
    files, columns = Segment.files, Segment.file_columns

    def changed(record: bytes, path: str) -> bytes:
        at, before, after = 0, ManifestEntryStatus.EXISTING.value, ManifestEntryStatus.DELETED.value
        if what == "of a delete file":
            at, before, after = content_at(record, path), 0, DataFileContent.POSITION_DELETES.value
        assert record[at] == 2 * before
        return record[:at] + bytes([2 * after]) + record[at + 1 :]

    def wrong(segment: Segment, wanted: Any) -> list[FileEntry]:
        return [replace(file, entry=changed(file.entry, file.path)) for file in files(segment, wanted)]

    def wrong_columns(segment: Segment, wanted: Any) -> pa.Table:
        found = columns(segment, wanted)
        pairs = zip(found["entry"].to_pylist(), found["file_path"].to_pylist(), strict=True)
        at = found.column_names.index("entry")
        return found.set_column(at, "entry", pa.array([changed(*pair) for pair in pairs], pa.binary()))

    monkeypatch.setattr(Segment, "files", wrong)
    monkeypatch.setattr(Segment, "file_columns", wrong_columns)
    with way(**settings):
        planned = plan(rewritten, asked)
    assert planned.manifests.opened == 2
    assert any("in doubt" in warning for warning in planned.warnings)
    assert list(map(task_values, planned.tasks)) == list(map(task_values, normal.tasks))


def test_filters_answer_for_the_files_of_a_manifest_that_is_opened_after_all(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments whose files are all in manifests that they list are not searched for others, but for these."""
    table = catalog.create_table("db.choose_opened", LONGS)
    for seeds in (range(2), range(2, 3)):
        add_files(table, tmp_path, seeds)
    table = build(table, ["k"])
    files = Segment.files
    with way(**WAYS[1]):  # only the records of files that filters leave are read
        normal = plan(table, f"k = {key(0)}")
        monkeypatch.setattr(
            Segment, "files", lambda *given: [replace(file, entry=file.entry[:-1]) for file in files(*given)]
        )
        planned = plan(table, f"k = {key(0)}")
    assert (planned.manifests.listed, planned.manifests.opened) == (1, 1)
    assert planned.kept_files == normal.kept_files
    assert planned.funnel.to_dict() == normal.funnel.to_dict()
    assert planned.notes == (), "the files are listed under their present paths"
    assert planned.funnel.dropped_by_filter == 2


def test_a_file_of_such_a_manifest_is_not_looked_for_under_an_earlier_path(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one segment lists its manifest. The other is asked too, and does not list it."""
    table = build(add_files(catalog.create_table("db.choose_doubted", LONGS), tmp_path, range(2)), ["k"])
    table = remove_file(build(add_files(table, tmp_path, range(2, 4)), ["k"]), 3)
    files = Segment.files
    monkeypatch.setattr(
        Segment, "files", lambda *given: [replace(file, entry=file.entry[:-1]) for file in files(*given)]
    )
    planned = plan(table, f"k = {key(0)}")
    assert planned.manifests.listed == 0
    assert (planned.files_kept, planned.funnel.dropped_by_filter) == (1, 2)
    assert planned.notes == (), "the files are listed under their present paths"


def test_a_manifest_may_begin_at_another_place_in_each_segment(catalog: Any, tmp_path: Path) -> None:
    """The first build numbers its files from 0. In the second one the files that came later stand before them."""
    table = add_files(catalog.create_table("db.choose_places", LONGS), tmp_path, range(70), 4)
    build(table, ["k"])
    add_files(table, tmp_path, range(70, 140), 4)
    table = build(table, ["v"])
    for seed in (0, 1, 33, 69, 70, 139):
        held = longs(seed, 4)["k"][3].as_py()
        for text in (f"v = '{seed}-3'", f"k = {held} and v = '{seed}-3'"):
            for settings in WAYS[:2]:
                with way(**settings):
                    planned = plan(table, text)
                assert planned.manifests.opened == 0
                assert read(planned).to_pylist() == [{"k": held, "v": f"{seed}-3"}], (text, settings)
                assert planned.files_kept <= 8


@pytest.mark.parametrize("order", ["kv", "vk"])
def test_the_reason_of_a_segment_that_could_answer_counts(catalog: Any, order: str) -> None:
    """Two segments list each file, and one of them has no filters of the column."""
    table = create_longs(catalog, f"db.choose_reasons_{order}", 3, build=False)
    for column in order:
        table = build(table, [column])
    for settings in WAYS[:2]:
        with way(**settings):
            planned = plan(table, f"k in ({key(0)}, {key(1)})")
        assert planned.funnel.kept_because == {KeptFilesBecause.MAY_MATCH.text: 2}
        assert planned.answered == {*planned.kept_files}
    merge_manifests(table, longs(3))
    planned = plan(table, f"k in ({key(0)}, {key(1)})")
    assert planned.manifests.opened == 1
    assert planned.funnel.kept_because == {KeptFilesBecause.MAY_MATCH.text: 2, KeptFilesBecause.NOT_LISTED.text: 1}


def test_a_file_that_is_listed_under_its_present_path_is_not_looked_for_under_an_earlier_one(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is listed by one of two segments. An earlier path would find another file in the other segment."""
    table = build(create_longs(catalog, "db.choose_present", 3), ["k"])
    table.append(longs(3))
    table = build(table.refresh(), ["k"])
    merge_manifests(table, longs(4))
    asked = []
    monkeypatch.setattr(
        SidecarFiles, "_moved", lambda self, file: asked.append(file) or [one.first_file for one in self.segments]
    )
    for seed in range(4):
        planned = plan(table, f"k = {key(seed)}")
        assert f"{seed}-17" in read(planned)["v"].to_pylist()
    assert len({*asked}) == 1, "the file that no segment lists"


def test_files_are_indexed_by_segments_that_do_not_list_their_manifest(catalog: Any) -> None:
    """The manifest is listed by a segment without filters of the column. Another one has its files, and answers."""
    table = build(create_longs(catalog, "db.choose_elsewhere", 3), ["k"])
    merge_manifests(table, longs(3))
    table = build(table, ["v"])
    for settings in WAYS[:2]:
        with way(**settings):
            planned = plan(table, f"k = {key(1)}")
        assert (planned.manifests.opened, planned.funnel.dropped_by_filter) == (0, 2)
        assert planned.funnel.indexed == 3
