"""``compact``: one segment that answers as the many did, with the sketches and the entry of the same snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sidecar
from sidecar.bundle.merging import arrangement
from sidecar.cli.app import app
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.iceberg import write_statistics
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


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A base of one file and a delta of two: the next build would merge them."""
    monkeypatch.setattr(arrangement, "FOLD_SHARE", 0)
    table = catalog.create_table(f"db.compact_{abs(hash(request.node.name))}", SCHEMA)
    for number in range(3):
        build(table, number, "k", "s")
    return table


def segments_of(table: Any) -> list[int]:
    opened = sidecar_of(table)
    found = [segment.num_files for segment in opened.segments]
    opened.close()
    return found


def test_segments_become_one_with_the_same_filters_and_sketches(table: Any, catalog_dir: Path) -> None:
    filters, sketches = filters_of(table), sketches_of(table)
    (before,) = [s for s in table.metadata.statistics if s.snapshot_id == table.current_snapshot().snapshot_id]
    with unchanged(catalog_dir):
        preview = sidecar.compact(table, dry_run=True)
    report = sidecar.compact(table)
    assert (preview.commits, preview.bytes_after, preview.statistics_path) == (True, None, before.statistics_path)
    assert preview.segments == report.segments
    assert [segment.files for segment in report.segments] == [1, 2]
    assert (preview.segments_after, report.segments_after, report.warnings) == (1, 1, [])
    assert report.bytes_after is not None
    assert report.bytes_after < report.bytes_before
    assert segments_of(table) == [3]
    assert (filters_of(table), sketches_of(table)) == (filters, sketches)
    (after,) = [s for s in table.metadata.statistics if s.snapshot_id == before.snapshot_id]
    assert (after.statistics_path, after.blob_metadata) == (report.statistics_path, before.blob_metadata)
    assert sidecar.verify_table(table).problems == []
    again = sidecar.compact(table)
    assert (again.commits, again.segments_after, again.statistics_path) == (False, 1, report.statistics_path)
    sidecar.build(table, ["k", "s"], engine="local")
    assert segments_of(table) == [3]  # nothing is indexed again


def test_files_and_columns_that_are_gone_are_left_out(table: Any) -> None:
    build(table, 3, "k", "s", full=True)  # one segment of four files
    table.delete(f"k = {table.scan().to_arrow()['k'].to_pylist()[0]}")
    with table.update_schema() as update:
        update.delete_column("s")
    table = table.catalog.load_table(table.name())
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    report = sidecar.compact(table)
    assert sum(segment.files_gone for segment in report.segments) == 1
    assert segments_of(table) == [4]
    assert {field_id for _, _, field_id in filters_of(table)} == {1}
    plan = sidecar.plan(table, "k = 5")
    assert (plan.files_covered, plan.files_kept, plan.index_reads) == (4, 0, 1)


def test_a_sidecar_of_an_older_snapshot_stays_registered_for_it(table: Any) -> None:
    """Registered for the newer snapshot, its distinct counts would be taken for those of all rows."""
    indexed = table.current_snapshot().snapshot_id
    table.append(rows(9))
    report = sidecar.compact(table)
    assert report.snapshot_id == indexed
    assert table.current_snapshot().snapshot_id not in {s.snapshot_id for s in table.metadata.statistics}
    plan = sidecar.plan(table, "k = 5")
    assert (plan.files_total, plan.files_covered) == (4, 3)


def test_segments_without_their_keys_stay(table: Any) -> None:
    build(table, 5, "s", kinds=["bloom"], encryption_keys=KEYS)
    locked = [s.id for s in sidecar_of(table).segments if any(b.toc.lock for b in s.blobs)]
    report = sidecar.compact(table)
    told = {segment.id: segment.kept_because for segment in report.segments}
    assert [name for name, why in told.items() if why] == locked
    assert report.segments_after == 2
    assert set(locked) <= {s.id for s in sidecar_of(table).segments}
    assert sidecar.plan(table, "s = '5 text'", encryption_keys=KEYS).files_kept == 0


def test_what_runs_recorded_in_the_file_stays(table: Any) -> None:
    """Properties of sidecar's own, which a registration does not take over by itself."""
    before = own_properties(table)
    assert before.keys() == {"sidecar.history", "sidecar.state"}
    assert sidecar.compact(table).commits
    assert own_properties(table) == before


def own_properties(table: Any) -> dict[str, str]:
    opened = sidecar_of(table)
    properties = opened.puffin.metadata.properties
    opened.close()
    return {name: text for name, text in properties.items() if name in ("sidecar.history", "sidecar.state")}


def test_a_table_without_a_sidecar_has_nothing_to_compact(catalog: Any) -> None:
    bare = catalog.create_table("db.compact_bare", SCHEMA)
    assert not sidecar.compact(bare).commits
    bare.append(rows(1))
    report = sidecar.compact(bare)
    assert (report.commits, report.statistics_path, report.snapshot_id, report.segments) == (False, None, None, [])


def test_a_run_that_fails_leaves_the_old_sidecar(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = table.metadata.statistics

    def fail(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(write_statistics, "_read_back", fail)
    with pytest.raises(MemoryError):
        sidecar.compact(table)
    assert table.refresh().metadata.statistics == before
    assert sidecar.plan(table, "k = 5").files_kept == 0


def test_the_command_says_what_it_did(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.iceberg.catalog.open_table", lambda name, catalog=None: table)
    run = CliRunner().invoke
    dry = run(app, ["compact", "db.t", "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert "dry run: nothing is written" in dry.stdout
    done = json.loads(run(app, ["compact", "db.t", "--json"]).stdout)
    assert (done["commits"], done["segments_after"], len(done["segments"])) == (True, 1, 2)
    assert "nothing to compact: 1 segment" in run(app, ["compact", "db.t"]).stdout
