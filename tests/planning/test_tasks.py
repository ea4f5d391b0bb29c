"""pyiceberg's planner, of which private API is used: what is used of it, and that tasks are its own."""

from __future__ import annotations

import gc
import inspect
import operator
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest.scan_planning import RESTEqualityDeleteFile, RESTFileScanTask
from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, Table, _open_manifest
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.iceberg.manifests import read_manifests
from sidecar.planning import tasks as task_planner
from sidecar.planning.planner import plan
from sidecar.planning.tasks import plan_tasks
from sidecar.planning.whole_match import WholeMatch
from sidecar.reading.scanning import read
from tests.iceberg.cases import delete_by_equality, local, replaced
from tests.iceberg.table_cases import delete_by_position, with_rewritten_manifest
from tests.planning.plan_cases import create_longs
from tests.tables import iceberg_schema

EPOCH = datetime(1970, 1, 1)
ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "part": ["a", "b"] * 20, "price": pa.array([1.5] * 40)})


def all_of(file: DataFile) -> bool:
    """Keep every file."""
    return True


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return with_rewritten_manifest(catalog, "db.planner", ROWS)


def test_the_private_api_is_the_one_this_was_written_for() -> None:
    """Fails when pyiceberg changes what internals.py relies on: read its notes again, then adapt it."""
    assert isinstance(inspect.getattr_static(DataScan, "_manifest_planner").func, object)
    # what tasks are made with, and what is done otherwise, stands in these lines
    entries = inspect.getsource(ManifestGroupPlanner.plan_manifest_entries)
    assert "manifest_evaluators[manifest_file.partition_spec_id](manifest_file)" in entries
    assert "KeyDefaultDict(self._build_partition_evaluator)" in entries
    assert "metrics_evaluator = self._build_metrics_evaluator()" in entries
    assert "if self._check_sequence_number(min_sequence_number, manifest)" in entries
    opened = inspect.getsource(_open_manifest)
    assert "if partition_filter(manifest_entry.data_file) and metrics_evaluator(manifest_entry.data_file)" in opened
    tasks = inspect.getsource(ManifestGroupPlanner.plan_files)
    assert "residual_evaluators[data_entry.data_file.spec_id](data_entry.data_file).residual_for(" in tasks
    assert "data_entry.sequence_number or INITIAL_SEQUENCE_NUMBER" in tasks
    evaluator = inspect.getsource(ManifestGroupPlanner._build_metrics_evaluator)
    assert "return _InclusiveMetricsEvaluator(" in evaluator
    assert callable(DataScan._should_use_server_side_planning)


def test_plan_tasks_are_pyicebergs_own_and_filtered(table: Table) -> None:
    scan = table.scan(row_filter="id > 5")
    theirs = [task.file.file_path for task in scan.plan_files()]
    lines = read_manifests(table.io, table.current_snapshot().manifest_list)
    assert [task.file.file_path for task in plan_tasks(scan, lines, all_of)] == theirs
    kept = plan_tasks(scan, lines, lambda file: file.file_path == theirs[0])
    assert [task.file.file_path for task in kept] == [theirs[0]]


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_ranges_are_asked_of_null_partitions(catalog: Any, sign: str) -> None:
    """pyiceberg cannot plan such a scan."""
    name = "db.planner_nulls"
    if not catalog.table_exists(name):
        nulls = catalog.create_table(name, ROWS.schema)
        with nulls.update_spec() as spec:
            spec.add_identity("part")
        nulls.append(pa.table({"id": pa.array([1, 2, 3]), "part": ["a", None, "z"], "price": [1.5] * 3}))
    planned = plan(catalog.load_table(name), f"part {sign} 'm' or id = 2")
    residuals = {task.file.partition[0]: str(task.residual) for task in planned.tasks}
    assert residuals[None] == "EqualTo(term=Reference(name='id'), literal=LongLiteral(2))"
    assert residuals["a" if "<" in sign else "z"] == "AlwaysTrue()"
    assert read(planned)["id"].to_pylist() == ([1, 2] if "<" in sign else [2, 3])


def test_manifests_of_which_little_is_known_are_kept(table: Table) -> None:
    """Some writers leave summaries out, and a delete manifest can have a spec that the table lacks."""
    evaluators = task_planner.evaluators_of(table.scan(row_filter="part = 'z'"))
    by_part = PartitionFieldSummary(False, False, b"a", b"b")
    spec_id = table.spec().spec_id
    assert not evaluators.manifest(ManifestFile.from_args(partition_spec_id=spec_id, partitions=[by_part]))
    for own, summaries in ((spec_id, None), (spec_id, []), (77, [by_part])):
        assert evaluators.manifest(ManifestFile.from_args(partition_spec_id=own, partitions=summaries))


HOUR = 3_600_000_000
TIMES = [-370 * 24 * HOUR - 1, -32 * 24 * HOUR, -HOUR - 1, -HOUR, -1, 0, 1, 400 * 24 * HOUR]
"""Microseconds from 1970."""


@pytest.mark.parametrize(
    ("transform", "down"),
    [
        (YearTransform(), lambda at: at.year - 1970),
        (MonthTransform(), lambda at: (at.year - 1970) * 12 + at.month - 1),
        (DayTransform(), lambda at: (at - EPOCH).days),
        (HourTransform(), lambda at: (at - EPOCH) // timedelta(hours=1)),
    ],
    ids=["year", "month", "day", "hour"],
)
def test_partitions_of_times_before_1970_that_were_rounded_up_are_kept(catalog: Any, transform: Any, down: Any) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    table = catalog.create_table(f"db.times_{transform}", iceberg_schema("ts timestamp"), partition_spec=spec)
    compared = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    compared["in"] = operator.eq
    times, refused = [EPOCH + timedelta(microseconds=at) for at in TIMES], 0
    for sign, literal in product(compared, times):
        text = f"('{literal.isoformat()}', '2020-01-01T00:00:00')" if sign == "in" else f"'{literal.isoformat()}'"
        scan = table.scan(row_filter=f"ts {sign} {text}")
        asked, whole = task_planner.evaluators_of(scan), WholeMatch(table.metadata, scan.row_filter)
        for at in times:
            files = [DataFile.from_args(partition=Record(part)) for part in {down(at), down(at) + (at < EPOCH)}]
            kept = [asked.partition(0)(file) for file in files]
            assert all(kept) or not compared[sign](at, literal), (sign, literal, at)
            refused += not any(kept)
            decided = {str(asked.residual(file, 0)) for file in files}
            assert ("AlwaysFalse()" if compared[sign](at, literal) else "AlwaysTrue()") not in decided
            assert compared[sign](at, literal) or not any(whole._by_partition[0](file) for file in files)
    assert refused > 40


EMPTY_BLOCK = b"\x00\x04\x03\x00"
"""No records, in two bytes, which are what deflate makes of nothing."""


def test_manifests_are_read_to_their_end(catalog: Any) -> None:
    """pyiceberg stops at an empty block, and takes a manifest that was cut between two blocks for whole."""
    table = create_longs(catalog, "db.planner_blocks", 2, build=False)
    paths = [task.file.file_path for task in table.scan().plan_files()]
    delete_by_position(table, {path: [17] for path in paths})
    for line in read_manifests(table.io, table.current_snapshot().manifest_list):
        path = local(line.manifest_path)
        whole = path.read_bytes()
        sync = whole[-16:]
        start = whole.index(sync) + len(sync)
        empty = EMPTY_BLOCK if b"deflate" in whole[:start] else b"\x00\x00"
        with replaced(path, whole[:start] + empty + sync + whole[start:]):
            planned = plan(table, "k != 1")
            assert sorted(planned.kept_files) == sorted(paths)
            assert [len(task.delete_files) for task in planned.tasks] == [1, 1]
        with replaced(path, whole[:start]), pytest.raises(DamagedFileError, match="manifest list") as caught:
            plan(table, "k != 1")
        assert caught.value.file == line.manifest_path


def test_tasks_planned_on_the_server_are_only_filtered(table: Table, monkeypatch: Any) -> None:
    scan = table.scan()
    tasks = list(scan.plan_files())
    monkeypatch.setattr(type(scan), "_should_use_server_side_planning", lambda self: True)
    monkeypatch.setattr(type(scan), "_plan_files_server_side", lambda self: iter(tasks))
    assert plan_tasks(scan, [], all_of) == tasks
    assert plan_tasks(scan, [], lambda file: file is tasks[1].file) == [tasks[1]]


def test_equality_deletes_in_the_plan_of_a_server_are_planned_here(catalog: Any, monkeypatch: Any) -> None:
    table = create_longs(catalog, "db.planner_equality", files=2)
    delete_by_equality(table, pa.table({"k": [1]}), [1])
    table.refresh()
    asked = plan(table, allow_equality_deletes=True)
    deletes = RESTEqualityDeleteFile.model_validate(
        {"spec-id": 0, "file-path": "d", "file-format": "PARQUET", "file-size-in-bytes": 9, "record-count": 1}
    )
    path = asked.kept_files[0]
    data = {**deletes.model_dump(by_alias=True), "content": "data", "file-path": path}
    task = RESTFileScanTask.model_validate({"data-file": data, "delete-file-references": [0]})
    monkeypatch.setattr(DataScan, "_should_use_server_side_planning", lambda self: True)
    answer = lambda self: iter([FileScanTask.from_rest_response(task, [deletes])])  # noqa: E731
    monkeypatch.setattr(DataScan, "_plan_files_server_side", answer)
    planned = plan(table, allow_equality_deletes=True)
    assert planned.equality_deletes == asked.equality_deletes != frozenset()
    assert planned.kept_files == asked.kept_files
    assert planned.why(path).kept
    with pytest.raises(UnsupportedFeatureError, match="equality deletes may apply"):
        plan(table)
    lines = read_manifests(table.io, table.current_snapshot().manifest_list)
    assert sorted(task.file.file_path for task in plan_tasks(table.scan(), lines, all_of)) == sorted(asked.kept_files)


def test_a_server_is_asked_for_names_only_if_they_always_meant_the_same(catalog: Any, monkeypatch: Any) -> None:
    """Servers differ in the schema in which they look up the names of a request for an older snapshot."""
    made = catalog.create_table("db.names_for_servers", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    made.append(pa.table({"a": [1], "b": [2]}))
    first = made.current_snapshot().snapshot_id
    with made.update_schema() as update:
        update.rename_column("b", "c")
    asked: list[str] = []
    monkeypatch.setattr(DataScan, "_should_use_server_side_planning", lambda self: True)
    monkeypatch.setattr(DataScan, "_plan_files_server_side", lambda self: asked.append(str(self.row_filter)) or [])
    for predicate, snapshot_id, is_named in (
        ("a = 1", first, True),
        ("b = 2", first, False),
        ("a = 1 or b = 2", first, False),
        ("c = 2", None, True),
    ):
        plan(made, predicate, at=snapshot_id)
        assert (asked.pop() != "AlwaysTrue()") is is_named, predicate


def test_cycles_are_not_searched_for_while_many_tasks_are_made(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = table.scan()
    lines, seen = read_manifests(table.io, scan.snapshot().manifest_list), []
    for many, expected in ((0, False), (10**6, True)):
        monkeypatch.setattr(task_planner, "MANY", many)
        seen.clear()
        plan_tasks(scan, lines, lambda file: seen.append(gc.isenabled()) or all_of(file))
        assert set(seen) == {expected}
        assert gc.isenabled()
    monkeypatch.setattr(task_planner, "MANY", 0)
    with pytest.raises(ZeroDivisionError):
        plan_tasks(scan, lines, lambda _: bool(1 / 0))
    assert gc.isenabled(), "after an error, too"


def test_a_table_without_snapshots_plans_nothing(catalog: Any) -> None:
    table = catalog.create_table("db.planner_empty", ROWS.schema)
    assert plan_tasks(table.scan(), [], all_of) == []


@pytest.mark.parametrize("indexed", [False, True])
def test_partitions_of_uuids_are_found(catalog: Any, indexed: bool) -> None:
    """pyiceberg compares them with bytes: none is equal, and an order is an error."""
    keys = [UUID(int=n) for n in range(4)]
    schema = iceberg_schema("u uuid, k long")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "u"))
    table = catalog.create_table(f"db.uuid_partitions_{indexed}", schema, partition_spec=spec)
    for n, key in enumerate(keys):
        table.append(pa.table({"u": pa.array([key.bytes] * 2, pa.binary(16)), "k": [n, n + 10]}))
    if indexed:
        sidecar.build(table, ["k"], engine="local")
        table.refresh()
    for text, kept in (
        (f"u = '{keys[2]}'", 1),
        (f"u in ('{keys[1]}', '{keys[3]}')", 2),
        (f"u >= '{keys[1]}'", 3),
        (f"u = '{UUID(int=9)}'", 0),
        (f"u = '{keys[2]}' and k = 12", 1),
    ):
        assert sidecar.plan(table, text).files_kept == kept, text
    assert sidecar.scan(table, f"u = '{keys[2]}'")["k"].to_pylist() == [2, 12]
    assert sidecar.find(table, {"u": str(keys[2])}).conditions[0].rows == 2
