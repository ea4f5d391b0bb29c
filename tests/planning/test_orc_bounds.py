"""Row indexes of ORC units in a sidecar rule row groups out as page indexes rule out pages."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StructType

import sidecar
from sidecar.access import Access
from sidecar.bundle.indexes.row_indexes import StoredRowIndex, decode_row_index, row_index_bounds
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.orc.statistics.bounds import compared_column, statistics_bounds
from sidecar.orc.tail import read_tail
from sidecar.planning.planner import plan
from sidecar.questions.bounds import Unknown
from sidecar.reading.scanning import read
from tests.iceberg.cases import comparable
from tests.iceberg.mixed_tables import append_orc
from tests.orc.files import source
from tests.tables import iceberg_schema

EPOCH = dt.datetime(2000, 1, 1)
STRIDE, FILE_ROWS = 50, 200
SCHEMA = iceberg_schema(
    "id long, i int, f float, d double, dec decimal(20, 3), s string, b binary, day date, ts timestamp, "
    "tz timestamptz, bo boolean",
    NestedField(12, "st", StructType(NestedField(13, "x", LongType(), required=False)), required=False),
    NestedField(14, "li", ListType(15, LongType(), element_required=False), required=False),
    NestedField(16, "holes", DoubleType()),
)
COLUMNS = ["i", "f", "d", "dec", "s", "b", "day", "ts", "tz", "bo", "st.x", "li.element", "holes"]


def row(n: int, nulls: bool = True) -> dict[str, Any]:
    """Rising values: each row group has a range of its own; the ranges have gaps, and some rows are null."""
    n = n + n // STRIDE * 1000
    moment = EPOCH + dt.timedelta(hours=n, microseconds=n)
    cells = {
        "i": n, "f": n / 4, "d": n / 10, "dec": Decimal(n).scaleb(-3), "s": f"{n:08}", "b": f"{n:08}".encode(),
        "day": moment.date(), "ts": moment, "tz": moment.replace(tzinfo=dt.timezone.utc), "bo": n % 3000 < 1500,
        "st": {"x": n}, "li": [n, n + 1], "holes": n / 10 if n % 100 else float("nan"),
    }  # fmt: skip
    return {name: None if nulls and (n * 31 + len(name)) % 11 == 0 else cell for name, cell in cells.items()}


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Three ORC files of four row groups; their manifest entries have no bounds, so only row indexes can say no."""
    made: Table = catalog.create_table("db.zones", SCHEMA)
    for file in range(3):
        rows = [{"id": n, **row(n)} for n in range(file * FILE_ROWS, (file + 1) * FILE_ROWS)]
        append_orc(made, pa.Table.from_pylist(rows, schema=made.schema().as_arrow()), row_index_stride=STRIDE)
    report = sidecar.build(made, COLUMNS, kinds=["page-index"], engine="local")
    assert {how for c in report.columns for how in c.page_indexes} == {"reused"}
    made.refresh()
    return made


LITERALS: dict[str, Any] = {
    "i": str, "f": repr, "d": repr, "dec": str, "s": lambda v: f"'{v}'", "b": lambda v: f"'0x{v.hex()}'",
    "day": lambda v: f"'{v}'", "ts": lambda v: f"'{v}'", "tz": lambda v: f"'{v}'",
}  # fmt: skip


def test_ranges_leave_the_row_groups_that_they_meet(table: Table) -> None:
    for column, spell in LITERALS.items():
        low, high = (spell(value) for value in (row(n, nulls=False)[column] for n in (265, 275)))
        planned = plan(table, f"{column} >= {low} and {column} <= {high}")
        assert planned.funnel.row_groups == 12, column
        if column == "b":  # ORC has no bounds of bytes
            assert planned.funnel.kept == 3
            continue
        assert planned.funnel.row_groups_kept == 1, column
        assert planned.funnel.dropped_by_page_index == 2, column
        assert planned.funnel.indexed == 3, column
        (kept,) = planned.row_groups.values()
        assert kept.kept == [1]
        assert read(planned, ["id"]).num_rows in range(5, 30)  # a day has 24 rows


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_pyiceberg(table: Table, seed: int) -> None:
    rng, dropped = random.Random(seed), 0
    for _ in range(20):
        column = rng.choice([*LITERALS, "bo", "st.x", "holes"])
        near = row(rng.randrange(700)).get(column.partition(".")[0])
        value = None if column == "bo" or near is None else near["x"] if column == "st.x" else near
        spell = LITERALS.get(column, repr)
        forms = ["{c} is null", "{c} is not null"]
        if value is not None and value == value:
            forms += [
                "{c} = {v}",
                "{c} < {v}",
                "{c} <= {v}",
                "{c} > {v}",
                "{c} >= {v}",
                "{c} != {v}",
                "not {c} > {v}",
            ]
        if column == "bo":
            forms += ["{c} = true", "{c} = false", "{c} != true"]
        if column in ("f", "d", "holes"):
            forms += ["{c} is nan", "{c} is not nan"]
        if column == "s":
            forms += ["{c} like '000010%'"]
        text = rng.choice(forms).format(c=column, v=None if value is None else spell(value))
        planned = plan(table, text)
        assert not planned.warnings
        wanted = table.scan(planned.row_filter, selected_fields=("id",)).to_arrow()
        assert comparable(read(planned, ["id"])) == comparable(wanted), text
        dropped += planned.funnel.row_groups_dropped_by_page_index
    assert dropped


def test_promoted_floats_are_compared_as_readers_round(catalog: Any) -> None:
    """pyiceberg rounds the values of an IN to the float of the file, and compares others as doubles."""
    made = catalog.create_table("db.zones_float", pa.schema([("f", pa.float32())]))
    append_orc(made, pa.table({"f": pa.array([0.1] * 10, pa.float32())}))
    with made.update_schema() as update:
        update.update_column("f", DoubleType())
    sidecar.build(made, ["f"], kinds=["page-index"], engine="local")
    made.refresh()
    for text in ("f in (0.1, 0.2)", "f = 0.1", "f > 0.1", "f <= 0.1"):
        planned = plan(made, text)
        assert comparable(read(planned)) == comparable(made.scan(planned.row_filter).to_arrow()), text
    assert plan(made, "f = 0.2").funnel.dropped_by_page_index == 1


def stored(table: Table, name: str, unit: int = 0) -> StoredRowIndex:
    found = find_sidecar(table, Access())
    assert found is not None
    field_id = table.schema().find_field(name).field_id
    entry = found.sidecar.segments[0].row_indexes(field_id, [unit])[unit]
    found.sidecar.close()
    return entry


def test_what_is_not_believed(table: Table) -> None:
    entry = stored(table, "s")
    bounds = row_index_bounds(entry, STRIDE)
    assert not isinstance(bounds, Unknown)
    assert bounds.lower in ([b"00008400"], [b"00008401"])  # the last file stands first
    char = row_index_bounds(entry._replace(kind=entry.kind._replace(type="CHAR")), STRIDE)
    assert not isinstance(char, Unknown)
    assert (char.lower, char.null_counts) == ([None], bounds.null_counts)
    assert row_index_bounds(entry, 10) == Unknown(f"{STRIDE - (bounds.null_counts[0] or 0)} values in 10 rows")
    assert isinstance(row_index_bounds(entry._replace(entry=b"\xff"), STRIDE), Unknown)
    repeated = row_index_bounds(entry._replace(kind=entry.kind._replace(repeated=True)), 10)
    assert not isinstance(repeated, Unknown)
    assert repeated.null_counts == [None]


def test_only_a_count_of_0_says_that_all_is_null(table: Table) -> None:
    entry = stored(table, "s")
    statistics = decode_row_index(entry, STRIDE).statistics
    assert statistics is not None
    number = read_tail(source("java_none_utf8.orc")).column("c_int")
    assert number is not None
    strings = replace(number, kind="STRING")
    for count, all_null, nulls in ((None, False, None), (0, True, STRIDE), (1, False, STRIDE - 1)):
        said = replace(statistics, num_values=count, all_null=all_null)
        found = statistics_bounds(said, strings, STRIDE)
        assert not isinstance(found, Unknown)
        assert (found.all_null, found.null_counts) == ([all_null], [nulls])


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("TIMESTAMP", "timestamptz"),
        ("TIMESTAMP_INSTANT", "timestamp"),
        ("TIMESTAMP", "long"),
        ("GEOMETRY", "binary"),
    ],
)
def test_kinds_that_compare_with_no_literal(table: Table, kind: str, column: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="cannot be compared"):
        compared_column(kind, 0, 1, column)


def test_a_damaged_entry_keeps_its_row_group(table: Table) -> None:
    path = Path(table.metadata.statistics[0].statistics_path.removeprefix("file:"))
    data = bytearray(path.read_bytes())
    entry = stored(table, "i", 5)
    at = bytes(data).index(entry.entry)
    planned = plan(table, "i = 999999")
    assert planned.funnel.kept == 0
    try:
        data[at + 3] ^= 0x10
        path.write_bytes(data)
        planned = plan(table, "i = 999999")
        assert planned.funnel.kept == 1
        assert planned.warnings
    finally:
        data[at + 3] ^= 0x10
        path.write_bytes(data)
