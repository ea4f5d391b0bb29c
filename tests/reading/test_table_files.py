"""Rows of pruned table scans are those of pyiceberg's own scan: tables with a past, deletes, damaged indexes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow
from pyiceberg.table import FileScanTask, Table

import sidecar
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import PAGE_INDEX
from sidecar.reading import arrow_reader, table_files
from sidecar.reading.arrow_reader import SMALL
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import read
from sidecar.storage.source import BytesSource
from tests.iceberg.cases import LITERALS, comparable, local, oracle, predicate, replaced
from tests.iceberg.table_cases import ASKED, SMALL_PAGES, delete_by_position, with_a_past, with_default
from tests.tables import create_with_rows, iceberg_schema

IDS = 350
COLUMNS = [name for name in ASKED if name not in ("renamed", "s")]  # literals follow the names


def somewhere(rng: random.Random) -> str:
    """A random predicate, often only for some ids: these rise from row to row."""
    start, text = rng.randrange(IDS), predicate(rng, COLUMNS, IDS)
    forms = [
        "{0}",
        "id >= {1} and id < {2} and {0}",
        "(id < {1} or id = {2}) and {0}",
        "id in ({1}, {2}) or {0}",
    ]
    return rng.choice(forms).format(text, start, start + rng.randrange(1, 40))


def without_rows(table: Table, seed: int) -> None:
    """Position deletes of some rows of each unpartitioned file, of a whole row group, and of many side by side."""
    rng = random.Random(seed)
    files = [task.file for task in table.scan().plan_files() if task.file.spec_id == 0]
    places = {f.file_path: sorted(rng.sample(range(f.record_count), 9)) for f in files}
    places[files[0].file_path] = [*range(32, 64), 69]
    delete_by_position(table, places)


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    """Indexed half way, with filters and page indexes; rows deleted before and after."""
    table = with_a_past(catalog, "db.rows_history")
    without_rows(table, 1)
    sidecar.build(table, ["id", *ASKED], kinds=["bloom", "page-index"], engine="local")
    table.refresh()
    without_rows(table, 2)
    return table


@pytest.fixture(scope="module")
def bare(catalog: Any) -> Table:
    """The same without a sidecar: the files' own statistics and indexes are all there is."""
    table = with_a_past(catalog, "db.rows_bare")
    without_rows(table, 3)
    return table


@pytest.fixture(autouse=True)
def pages_wherever_they_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    monkeypatch.setattr(table_files, "TOO_MUCH", float("inf"))


def check(table: Table, planned: Plan, report: TableScanReport, columns: list[str] | None = None) -> None:
    found = read(planned, columns, report=report)
    wanted = oracle(table, planned.row_filter)
    if columns is not None:
        wanted = table.scan(planned.row_filter, selected_fields=tuple(columns)).to_arrow()
    assert found.schema.equals(wanted.schema), planned.row_filter
    assert comparable(found) == comparable(wanted), planned.row_filter


def test_random_predicates_over_a_table_with_a_past(history: Table) -> None:
    rng = random.Random(31)
    report, narrowed, dropped = TableScanReport(), 0, 0
    for _ in range(30):
        planned = plan(history, somewhere(rng))
        assert planned.warnings == ()
        check(history, planned, report)
        narrowed += sum(kept.may_match < kept.num_rows for kept in planned.row_groups.values())
        dropped += planned.funnel.row_groups_dropped_by_page_index
    assert report.warnings == []
    assert set(report.whole_files) <= {"no index can help"}
    assert report.row_groups_read < report.row_groups
    assert narrowed > 20
    assert dropped


def test_files_of_which_much_is_left_are_read_by_pyiceberg(
    history: Table, bare: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From half of the rows on whole, before a page is decoded, or after the first row group; the same rows always."""
    rng, report = random.Random(35), TableScanReport()
    monkeypatch.setattr(table_files, "TOO_MUCH", 0.5)
    for number in range(20):
        table = (history, bare)[number % 2]
        monkeypatch.setattr(arrow_reader, "SMALL", (0, SMALL)[number % 4 > 1])
        check(table, plan(table, somewhere(rng)), report)
    assert report.whole_files["much of it is left"] > 10
    assert 0 < report.row_groups_read < report.row_groups
    assert report.warnings == []


def test_random_predicates_without_a_sidecar(bare: Table) -> None:
    rng = random.Random(32)
    report = TableScanReport()
    for _ in range(12):
        planned = plan(bare, somewhere(rng))
        check(bare, planned, report)
    assert report.warnings == []
    assert 0 < report.row_groups_read < report.row_groups


@pytest.mark.parametrize("columns", [["id"], ["st.z", "fresh"], ["st.x"], ["part", "s"], ["st", "dec38"], ["fresh"]])
def test_columns_that_are_there_that_are_not_and_parts_of_structs(history: Table, columns: list[str]) -> None:
    report = TableScanReport()
    for text in (
        "i = 99 or i = -200",
        "ts > '2024-01-10' and st.x < 900",
        "id < 20",
        "st is null and id < 90",
    ):
        check(history, plan(history, text), report, columns)


@pytest.mark.parametrize(
    "text",
    [
        "fresh = 7",
        "fresh is null",
        "fresh is not null and i > 100",
        "fresh != 7 or i = 99",
        "fresh > 3 and id = 17",
        "s = 'again'",
        "s is null and i > 400",
        "st.z is null and i > 400",
        "renamed > 0 and i < -300",
        "i = 1099511627776",
        "part = 'a' and id > 300",
        "part is null",
    ],
)
@pytest.mark.parametrize("default", [False, True])
def test_columns_that_files_lack(history: Table, text: str, default: bool) -> None:
    table = with_default(history, "fresh", 7) if default else history
    check(table, plan(table, text), TableScanReport())


def test_identity_partition_columns_that_stand_in_no_file(catalog: Any, tmp_path: Any) -> None:
    """Imported files: no field ids, a name mapping, and the partition's value in the manifest alone."""
    import pyarrow.parquet as pq
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    schema = iceberg_schema("k long, p long, v string")
    table = catalog.create_table(
        "db.rows_identity",
        schema,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    )
    paths = []
    for n in range(2):
        rows = {"k": np.arange(n * 500, n * 500 + 500), "p": [n] * 500, "v": [f"{n}-{i}" for i in range(500)]}
        path = tmp_path / f"{n}.parquet"
        pq.write_table(
            pa.table(rows),
            path,
            row_group_size=100,
            write_page_index=True,
            write_batch_size=10,
            data_page_size=64,
        )
        paths.append(f"file:{path}")
    table.add_files(paths)
    for n in range(2):  # the same without the column that the manifest knows
        rows = {"k": np.arange(n * 500, n * 500 + 500), "v": [f"{n}-{i}" for i in range(500)]}
        pq.write_table(
            pa.table(rows),
            tmp_path / f"{n}.parquet",
            row_group_size=100,
            write_page_index=True,
            write_batch_size=10,
            data_page_size=64,
        )
    report = TableScanReport()
    for text in (
        "k = 77",
        "k > 490 and k < 510",
        "p = 1 and k = 600",
        "p = 0 and v = '0-3'",
        "k = 3 or p = 5",
    ):
        check(table, plan(table, text), report)
        check(table, plan(table, text), report, ["p"])
    assert report.row_groups_read < report.row_groups


def test_nan_zeros_and_nulls_as_pyiceberg_has_them(catalog: Any) -> None:
    """The rows are those that pyiceberg's filter finds in memory, in the files that it plans. Its reader finds fewer:
    Arrow's statistics know nothing of NaN and little of zeros."""
    nan = float("nan")
    values = [[5.0, nan], [5.0, 6.0, nan], [-0.0, 0.0], [0.0], [-0.0], [nan, nan], [None, 5.0], [None, None]]
    parts = [pa.table({"x": pa.array(some, pa.float64()), "n": [n] * len(some)}) for n, some in enumerate(values)]
    table = create_with_rows(catalog, "db.rows_nan", parts, columns=["x", "n"], kinds=["bloom", "page-index"])
    for text in (
        "x != 5", "not (x > 4)", "x not in (5, 7)", "x in (0.0, 3)", "x = 0.0", "x = -0.0", "x is nan", "x is not nan",
        "x is null", "x is not null", "not (x < 5)", "x >= 5 or x is nan", "x < 1 and n > 1", "x not in (0.0, 5)",
    ):  # fmt: skip
        planned = plan(table, text)
        tasks = table.scan(planned.row_filter).plan_files()
        wanted = pa.concat_tables([matching_in_memory(table, task, planned.row_filter) for task in tasks])
        assert comparable(read(planned)) == comparable(wanted), text


def matching_in_memory(table: Table, task: FileScanTask, row_filter: BooleanExpression) -> pa.Table:
    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
    return rows.filter(expression_to_pyarrow(bind(table.schema(), row_filter, case_sensitive=True)))


def damaged(data: bytes, positions: Any, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for position in positions:
        changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_damaged_page_indexes_of_a_sidecar_are_not_used(history: Table) -> None:
    path = local(history.metadata.statistics[-1].statistics_path)
    whole, rng = path.read_bytes(), random.Random(33)
    blobs = [b for b in PuffinReader(BytesSource(whole)).metadata.blobs if b.type == PAGE_INDEX]
    assert len(blobs) == len(ASKED) + 1
    bodies = [p for b in blobs for p in range(b.offset + 32, b.offset + b.length, 37)]
    planned = plan(history, "id >= 0 and i = 99")
    assert planned.row_groups
    warned = 0
    for text in ("i = 99", "ts > '2024-01-15'", "d < -40", "st.x > 1400 or dec9 = 4.99"):
        with replaced(path, damaged(whole, bodies, rng)):
            planned = plan(history, text)
            report = TableScanReport()
            check(history, planned, report)
            warned += bool(planned.warnings)
    assert warned == 4


def test_single_flipped_bits_of_a_sidecar_change_no_row(history: Table) -> None:
    path = local(history.metadata.statistics[-1].statistics_path)
    whole, rng = path.read_bytes(), random.Random(34)
    text = "i > 480 and ts > '2024-01-01'"
    wanted = comparable(oracle(history, parse_predicate(text, history.schema())))
    for position in rng.sample(range(len(whole)), 8):
        with replaced(path, damaged(whole, [position], rng)):
            assert comparable(read(plan(history, text))) == wanted, position


def test_a_sidecar_that_vanishes_after_the_plan_costs_bytes_and_no_rows(history: Table) -> None:
    planned = plan(history, "i = 99")
    assert any(kept.stored for kept in planned.row_groups.values())
    with replaced(local(history.metadata.statistics[-1].statistics_path), None):
        report = TableScanReport()
        check(history, planned, report)
    assert any("not used" in warning for warning in report.warnings)


def test_lists_and_maps(catalog: Any) -> None:
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("l", pa.list_(pa.int64())),
            ("ls", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.float64())),
            ("st", pa.struct([("deep", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.string()))])),
        ]
    )
    made = []
    for n in range(400):
        made.append(
            {
                "k": n,
                "l": None if n % 7 == 0 else [n] * (n % 4),
                "ls": None if n % 5 == 0 else [{"a": n, "b": None if n % 3 else str(n)}] * (n % 3),
                "m": None if n % 11 == 0 else [(str(i), n / 3) for i in range(n % 3)],
                "st": None if n % 6 == 0 else {"deep": {"x": n}, "l": [str(n)] * (n % 3)},
            }
        )
    table = catalog.create_table("db.rows_nested", schema, properties=SMALL_PAGES)
    table.append(pa.Table.from_pylist(made, schema=schema))
    sidecar.build(table, ["k", "st.deep.x", "l.element"], kinds=["bloom", "page-index"], engine="local")
    table.refresh()
    report = TableScanReport()
    for text in (
        "k = 77",
        "k >= 100 and k < 105",
        "st.deep.x > 390",
        "st.deep is null and k < 20",
        "k in (5, 6, 395)",
    ):
        for columns in (None, ["k"], ["st.deep.x"], ["ls", "m"], ["l"]):
            check(table, plan(table, text), report, columns)
    assert report.row_groups_read < report.row_groups
    assert not report.whole_files


@pytest.mark.parametrize("text", ["k > 10", "k = 11", "true"])
def test_limits(catalog: Any, text: str) -> None:
    name = f"db.rows_limit_{abs(hash(text))}"
    parts = [pa.table({"k": np.arange(start, start + 100)}) for start in (0, 100)]
    table = create_with_rows(catalog, name, parts, **SMALL_PAGES)
    for limit in (0, 1, 5, 150, 1000):
        most = oracle(table, parse_predicate(text, table.schema())).num_rows
        assert read(plan(table, text), limit=limit).num_rows == min(limit, most)


def test_literals_cover_the_columns_that_are_asked() -> None:
    assert {name.rsplit(".", 1)[-1] for name in COLUMNS} <= set(LITERALS)
