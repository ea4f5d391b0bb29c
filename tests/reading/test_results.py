"""The rows of a plan in every form are those of pyiceberg's own scan; streams are bounded and leave nothing behind."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

import sidecar
from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.reading import table_files
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import MOST_THREADS, reading_threads, scan, scan_batches
from sidecar.reading.table_files import DataFileReader, FileRows
from tests.iceberg.cases import comparable, local, oracle, predicate, replaced
from tests.iceberg.table_cases import ASKED, delete_by_position, with_a_past
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
FILES, ROWS = 12, 200
LOW = "k < 1000000"
"""Half of the rows of each file."""


def rows(seed: int) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 2_000_000, ROWS)
    return pa.table(
        {
            "k": keys,
            "name": [f"{seed}-{n}" for n in range(ROWS)],
            "tags": [["a"] * (n % 3) for n in range(ROWS)],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    kinds = ("bloom", "page-index")
    made = create_with_rows(catalog, "db.results", map(rows, range(FILES)), SCHEMA, ["k", "name"], kinds)
    return made


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    made = with_a_past(catalog, "db.results_history")
    files = [task.file for task in made.scan().plan_files() if task.file.spec_id == 0]
    delete_by_position(made, {f.file_path: list(range(0, f.record_count, 7)) for f in files})
    sidecar.build(made, ["id", *ASKED], kinds=["bloom", "page-index"], engine="local")
    made.refresh()
    return made


class Counted:
    """How many files' rows are being read or held, and which files were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.held = 0
        self.files: list[str] = []
        self._lock = threading.Lock()
        true = DataFileReader.read

        def read(reader: DataFileReader, task: FileScanTask, *args: Any) -> FileRows:
            with self._lock:
                self.files.append(task.file.file_path)
                self.held += 1
                self.most = max(self.most, self.held)
            found = true(reader, task, *args)
            weakref.finalize(found, self._let_go)
            return found

        monkeypatch.setattr(DataFileReader, "read", read)

    def _let_go(self) -> None:
        with self._lock:
            self.held -= 1


def scanners() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sidecar-scan"]


def in_every_form(planned: Plan, columns: list[str] | None) -> list[pa.Table]:
    return [
        planned.to_arrow(columns),
        planned.to_arrow(columns, threads=1),
        planned.to_arrow_batch_reader(columns).read_all(),
        planned.to_arrow_batch_reader(columns, threads=3).read_all(),
    ]


def test_random_predicates_over_a_table_with_a_past(history: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    rng, found = random.Random(61), 0
    names = [name for name in ASKED if name not in ("renamed", "s")]
    for round_ in range(12):
        planned = plan(history, predicate(rng, names, 350))
        columns = None if round_ % 2 else ["id", rng.choice(names)]
        own = history.scan(planned.row_filter, selected_fields=tuple(columns) if columns else ("*",))
        wanted, stream = comparable(own.to_arrow()), own.to_arrow_batch_reader().schema
        for form in in_every_form(planned, columns):
            assert comparable(form) == wanted, planned.row_filter
        assert planned.to_arrow_batch_reader(columns).schema.equals(stream)
        found += len(wanted)
    assert found > 100


def test_rows_come_in_the_order_of_the_tasks(table: Table) -> None:
    planned = plan(table, LOW)
    wanted = oracle(table, planned.row_filter)
    assert planned.files_kept == FILES
    for _ in range(5):
        for form in in_every_form(planned, None):
            assert form.to_pylist() == wanted.to_pylist()
    assert scan(table, LOW, threads=5).to_pylist() == wanted.to_pylist()
    assert scan_batches(table, LOW).read_all().to_pylist() == wanted.to_pylist()


def test_pyiceberg_reads_the_tasks_of_a_plan_itself(table: Table) -> None:
    planned = plan(table, "name in ('3-7', '9-1')")
    assert planned.files_kept < FILES
    theirs = ArrowScan(table.metadata, table.io, table.schema(), planned.row_filter).to_table(planned.tasks)
    assert theirs.to_pylist() == planned.to_arrow().to_pylist()
    assert theirs.num_rows == 2


def test_frames_and_views(table: Table) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    pytest.importorskip("pandas")
    planned = plan(table, LOW)
    wanted = oracle(table, planned.row_filter)
    assert planned.to_polars().equals(polars.from_arrow(wanted))
    assert planned.to_pandas().equals(wanted.to_pandas())
    assert planned.to_polars(["k"], 5).to_dict(as_series=False) == {"k": wanted["k"].to_pylist()[:5]}
    assert list(planned.to_pandas(["name"], limit=5)["name"]) == wanted["name"].to_pylist()[:5]

    made = planned.to_duckdb("hits")
    for _ in range(2):  # a stream would be used up by the first
        assert made.sql("select count(*), sum(k) from hits").fetchall() == [
            (wanted.num_rows, sum(wanted["k"].to_pylist()))
        ]
    own = duckdb.connect()
    own.execute("create table names as select '3-7' as name")
    assert planned.to_duckdb("hits", own, ["name"], limit=3) is own
    assert own.sql("from hits").fetchall() == [(name,) for name in wanted["name"].to_pylist()[:3]]


def test_duckdb_and_polars_read_the_stream(table: Table) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    planned = plan(table, LOW)
    total = sum(oracle(table, planned.row_filter)["k"].to_pylist())
    made = duckdb.connect()
    made.register("stream", planned.to_arrow_batch_reader(["k"]))
    assert made.sql("select sum(k) from stream").fetchall() == [(total,)]
    assert polars.from_arrow(planned.to_arrow_batch_reader(["k"]))["k"].sum() == total


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_a_library_that_is_not_there(library: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    planned = plan(table, LOW)
    forms = {
        "pandas": planned.to_pandas,
        "polars": planned.to_polars,
        "duckdb": lambda: planned.to_duckdb("t"),
    }
    with pytest.raises(UsageError, match=f"{library} is not installed") as raised:
        forms[library]()
    assert raised.value.hint == f"Run pip install {library}."


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("columns", [None, ["k"]])
def test_a_stream_holds_the_rows_of_so_many_files(
    threads: int, columns: list[str] | None, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    reader, seen = plan(table, LOW).to_arrow_batch_reader(columns, threads=threads), 0
    assert counted.files == []
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        seen += batch.num_rows
        del batch
    assert seen == oracle(table, plan(table, LOW).row_filter).num_rows
    assert len(counted.files) == FILES
    assert counted.most <= threads
    assert counted.held == 0


def test_memory_of_a_stream_does_not_grow_with_the_table(catalog: Any) -> None:
    """Arrow's own count of bytes, with files of 2 MB each."""
    made = catalog.create_table("db.results_large", pa.schema([("k", pa.int64()), ("text", pa.string())]))
    text = ["x" * 1990 + f"{n:010}" for n in range(1000)]
    for _ in range(20):
        made.append(pa.table({"k": range(1000), "text": text}))
    planned, before, most, total = plan(made, "k >= 0"), pa.total_allocated_bytes(), 0, 0
    for batch in planned.to_arrow_batch_reader(threads=2):
        most, total = max(most, pa.total_allocated_bytes() - before), total + batch.nbytes
    assert total > 40_000_000
    assert most < total / 2, "two files, each with what decoding it takes"


@pytest.mark.parametrize("small", [0, 1 << 40])
def test_a_limit_ends_the_reading(small: int, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", small)
    counted, planned = Counted(monkeypatch), plan(table, LOW)
    wanted = oracle(table, planned.row_filter)
    assert planned.to_arrow(limit=3, threads=2) == wanted.slice(0, 3)
    assert len(counted.files) <= 2
    counted.files.clear()
    some = wanted.num_rows // 2
    assert (
        planned.to_arrow_batch_reader(limit=some, threads=2).read_all().to_pylist() == wanted.slice(0, some).to_pylist()
    )
    assert FILES // 2 <= len(counted.files) <= FILES // 2 + 3
    counted.files.clear()
    assert planned.to_arrow_batch_reader(limit=0).read_all().num_rows == 0
    assert counted.files == []
    assert scanners() == []


def test_a_stream_left_half_way(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    reader = plan(table, LOW).to_arrow_batch_reader(threads=3)
    reader.read_next_batch()
    del reader
    gc.collect()
    assert len(counted.files) <= 4
    assert counted.held == 0
    assert scanners() == []


def test_errors_of_threads_are_ours_and_come_in_their_turn(table: Table) -> None:
    planned = plan(table, LOW)
    path = local(planned.kept_files[5])
    with replaced(path, None):
        with pytest.raises(StorageError):
            planned.to_arrow(threads=4)
        reader = planned.to_arrow_batch_reader(["name"], threads=4)
        batches = [reader.read_next_batch() for _ in range(5)]  # the files before it
        with pytest.raises(StorageError):
            reader.read_next_batch()
    seeds = {name.split("-")[0] for batch in batches for name in batch["name"].to_pylist()}
    assert len(seeds) == 5
    with replaced(path, b"PAR1" + bytes(300) + b"PAR1"), pytest.raises(SidecarError):
        planned.to_arrow_batch_reader().read_all()
    assert scanners() == []


def test_what_is_wrong_with_a_call_is_said_at_once(table: Table) -> None:
    planned = plan(table, LOW)
    for read in (planned.to_arrow, planned.to_arrow_batch_reader):
        with pytest.raises(UsageError, match="negative"):
            read(limit=-1)
        with pytest.raises(UsageError, match="no column 'nope'"):
            read(["nope"])
        with pytest.raises(UsageError, match="number of threads must be at least 1"):
            read(threads=0)


def test_no_rows_have_a_schema(table: Table) -> None:
    reader = plan(table, "k = -5").to_arrow_batch_reader(["name"])
    assert reader.schema.names == ["name"]
    assert reader.read_all().num_rows == 0


def test_the_report_of_a_stream_is_complete_at_its_end(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    monkeypatch.setattr(table_files, "TOO_MUCH", float("inf"))
    report = TableScanReport()
    rows = plan(table, LOW).to_arrow_batch_reader(report=report).read_all()
    assert (report.files, report.rows_found) == (FILES, rows.num_rows)
    assert report.data_bytes > 0


def test_threads_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYICEBERG_MAX_WORKERS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert reading_threads(None) == 3
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert reading_threads(None) == MOST_THREADS
    assert reading_threads(30) == 30
    monkeypatch.setenv("PYICEBERG_MAX_WORKERS", "3")
    assert reading_threads(None) == 3
