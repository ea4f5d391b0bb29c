"""Answers of the planner: which files they have, what they say of them, and what happens without a sidecar."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import sidecar
from sidecar import errors
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.serving.planning import file_selection, live_snapshot, served_tables
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.iceberg.cases import local, replaced
from tests.planning.test_replaced_table import replaced as replaced_table
from tests.serving.planning.asking import JAVA, PYICEBERG, all_paths, ask, ask_for_facts, equal, name_of, paths
from tests.tables import create_with_rows, iceberg_schema

FILES, ROWS = 5, 12


def rows(numbers: range | list[int]) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "s": [f"v{n:03}" for n in numbers]})


def parts() -> list[pa.Table]:
    """Even numbers. Each file has values between those of the others, and the third one has the fewest."""
    return [rows(range(2 * at, 2 * FILES * (ROWS + abs(at - 2)), 2 * FILES)) for at in range(FILES)]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create_with_rows(catalog, "db.scan_planner", parts(), columns=["s", "n"])


@pytest.fixture(scope="module")
def planner() -> ScanPlanner:
    return ScanPlanner()


def test_a_lookup_keeps_one_file(planner: ScanPlanner, table: Table) -> None:
    found, facts = ask_for_facts(planner, table, equal("s", "v020"), select=["s"])
    (task,) = found["file-scan-tasks"]
    assert found["status"] == "completed"
    assert task["residual-filter"] == equal("s", "v020")
    assert (facts.files_total, facts.files_kept, facts.fallback, facts.sentinel) == (FILES, 1, "", False)
    assert facts.dropped == {"partition_or_bounds": 0, "filter": FILES - 1, "page_index": 0}
    assert facts.index_bytes_read > 0
    file = task["data-file"]
    lower = dict(zip(file["lower-bounds"]["keys"], file["lower-bounds"]["values"], strict=True))
    assert lower == {1: "0000000000000000", 2: b"v000".hex().upper()}
    assert file["value-counts"] == {"keys": [1, 2], "values": [ROWS + 2, ROWS + 2]}


def test_pyiceberg_gets_no_statistics(planner: ScanPlanner, table: Table) -> None:
    (task,) = ask(planner, table, equal("s", "v020"), PYICEBERG)["file-scan-tasks"]
    assert not {"lower-bounds", "value-counts", "column-sizes"} & task["data-file"].keys()


def test_no_filter_keeps_all_files_in_their_order(planner: ScanPlanner, table: Table) -> None:
    found, facts = ask_for_facts(planner, table)
    assert paths(found) == [task.file.file_path for task in table.scan().plan_files()]
    assert {json.dumps(task["residual-filter"]) for task in found["file-scan-tasks"]} == {"true"}
    assert facts.fallback == file_selection.NOTHING_ASKED


def test_the_sentinel_is_the_smallest_file_within_bounds(planner: ScanPlanner, table: Table) -> None:
    found, facts = ask_for_facts(planner, table, equal("s", "v021"))  # odd numbers are in no file
    sizes = {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}
    assert sorted(sizes.values()).count(min(sizes.values())) == 1
    assert [sizes[path] for path in paths(found)] == [min(sizes.values())]
    assert facts.sentinel
    assert ask(planner, table, equal("s", "v021"), select=["n", "S"])["file-scan-tasks"]


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (equal("s", "v020"), {}),  # a file is kept of which some rows may not match
        (equal("s", "w"), {}),  # outside of the bounds of all files
        (equal("s", "v021"), {"select": ["s"]}),  # Spark asks for all columns before it deletes
        (equal("s", "v021"), {"caller": PYICEBERG}),
    ],
)
def test_no_sentinel_is_needed(planner: ScanPlanner, table: Table, condition: Any, asked: Any) -> None:
    found, facts = ask_for_facts(planner, table, condition, **asked)
    assert not facts.sentinel
    assert len(paths(found)) == (condition["value"] == "v020")


def test_files_that_match_wholly_need_a_sentinel(planner: ScanPlanner, catalog: Any) -> None:
    table = create_with_rows(catalog, "db.scan_planner_whole", [rows([21] * ROWS), *parts()], columns=["s"])
    whole, other = paths(ask(planner, table, equal("s", "v021")))
    assert [whole] == paths(ask(planner, table, equal("s", "v021"), PYICEBERG))
    assert other != whole
    # Also if the answer is one of large tables.
    assert {whole, other} == {*paths(ask(ScanPlanner(page_files=1), table, equal("s", "v021")))}


def test_a_table_without_a_sidecar(planner: ScanPlanner, catalog: Any) -> None:
    table = create_with_rows(catalog, "db.scan_planner_bare", parts())
    found, facts = ask_for_facts(planner, table, equal("s", "v020"))
    assert (len(paths(found)), facts.fallback) == (FILES, file_selection.NO_SIDECAR)
    assert paths(ask(planner, table, equal("s", "w"))) == []


@pytest.mark.parametrize("data", [None, b"", b"PFA1" + bytes(100)], ids=["gone", "empty", "damaged"])
def test_a_sidecar_that_cannot_be_read(catalog: Any, data: bytes | None, planner: ScanPlanner, table: Table) -> None:
    with replaced(local(table.metadata.statistics[0].statistics_path), data):
        found, facts = ask_for_facts(planner, table, equal("s", "v020"))
    assert (len(paths(found)), facts.fallback) == (FILES, file_selection.UNREADABLE)


def test_a_plan_that_fails_is_made_by_manifests(
    planner: ScanPlanner, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise StorageError("the index fails")

    monkeypatch.setattr(file_selection, "Planning", fail)
    found, facts = ask_for_facts(planner, table, equal("s", "v020"))
    assert (len(paths(found)), facts.fallback) == (FILES, file_selection.FAILED)
    assert paths(ask(planner, table, equal("s", "w"))) == []


@pytest.mark.parametrize(
    ("where", "name", "reason"),
    [
        (file_selection, "Planning", file_selection.FAILED),
        (file_selection, "_asks_filters", file_selection.FAILED),
        (file_selection, "WholeMatch", file_selection.FAILED),
        (file_selection, "as_expression", file_selection.NOTHING_ASKED),
        (served_tables, "is_sidecar", ""),
    ],
)
def test_no_bug_fails_a_request(
    table: Table, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, reason: str
) -> None:
    """The parts that a client must have are answered without the part that fails."""

    def fail(*args: Any, **options: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(errors, "reraise_foreign", False)
    monkeypatch.setattr(where, name, fail)
    planner = ScanPlanner()
    found, facts = ask_for_facts(planner, table, equal("s", "v020"))
    assert (len(paths(found)), facts.fallback) == (FILES if reason else 1, reason)
    assert planner.mode(table, name_of(table)) == ("client" if where is served_tables else "server")


@pytest.mark.parametrize(("name", "count"), [("may_match", FILES), ("evaluators_of", 1)])
def test_files_are_kept_where_even_bounds_fail(
    table: Table, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(errors, "reraise_foreign", False)
    monkeypatch.setattr(live_snapshot if name == "may_match" else file_selection, name, fail)
    if name == "may_match":
        monkeypatch.setattr(file_selection, "Planning", fail)
    assert len(paths(ask(ScanPlanner(), table, equal("s", "v020")))) == count


def test_what_is_wrong_with_the_table_is_an_error(planner: ScanPlanner, catalog: Any) -> None:
    table = create_with_rows(catalog, "db.scan_planner_broken", parts()[:1], columns=["s"])
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = local(snapshot.manifests(table.io)[0].manifest_path)
    with replaced(manifest, None), pytest.raises(StorageError):
        ask(planner, table)
    with replaced(local(snapshot.manifest_list), b"no Avro"), pytest.raises(DamagedFileError):
        ask(ScanPlanner(), table, equal("s", "v020"))


def test_snapshots(planner: ScanPlanner, catalog: Any) -> None:
    table = catalog.create_table("db.scan_planner_empty", rows([1]).schema)
    found = ask(planner, table, equal("s", "a"))
    assert found == {"status": "completed", "plan-id": "sidecar-complete", "file-scan-tasks": []}
    table.append(rows([1]))
    first = table.current_snapshot().snapshot_id
    table.append(rows([2]))
    assert len(paths(ask(planner, table, snapshot_id=first))) == 1
    with pytest.raises(UsageError, match="no snapshot 77"):
        ask(planner, table, snapshot_id=77)


SPEC_SCHEMA = iceberg_schema("p long, s string")


@pytest.fixture(scope="module")
def partitioned(catalog: Any) -> Table:
    """A partition for 1, one for 2 and one for NULL."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table: Table = catalog.create_table("db.scan_planner_parts", SPEC_SCHEMA, partition_spec=spec)
    table.append(pa.table({"p": pa.array([1, 2, None], pa.int64()), "s": ["a", "b", "c"]}))
    sidecar.build(table, ["s"], engine="local")
    table.refresh()
    return table


def test_partition_values(planner: ScanPlanner, partitioned: Table) -> None:
    def of(caller: Any) -> list[Any]:
        tasks = ask(planner, partitioned, caller=caller)["file-scan-tasks"]
        return [task["data-file"]["partition"] for task in tasks]

    assert sorted(of(JAVA), key=repr) == [[1], [2], [None]]
    assert sorted(of(PYICEBERG), key=repr) == [[1], [2], []]  # pyiceberg 0.12 refuses NULL there


def test_a_residual_is_true_where_the_partition_decides(planner: ScanPlanner, partitioned: Table) -> None:
    """pyiceberg counts such files without reading them. It takes NULL as a value, so NULL decides nothing."""
    other = {"type": "not-eq", "term": "p", "value": 1}
    found = ask(planner, partitioned, other)["file-scan-tasks"]
    assert {(task["data-file"]["partition"][0], task["residual-filter"] is True) for task in found} == {
        (2, True),
        (None, False),
    }
    unknown = {"type": "and", "left": other, "right": {"type": "unknown", "term": "s"}}
    assert not any(task["residual-filter"] is True for task in ask(planner, partitioned, unknown)["file-scan-tasks"])


def test_no_fallback_where_partitions_leave_no_file(planner: ScanPlanner, partitioned: Table) -> None:
    """Then no sidecar is opened, though there is one."""
    condition = {"type": "and", "left": equal("p", 99), "right": equal("s", "a")}
    found, facts = ask_for_facts(planner, partitioned, condition)
    assert (paths(found), facts.fallback) == ([], "")


def test_ranges_over_null_partitions(planner: ScanPlanner, partitioned: Table) -> None:
    """pyiceberg 0.12 fails to compare NULL with the end of a range where it plans by itself."""
    with pytest.raises(TypeError):
        [*partitioned.scan("p > 1 or s = 'c'").plan_files()]
    condition = {"type": "or", "left": {"type": "gt", "term": "p", "value": 1}, "right": equal("s", "c")}
    found, facts = ask_for_facts(planner, partitioned, condition)
    assert {task["data-file"]["partition"][0] for task in found["file-scan-tasks"]} >= {2, None}
    assert facts.fallback != file_selection.FAILED


def test_swapped_columns_are_planned_under_both_names(planner: ScanPlanner, catalog: Any) -> None:
    """A request does not say whether its names are those of the snapshot or of the table as it is now."""
    files = [pa.table({"a": [f"a{n}"] * 2, "b": [f"b{n}"] * 2}) for n in (1, 2, 3)]
    table = create_with_rows(catalog, "db.scan_planner_swapped", files, columns=["a", "b"])
    everything = paths(ask(planner, table))
    for old, new in (("a", "between"), ("b", "a"), ("between", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    by_value = {n: everything[-n] for n in (1, 2, 3)}
    assert paths(ask(planner, table, equal("a", "b2"), PYICEBERG)) == [by_value[2]]
    assert paths(ask(planner, table, equal("a", "a3"), PYICEBERG)) == [by_value[3]]
    with table.update_schema() as update:
        update.rename_column("a", "c")
    for name, value in (("c", "b2"), ("b", "a2")):
        assert by_value[2] in paths(ask(planner, table, equal(name, value), PYICEBERG))
    both = {"type": "and", "left": equal("c", "b2"), "right": equal("b", "a2")}
    assert paths(ask(planner, table, both, PYICEBERG)) == [by_value[2]]


def test_residuals_are_whole_where_names_have_several_meanings(planner: ScanPlanner, catalog: Any) -> None:
    """By one meaning the partition of a file decides that all of its rows match, by the other it does not."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    schema = iceberg_schema("a string, b string")
    table: Table = catalog.create_table("db.scan_planner_meanings", schema, partition_spec=spec)
    table.append(pa.table({"a": ["x", "x", "y"], "b": ["x", "z", "x"]}))
    (task,) = ask(planner, table, equal("a", "x"))["file-scan-tasks"]
    assert task["residual-filter"] is True
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    tasks = ask(planner, table, equal("b", "x"), PYICEBERG)["file-scan-tasks"]
    assert [task["residual-filter"] for task in tasks] == [equal("b", "x")] * 2


def test_snapshots_from_before_a_replacement(planner: ScanPlanner, catalog: Any) -> None:
    """The id of a column has another type now. Names count if they mean the same in both schemas."""
    table, before = replaced_table(catalog, "db.scan_planner_replaced")
    assert len(paths(ask(planner, table, equal("x", "a1"), PYICEBERG, snapshot_id=before))) == 1
    for condition in (
        equal("p", "part2"),
        equal("q", 8),
        {"type": "and", "left": equal("x", 7), "right": equal("q", 8)},
    ):
        assert len(paths(ask(planner, table, condition, PYICEBERG, snapshot_id=before))) == 3
    assert len(paths(ask(planner, table, equal("x", 7)))) == 1
    assert len(paths(ask(planner, table, equal("x", 8), PYICEBERG))) == 0


def test_names_of_a_schema_between_the_snapshot_and_now(planner: ScanPlanner, catalog: Any) -> None:
    """A client that has loaded the table before its last change asks with the names of then, also for later pages."""
    files = [pa.table({"x": [f"x{n}"] * 2, "y": [f"y{n}"] * 2}) for n in (1, 2, 3)]
    table = create_with_rows(catalog, "db.scan_planner_stale", files, columns=["x", "y"])
    everything = paths(ask(planner, table))

    def rename(old: str, new: str) -> None:
        with table.update_schema() as update:
            update.rename_column(old, new)

    rename("x", "a")
    condition = {"type": "in", "term": "a", "values": ["x1", "x2", "x3"]}
    one_a_page = ScanPlanner(page_files=1)
    first = ask(one_a_page, table, condition, PYICEBERG)
    rename("a", "b")
    rename("y", "a")
    assert paths(ask(planner, table, equal("a", "x2"), PYICEBERG)) == [everything[-2]]
    assert all_paths(one_a_page, table, first) == everything


def test_names_in_any_case(planner: ScanPlanner, table: Table) -> None:
    assert len(paths(ask(planner, table, equal("S", "v020"), case_sensitive=False))) == 1
    assert len(paths(ask(planner, table, equal("S", "v020")))) == FILES


def test_residuals_of_large_answers_are_short(
    planner: ScanPlanner, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.serving.planning.scan_planner.MOST_RESIDUALS", 3000)
    condition = {"type": "not-in", "term": "n", "values": list(range(1000))}
    tasks = ask(planner, table, condition)["file-scan-tasks"]
    assert len(tasks) == FILES
    assert all(task["residual-filter"]["type"] == "or" for task in tasks)
