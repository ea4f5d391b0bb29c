"""Lookups that keep many files: tasks of manifests in memory, for the same files as a plan keeps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning.files import cheapest, choose
from sidecar.serving.planning import file_selection
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.serving.planning.asking import JAVA, PYICEBERG, ask, ask_for_facts, equal, paths
from tests.tables import create_with_rows

FILES = 6


def part(at: int, also: list[str]) -> pa.Table:
    """A file with bounds as all others have, and some values."""
    return pa.table({"n": [at] * (2 + len(also)), "s": ["a", "z", *also]})


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """``most`` is in all files but one, and ``few`` in one."""
    parts = [part(at, ["most"] * (at != 2) + ["few"] * (at == 4)) for at in range(FILES)]
    return create_with_rows(catalog, "db.many_files", parts, columns=["s"])


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_selection, "DIRECT_FILES", 1)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each plan decodes out of a sidecar."""
    found: list[int] = []
    read_entries = choose.read_entries

    def noted(files: Any, *others: Any) -> Any:
        found.append(len(files))
        return read_entries(files, *others)

    monkeypatch.setattr(choose, "read_entries", noted)
    return found


def kept(planner: ScanPlanner, table: Table, condition: Any, caller: Any = PYICEBERG) -> list[str]:
    return paths(ask(planner, table, condition, caller))


def expected(table: Table, predicate: str) -> list[str]:
    return sorted(sidecar.plan(table, predicate).kept_files)


@pytest.mark.parametrize("few", [cheapest.FEW, 1], ids=["bounds first", "filters first"])
def test_many_files_are_not_decoded_out_of_the_sidecar(
    table: Table, decoded: list[int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cheapest, "FEW", few)
    planner = ScanPlanner()
    for _ in range(2):
        found, facts = ask_for_facts(planner, table, equal("s", "most"), PYICEBERG)
        assert len(paths(found)) == facts.files_kept == FILES - 1
        assert facts.fallback == ""
        assert facts.dropped == {"partition_or_bounds": 0, "filter": 1, "page_index": 0}
        assert decoded == []
    assert sorted(paths(found)) == expected(table, "s = 'most'")
    decoded.clear()
    assert len(kept(planner, table, equal("s", "few"))) == 1
    assert decoded == [1]


def test_bounds_count_too(table: Table, decoded: list[int]) -> None:
    """Bounds leave one file of those that filters keep. The second time they are in memory."""
    planner = ScanPlanner()
    condition = {"type": "and", "left": equal("s", "most"), "right": equal("n", 5)}
    wanted = expected(table, "s = 'most' and n = 5")
    assert len(wanted) == 1
    facts = ask_for_facts(ScanPlanner(), table, condition, PYICEBERG)[1]
    assert sum(facts.dropped.values()) == FILES - 1
    assert facts.dropped["partition_or_bounds"] >= FILES - 2
    for _ in range(2):
        assert kept(planner, table, condition) == wanted


def test_answers_for_spark_have_a_sentinel_if_all_files_match_wholly(catalog: Any) -> None:
    """Filters drop the two files whose bounds allow a match, the smaller of which is the sentinel."""
    others = [pa.table({"s": ["a", "z", *["y"] * more]}) for more in (3, 0)]
    parts = [*others, *(pa.table({"s": ["m"] * 2}) for _ in range(3))]
    table = create_with_rows(catalog, "db.many_files_whole", parts, columns=["s"])
    planner = ScanPlanner()
    wanted = kept(planner, table, equal("s", "m"))
    assert len(wanted) == 3
    found, facts = ask_for_facts(planner, table, equal("s", "m"), JAVA)
    (sentinel,) = {*paths(found)} - {*wanted}
    assert facts.sentinel
    sizes = {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}
    assert sizes[sentinel] == min(size for path, size in sizes.items() if path not in wanted)


def test_no_sentinel_is_needed_where_a_file_may_match_in_part(table: Table) -> None:
    found, facts = ask_for_facts(ScanPlanner(), table, equal("s", "most"), JAVA)
    assert not facts.sentinel
    assert len(paths(found)) == FILES - 1


@pytest.fixture(scope="module")
def rewritten(catalog: Any) -> Table:
    """The sidecar lists no manifest of the table, but all files except one that came later."""
    parts = [part(at, ["most"] * (at != 2) + ["few"] * (at == 4)) for at in range(FILES)]
    table = create_with_rows(catalog, "db.many_files_rewritten", parts, columns=["s"])
    with table.transaction() as tx:
        tx.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    table.append(part(9, []))
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) == 1
    return table


def test_files_of_rewritten_manifests_are_known_by_fingerprints(rewritten: Table, decoded: list[int]) -> None:
    planner = ScanPlanner()
    for value, count in (("most", FILES), ("few", 2), ("none", 1)):
        wanted = expected(rewritten, f"s = '{value}'")
        assert len(wanted) == count
        decoded.clear()
        assert sorted(kept(planner, rewritten, equal("s", value))) == wanted
        assert decoded == []


def test_files_under_other_paths_are_looked_for_one_by_one(rewritten: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sidecar of a table that has moved drops as many files as a plan by it does."""
    monkeypatch.setattr(SidecarFiles, "has_moved", property(lambda self: True))
    monkeypatch.setattr("sidecar.serving.planning.data_manifests.fingerprint", lambda _: bytes(24))
    assert len(kept(ScanPlanner(), rewritten, equal("s", "few"))) == 2


def test_a_table_without_a_sidecar_is_read_once(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_with_rows(catalog, "db.many_files_bare", [part(at, []) for at in range(3)])
    planner = ScanPlanner()
    found, facts = ask_for_facts(planner, table, equal("s", "most"))
    assert (len(paths(found)), facts.fallback) == (3, file_selection.NO_SIDECAR)
    monkeypatch.setattr("sidecar.planning.files.records.live_entries", None)
    monkeypatch.setattr("sidecar.serving.planning.data_manifests.read_checked", None)
    assert len(kept(planner, table, equal("s", "most"))) == 3
    assert len(kept(planner, table, {"type": "and", "left": equal("s", "most"), "right": equal("n", 1)})) == 1


def test_predicates_that_no_filter_helps_are_remembered(rewritten: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_selection, "BROAD", 1)
    planner = ScanPlanner()
    assert len(kept(planner, rewritten, equal("n", 1))) == 1
    _, facts = ask_for_facts(planner, rewritten, equal("n", 2), PYICEBERG)
    assert (facts.fallback, facts.index_bytes_read) == (file_selection.NO_INDEX_HELPS, 0)


def test_tables_that_do_not_fit_into_memory_are_planned_file_by_file(table: Table, decoded: list[int]) -> None:
    assert len(kept(ScanPlanner(cache_bytes=1 << 10), table, equal("s", "most"))) == FILES - 1
    assert decoded == [FILES - 1]  # bounds keep all, filters drop one before its record is decoded


def test_filters_count_as_helpful_also_where_bounds_leave_nothing(
    rewritten: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form is remembered as one that no filter helps only if filters were asked about files, and had none of it."""
    monkeypatch.setattr(file_selection, "BROAD", 1)
    planner = ScanPlanner()

    def beyond(least: int) -> Any:
        return {"type": "and", "left": equal("s", "few"), "right": {"type": "gt", "term": "n", "value": least}}

    assert kept(planner, rewritten, beyond(77)) == []
    found, facts = ask_for_facts(planner, rewritten, beyond(0), PYICEBERG)
    assert facts.fallback == ""
    assert sorted(paths(found)) == expected(rewritten, "s = 'few' and n > 0")
    assert len(paths(found)) == 2, "one has the value, and one is not listed"


def test_filters_of_a_segment_that_does_not_list_the_manifest_count_as_helpful(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later build lists the manifest, which was merged, without filters of the column that is asked for."""
    parts = [part(at, ["most"] * (at != 2)) for at in range(FILES)]
    table = create_with_rows(catalog, "db.many_files_elsewhere", parts, columns=["s"])
    with table.transaction() as tx:
        tx.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    table.append(part(9, []))
    sidecar.build(table, ["n"], engine="local")
    table.refresh()
    monkeypatch.setattr(file_selection, "BROAD", 1)
    planner = ScanPlanner()
    for _ in range(2):
        found, facts = ask_for_facts(planner, table, equal("s", "most"), PYICEBERG)
        assert (len(paths(found)), facts.fallback) == (FILES, "")
