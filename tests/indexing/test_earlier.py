"""What an earlier sidecar spares a build, and when it must not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import sidecar
from sidecar.bundle import field_parts, field_toc
from sidecar.bundle.units import writer
from sidecar.bundle.verify import verify_sidecar
from sidecar.filters.theta import ThetaSketch
from sidecar.indexing.previous import build_state
from sidecar.indexing.previous.earlier import _refused_blobs
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.indexing.cases import filters_of, sidecar_of, sketches_of
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("i", pa.int32())])
ROWS = 2000


def _rows(number: int) -> pa.Table:
    keys = np.random.default_rng(number).integers(0, 2**60, ROWS)
    return pa.table(
        {"k": keys, "s": [f"{key} text" for key in keys], "i": pa.array(np.arange(ROWS), pa.int32())},
        schema=SCHEMA,
    )


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest) -> Any:
    return create_with_rows(catalog, f"db.earlier_{request.node.name}", map(_rows, range(3)), SCHEMA)


def _build(table: Any, *columns: str, **options: Any) -> tuple[Any, Any]:
    report = sidecar.build(table, list(columns), **{"engine": "local", **options})
    now = table.catalog.load_table(table.name())
    if now.metadata.statistics:
        assert verify_sidecar(LocalSource(local_path(report.statistics_path) or "")) == []
    return report, now


def _segments(table: Any) -> list[tuple[str, int, set[int]]]:
    opened = sidecar_of(table)
    found = [(segment.id, segment.num_files, set(segment.fields)) for segment in opened.segments]
    opened.close()
    return found


def _assert_ndv(report: Any, table: Any) -> None:
    """The registered sketch is of exactly the live rows: as one that is built from nothing."""
    keys = pa.array(table.scan().to_arrow()["k"].combine_chunks())
    oracle = ThetaSketch.from_arrow(keys, "long")
    assert sketches_of(table)[1] == oracle.to_bytes()
    assert report.columns[0].ndv.estimate == oracle.estimate


def test_only_new_files_are_indexed(table: Any) -> None:
    first, table = _build(table, "k", "s")
    before = filters_of(table)
    (segment,) = _segments(table)
    table.append(_rows(7))
    report, table = _build(table, "k", "s")
    assert (report.units, report.files_carried, report.segments_carried) == (1, 3, 1)
    assert report.to_dict()["files"] == {"total": 4, "indexed": 1, "covered": 4, "failed": 0}
    assert report.to_dict()["carried"] == {"files": 3, "segments": 1}
    assert report.bytes_read < first.bytes_read / 2
    carried, new = _segments(table)
    assert carried == segment
    assert new[1:] == (1, {1, 2})
    after = filters_of(table)
    assert len(after) == 8
    assert {key: after[key] for key in before} == before
    _assert_ndv(report, table)
    plan = sidecar.plan(table, f"k = {2**59 + 1}")
    assert (plan.files_total, plan.files_covered, plan.files_kept) == (4, 4, 0)
    key = table.scan().to_arrow()["k"][0].as_py()
    assert sidecar.scan(table, f"k = {key}").num_rows == 1


def test_a_second_build_has_nothing_to_do(table: Any) -> None:
    first, table = _build(table, "k")
    entries = table.metadata.statistics
    report, table = _build(table, "k", engine="spark")
    assert (report.engine, report.engine_reason, report.units) == ("local", "there is nothing to index", 0)
    assert report.statistics_path == first.statistics_path
    assert report.blobs == first.blobs
    assert report.expected_false_units == pytest.approx(first.expected_false_units)
    assert table.metadata.statistics == entries


def test_full_indexes_everything_again(table: Any) -> None:
    _, table = _build(table, "k")
    (before,) = _segments(table)
    report, table = _build(table, "k", full=True)
    (after,) = _segments(table)
    assert (report.units, report.files_carried) == (3, 0)
    assert before[0] != after[0]


def test_other_columns_stay(table: Any) -> None:
    _, table = _build(table, "k", "s")
    before = filters_of(table)
    report, table = _build(table, "i")
    assert (report.units, report.files_carried, report.segments_carried) == (3, 0, 1)
    assert {key: value for key, value in filters_of(table).items() if key[2] != 3} == before
    assert [fields for _, _, fields in _segments(table)] == [{1, 2}, {3}]
    assert sketches_of(table).keys() == {1, 2, 3}
    report, table = _build(table, "i", "k")  # served by two segments together
    assert report.units == 0
    plan = sidecar.plan(table, f"k = {2**59 + 1} and i = 5")
    assert (plan.files_covered, plan.files_kept) == (3, 0)


def test_a_new_snapshot_without_new_columns_of_old_files_registers_what_there_is(table: Any) -> None:
    """Files were removed: their segment is still right for the others."""
    _, table = _build(table, "k", kinds=["bloom"])
    table.delete(f"k = {table.scan().to_arrow()['k'][0].as_py()}")  # rewrites one file
    report, table = _build(table, "k", kinds=["bloom"])
    assert (report.units, report.files_carried, report.warnings) == (1, 2, [])
    assert len(filters_of(table)) == 3 + 1  # the removed file's filter stays in its segment
    assert table.metadata.statistics[-1].snapshot_id == table.current_snapshot().snapshot_id
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 0


def test_a_sketch_forgets_the_values_of_a_removed_file(table: Any) -> None:
    _, table = _build(table, "k")
    table.delete(f"k = {_rows(0)['k'][0].as_py()}")
    report, table = _build(table, "k")
    assert (report.units, report.files_carried, report.warnings) == (2, 1, [])  # the newest file has its own group
    _assert_ndv(report, table)
    assert report.columns[0].ndv.lower <= 3 * ROWS - 1 <= report.columns[0].ndv.upper


def test_a_segment_without_a_live_file_is_dropped(table: Any) -> None:
    _, table = _build(table, "k", kinds=["bloom"])
    table.overwrite(_rows(8))
    report, table = _build(table, "k", kinds=["bloom"])
    assert (report.units, report.segments_carried) == (1, 0)
    assert len(_segments(table)) == 1


def test_a_promoted_column_is_sketched_anew(table: Any) -> None:
    """Ints and longs of one value hash apart in a sketch, not in a filter."""
    _, table = _build(table, "i")
    with table.update_schema() as update:
        update.update_column("i", field_type=LongType())
    table.append(_rows(9).set_column(2, "i", pa.array(np.arange(ROWS), pa.int64())))
    report, table = _build(table, "i")
    assert (report.units, report.files_carried) == (4, 0)
    assert report.columns[0].ndv.estimate == ROWS
    report, table = _build(table, "i", kinds=["bloom"])
    assert report.units == 0


def test_another_rate_is_another_filter(table: Any) -> None:
    _, table = _build(table, "k", fpp=0.01)
    assert _build(table, "k", fpp=0.01)[0].units == 0
    assert _build(table, "k")[0].units == 0  # auto takes what there is
    report, table = _build(table, "k", fpp=0.0001)
    assert (report.units, len(_segments(table))) == (3, 1)
    assert report.expected_false_units <= 3 * 0.0001


def test_a_kind_that_is_missing_is_built(table: Any) -> None:
    _, table = _build(table, "k", kinds=["theta"])
    assert filters_of(table) == {}
    report, table = _build(table, "k")
    assert report.units == 3
    _assert_ndv(report, table)


def test_files_that_could_not_be_read_are_tried_again(table: Any) -> None:
    broken = Path(local_path(next(iter(table.scan().plan_files())).file.file_path) or "")
    data = broken.read_bytes()
    broken.write_bytes(data[:-4] + b"XXXX")
    report, table = _build(table, "k")
    assert len(report.files_failed) == 1
    broken.write_bytes(data)
    report, table = _build(table, "k")
    assert (report.units, report.files_carried, report.files_failed) == (1, 2, {})
    _assert_ndv(report, table)
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 0


def test_a_damaged_sidecar_is_not_built_upon(table: Any) -> None:
    report, table = _build(table, "k")
    path = Path(local_path(report.statistics_path) or "")
    data = bytearray(path.read_bytes())
    opened = sidecar_of(table)
    (blob,) = (b for b in opened.puffin.metadata.blobs if b.type == "sidecar-units-v1")
    opened.close()
    toc = int.from_bytes(data[blob.offset + 16 : blob.offset + 24], "little")
    data[blob.offset + 64 : blob.offset + toc] = bytes(toc - 64)
    path.write_bytes(data)
    report, table = _build(table, "k")
    assert (report.units, len(_segments(table))) == (3, 1)
    assert "the earlier sidecar is damaged" in report.warnings[0]
    _assert_ndv(report, table)


def test_units_of_another_version_answer_nothing_and_are_built_anew(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file that was written before units said who added a file."""
    with monkeypatch.context() as patch:
        patch.setattr(writer, "UNITS_VERSION", 1)
        sidecar.build(table, ["k"], engine="local")
    table = table.catalog.load_table(table.name())
    planned = sidecar.plan(table, f"k = {2**59 + 1}")
    assert planned.files_kept == 3
    assert any("the units have an unknown version" in warning for warning in planned.warnings)
    report, table = _build(table, "k")
    assert (report.units, len(_segments(table))) == (3, 1)
    planned = sidecar.plan(table, f"k = {2**59 + 1}")
    assert (planned.files_kept, planned.warnings) == (0, ())


def test_a_refresh_indexes_anew_what_another_version_wrote(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file of layout 1, after an upgrade: its footer says that it has all that is declared."""
    with monkeypatch.context() as patch:
        for module in (field_parts, field_toc):
            patch.setattr(module, "FIELD_VERSION", 1)
        patch.setattr(build_state, "LAYOUT", "2.1")
        sidecar.build(table, ["k"], engine="local")
    table = table.catalog.load_table(table.name())
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 3
    assert [step.why for step in sidecar.status(table).to_do] == [
        "indexes are of a form that this version of sidecar does not read"
    ]
    report = sidecar.refresh(table)
    assert (report.action, report.files_indexed) == ("written", 3)
    assert "the earlier sidecar cannot be used: the filters have an unknown version" in report.warnings[0]
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 0
    assert sidecar.refresh(table).action == "current"


def test_two_builds_of_different_columns_at_once_lose_nothing(table: Any) -> None:
    other = table.catalog.load_table(table.name())
    done = []

    def interfere(what: str, step: int | None = None, total: int | None = None) -> None:
        if what == "slicing" and not done:
            done.append(sidecar.build(other, ["s"], engine="local"))

    with sidecar.progress(interfere):
        _, table = _build(table, "k")
    assert done
    assert sorted(map(min, (fields for _, _, fields in _segments(table)))) == [1, 2]
    assert sketches_of(table).keys() == {1, 2}


def test_storage_that_is_gone_replaces_nothing(table: Any) -> None:
    from sidecar.errors import StorageError

    _, table = _build(table, "k")
    entries = table.metadata.statistics
    for task in table.scan().plan_files():
        path = Path(local_path(task.file.file_path) or "")
        path.rename(path.with_suffix(".away"))
    with pytest.raises(StorageError, match="no data file could be read, so nothing was registered"):
        sidecar.build(table, ["s"], engine="local")
    assert table.catalog.load_table(table.name()).metadata.statistics == entries


def test_a_removal_from_one_of_two_segments_costs_a_group_of_this_one(table: Any) -> None:
    _, table = _build(table, "k")
    table.append(_rows(8))
    _, table = _build(table, "k")
    assert len(_segments(table)) == 2
    table.delete(f"k = {_rows(0)['k'][0].as_py()}")
    report, table = _build(table, "k")
    assert (report.units, report.files_carried) == (2, 2)
    _assert_ndv(report, table)


def test_a_plaintext_blob_of_a_column_that_has_a_key_is_made_anew() -> None:
    plan: Any = SimpleNamespace(
        access=SimpleNamespace(keys=SimpleNamespace(bundle_keys={"ssn": b"master"})),
        columns=[SimpleNamespace(field_id=2, path="ssn")],
        options=SimpleNamespace(encrypted={2}),
    )
    blob = SimpleNamespace(toc=SimpleNamespace(field_id=2, lock=None))
    segment: Any = SimpleNamespace(header=SimpleNamespace(segment_id=b"one"), sketch_blobs={}, blobs=[blob])
    assert _refused_blobs([segment], plan) == {(b"one", 2)}
