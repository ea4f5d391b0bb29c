"""Planning without opening manifests: tasks are those that pyiceberg makes, whichever way they are found.

The oracle is pyiceberg's own plan, task by task and field by field, and our plan that opens every manifest.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.reader import UnitsReader
from sidecar.iceberg.manifests import read_manifests
from sidecar.iceberg.records.entries import ListedDataFile
from sidecar.planning import planner
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.iceberg.cases import comparable, local, oracle, predicate
from tests.iceberg.table_cases import ASKED, delete_by_position, with_a_past
from tests.planning.listed_cases import WAYS, assert_same_tasks, build, task_values, way
from tests.planning.plan_cases import LONGS, create_longs, key, longs
from tests.tables import create_with_rows

COLUMNS = [name for name in ASKED if name not in ("renamed", "s")]


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    """Schema and partitions evolved; indexed, then more data and deletes of old and new rows: half of it is listed."""
    table = with_a_past(catalog, "db.listed_history", count=40)
    remove(table, 1)
    build(table, ["id", *ASKED])
    table.append(table.scan(row_filter="id < 60").to_arrow())
    remove(table, 2)
    return table


def remove(table: Table, seed: int) -> None:
    """Position deletes in every unpartitioned file of the moment."""
    files = [task.file for task in table.scan().plan_files() if task.file.spec_id == 0]
    rng = random.Random(seed)
    delete_by_position(table, {f.file_path: sorted(rng.sample(range(f.record_count), 5)) for f in files})


def test_tasks_are_pyicebergs_for_tables_with_a_past(history: Table) -> None:
    rng = random.Random(51)
    listed = opened = dropped = with_deletes = walked = 0
    snapshots = [snapshot.snapshot_id for snapshot in history.snapshots()]
    for number in range(24):
        text = predicate(rng, COLUMNS, 240)
        if number % 3 == 0:
            parts = ["part = 'a'", "part is null", "bo = true", "bo is not null and part != 'b'"]
            text = f"({text}) and id >= {rng.randrange(160)} and {rng.choice(parts)}"
        snapshot_id = rng.choice(snapshots[-3:]) if number % 4 == 0 else None
        plans = assert_same_tasks(history, text, snapshot_id)
        listed += plans[1].manifests.listed
        opened += plans[1].manifests.opened
        dropped += plans[1].funnel.dropped_by_filter
        with_deletes += sum(bool(task.delete_files) for task in plans[1].tasks)
        walked += sum(isinstance(task.file, ListedDataFile) for task in plans[3].tasks)
        if snapshot_id is None and number < 8:
            assert comparable(read(plans[1])) == comparable(oracle(history, plans[1].row_filter))
    assert listed > 60
    assert opened
    assert dropped > 30
    assert with_deletes > 10
    assert walked > 10


def test_deletes_that_are_younger_than_listed_and_older_than_unknown_data(catalog: Any) -> None:
    """pyiceberg, given some manifests only, would take the smallest sequence number of those and drop these deletes."""
    table = create_longs(catalog, "db.listed_deletes", 1)
    (old,) = [task.file.file_path for task in table.scan().plan_files()]
    delete_by_position(table, {old: [17]})
    table.append(longs(1))
    for text, rows, deletes_opened in (
        (f"k = {key(0)}", 0, 1),  # the unknown file is kept, too
        (f"k = {key(1)}", 1, 0),  # the listed file is dropped, and no delete applies to the unknown one
    ):
        planned = plan(table, text)
        assert (planned.manifests.listed, planned.manifests.opened) == (1, 1)
        assert planned.manifests.deletes_opened == deletes_opened, "those that are older than every kept file"
        assert read(planned).num_rows == rows
        assert_same_tasks(table, text)
    assert [len(task.delete_files) for task in plan(table, f"k = {key(0)}").tasks] == [0, 1]


def test_files_of_a_manifest_that_is_listed_twice_are_found_twice_as_pyiceberg_finds_them(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_longs(catalog, "db.listed_twice", 2)
    monkeypatch.setattr(planner, "read_manifests", lambda *given: 2 * read_manifests(*given))
    for settings in WAYS:
        with way(**settings):
            assert len(plan(table, "k != 1").tasks) == 4
            assert read(plan(table, f"k = {key(0)}")).num_rows == 2


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_listed_manifest_is_not_opened_and_need_not_be_there(catalog: Any, tmp_path: Path, version: str) -> None:
    """Name-mapped files in a table of each version, identity partitions, and all manifests gone."""
    table = catalog.create_table(f"db.listed_v{version}", LONGS, properties={"format-version": version})
    paths = []
    for seed in range(3):
        path = tmp_path / f"{seed}.parquet"
        pq.write_table(longs(seed), path)
        paths.append(f"file:{path}")
    table.add_files(paths)
    with table.update_spec() as spec:
        spec.add_identity("v")
    table.append(longs(3, 3))
    build(table, ["k", "v"])
    texts = [f"k = {key(1)}", "v = '3-2'", f"k in ({key(0)}, {key(2)})", "k = 1"]
    before = [assert_same_tasks(table, text)[0] for text in texts]
    assert [planned.files_kept for planned in before] == [1, 1, 2, 0]
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io):
        local(manifest.manifest_path).unlink()
    for text, planned in zip(texts, before, strict=True):
        again = plan(table, text)
        assert list(map(task_values, again.tasks)) == list(map(task_values, planned.tasks))
        assert again.warnings == ()
        assert again.manifests.opened == 0
        assert again.manifests.total == 2
        data = again.to_dict()["manifests"]
        assert data["listed"] + data["ruled_out"] == 2
        assert f"{again.manifests.listed} answered by the sidecar" in again.explain()


def test_bounds_answer_predicates_that_filters_cannot_where_files_are_many(catalog: Any) -> None:
    parts = [pa.table({"k": range(n, n + 100), "v": ["x"] * 100}, schema=LONGS) for n in range(0, 400, 100)]
    table = create_with_rows(catalog, "db.listed_broad", parts, columns=["k"])
    assert plan(table, "k < 150").index_reads == 0
    with way(BROAD=4, FEW=0):
        planned = plan(table, "k < 150")
        assert (planned.files_kept, planned.funnel.dropped_by_metadata) == (2, 2)
        assert (planned.manifests.listed, planned.manifests.opened) == (4, 0)
        assert planned.funnel.kept_because == {KeptFilesBecause.NOT_ASKED.text: 2}
        assert plan(table, "v != 'x'").index_reads == 0, "bounds say nothing of it"
        assert plan(table, "true").index_reads == 0
    with way(MANY_MANIFESTS=4):
        planned = plan(table, "k < 150")
        assert (planned.files_kept, planned.manifests.listed, planned.manifests.opened) == (2, 4, 0)
    with way(BROAD=4, FEW=0, OPENING=0.0):
        planned = plan(table, "k < 150")
        assert (planned.files_kept, planned.manifests.listed, planned.manifests.opened) == (2, 2, 2)


def test_partitions_rule_files_out_that_have_no_bounds(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"write.metadata.metrics.default": "none"}
    table = catalog.create_table("db.listed_parts", LONGS, properties=properties)
    with table.update_spec() as spec:
        spec.add_identity("v")
        spec.add_identity("k")
    for first in (0, 10):
        rows = {"k": [first, first, 3] * 3, "v": ["a", "b", None] * 3}
        table.append(pa.table(rows, schema=LONGS))
    build(table, ["k"])
    files, read_files = Segment.files, []

    def seen(segment: Segment, wanted: Any) -> Any:
        read_files.extend(wanted)
        return files(segment, wanted)

    monkeypatch.setattr(Segment, "files", seen)
    for text in ("v = 'b'", "v is null", "v in ('a', 'b') and k != 3", "v != 'a'", "k = 4 or v = 'zz'"):
        read_files.clear()
        planned = assert_same_tasks(table, text)[1]
        assert planned.files_kept == 0 or planned.manifests.listed
    with way(FEW=0, BROAD=0):
        read_files.clear()
        planned = plan(table, "v = 'b'")
    assert sorted(read_files) == sorted(set(read_files))
    assert len(read_files) == planned.files_kept < planned.files_total / 2


def test_merged_manifests_are_read_and_their_files_known_by_what_they_are(catalog: Any) -> None:
    """Files move to another manifest: they are found by their fingerprints, in each of two segments."""
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = create_with_rows(catalog, "db.listed_merged", map(longs, range(3)), columns=["k"], **properties)
    table.append(longs(3))
    planned = assert_same_tasks(table, f"k = {key(1)}")[0]
    assert (planned.manifests.total, planned.manifests.opened, planned.manifests.listed) == (1, 1, 0)
    assert (planned.files_kept, planned.funnel.dropped_by_filter, planned.funnel.listed) == (2, 2, 3)
    build(table, ["v"])
    both = sidecar.open_sidecar(table)
    assert len(both.segments) == 2
    both.close()
    for planned in assert_same_tasks(table, f"k = {key(1)}")[:2]:
        assert (planned.manifests.opened, planned.files_kept, planned.funnel.dropped_by_filter) == (0, 2, 2)
    for planned in assert_same_tasks(table, f"k = {key(1)} and v = '0-17'"):
        assert planned.files_kept == 0


def test_files_of_several_manifests_are_those_of_another_segment_at_the_same_place(
    catalog: Any, tmp_path: Path
) -> None:
    """200 files in three manifests, ``k`` indexed first and ``v`` then: the second segment is asked by position."""
    table = catalog.create_table("db.listed_positions", LONGS)
    paths = [tmp_path / f"{seed}.parquet" for seed in range(200)]
    for seed, path in enumerate(paths):
        pq.write_table(longs(seed, 4), path)
    for part in (paths[:70], paths[70:150], paths[150:]):
        table.add_files([f"file:{path}" for path in part])
    build(table, ["k"])
    build(table, ["v"])
    for seed in (0, 1, 69, 70, 71, 149, 150, 151, 199):
        held = longs(seed, 4)["k"][3].as_py()
        for text in (f"v = '{seed}-3'", f"k = {held}", f"k = {held} and v = '{seed}-3'"):
            planned = plan(table, text)
            assert planned.manifests.opened == 0
            assert read(planned).to_pylist() == [{"k": held, "v": f"{seed}-3"}], text
            assert planned.files_kept <= 8, text
        planned = plan(table, f"k = {held} and v = '{seed}-4'")
        assert planned.files_kept <= 1


def test_fingerprints_are_not_read_for_files_that_are_younger_than_the_index(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_longs(catalog, "db.listed_younger", 3)
    table.append(longs(3))

    def fail(*_: Any) -> Any:
        raise AssertionError("fingerprints were read")

    monkeypatch.setattr(UnitsReader, "fingerprints", fail)
    planned = plan(table, f"k = {key(1)}")
    assert planned.warnings == ()
    assert planned.funnel.kept_because == {"may match": 1, KeptFilesBecause.NOT_LISTED.text: 1}
