"""A build of some columns leaves the snapshot's filters of the others as they are."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.access import Access
from sidecar.bundle.verify import verify_sidecar
from sidecar.storage.opening import open_source

ROWS = 2_000


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest) -> Any:
    """Three files whose bounds say nothing: every column is spread over all files."""
    name = f"db.carry_{request.node.name}"
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
    table = catalog.create_table(name, schema)
    for part in range(3):
        numbers = [row * 6 + part * 2 for row in range(ROWS)]
        rows = {"a": numbers, "b": [f"b{n}" for n in numbers], "c": [-n for n in numbers]}
        table.append(pa.table(rows, schema=schema))
    return table


def built(table: Any, *columns: str, **options: Any) -> Any:
    options.setdefault("engine", "local")
    report = sidecar.build(table, list(columns), **options)
    assert report.warnings == []
    return table.catalog.load_table(table.name())


def covered(table: Any, predicate: str) -> tuple[int, int]:
    plan = sidecar.plan(table, predicate)
    assert plan.warnings == ()
    return plan.files_covered, plan.files_kept


def bundles(table: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar

    found = find_sidecar(table, Access())
    puffin = found.sidecar.puffin
    blobs = [(b.type, b.fields, puffin.read_raw(b)) for b in puffin.metadata.blobs if b.type == "sidecar-sbbf-v1"]
    found.sidecar.close()
    return blobs


def test_other_columns_are_carried_over_as_bytes(table: Any) -> None:
    table = built(table, "a", "b")
    before = bundles(table)
    table = built(table, "c")
    after = bundles(table)
    assert after[: len(before)] == before
    assert [fields for _, fields, _ in after] == [(1,), (2,), (3,)]
    for predicate in ("a = 1200", "b = 'b1200'", "c = -1200"):
        assert covered(table, predicate) == (3, 1)
        assert sidecar.scan(table, predicate).num_rows == 1
    assert covered(table, "a = 1201") == (3, 0)
    assert counted(table).keys() == {"a", "b", "c"}


def test_a_column_that_is_built_again_is_replaced_and_stands_once(table: Any) -> None:
    table = built(table, "a", "b", fpp=0.01)
    table = built(table, "b", fpp=0.0001)
    assert [fields for _, fields, _ in bundles(table)] == [(1,), (2,)]
    table = built(table, "a", "b", full=True)
    assert len(sidecar.status(table).segments) == 1
    assert covered(table, "a = 1200 and b = 'b1200'") == (3, 1)


def test_a_build_of_sketches_leaves_the_filters(table: Any) -> None:
    table = built(table, "a", kinds=["bloom"])
    sidecar.build(table, ["a"], kinds=["theta"], engine="local")
    assert covered(table, "a = 1200") == (3, 1)


def test_what_is_left_is_sound_and_told_truly(table: Any) -> None:
    table = built(table, "a", "b")
    table = built(table, "b", "c")
    path = table.metadata.statistics[0].statistics_path
    assert verify_sidecar(open_source(path)) == []
    assert sidecar.verify(table).problems == []
    coverage = sidecar.status(table).coverage
    for kind in ("bloom", "theta"):
        assert {column: kinds[kind].units for column, kinds in coverage.items()} == {
            "a": 3,
            "b": 3,
            "c": 3,
        }


def test_dropped_columns_are_left_behind(table: Any) -> None:
    table = built(table, "a", "b")
    with table.update_schema() as update:
        update.delete_column("b")
    table = built(table.catalog.load_table(table.name()), "c")
    assert [fields for _, fields, _ in bundles(table)] == [(1,), (3,)]


def append(table: Any) -> Any:
    table.append(table.scan(limit=50).to_arrow())
    return table.refresh()


def counted(table: Any) -> dict[str, tuple[int, int]]:
    """The snapshot and the distinct values of each sketch of the table in the newest sidecar, by column."""
    names = table.schema().find_column_name
    with closing(sidecar.open_sidecar(table)) as opened:
        sketches = [blob for blob in opened.puffin.metadata.blobs if "ndv" in blob.properties]
    return {names(b.fields[0]): (b.snapshot_id, int(b.properties["ndv"])) for b in sketches}


def test_distinct_counts_of_columns_that_are_not_named_stay_and_say_for_which_snapshot(table: Any) -> None:
    table = built(table, "a", "b")
    first = table.current_snapshot().snapshot_id
    before = counted(table)
    table = append(table)
    report = sidecar.build(table, ["b"], engine="local")
    assert report.behind == {"a": 1}
    assert any("a (1)" in warning for warning in report.warnings)
    now = counted(table)
    assert now["a"] == before["a"]
    assert before["a"][0] == first
    assert now["b"][0] == table.current_snapshot().snapshot_id
    report = sidecar.build(table, ["a", "b"], engine="local")  # the sketch is continued, not made anew
    assert (report.units, report.files_carried, report.behind, report.warnings) == (1, 3, {}, [])
    assert counted(table)["a"] == (table.current_snapshot().snapshot_id, before["a"][1])
    assert covered(table, "a = 1200 and b = 'b1200'") == (4, 1)


def test_a_sketch_whose_files_cannot_be_told_any_more_is_left_out(table: Any) -> None:
    """Else a later build would take it for one of the files that are left."""
    table = built(table, "a")
    table.overwrite(table.scan(limit=50).to_arrow())
    report = sidecar.build(table, ["b"], engine="local")
    assert report.behind == {"a": 1}
    assert set(counted(table)) == {"b"}
    sidecar.build(table, ["a"], engine="local")
    assert counted(table)["a"][1] == 50


def test_a_segment_with_columns_that_the_table_dropped_is_left_behind(table: Any) -> None:
    table = built(table, "a")
    table = built(table, "b")
    with table.update_schema() as update:
        update.delete_column("b")
    assert len(sidecar.status(table).segments) == 2
    report = sidecar.build(table, ["a"], engine="local")
    assert (report.units, report.segments_carried) == (0, 1)
    assert len(sidecar.status(table).segments) == 1
    assert set(counted(table)) == {"a"}
