"""What each stage of a plan says of a file: which segment, which columns, what is left of its row groups."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import sidecar
from sidecar.errors import UsageError
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.plan_history import FileHistory
from sidecar.planning.planner import plan
from sidecar.planning.tasks import data_of, live_entries
from tests.iceberg.cases import local
from tests.iceberg.table_cases import ASKED, SMALL_PAGES, with_a_past
from tests.planning.listed_cases import WAYS, way
from tests.planning.plan_cases import create_longs, key, longs
from tests.tables import create_with_rows, iceberg_schema

SUMMARY, METADATA, PARTITION = "partition summary of the manifest", "partition or bounds", "partition"
BOUNDS, FILTER, PAGES = "bounds in the manifest", "filter of the sidecar", "page index"
SMALL_GROUPS = {**SMALL_PAGES, "write.parquet.row-group-limit": "10", "write.parquet.page-row-limit": "5"}


def stages(found: FileHistory) -> list[tuple[str, bool, list[str]]]:
    return [(one.stage, one.kept, one.columns) for one in found.stages]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Two files in partition ``a`` and one in ``b``; ``k`` was indexed by one build, ``v`` by another."""
    schema = Schema(*(NestedField(n, name, kind()) for n, (name, kind) in enumerate(COLUMNS.items(), 1)))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    made: Table = catalog.create_table("db.history", schema, partition_spec=spec, properties=SMALL_GROUPS)
    for n, part in enumerate("aab"):
        columns = {"p": [part] * 30, "k": range(n, 300, 10), "v": [f"v{n + 10 * row}" for row in range(30)]}
        made.append(pa.table(columns, schema=made.schema().as_arrow()))
    for column, kinds in (("k", ["bloom", "page-index"]), ("v", ["bloom"])):
        sidecar.build(made, [column], kinds=kinds, engine="local")
        made = catalog.load_table("db.history")
    return made


COLUMNS = {"p": StringType, "k": LongType, "v": StringType}


def files_of(table: Table) -> list[str]:
    """The files in the order in which they were written."""
    return [task.file.file_path for task in table.scan().plan_files()][::-1]


@pytest.mark.parametrize("settings", WAYS[:2], ids=["bounds first", "filters first"])
def test_every_stage_that_looked_at_a_file_is_told(table: Table, settings: dict[str, Any]) -> None:
    first, second, third = files_of(table)
    with way(**settings):
        planned = plan(table, "p = 'a' and k = 120 and v = 'v120'")
    assert planned.kept_files == [first]
    kept = planned.why(first)
    assert (kept.file, kept.kept, kept.because) == (first, True, KeptFilesBecause.SOME_PAGES.text)
    found = sorted(stages(kept), key=lambda one: one[0])
    names = ["p", "k", "v"]
    filters = [(FILTER, True, ["k"]), (FILTER, True, ["v"])]
    assert found == sorted(
        [(SUMMARY, True, ["part"]), (METADATA, True, names), *filters, (PAGES, True, ["k"])], key=lambda one: one[0]
    )
    opened = sidecar.open_sidecar(table)
    asked = [(one.segment, one.segment_snapshot_id) for one in kept.stages if one.stage == FILTER]
    assert asked == [(n, segment.snapshot_id) for n, segment in enumerate(opened.segments)]
    opened.close()
    groups = [(one.row_group, one.rows, one.may_match, one.dropped_by) for one in kept.row_groups]
    assert groups == [(0, 10, 0, FILTER), (1, 10, 5, None), (2, 10, 0, FILTER)]

    out = planned.why(second)
    assert (out.kept, out.because) == (False, FILTER)
    assert [one.kept for one in out.stages] == [True] * (len(out.stages) - 1) + [False]
    assert [(one.row_group, one.rows, one.dropped_by) for one in out.row_groups] == [
        (n, None, FILTER) for n in range(3)
    ]

    elsewhere = planned.why(third)
    assert (elsewhere.kept, elsewhere.because, elsewhere.row_groups) == (False, SUMMARY, [])


def test_partition_and_bounds_are_told_apart(catalog: Any) -> None:
    schema = iceberg_schema("p string, k long")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    table = catalog.create_table("db.history_parts", schema, partition_spec=spec)
    table.append(pa.table({"p": ["a", "b"], "k": [1, 2]}))
    planned = plan(table, "p = 'a' and k = 2")
    found = {one.because: stages(one)[-1] for one in map(planned.why, files_of(table))}
    assert found == {PARTITION: (PARTITION, False, ["part"]), BOUNDS: (BOUNDS, False, ["p", "k"])}


def test_page_indexes_and_what_they_leave_of_row_groups(table: Table) -> None:
    """No value is asked for, so no filter is; the second file has no value within the bounds of a page."""
    first, second, _ = files_of(table)
    planned = plan(table, "p = 'a' and k > 145 and k < 151")
    kept, out = planned.why(first), planned.why(second)
    assert [one.may_match for one in kept.row_groups] == [0, 5, 0]
    assert [one.dropped_by for one in kept.row_groups] == [PAGES, None, PAGES]
    assert stages(kept)[-1] == (PAGES, True, ["k"])
    assert (out.kept, out.because, stages(out)[-1]) == (False, PAGES, (PAGES, False, ["k"]))
    assert [one.dropped_by for one in out.row_groups] == [PAGES] * 3


def test_keys_of_a_join(table: Table) -> None:
    first, second, third = files_of(table)
    planned = plan(table, "v is not null", keys={"k": [120, 121]})
    assert {*planned.kept_files} == {first, second}
    assert planned.why(third).because == "filter of the sidecar: none of the keys"
    assert planned.why(first).stages[-2:][0].columns == ["k"]
    outside = plan(table, "v is not null", keys={"k": [1000]})
    assert {outside.why(file).because for file in files_of(table)} <= {
        METADATA,
        BOUNDS,
        "bounds: no key is within them",
    }


def test_files_of_opened_manifests_and_of_none(catalog: Any) -> None:
    table = create_longs(catalog, "db.history_opened", 2)
    table.append(longs(2))
    planned = plan(table, f"k = {key(1)}")
    told = [planned.why(file) for file in files_of(table)]
    assert [one.because for one in told] == [FILTER, "may match", KeptFilesBecause.NOT_LISTED.text]
    assert [one.stages[-1].segment for one in told] == [0, 0, None]
    assert [len(one.row_groups) for one in told] == [1, 1, 0]
    nothing = plan(catalog.create_table("db.history_empty", longs(0).schema), "k = 1")
    with pytest.raises(UsageError, match="no such data file"):
        nothing.why("x.parquet")


def test_without_a_sidecar_bounds_are_told(catalog: Any) -> None:
    table = create_longs(catalog, "db.history_bare", 1, build=False)
    (file,) = files_of(table)
    assert plan(table, f"k = {2**61}").why(file).because == BOUNDS
    kept = plan(table, f"k = {key(0)}").why(file)
    assert (kept.because, kept.row_groups) == (KeptFilesBecause.NO_SIDECAR.text, [])


def test_a_file_may_be_named_by_the_end_of_its_path(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.history_names", longs(0).schema)
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        pq.write_table(longs(1), tmp_path / folder / "same.parquet")
    pq.write_table(longs(2), tmp_path / "other.parquet")
    table.add_files([f"file:{tmp_path}/{name}" for name in ("x/same.parquet", "y/same.parquet", "other.parquet")])
    planned = plan(table, f"k = {key(2)}")
    assert planned.why("other.parquet").file == f"file:{tmp_path}/other.parquet"
    assert planned.why("y/same.parquet").file == f"file:{tmp_path}/y/same.parquet"
    with pytest.raises(UsageError, match="several data files") as caught:
        planned.why("same.parquet")
    assert "x/same.parquet" in str(caught.value)
    assert "y/same.parquet" in str(caught.value)
    for absent in ("ther.parquet", "absent.parquet", ""):
        with pytest.raises(UsageError, match="no such data file"):
            planned.why(absent)


def test_a_plan_that_the_catalog_made(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog returns the files of one partition; filters rule out one of these."""
    first, second, third = files_of(table)
    tasks = [task for task in table.scan().plan_files() if task.file.file_path != third]
    monkeypatch.setattr(DataScan, "_should_use_server_side_planning", lambda self: True)
    monkeypatch.setattr(DataScan, "_plan_files_server_side", lambda self: iter(tasks))
    planned = plan(table, "k = 120")
    assert planned.kept_files == [first]
    kept, out, unplanned = map(planned.why, (first, second, third))
    assert stages(kept)[0] == ("plan of the catalog", True, [])
    assert (out.because, [one.dropped_by for one in out.row_groups]) == (FILTER, [FILTER] * 3)
    assert (unplanned.because, len(unplanned.stages)) == ("plan of the catalog", 1)


def test_a_table_that_has_moved(catalog: Any) -> None:
    """Files are found in the sidecar by their path within the table, also when one is asked about later."""
    plain = {"write.avro.compression-codec": "null", "write.parquet.compression-codec": "uncompressed"}
    table = create_with_rows(catalog, "db.history_a", map(longs, range(2)), columns=["k"], **plain)
    old, new = table.location(), table.location().replace("history_a", "history_b")
    shutil.copytree(local(old), local(new))
    for path in (local(new) / "metadata").iterdir():
        if path.suffix in (".avro", ".json"):
            path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    moved = catalog.register_table("db.history_b", f"{new}/metadata/{local(table.metadata_location).name}")
    planned = plan(moved, f"k = {key(1)}")
    told = [planned.why(file) for file in files_of(moved)]
    assert [(one.kept, [g.dropped_by for g in one.row_groups]) for one in told] == [(False, [FILTER]), (True, [None])]


def test_histories_agree_with_plans_of_tables_with_a_past(catalog: Any) -> None:
    table = with_a_past(catalog, "db.history_past", count=20)
    sidecar.build(table, ["id", *ASKED], kinds=["bloom", "page-index"], engine="local")
    table.append(table.scan(row_filter="id < 30").to_arrow())
    table, rng = catalog.load_table("db.history_past"), random.Random(7)
    entries = [
        entry
        for line in data_of(table.current_snapshot().manifests(table.io))
        for entry in live_entries(table.io, line)
    ]
    for text in (
        "id = 7",
        "part = 'a' and id < 40",
        "i in (1, 2, 3) or id = 9",
        "id is null",
        "id > 5 and renamed != 7",
    ):
        for settings in WAYS:
            with way(**settings):
                planned = plan(table, text)
            kept = {*planned.kept_files}
            for entry in rng.sample(entries, 6):
                told = planned.why(entry.data_file.file_path)
                assert told.kept == (told.file in kept)
                assert all(one.kept for one in told.stages[:-1])
                assert told.stages[-1].kept == told.kept
                left = [one for one in told.row_groups if one.dropped_by is None]
                if told.file in planned.row_groups:
                    assert [one.row_group for one in left] == planned.row_groups[told.file].kept
                elif not told.kept:
                    assert left == []
