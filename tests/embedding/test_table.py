"""Embedding into tables: the same rows in the same order for every engine, one ``replace`` commit, all or nothing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import sidecar
from sidecar.embedding.rewritten_files import NOTHING_NEW
from sidecar.errors import (
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from sidecar.iceberg import replace
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.embedding.table_cases import (
    ARROW,
    FILES,
    ROWS,
    contents,
    create,
    data_files,
    embed,
    entries,
    facts,
    filters_of,
    on_disk,
    rows,
    sequence_numbers,
)
from tests.object_store import open_store
from tests.tables import create_with_rows

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_every_file_is_replaced_by_one_with_the_same_rows_in_one_commit(table: Table) -> None:
    before, old = data_files(table), table.current_snapshot()
    assert old is not None
    whole, numbers = table.scan().to_arrow().sort_by("k"), sequence_numbers(table)
    report = embed(table, page_index=True)
    after, new = data_files(table), table.current_snapshot()
    assert new is not None
    assert new.snapshot_id == report.snapshot_id
    assert new.parent_snapshot_id == old.snapshot_id == report.parent_snapshot_id
    assert [s.snapshot_id for s in table.history()][-2:] == [old.snapshot_id, new.snapshot_id]
    assert table.scan().to_arrow().sort_by("k") == whole
    assert {f.file_path for f in after}.isdisjoint(f.file_path for f in before)
    for was, now in zip(before, after, strict=True):
        assert facts(now) == facts(was)
        assert now.split_offsets == was.split_offsets
        assert contents(now) == contents(was)
        assert now.file_size_in_bytes == Path(local_path(now.file_path) or "").stat().st_size
        assert Path(now.file_path).parent == Path(was.file_path).parent
        assert Path(now.file_path).name.startswith(f"{Path(was.file_path).stem}-sidecar-")
        assert filters_of(now) == {"k", "s"}
        assert not filters_of(was)
    assert sequence_numbers(table) == numbers
    assert table.scan(snapshot_id=old.snapshot_id).to_arrow().sort_by("k") == whole


def test_entries_say_what_was_deleted_and_added(table: Table) -> None:
    before = {e["data_file"]["file_path"]: e for e in entries(table)}
    report = embed(table)
    rewritten_files = {file.old_path: file.new_path for file in report.replaced}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    after = {e["data_file"]["file_path"]: e for e in entries(table)}
    assert len(after) == 2 * FILES
    for path, was in before.items():
        deleted, added = after[path], after[rewritten_files[path]]
        assert (deleted["status"], added["status"]) == (2, 1)
        assert deleted["snapshot_id"] == added["snapshot_id"] == snapshot.snapshot_id
        assert deleted["sequence_number"] == added["sequence_number"] == was["sequence_number"]
        assert deleted["file_sequence_number"] == was["file_sequence_number"]
        assert added["file_sequence_number"] == snapshot.sequence_number


def test_the_summary_says_replace_and_that_nothing_was_added_or_lost(table: Table) -> None:
    old = table.current_snapshot()
    sizes = sum(file.file_size_in_bytes for file in data_files(table))
    report = embed(table)
    new = table.current_snapshot()
    assert old is not None
    assert old.summary is not None
    assert new is not None
    assert new.summary is not None
    assert new.summary.operation == Operation.REPLACE
    found, count, size = new.summary.additional_properties, FILES, sum(f.new_size for f in report.replaced)
    assert found["total-records"] == old.summary["total-records"] == str(FILES * ROWS)
    assert found["added-records"] == found["deleted-records"] == str(FILES * ROWS)
    assert found["added-data-files"] == found["deleted-data-files"] == found["total-data-files"] == str(count)
    assert found["removed-files-size"] == str(sizes)
    assert found["added-files-size"] == found["total-files-size"] == str(size)
    assert table.inspect.files().num_rows == FILES
    assert table.inspect.history().num_rows == FILES + 1
    assert table.inspect.snapshots()["operation"].to_pylist() == ["append"] * FILES + ["replace"]


def test_commits_after_it_build_upon_it(table: Table) -> None:
    embed(table)
    table.append(rows(9))
    table.delete("k < 1000")
    expected = [r for part in (*range(FILES), 9) for r in rows(part).to_pylist() if r["k"] >= 1000]
    assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == sorted(map(repr, expected))


def test_a_second_time_there_is_nothing_to_do_and_nothing_is_left(table: Table) -> None:
    embed(table)
    before, files, metadata = table.current_snapshot(), on_disk(table), table.metadata_location
    report = embed(table)
    assert report.snapshot_id is None
    assert not report.replaced
    assert {file.reason for file in report.left_alone} == {NOTHING_NEW}
    assert not report.damaged
    assert (table.refresh().current_snapshot(), table.metadata_location) == (before, metadata)
    assert on_disk(table) == files


def test_embedding_more_names_the_file_after_the_first(table: Table) -> None:
    stems = {Path(file.file_path).stem for file in data_files(table)}
    embed(table, bloom=["k"])
    embed(table, bloom=["s"])
    for file in data_files(table):
        name, mark, unique = Path(file.file_path).stem.partition("-sidecar-")
        assert name in stems
        assert mark
        assert uuid.UUID(unique)
        assert filters_of(file) == {"k", "s"}


def test_a_dry_run_changes_nothing(table: Table) -> None:
    before = on_disk(table), on_disk(table, ".avro"), table.metadata_location
    report = embed(table, dry_run=True)
    assert {f.old_path for f in report.replaced} == {f.file_path for f in data_files(table)}
    assert (on_disk(table), on_disk(table, ".avro"), table.refresh().metadata_location) == before
    assert report.to_dict()["files"] == {"total": FILES, "replaced": FILES, "left_alone": 0, "failed": 0}


@pytest.mark.parametrize("placement", ["end", "row-group"])
def test_split_offsets_follow_the_row_groups(catalog: Any, placement: str) -> None:
    table = create(catalog, files=2, **{"write.parquet.row-group-limit": "100"})
    embed(table, placement=placement)
    for file in data_files(table):
        footer = read_footer(LocalSource(local_path(file.file_path) or ""))
        assert len(footer.row_groups) == 3
        assert file.split_offsets == [group.columns[0].start for group in footer.row_groups]


def test_the_tables_sidecar_is_refreshed_with_the_filters_that_were_written(table: Table) -> None:
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    report = embed(table)
    assert (report.warnings(), report.stale_sidecar) == ([], None)
    assert report.refresh is not None
    assert (report.refresh.action, report.refresh.files_indexed) == ("written", FILES)
    assert report.refresh.filters == {"reused": FILES}
    plan = sidecar.plan(table, f"k = {2**59 + 1}")
    assert (plan.files_covered, plan.files_kept) == (FILES, 0)


def test_the_sidecar_stays_behind_if_that_is_asked_for(table: Table) -> None:
    sidecar.build(table, ["k"], engine="local")
    path = table.refresh().metadata.statistics[0].statistics_path
    report = embed(table, refresh=False)
    assert (report.stale_sidecar, report.refresh) == (path, None)
    assert "refresh it" in report.warnings()[0]


def test_a_refresh_that_fails_leaves_the_files_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    sidecar.build(table, ["k"], engine="local")
    monkeypatch.setattr("sidecar.embedding.table.refresh_with", fail)
    report = embed(table)
    assert len(report.replaced) == FILES
    assert "the disk is full" in report.warnings()[0]
    assert "refresh it" in report.warnings()[1]


def test_a_table_that_wants_no_sidecar_gets_none(table: Table) -> None:
    report = embed(table)
    assert (report.refresh, report.warnings()) == (None, [])
    assert table.refresh().metadata.statistics == []


# --- refused or left alone ---------------------------------------------------------------------------------------


def test_version_1_is_refused_with_the_reason(catalog: Any) -> None:
    table = create(catalog, files=1, **{"format-version": "1"})
    with pytest.raises(UnsupportedFeatureError, match="format version 1: its manifests have no sequence numbers"):
        embed(table)
    assert len(on_disk(table)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bloom": []}, "nothing to embed"),
        ({"bloom": ["nosuch"]}, "no column 'nosuch'"),
        ({"fpp": 2.0}, "rate"),
        ({"placement": "middle"}, "placement"),
        ({"reuse": "some"}, "reuse"),
    ],
)
def test_wrong_usage_is_told_before_any_work(table: Table, options: dict[str, Any], message: str) -> None:
    files = on_disk(table)
    with pytest.raises(UsageError, match=message):
        embed(table, **options)
    assert on_disk(table) == files


def test_a_table_without_a_snapshot_is_wrong_usage(catalog: Any) -> None:
    with pytest.raises(UsageError, match="no snapshot"):
        embed(create(catalog, files=0))


def test_a_broken_file_is_left_alone_and_the_others_are_replaced(table: Table) -> None:
    broken = data_files(table)[1]
    path = Path(local_path(broken.file_path) or "")
    good = path.read_bytes()
    path.write_bytes(good[:-20] + bytes(16) + good[-4:])
    report = embed(table)
    assert [file.path for file in report.failed] == [broken.file_path]
    assert report.damaged
    assert len(report.replaced) == FILES - 1
    path.write_bytes(good)
    assert table.scan().to_arrow().num_rows == FILES * ROWS


def test_a_file_with_other_rows_than_its_entry_says_is_left_alone(table: Table) -> None:
    chosen = data_files(table)[0]
    path = Path(local_path(chosen.file_path) or "")
    pq.write_table(rows(0).slice(1), path)
    report = embed(table)
    (left,) = report.left_alone
    assert left.failed
    assert "differs from its manifest" in left.reason


@pytest.fixture
def stored(tmp_path: Path) -> Table:
    """A table in an object store."""
    return create_with_rows(open_store(tmp_path), "db.t", map(rows, range(2)), ARROW)


def test_a_table_in_an_object_store(stored: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored.scan().to_arrow().sort_by("k")
    report = embed(stored, page_index=True)
    assert all((file.new_path or "").startswith("folder://wh/db/t/data/") for file in report.replaced)
    assert len(report.replaced) == 2
    assert stored.scan().to_arrow().sort_by("k") == before
    files = sorted(tmp_path.rglob("*"))

    def failing(self: Any, *args: Any) -> None:
        raise OSError("out of reach")

    monkeypatch.setattr(replace.ReplaceProducer, "write_list", failing)
    with pytest.raises(StorageError, match="out of reach"):
        embed(stored, reuse="never")
    assert sorted(tmp_path.rglob("*")) == files
