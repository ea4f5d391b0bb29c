"""Whole builds in this process: what is registered, what is kept, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.model import UnitState
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.theta import ThetaSketch
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.indexing.cases import filters_of, rng, sidecar_of, sketches_of
from tests.indexing.local_cases import ABSENT, KINDS, SCHEMA, assert_nothing_is_denied, some_rows, some_table


def _path(entry: Any) -> str:
    return local_path(entry.file_path) or ""


def test_every_value_is_kept_and_absent_ones_are_not(catalog: Any) -> None:
    table = some_table(catalog, "all", **{"write.parquet.row-group-limit": "1000"})
    report = sidecar.build(table, list(KINDS), engine="local")
    table = catalog.load_table("db.all")
    assert (report.units, report.files_total, report.files_indexed, report.files_failed) == (12, 4, 4, {})
    assert assert_nothing_is_denied(table) == 12 * 4
    plan = sidecar.plan(table, f"k = {ABSENT}")
    assert (plan.files_total, plan.files_covered, plan.warnings) == (4, 4, ())
    assert plan.files_kept == 0
    wanted = table.scan(row_filter="k > 0", selected_fields=("k",), limit=1).to_arrow()["k"][0].as_py()
    assert sidecar.scan(table, f"k = {wanted}").num_rows == 1


def test_a_build_loads_the_table_as_often_as_its_commit_needs(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit, in pyiceberg's commit and after it; the caller's table shows what the last one found."""
    table = some_table(catalog, "loads", files=1)
    loads, load = [], catalog.load_table
    monkeypatch.setattr(catalog, "load_table", lambda name: loads.append(name) or load(name))
    report = sidecar.build(table, ["k"], engine="local")
    assert len(loads) == 3
    assert [entry.statistics_path for entry in table.metadata.statistics] == [report.statistics_path]
    assert table.metadata_location == load(table.name()).metadata_location


def test_the_report_tells_what_was_done(catalog: Any) -> None:
    table = some_table(catalog, "report", files=2)
    report = sidecar.build(table, ["k", "s"], engine="local", fpp=0.001)
    data = json.loads(json.dumps(report.to_dict()))
    table = catalog.load_table("db.report")
    (entry,) = table.metadata.statistics
    assert data["statistics_path"] == entry.statistics_path
    assert data["file_size"] == entry.file_size_in_bytes
    assert data["snapshot_id"] == entry.snapshot_id == table.current_snapshot().snapshot_id
    assert data["files"] == {"total": 2, "indexed": 2, "covered": 2, "failed": 0}
    assert (data["engine"], data["fpp"], data["units"]) == ("local", 0.001, 2)
    k = data["columns"]["k"]
    assert sum(k["filters"].values()) == 2
    filters = [bitset for (_, _, field), (_, bitset) in filters_of(table).items() if field == 1]
    assert k["filter_bytes"] == sum(map(len, filters))
    rates = [SplitBlockBloomFilter.from_bytes(bitset).estimated_fpp() for bitset in filters]
    assert k["expected_false_units"] == pytest.approx(sum(rates))
    assert max(rates) <= 0.001
    assert data["expected_false_units"] == max(c["expected_false_units"] for c in data["columns"].values())
    distinct = len(np.unique(table.scan().to_arrow()["k"]))
    assert k["ndv"]["lower"] <= distinct <= k["ndv"]["upper"]
    assert k["uncovered"] == {"bloom": {}, "theta": {}}
    types = [blob["type"] for blob in data["blobs"]]
    assert types.count("sidecar-sbbf-v1") == 2
    assert types.count("apache-datasketches-theta-v1") == 2
    assert types[-2:] == ["sidecar-units-v1", "sidecar-toc-v1"]
    assert data["bytes_read"] > 0
    assert data["seconds"] > 0


def test_registered_ndv_is_the_sketchs(catalog: Any) -> None:
    table = some_table(catalog, "ndv")
    sidecar.build(table, ["c", "s"], kinds=["theta"], engine="local")
    table = catalog.load_table("db.ndv")
    (entry,) = table.metadata.statistics
    sketches = {i: ThetaSketch.from_bytes(data) for i, data in sketches_of(table).items()}
    registered = {blob.fields[0]: blob.properties["ndv"] for blob in entry.blob_metadata}
    assert registered == {i: str(sketch.ndv) for i, sketch in sketches.items()}
    rows = table.scan().to_arrow()
    assert sketches[2].estimate == len(np.unique(rows["c"])) == 1200
    assert sketches[3].estimate == pytest.approx(len(rows["s"].drop_null().unique()), rel=0.06)
    assert filters_of(table) == {}


def test_threads_change_nothing(catalog: Any) -> None:
    table = some_table(catalog, "threads", files=6)
    built = []
    for threads in (1, 5):
        sidecar.build(table, list(KINDS), engine="local", threads=threads, full=True)
        now = catalog.load_table("db.threads")
        built.append((filters_of(now), sketches_of(now)))
    assert built[0] == built[1]
    assert len(built[0][0]) == 24


def test_the_sidecar_is_sound(catalog: Any) -> None:
    table = some_table(catalog, "sound")
    report = sidecar.build(table, list(KINDS), engine="local")
    assert verify_sidecar(LocalSource(local_path(report.statistics_path or "") or "")) == []
    assert sidecar.verify(catalog.load_table("db.sound")).problems == []


# --- tables that are not plain ------------------------------------------------------------------------------


def test_reused_filters_are_carried_bit_for_bit(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.reuse", SCHEMA)
    paths = []
    for number in range(3):
        path = tmp_path / f"h{number}.parquet"
        options = {"k": {"ndv": 3000, "fpp": 0.001}}
        pq.write_table(some_rows(number), path, bloom_filter_options=options, use_dictionary=False, row_group_size=1500)
        paths.append(f"file:{path}")
    table.add_files(paths)
    report = sidecar.build(table, ["k", "s"], engine="local")
    table = catalog.load_table("db.reuse")
    assert report.columns[0].filters == {"reused": 6}
    assert report.columns[1].filters == {"scanned": 6}
    filters = filters_of(table)
    for path in paths:
        local = local_path(path) or ""
        from sidecar.parquet.bloom import read_bloom_filter
        from sidecar.parquet.footer import read_footer

        source = LocalSource(local)
        for group in read_footer(source).row_groups:
            found = read_bloom_filter(source, group.columns[0])
            assert found is not None
            assert filters[path, group.ordinal, 1] == ("int64", found.filter.to_bytes())
        source.close()
    assert assert_nothing_is_denied(table) == 12
    assert sidecar.plan(table, f"k = {ABSENT}").files_kept == 0


def test_damaged_files_cost_what_is_damaged(catalog: Any) -> None:
    table = some_table(catalog, "damage", files=4)
    files = [task.file for task in table.scan().plan_files()]
    no_footer, bad_page = _path(files[0]), _path(files[1])
    data = Path(no_footer).read_bytes()
    Path(no_footer).write_bytes(data[:-4] + b"XXXX")
    chunk = pq.ParquetFile(bad_page).metadata.row_group(0).column(2)
    page = bytearray(Path(bad_page).read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    page[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    Path(bad_page).write_bytes(page)

    report = sidecar.build(table, ["k", "s"], engine="local")
    assert set(report.files_failed) == {files[0].file_path, files[1].file_path}
    assert "begins as a Parquet file and does not end as one" in report.files_failed[files[0].file_path]
    assert report.to_dict()["files"] == {"total": 4, "indexed": 2, "covered": 2, "failed": 2}
    table = catalog.load_table("db.damage")
    filters = filters_of(table)
    assert not [key for key in filters if key[0] == files[0].file_path]
    assert [key[2] for key in filters if key[0] == files[1].file_path] == [1]
    (segment,) = sidecar_of(table).segments
    coverage = segment.coverage(3, "bloom")
    assert coverage is not None
    assert coverage.counts()[UnitState.INDEXED] == 2
    assert len(coverage.counts()) == 2

    kept = set(sidecar.plan(table, "s = 'row 5 in no file'").kept_files)
    assert kept == {files[0].file_path, files[1].file_path}
    assert set(sidecar.plan(table, f"k = {ABSENT}").kept_files) == {files[0].file_path}


# --- refusals -----------------------------------------------------------------------------------------------


def test_wrong_calls_are_refused_before_any_work(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = some_table(catalog, "refused", files=1)

    def no_work(*_: Any, **__: Any) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr("sidecar.indexing.engine_choice.LocalEngine", no_work)
    for call in (
        {"columns": ["nope"]},
        {"columns": []},
        {"columns": ["k"], "kinds": ["pages"]},
        {"columns": ["k"], "kinds": []},
        {"columns": ["k"], "reuse": "some"},
        {"columns": ["k"], "engine": "flink"},
        {"columns": ["k"], "fpp": 0.0},
        {"columns": ["k"], "fpp": "tiny"},
        {"columns": ["k"], "at": 17},
    ):
        columns = call.pop("columns")
        with pytest.raises(UsageError):
            sidecar.build(table, columns, **call)
    assert catalog.load_table("db.refused").metadata.statistics == []


def test_a_table_without_a_snapshot_has_nothing_to_index(catalog: Any) -> None:
    table = catalog.create_table("db.empty", SCHEMA)
    report = sidecar.build(table, ["k"])
    assert (report.snapshot_id, report.statistics_path, report.files_total) == (None, None, 0)
    assert report.to_dict()["engine_reason"] == "there is nothing to index"
    assert table.refresh().metadata.statistics == []
    for call in ({"columns": ["nosuch"]}, {"columns": ["k"], "kinds": ["nosuch"]}):
        with pytest.raises(UsageError, match="nosuch"):
            sidecar.build(table, **call)
    with pytest.raises(UsageError, match="no branch or tag 'dev'"):
        sidecar.build(table, ["k"], at="dev")


def test_auto_says_why_it_runs_here(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = some_table(catalog, "auto", files=1)
    reason = "at most 4 GiB of data files are to be read"
    assert sidecar.build(table, ["k"]).engine_reason == reason
    pytest.importorskip("pyspark.sql", reason="the extra [spark] is not installed")
    monkeypatch.setattr("sidecar.engines.choice.LOCAL_BYTES", 10)
    monkeypatch.setattr("sidecar.spark.session.java_runtime", lambda: None)
    report = sidecar.build(table, ["k"], full=True)
    assert (report.engine, report.engine_reason) == ("local", "Spark cannot start: there is no Java runtime")
    with pytest.raises(UsageError, match="Spark cannot start: there is no Java runtime"):
        sidecar.build(table, ["k"], engine="spark", full=True)


def test_auto_targets_one_false_unit(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.auto_fpp", pa.schema([("k", pa.int64())]))
    paths = []
    for number in range(150):
        path = tmp_path / f"{number}.parquet"
        keys = rng().integers(0, 2**60, 500) + number
        pq.write_table(pa.table({"k": keys}), path, use_dictionary=False)
        paths.append(f"file:{path}")
    table.add_files(paths)
    report = sidecar.build(table, ["k"], engine="local")
    assert report.fpp == pytest.approx(1 / 150)
    assert 0 < report.expected_false_units <= 1
    assert len(filters_of(catalog.load_table("db.auto_fpp"))) == 150


def test_the_callers_table_sees_the_sidecar_after_a_build(catalog: Any) -> None:
    table = some_table(catalog, "seen", files=2)
    report = sidecar.build(table, ["k"], kinds=["bloom"])
    assert [entry.statistics_path for entry in table.metadata.statistics] == [report.statistics_path]
    assert sidecar.plan(table, f"k = {ABSENT}").files_kept == 0
