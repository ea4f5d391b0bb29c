"""What a table scan reads of its data files, counted below it, page by page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.access import Access
from sidecar.planning.planner import plan
from sidecar.reading import table_files
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import read
from sidecar.storage.locations import local_path
from tests.iceberg.cases import comparable, oracle
from tests.reading.test_file_scan_reads import Recorded
from tests.tables import create_with_rows

ROWS = 100_000
COLUMNS = ["k", "noise", "text", "pair.a", "pair.b"]


def rows(start: int) -> pa.Table:
    rng = np.random.default_rng(start)
    return pa.table(
        {
            "k": pa.array(np.arange(start, start + ROWS) * 3),
            "noise": rng.integers(0, 2**62, ROWS),
            "text": pa.array([f"{i:08x}" * 4 for i in rng.integers(0, 2**32, ROWS)]),
            "pair": pa.array([{"a": int(i), "b": str(i)} for i in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def table(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three files clustered by k, with page indexes of their own and in a sidecar."""
    folder, paths = tmp_path_factory.mktemp("clustered"), []
    for n in range(3):
        data, path = rows(n * ROWS), Path(folder) / f"{n}.parquet"
        pq.write_table(
            data, path, row_group_size=50_000, compression="none", use_dictionary=False,
            write_page_index=True, data_page_size=8 * 1024, write_batch_size=256,
        )  # fmt: skip
        paths.append(f"file:{path}")
    made: Table = catalog.create_table("db.clustered_pages", rows(0).schema)
    made.add_files(paths)
    sidecar.build(made, COLUMNS, kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table("db.clustered_pages")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recorded]:
    """The data files that are opened, and what is read of each."""
    opened: dict[str, Recorded] = {}
    real = Access.open

    def record(access: Access, path: str, size: int | None = None) -> Any:
        if path.endswith(".stats"):
            return real(access, path, size)
        opened[path] = Recorded(Path(local_path(path) or "").read_bytes())
        return opened[path]

    monkeypatch.setattr(Access, "open", record)
    return opened


def test_a_lookup_reads_one_page_of_each_column_of_one_file_and_none_of_its_indexes(
    table: Table, recorded: dict[str, Recorded]
) -> None:
    planned, report = plan(table, "k = 450003"), TableScanReport()
    found = read(planned, report=report)
    assert found["k"].to_pylist() == [450003]
    assert planned.funnel.row_groups_kept == 1
    assert planned.funnel.kept_because == {"may match in some pages": 1}
    [source] = recorded.values()
    assert source.data_pages() == dict.fromkeys(COLUMNS, 1)
    assert source.indexes() == 0
    assert report.index_bytes == 0
    assert report.data_pages == len(COLUMNS)
    assert planned.index_reads <= 4
    assert report.sidecar_reads <= len(COLUMNS), "tables of all columns together, then entries"


def test_one_plan_read_by_many_threads_reads_the_sidecar_once(table: Table, recorded: dict[str, Recorded]) -> None:
    planned = plan(table, "k = 450003")
    reports = [TableScanReport() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda report: read(planned, report=report), reports))
    assert all(rows["k"].to_pylist() == [450003] for rows in found)
    assert [report.warnings for report in reports] == [[]] * 8
    assert sum(report.sidecar_reads > 0 for report in reports) == 1
    assert [report.index_bytes for report in reports] == [0] * 8


def test_columns_that_are_not_projected_are_not_read(table: Table, recorded: dict[str, Recorded]) -> None:
    found = read(plan(table, "k > 450000 and k < 450010"), ["pair.b"])
    assert found.to_pylist() == [{"pair": {"b": str(n)}} for n in (50001, 50002, 50003)]
    [source] = recorded.values()
    assert source.data_pages() == {"k": 1, "pair.b": 1}


def test_a_column_without_a_page_index_in_the_sidecar_uses_that_of_the_file(
    catalog: Any, table: Table, recorded: dict[str, Recorded]
) -> None:
    made = catalog.create_table("db.clustered_k", table.schema())
    made.add_files([task.file.file_path for task in table.scan().plan_files()])
    sidecar.build(made, ["k"], kinds=["page-index"], engine="local")
    made.refresh()
    recorded.clear()
    assert read(plan(made, "k = 450003"))["k"].to_pylist() == [450003]
    [source] = recorded.values()
    assert source.data_pages() == dict.fromkeys(COLUMNS, 1)
    assert source.indexes() == len(COLUMNS) - 1, "offset indexes of the others"


def test_one_percent_of_the_pages_is_less_than_three_percent_of_the_bytes(
    table: Table, recorded: dict[str, Recorded]
) -> None:
    planned = plan(table, f"k >= 330000 and k < {330000 + 3 * ROWS // 100}")
    assert read(planned).num_rows == ROWS // 100
    [source] = recorded.values()
    read_bytes = sum(end - start for start, end in source.ranges)
    assert read_bytes < 0.03 * source.size


@pytest.mark.parametrize("text", ["k != 5", "k >= 0", "text is not null", "true", "noise not in (1, 2)"])
def test_where_no_index_can_help_none_is_read(table: Table, recorded: dict[str, Recorded], text: str) -> None:
    planned, report = plan(table, text), TableScanReport()
    assert (planned.index_reads, planned.index_bytes_read) == (0, 0)
    assert read(planned, ["k"], report=report).num_rows == 3 * ROWS
    assert recorded == {}, "pyiceberg reads the files"
    assert report.whole_files == {"no index can help": 3}


def test_files_are_dropped_by_page_index_when_no_page_can_match(catalog: Any, tmp_path: Path) -> None:
    """Values from both ends of the domain: bounds of the file span everything, those of pages little."""
    values = np.concatenate([np.arange(2000), np.arange(10**6, 10**6 + 2000)])
    sink = BytesIO()
    pq.write_table(pa.table({"k": values}), sink, write_batch_size=500, data_page_size=1024)
    path = tmp_path / "ends.parquet"
    path.write_bytes(sink.getvalue())
    table = catalog.create_table("db.ends", pa.schema([("k", pa.int64())]))
    table.add_files([f"file:{path}"])
    sidecar.build(table, ["k"], kinds=["page-index"], engine="local")
    table.refresh()
    planned = plan(table, "k > 5000 and k < 9000")
    assert planned.kept_files == []
    assert planned.funnel.dropped_by_page_index == 1
    assert planned.funnel.to_dict()["row_groups"] == {
        "total": 1, "dropped": {"filter": 0, "page_index": 1}, "kept": 0,
    }  # fmt: skip
    assert "-1  dropped by page index" in planned.explain()
    assert read(planned).num_rows == 0


def test_a_plan_says_which_row_groups_and_rows_are_left(table: Table) -> None:
    planned = plan(table, "k in (3, 450003)")
    data = planned.to_dict()
    assert set(data["row_groups"]) == set(data["kept_files"])
    assert sorted(entry["kept"] for entry in data["row_groups"].values()) == [[0], [1]]
    for entry in data["row_groups"].values():
        assert entry["total"] == 2
        assert 0 < entry["rows"]["may_match"] < 10_000 < entry["rows"]["total"] == ROWS
    assert data["funnel"]["row_groups"]["total"] == 4
    assert data["funnel"]["row_groups"]["kept"] == 2
    assert "1 of 2 row groups" in planned.explain()
    assert comparable(read(planned)) == comparable(oracle(table, planned.row_filter))


def test_more_row_groups_than_a_plan_asks_about_are_left_to_the_scan(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sidecar.planning import page_pruning

    monkeypatch.setattr(page_pruning, "MAX_UNITS", 1)
    planned = plan(table, "k in (3, 450003)")
    assert "page indexes of 2 row groups are not read" in planned.notes[0]
    assert read(planned).num_rows == 2


@pytest.fixture(scope="module")
def repeating(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One file of five row groups: a column whose few values stand in every page, one that rises, one of noise."""
    rng, path = np.random.default_rng(5), Path(tmp_path_factory.mktemp("repeating")) / "0.parquet"
    data = pa.table({"few": rng.integers(0, 50, ROWS), "k": np.arange(ROWS), "noise": rng.integers(0, 2**62, ROWS)})
    pq.write_table(data, path, row_group_size=20_000, write_page_index=True, data_page_size=16 * 1024)
    made: Table = catalog.create_table("db.repeating", data.schema)
    made.add_files([f"file:{path}"])
    return catalog.load_table("db.repeating")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("few > 0", []),  # the indexes leave all of it
        ("k > 30000", []),  # seven tenths
        ("k < 30000 and few > 0", []),  # three quarters of the row groups that Arrow would scan
        ("few = 7", ["few"]),  # may be a few rows: the first row group tells
    ],
)
def test_of_a_file_of_which_much_is_left_hardly_a_page_is_read_twice(
    repeating: Table, recorded: dict[str, Recorded], text: str, columns: list[str]
) -> None:
    planned, report = plan(repeating, text), TableScanReport()
    assert comparable(read(planned, report=report)) == comparable(oracle(repeating, planned.row_filter))
    assert report.whole_files == {"much of it is left": 1}
    [source] = recorded.values()
    pages = source.data_pages()
    assert set(pages) <= set(columns)
    footer = pq.ParquetFile(BytesIO(Path(local_path(planned.kept_files[0]) or "").read_bytes())).metadata
    group = sum(footer.row_group(0).column(i).total_compressed_size for i in range(footer.num_columns))
    read_bytes = sum(end - start for start, end in source.ranges)
    assert read_bytes < group + 64 * 1024


@pytest.mark.parametrize("threads", [1, 3])
def test_files_beside_one_in_which_many_rows_met_an_equality_are_not_tried(
    catalog: Any, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(table_files, "PATIENCE", 60)
    rng = np.random.default_rng(6)
    parts = [pa.table({"few": rng.integers(0, 9, 9_000), "noise": rng.random(9_000)}) for _ in range(3)]
    small = {"write.parquet.row-group-limit": "3000", "write.parquet.page-row-limit": "500"}
    table = create_with_rows(catalog, f"db.met_often_{threads}", parts, columns=["few"], kinds=["page-index"], **small)
    tried, scan_pages = [], table_files.scan_pages
    monkeypatch.setattr(table_files, "scan_pages", lambda *args: tried.append(1) or scan_pages(*args))
    planned, report = plan(table, "few = 7"), TableScanReport()
    rows = read(planned, threads=threads, report=report)
    assert comparable(rows) == comparable(oracle(table, planned.row_filter))
    assert report.whole_files == {"much of it is left": 3}
    assert len(tried) == 1


@pytest.mark.parametrize("text", ["k > 99000", "k < 5000 and few > 0", f"noise = {2**61}", "k = 70000 and few > 0"])
def test_of_a_file_of_which_little_is_left_pages_are_read(
    repeating: Table, recorded: dict[str, Recorded], text: str
) -> None:
    report = TableScanReport()
    read(plan(repeating, text), report=report)
    assert report.whole_files == {}
    assert recorded
