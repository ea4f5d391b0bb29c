"""Plans: pruned right, kept when in doubt, and honest about both. The oracle is pyiceberg's own scan."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, In
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, LongType

import sidecar
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.planning import opened_sidecar
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.iceberg.cases import (
    INDEXED,
    append,
    create,
    delete_by_equality,
    matching_files,
    predicate,
)
from tests.planning.plan_cases import LONGS, assert_right, assert_right_in_memory, create_longs, key, longs
from tests.tables import create_with_rows

IDS = 240


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Five files, indexed."""
    return create_longs(catalog, "db.plan_longs")


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    """All types: built, then appended to, then rows of an indexed file deleted (which rewrites it)."""
    made = create(catalog, "db.plan_types", partitioned=False)
    sidecar.build(made, INDEXED, kinds=["bloom"], engine="local")
    made.refresh()
    append(made, IDS, 40)
    made.delete("id in (41, 42, 43, 250)")
    return made


def test_a_point_lookup_keeps_the_file_that_has_it(table: Table) -> None:
    planned = plan(table, f"k = {key(3)}")
    assert set(planned.kept_files) == matching_files(table, planned.row_filter)
    assert (planned.files_total, planned.files_covered, planned.files_kept) == (5, 5, 1)
    assert planned.funnel.dropped_by_filter == 4
    assert planned.funnel.kept_because == {"may match": 1}
    assert planned.warnings == ()
    assert planned.sidecar is not None
    assert planned.sidecar.snapshots_behind == 0
    assert planned.sidecar.path == table.metadata.statistics[-1].statistics_path
    assert_right(table, planned)


def test_an_absent_key_keeps_nothing_and_reads_little(table: Table) -> None:
    planned = plan(table, f"k = {key(3) + 1}")
    assert planned.files_kept == 0
    assert planned.index_reads <= 3
    assert 0 < planned.index_bytes_read <= 64 * 1024
    assert read(planned).num_rows == 0


def test_lists_and_composition(table: Table) -> None:
    assert plan(table, f"k in ({key(0)}, {key(1)}, 1)").files_kept == 2
    assert plan(table, f"k = {key(0)} or k = {key(1)} or k = 3").files_kept == 2
    assert plan(table, f"k = {key(0)} and v = '0-17'").files_kept == 1
    assert plan(table, f"k = {key(0)} and k = {key(1)}").files_kept == 0
    assert plan(table, f"not (k != {key(0)})").files_kept == 1
    assert plan(table, f"k = {key(0)} or v = '1-17'").files_kept == 5
    assert plan(table, EqualTo("k", key(0))).files_kept == 1
    assert plan(table, In("k", [key(0), key(1)])).files_kept == 2


@pytest.mark.parametrize(
    "text",
    [
        "k != 5",
        "k > 5",
        "k is not null",
        "k not in (1, 2)",
        "true",
        "v like '1%'",
        "k = 1 or v > '1'",
        "k = 1 and false",
    ],
)
def test_a_query_that_no_index_can_help_reads_none_of_it(
    table: Table, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the index was opened")

    monkeypatch.setattr(opened_sidecar, "search_sidecar", fail)
    planned = plan(table, text)
    assert (planned.index_reads, planned.index_bytes_read, planned.warnings) == (0, 0, ())
    assert_right(table, planned)


def test_bounds_come_before_filters_in_small_tables(catalog: Any) -> None:
    thousands = (pa.table({"k": np.arange(n * 1000, n * 1000 + 1000)}) for n in range(3))
    clustered = create_with_rows(catalog, "db.plan_clustered", thousands, columns=["k"])
    for text, kept in (("k = 1500", 1), ("k = 5000", 0)):
        planned = plan(clustered, text)
        assert (planned.files_kept, planned.funnel.dropped_by_metadata, planned.funnel.dropped_by_filter) == (
            kept,
            3 - kept,
            0,
        )
        assert planned.files_covered == 3, "files that bounds dropped are covered, too"
        assert planned.manifests.opened == 0


def test_columns_that_are_not_indexed_are_kept_with_the_reason(table: Table) -> None:
    planned = plan(table, "v = '3-17'")
    assert planned.files_covered == 0
    assert planned.funnel.listed == 5
    reasons = dict(planned.funnel.kept_because)
    assert reasons == {"not indexed: v: no filters were built": planned.files_kept}
    assert_right(table, planned)


def test_too_many_values_are_said_so(table: Table) -> None:
    planned = plan(table, In("k", range(1, 401, 2)))
    assert planned.files_kept == plan(table, "k > 0 and k < 402").files_kept
    assert "200 values of k" in planned.notes[0]


def test_after_an_append_old_files_are_pruned_and_the_new_one_is_kept(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_append")
    table.append(longs(77))
    planned = plan(table, f"k = {key(2)}")
    assert (planned.files_total, planned.files_covered, planned.files_kept) == (6, 5, 2)
    assert planned.funnel.kept_because == {"may match": 1, KeptFilesBecause.NOT_LISTED.text: 1}
    assert planned.sidecar is not None
    assert planned.sidecar.snapshots_behind == 1
    assert KeptFilesBecause.NOT_LISTED.text in planned.explain()
    assert "1 snapshot ago" in planned.explain()
    assert_right(table, planned)
    assert read(plan(table, f"k = {key(77)}")).num_rows == 1


def test_time_travel_uses_the_nearest_sidecar(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_travel", files=3, build=False)
    before = table.metadata.current_snapshot_id
    table.append(longs(50))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    indexed = table.metadata.current_snapshot_id
    table.append(longs(51))
    after = table.metadata.current_snapshot_id
    table.append(longs(52))
    table.delete(f"k = {key(1)}")
    cases = {before: (3, 3, 1), indexed: (4, 4, 1), after: (5, 4, 2), None: (6, 3, 4)}
    for snapshot_id, files in cases.items():
        planned = plan(table, f"k = {key(0)}", at=snapshot_id)
        assert (planned.files_total, planned.files_covered, planned.files_kept) == files, snapshot_id
        assert planned.snapshot_id == (snapshot_id or table.metadata.current_snapshot_id)
        assert_right(table, planned, snapshot_id)
        gone = plan(table, f"k = {key(1)}", at=snapshot_id)
        assert read(gone).num_rows == (0 if snapshot_id is None else 1)
    assert plan(table, "k = 1", at=before).files_kept == 0


def test_random_predicates_give_the_rows_of_pyiceberg(history: Table) -> None:
    rng = random.Random(20)
    columns = [name for name in INDEXED if name != "u"]  # pyarrow cannot compare UUIDs
    pruned = 0
    for _ in range(60):
        planned = plan(history, predicate(rng, columns, IDS))
        assert planned.warnings == ()
        assert_right(history, planned)
        pruned += planned.funnel.dropped_by_filter
    assert pruned > 70


def test_partitioned_tables_give_the_rows_of_pyiceberg(catalog: Any) -> None:
    table = create(catalog, "db.plan_parts", files=3)
    sidecar.build(table, INDEXED, kinds=["bloom"], engine="local")
    table.refresh()
    append(table, 120, 40)
    rng = random.Random(21)
    for _ in range(15):
        text = f"{predicate(rng, ['i', 's', 'dec9', 'st.x', 'f'], 120)} and part = 'a'"
        planned = plan(table, text)
        assert_right(table, planned)
        assert planned.funnel.dropped_by_metadata


def test_uuids_are_pruned_although_pyiceberg_cannot_scan_for_them(history: Table) -> None:
    files = {
        task.file.file_path: {str(uuid.UUID(bytes=value)) for value in _column(history, task, "u") if value}
        for task in history.scan().plan_files()
    }
    wanted = next(iter(sorted(next(iter(files.values())))))
    kept = set(plan(history, f"u = '{wanted}'").kept_files)
    assert {path for path, values in files.items() if wanted in values} <= kept
    assert len(kept) < len(files)


def _column(table: Table, task: Any, name: str) -> list[bytes]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    rows = ArrowScan(table.metadata, table.io, table.schema().select(name), AlwaysTrue()).to_table([task])
    return [value.bytes if isinstance(value, uuid.UUID) else value for value in rows[name].to_pylist()]


def test_schema_evolution(catalog: Any) -> None:
    """int to long, float to double, wider decimals, a rename, and a name that is dropped and added again."""
    table = create(catalog, "db.plan_evolved", files=3, partitioned=False)
    sidecar.build(table, INDEXED, kinds=["bloom"], engine="local")
    table.refresh()
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("dec9", DecimalType(20, 2))
        update.rename_column("l", "renamed")
        update.delete_column("s")
    with table.update_schema() as update:
        update.add_column("s", table.schema().find_type("st.y"))
        update.add_column("fresh", LongType())
    append_evolved(table)
    rng = random.Random(22)
    columns = ["i", "f", "dec9", "st.y", "d"]
    pruned = 0
    for _ in range(60):
        planned = plan(table, predicate(rng, columns, 120))
        assert_right_in_memory(table, planned)
        pruned += planned.funnel.dropped_by_filter
    assert pruned > 30
    for text, kept in (
        ("i = 1099511627776", 1),
        ("renamed = 7696581394432", None),
        ("s = 'again'", 4),
        ("fresh = 9", 4),
    ):
        planned = plan(table, text)
        assert_right(table, planned)
        assert kept is None or planned.files_kept <= kept, text
    assert plan(table, "renamed = 3").funnel.dropped_by_filter == 3
    assert plan(table, "s = 'again'").funnel.dropped_by_filter == 0
    assert plan(table, "f = 0.1").funnel.dropped_by_filter == 0, "engines differ on 0.1 in a promoted float"


def append_evolved(table: Table) -> None:
    schema = table.schema().as_arrow()
    row = {"id": 999, "i": 2**40, "f": 0.1, "renamed": 7, "s": "again", "fresh": 9}
    table.append(pa.Table.from_pylist([row], schema=schema))


def test_names_that_move_to_other_columns_of_imported_files(catalog: Any, tmp_path: Path) -> None:
    """Files without field ids are read by name mapping, and names move as columns are renamed and added."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    table = catalog.create_table("db.plan_names", schema)
    paths = []
    for n in range(4):
        path = tmp_path / f"{n}.parquet"
        a, b = ([base + row * 8 + n * 2 for row in range(30)] for base in (0, 1))
        pq.write_table(pa.table({"a": a, "b": b}, schema=schema), path)
        paths.append(f"file:{path}")
    table.add_files(paths)
    sidecar.build(table, ["a", "b"], kinds=["bloom"], engine="local")
    table.refresh()
    dropped = []
    steps: list[Any] = [
        lambda update: None,
        lambda update: update.rename_column("a", "old"),
        lambda update: update.add_column("a", LongType()),
        lambda update: update.delete_column("b"),
        lambda update: update.add_column("b", LongType()),
    ]
    for step in steps:
        with table.update_schema() as update:
            step(update)
        found = 0
        for column in table.schema().column_names:
            for value in (0, 8, 2, 9, 3, 100):
                planned = plan(table, f"{column} = {value}")
                assert_right(table, planned)
                found += planned.funnel.dropped_by_filter
        dropped.append(found)
    assert dropped[0] >= dropped[1] > 0
    assert dropped[-1] == 0


def test_an_empty_table_has_an_empty_plan(catalog: Any) -> None:
    table = catalog.create_table("db.plan_empty", LONGS)
    planned = plan(table, "k = 1")
    assert (planned.tasks, planned.files_total, planned.snapshot_id) == ([], 0, None)
    assert read(planned).num_rows == 0
    assert planned.to_dict()["files"] == {"total": 0, "covered": 0, "kept": 0}


@pytest.mark.parametrize(
    ("text", "snapshot", "words"),
    [
        ("nope = 1", None, "no column 'nope'"),
        ("k = 'abc'", None, "not a number"),
        ("k = 1.5", None, "whole number"),
        ("k = 1", 12345, "no snapshot 12345"),
        ("k =", None, "expected a literal"),
    ],
)
def test_wrong_usage_is_one_sentence(table: Table, text: str, snapshot: int | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(table, text, at=snapshot)


def test_names_in_another_case(table: Table) -> None:
    assert plan(table, f"K = {key(3)}", case_sensitive=False).files_kept == 1


def test_equality_deletes_name_who_can_read_the_table(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_equality", files=2)
    before = table.metadata.current_snapshot_id
    delete_by_equality(table, pa.table({"k": [key(0)]}), [1])
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)equality deletes.*Spark.*Trino.*DuckDB"):
        plan(table, f"k = {key(0)}")
    assert plan(table, f"k = {key(0)}", at=before).files_kept == 1
    handed_over = plan(table, f"k = {key(0)}", allow_equality_deletes=True)
    assert handed_over.equality_deletes == {*handed_over.kept_files}
    with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
        handed_over.to_arrow()


def test_equality_deletes_that_can_apply_to_no_survivor_do_not_matter(catalog: Any) -> None:
    """Rows that came after the deletes, in files that filters tell from the others."""
    table = create_longs(catalog, "db.plan_equality_late", files=2, build=False)
    delete_by_equality(table, pa.table({"k": [key(0)]}), [1])
    table.append(longs(7))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    planned = plan(table, f"k = {key(7)}")
    assert planned.files_kept == 1
    assert read(planned).num_rows == 1
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)equality deletes.*Spark.*DuckDB"):
        plan(table, f"k = {key(0)}")
    with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
        plan(table, "true")


def test_a_plan_as_json_and_as_text(table: Table) -> None:
    data = plan(table, f"k = {key(3)}").to_dict()
    assert data["files"] == {"total": 5, "covered": 5, "kept": 1}
    assert len(data["kept_files"]) == 1
    assert data["funnel"]["dropped"] == {"partition_or_bounds": 0, "filter": 4, "page_index": 0}
    assert data["funnel"]["kept_because"] == {"may match": 1}
    assert data["index_reads"] >= 1
    assert data["index_bytes_read"] > 0
    assert data["seconds"] > 0
    assert data["sidecar"]["snapshot_id"] == data["snapshot_id"] == table.metadata.current_snapshot_id
    text = plan(table, f"k = {key(3)}").explain()
    assert "5  data files in the snapshot" in text
    assert "-4  dropped by filter" in text
    assert "5 files listed, 5 indexed" in text
