"""A refresh leaves one segment that answers as the many did, with the same filters and sketches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sidecar
from sidecar.bundle.merging import arrangement
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.iceberg.statistics_files import write_statistics
from sidecar.maintenance import costs
from tests.dry_runs import unchanged
from tests.indexing.cases import filters_of, sidecar_of, sketches_of

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
KEYS = EncryptionKeys(ExplicitKeys({b"key": bytes(range(16))}), bundle_keys={"s": b"key"})


def rows(number: int) -> pa.Table:
    keys = np.random.default_rng(number).integers(0, 2**60, 60)
    return pa.table({"k": keys, "s": [f"{key} text" for key in keys]}, schema=SCHEMA)


def build(table: Any, number: int, *columns: str, **options: Any) -> None:
    table.append(rows(number))
    sidecar.build(table, list(columns), engine="local", **options)
    table.refresh()


def refresh(table: Any, **options: Any) -> Any:
    report = sidecar.refresh(table, engine="local", **options)
    table.refresh()
    return report


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A base of one file and a delta of two: the next build would merge them."""
    monkeypatch.setattr(arrangement, "FOLD_SHARE", 0)
    table = catalog.create_table(f"db.merging_{abs(hash(request.node.name))}", SCHEMA)
    for number in range(3):
        build(table, number, "k", "s")
    return table


def segments_of(table: Any) -> list[int]:
    opened = sidecar_of(table)
    found = [segment.num_files for segment in opened.segments]
    opened.close()
    return found


def reads(table: Any) -> tuple[int, int]:
    """The reads and bytes of a lookup of an absent value in the sidecar."""
    plan = sidecar.plan(table, "k = 5")
    assert (plan.files_kept, plan.files_covered, plan.warnings) == (0, plan.files_total, ())
    return plan.index_reads, plan.index_bytes_read


def test_segments_become_one_with_the_same_filters_and_sketches(table: Any, catalog_dir: Path) -> None:
    filters, sketches = filters_of(table), sketches_of(table)
    (before,) = [s for s in table.metadata.statistics if s.snapshot_id == table.current_snapshot().snapshot_id]
    with unchanged(catalog_dir):
        preview = refresh(table, dry_run=True)
    report = refresh(table)
    assert [(one.action, one.reason, one.files_indexed, one.warnings) for one in (preview, report)] == [
        ("written", "segments can be merged, or list many files that are gone", 0, [])
    ] * 2
    assert preview.statistics_path == before.statistics_path
    assert report.file_size < before.file_size_in_bytes
    assert segments_of(table) == [3]
    assert (filters_of(table), sketches_of(table)) == (filters, sketches)
    (after,) = [s for s in table.metadata.statistics if s.snapshot_id == before.snapshot_id]
    assert (after.statistics_path, after.blob_metadata) == (report.statistics_path, before.blob_metadata)
    assert sidecar.verify(table).problems == []
    assert refresh(table).action == "current"
    sidecar.build(table, ["k", "s"], engine="local")
    assert segments_of(table) == [3]  # nothing is indexed again


@pytest.mark.parametrize("new_files", [0, 1])
def test_a_lookup_after_a_refresh_reads_what_it_reads_after_a_fresh_build(table: Any, new_files: int) -> None:
    for number in range(new_files):
        table.append(rows(10 + number))
    assert refresh(table).action == "written"
    segments, ours = segments_of(table), reads(table)
    sidecar.build(table, ["k", "s"], engine="local", full=True)
    assert (segments, ours[0]) == (segments_of(table.refresh()), reads(table)[0])
    assert ours[1] <= reads(table)[1] * 1.1


def test_a_large_sidecar_becomes_one_segment_when_no_file_is_new(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To merge it with each new file would cost much more than to copy it."""
    monkeypatch.setattr(costs, "MERGED_AT_ONCE", 1)
    build(table, 3, "k", "s", full=True)
    monkeypatch.setattr(arrangement, "FOLD_SHARE", 1)
    table.append(rows(4))
    assert (refresh(table).files_indexed, segments_of(table)) == (1, [4, 1])
    assert [refresh(table).action for _ in range(2)] == ["written", "current"]
    assert segments_of(table) == [5]


def test_files_and_columns_that_are_gone_are_left_out(table: Any) -> None:
    build(table, 3, "k", "s", full=True)  # one segment of four files
    for key in table.scan().to_arrow()["k"].to_pylist()[::60][:2]:
        table.delete(f"k = {key}")
    with table.update_schema() as update:
        update.delete_column("s")
    table = table.catalog.load_table(table.name())
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    refresh(table)
    assert segments_of(table) == [4]
    assert {field_id for _, _, field_id in filters_of(table)} == {1}
    plan = sidecar.plan(table, "k = 5")
    assert (plan.files_covered, plan.files_kept, plan.index_reads) == (4, 0, 1)


def test_a_segment_that_has_lost_many_files_is_written_anew(table: Any) -> None:
    refresh(table)
    files = [task.file.file_path for task in table.scan().plan_files()]
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        for task in table.scan().plan_files():
            if task.file.file_path in files[:2]:
                overwrite.delete_data_file(task.file)
    assert [refresh(table).action for _ in range(2)] == ["written", "current"]
    assert segments_of(table) == [1]


def test_segments_without_their_keys_stay(table: Any) -> None:
    build(table, 5, "s", kinds=["bloom"], encryption_keys=KEYS)
    locked = [s.id for s in sidecar_of(table).segments if any(b.toc.lock for b in s.blobs)]
    assert len(segments_of(table)) == 3
    refresh(table)
    assert len(segments_of(table)) == 2
    assert set(locked) <= {s.id for s in sidecar_of(table).segments}
    assert sidecar.plan(table, "s = '5 text'", encryption_keys=KEYS).files_kept == 0
    assert refresh(table).action == "current"


def test_a_run_that_fails_leaves_the_old_sidecar(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = table.metadata.statistics

    def fail(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(write_statistics, "_read_back", fail)
    with pytest.raises(MemoryError):
        refresh(table)
    assert table.refresh().metadata.statistics == before
    assert sidecar.plan(table, "k = 5").files_kept == 0
