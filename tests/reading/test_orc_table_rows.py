"""ORC files of a table are read by the row groups that the plan leaves, and their rows are pyiceberg's."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, StringType

import sidecar
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.planner import plan
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import read
from tests.iceberg.cases import INDEXED, comparable, predicate, rows
from tests.iceberg.mixed_tables import READABLE, UNREADABLE, append_orc
from tests.iceberg.table_cases import delete_by_position

COLUMNS = [name for name in INDEXED if name not in UNREADABLE]
ROWS, STRIDE = 600, 50


def made(catalog: Any, name: str, ids: bool = True) -> Table:
    """Two ORC files of twelve row groups, several stripes each."""
    table: Table = catalog.create_table(name, READABLE)
    if not ids:
        with table.transaction() as transaction:
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": mapping})
    for start in (0, ROWS):
        data = rows(start, ROWS, start, table.schema().as_arrow())
        append_orc(table, data, ids, row_index_stride=STRIDE, stripe_size=1 << 14)
    sidecar.build(table, ["id", *COLUMNS], kinds=["bloom", "page-index"], engine="local")
    return catalog.load_table(name)  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["ids", "names"])
def table(request: Any, catalog: Any) -> Table:
    return made(catalog, f"db.orc_rows_{request.param}", request.param == "ids")


def same_rows(table: Table, text: str, columns: list[str] | None = None) -> TableScanReport:
    report = TableScanReport()
    planned = plan(table, text)
    theirs = table.scan(planned.row_filter, selected_fields=tuple(columns or ["*"])).to_arrow()
    found = read(planned, columns, report=report)
    assert comparable(found) == comparable(theirs), text
    assert found.schema.names == theirs.schema.names
    return report


def test_one_row_group_of_twelve_is_read(table: Table) -> None:
    report = same_rows(table, "id >= 110 and id < 120")
    assert (report.row_groups, report.row_groups_read) == (12, 1)
    assert not report.whole_files
    narrow = same_rows(table, "id = 700", ["s"])
    assert narrow.row_groups_read == 1
    assert narrow.data_bytes < report.data_bytes


def test_most_of_a_file_goes_to_pyiceberg(table: Table) -> None:
    assert same_rows(table, "id >= 20").whole_files.total() == 2


def check_random_predicates(table: Table, columns: list[str], seed: str, cases: int) -> int:
    rng, read_by_group = random.Random(seed), 0
    for case in range(cases):
        start = rng.randrange(2 * ROWS)
        asked = predicate(rng, rng.sample(columns, 2), 2 * ROWS)
        text = f"id >= {start} and id < {start + rng.randrange(1, 150)} and ({asked} or id = {start})"
        report = same_rows(table, text, None if case % 3 else ["id", columns[case % len(columns)].split(".")[0]])
        read_by_group += report.row_groups_read
    return read_by_group


def test_random_predicates(table: Table) -> None:
    assert check_random_predicates(table, COLUMNS, table.name()[-1], 20) > 15


def test_deleted_rows_evolved_schemas_limits_and_keys(catalog: Any) -> None:
    table = made(catalog, "db.orc_rows_past")
    first, second = sorted(
        (task.file for task in table.scan().plan_files()), key=lambda f: (f.file_size_in_bytes, f.file_path)
    )
    delete_by_position(table, {first.file_path: [0, 49, 50, 110, 111, 599]})
    delete_by_position(table, {second.file_path: list(range(100, 150))})
    table = catalog.load_table(table.name())
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.rename_column("l", "renamed")
        update.delete_column("s")
    with table.update_schema() as update:
        update.add_column("s", StringType())
        update.add_column(("st", "z"), LongType())
    table = catalog.load_table(table.name())
    columns = ["i", "renamed", "f", "d", "dec9", "day", "ts", "st.x", "s"]
    literals = {"renamed": "l", "st.x": "x"}
    rng, by_group = random.Random(3), 0
    for case in range(20):
        start = rng.randrange(2 * ROWS)
        asked = predicate(rng, rng.sample(columns, 2), 2 * ROWS, values={n: literals.get(n, n) for n in columns})
        text = f"id >= {start} and id < {start + rng.randrange(1, 150)} and ({asked} or id = {start})"
        by_group += same_rows(table, text, None if case % 2 else ["id", "st", "s"]).row_groups_read
    assert by_group > 15
    text = "id >= 95 and id < 115"
    whole = sidecar.scan(table, text)
    assert sidecar.scan(table, text, limit=3).to_pylist() == whole.to_pylist()[:3]
    keys = pa.array([96, 101, 109, 900], pa.int64())
    wanted = [row for row in whole.to_pylist() if row["id"] in (96, 101, 109)]
    assert sidecar.scan(table, text, keys={"id": keys}).to_pylist() == wanted


def test_instants_before_1970_are_pyicebergs(catalog: Any) -> None:
    """pyarrow takes off a second too many there: a scan of a table gives pyiceberg's rows all the same."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    table = catalog.create_table("db.orc_rows_early", schema)
    times = pa.array([-1_500_000 + 7 * k for k in range(200)], pa.timestamp("us"))
    append_orc(table, pa.table([range(200), times], schema=schema), row_index_stride=20)
    sidecar.build(table, ["id", "ts"], kinds=["bloom", "page-index"], engine="local")
    table = catalog.load_table("db.orc_rows_early")
    report = same_rows(table, "id >= 45 and id < 50")
    assert list(report.whole_files) == ["the file may have timestamps before 1970"]
    assert same_rows(table, "id >= 45 and id < 50", ["id"]).row_groups_read == 1


def test_instants_before_1970_inside_a_struct_are_pyicebergs(catalog: Any) -> None:
    fields = pa.struct([("n", pa.int64()), ("ts", pa.timestamp("us"))])
    schema = pa.schema([("id", pa.int64()), ("st", fields)])
    table = catalog.create_table("db.orc_rows_early_inside", schema)
    moments = [{"n": k, "ts": -1_500_000 + 7 * k} for k in range(200)]
    append_orc(table, pa.table([range(200), pa.array(moments, fields)], schema=schema), row_index_stride=20)
    sidecar.build(table, ["id"], kinds=["bloom", "page-index"], engine="local")
    table = catalog.load_table("db.orc_rows_early_inside")
    report = same_rows(table, "id >= 45 and id < 50")
    assert list(report.whole_files) == ["the file may have timestamps before 1970"]


def test_a_file_with_other_row_groups_than_the_plan_says_is_read_whole(table: Table) -> None:
    planned = plan(table, "id = 110")
    ((path, kept),) = planned.row_groups.items()
    units = tuple(unit._replace(rows=unit.rows - 1) for unit in kept.units)
    object.__setattr__(kept, "units", units)
    report = TableScanReport()
    found = read(planned, ["id"], report=report)
    assert found["id"].to_pylist() == [110]
    assert list(report.whole_files) == ["the row groups of the file differ from those in the sidecar"]
    assert parse_predicate("id = 110", table.schema()) == planned.row_filter
    assert path in planned.kept_files
