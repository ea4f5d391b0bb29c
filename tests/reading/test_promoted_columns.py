"""Files from before a promotion give the rows that the same values give in files of the wider type.

The oracle is Arrow, given all rows of a table that always had the wider type. Literals are such that the narrower type
has them, or lie beyond it, so that nothing depends on how an engine rounds.
"""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DateType, DecimalType, DoubleType, LongType, NestedField, StructType

import sidecar
from sidecar.access import Access
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.file_question import FileQuestion
from sidecar.reading.absent_columns import AbsentColumns
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.file_predicate import in_types_of_file
from tests.iceberg.mixed_tables import append_files, orc_file
from tests.tables import iceberg_schema

BIGGEST = 3.4028234663852886e38
NARROW = pa.schema([("id", pa.int64()), ("d", pa.float32()), ("n", pa.int32()), ("dec", pa.decimal128(9, 2))])
WIDE = pa.schema([("id", pa.int64()), ("d", pa.float64()), ("n", pa.int64()), ("dec", pa.decimal128(18, 2))])
VALUES: list[tuple[float | None, int | None, Decimal | None]] = [
    (math.inf, 2147483647, Decimal("9999999.99")),
    (-math.inf, -2147483648, Decimal("-9999999.99")),
    (math.nan, 0, Decimal("0.00")),
    (None, None, None),
    (BIGGEST, 1, Decimal("1.00")),
    (-BIGGEST, -1, Decimal("-1.00")),
    (0.5, 7, Decimal("1.50")),
]
LITERALS = {
    "d": ["inf", "-inf", "1e300", "-1e300", "1e39", "0.5", repr(BIGGEST)],
    "n": ["3000000000", "-3000000000", "2147483647", "-2147483648", "7"],
    "dec": ["10000000.00", "-10000000.00", "1234567890123.25", "9999999.99", "1.5"],
}
SIGNS = ("=", "!=", "<", "<=", ">", ">=")
PREDICATES = [
    *(f"{name} {sign} {one}" for name in LITERALS for one in LITERALS[name] for sign in SIGNS),
    *(f"not ({name} {sign} {LITERALS[name][0]})" for name in LITERALS for sign in ("=", "!=", "<", ">=")),
    *(
        f"{name} {word} ({', '.join(chosen)})"
        for name, listed in LITERALS.items()
        for word in ("in", "not in")
        for chosen in (listed[:2], listed[2:4], [listed[0], listed[-1]], listed)
    ),
    *(f"not ({name} in ({listed[0]}, {listed[-1]}))" for name, listed in LITERALS.items()),
    "d > 1e300 and n < 3000000000",
    "d < -1e300 or dec > 10000000.00",
]


def rows(schema: pa.Schema) -> pa.Table:
    """Each value in a row group of its own, among enough others for indexes to pay."""
    columns = [list(column) for column in zip(*VALUES, strict=True)]
    found = [[one for value in column for one in (value, *[column[-1]] * 3)] for column in columns]
    return pa.table([range(len(found[0])), *found], schema=schema)


def made(catalog: Any, name: str, schema: pa.Schema, orc: bool) -> Table:
    table: Table = catalog.create_table(f"db.{name}", schema, properties={"write.parquet.row-group-limit": "4"})
    data = rows(schema)
    if orc:
        append_files(table, [orc_file(table, data, row_index_stride=4)])
    else:
        table.append(data)
    return table


@pytest.fixture(scope="module", params=["parquet", "orc"])
def tables(request: Any, catalog: Any) -> tuple[Table, Table]:
    """A table whose columns were promoted after its rows came, and one that never had other types."""
    orc = request.param == "orc"
    promoted = made(catalog, f"promoted_{request.param}", NARROW, orc)
    with promoted.update_schema() as update:
        update.update_column("d", DoubleType())
        update.update_column("n", LongType())
        update.update_column("dec", DecimalType(18, 2))
    return promoted, made(catalog, f"wide_{request.param}", WIDE, orc)


@pytest.fixture(scope="module")
def expected(tables: tuple[Table, Table]) -> dict[str, set[int]]:
    everything, schema = tables[1].scan().to_arrow(), tables[1].schema()
    found = {}
    for text in PREDICATES:
        bound = bind(schema, parse_predicate(text, schema), case_sensitive=True)
        found[text] = ids(everything.filter(expression_to_pyarrow(bound)))
    return found


def ids(found: pa.Table) -> set[int]:
    return {*found["id"].to_pylist()}


def wrong(table: Table, expected: dict[str, set[int]]) -> dict[str, tuple[set[int], set[int]]]:
    """By predicate, the rows that are lost and those that do not match."""
    found = {text: ids(sidecar.scan(table, text, ["id"])) for text in expected}
    return {text: (rows - found[text], found[text] - rows) for text, rows in expected.items() if rows != found[text]}


def test_rows_are_those_of_the_wider_type(tables: tuple[Table, Table], expected: dict[str, set[int]]) -> None:
    assert any(expected.values())
    assert wrong(tables[0], expected) == {}
    streamed = sidecar.scan_batches(tables[0], "d = inf or d < -1e300", ["id"]).read_all()
    assert ids(streamed) == expected["d = inf"] | expected["d < -1e300"] != set()


@pytest.mark.parametrize("text", ["d = inf", "d != 1e39", "n < 3000000000", "dec in (10000000.00, 1.5)"])
def test_deleted_rows_are_left_out(tables: tuple[Table, Table], expected: dict[str, set[int]], text: str) -> None:
    table = tables[0]
    reader = TableReader(
        table, table.schema(), FileQuestion(parse_predicate(text, table.schema()), table.schema()), Access(table.io)
    )
    [task] = table.scan().plan_files()
    deleted = [0, 1, 27]
    batches = reader.read_whole(task, [pa.chunked_array([deleted])])
    assert {key for batch in batches for key in batch["id"].to_pylist()} == expected[text] - {*deleted}


@pytest.mark.parametrize(("keys", "found"), [([1e39, math.inf], {0}), ([-math.inf, -1e300], {4}), ([1e300], set())])
def test_keys_beyond_the_type_lose_no_row(tables: tuple[Table, Table], keys: list[float], found: set[int]) -> None:
    assert ids(sidecar.scan(tables[0], "true", keys={"d": keys})) == found


def test_dates_are_not_compared_with_times_of_a_day() -> None:
    """pyiceberg would truncate the literal and lose the day itself; it promotes no dates when it projects them."""
    day = NestedField(1, "day", DateType(), required=False)
    schema = iceberg_schema("day timestamp")
    predicate = bind(schema, parse_predicate("day < '2020-01-01T12:00:00'", schema), case_sensitive=True)
    with pytest.raises(UnsupportedFeatureError, match="timestamp"):
        in_types_of_file(predicate, Schema(day), AbsentColumns(schema, Schema(day), {}))


def test_a_sidecar_changes_no_row(tables: tuple[Table, Table], expected: dict[str, set[int]]) -> None:
    table = tables[0]
    sidecar.build(table, ["d", "n", "dec"], kinds=["bloom", "page-index"], engine="local")
    some = {text: expected[text] for text in (*PREDICATES[::5], "d = inf", "d in (inf, -inf)", "d > 1e300")}
    assert wrong(table.refresh(), some) == {}
    planned = sidecar.plan(table, "d = inf")
    assert (planned.warnings, len(planned.row_groups[planned.kept_files[0]].kept)) == ((), 1)
    assert sidecar.plan(table, "d = 77").files_kept == 0


def test_unsigned_columns_of_32_bits_are_longs(own_catalog: Any, tmp_path: Any) -> None:
    """Arrow writes them into files that are added to a table of longs; pyiceberg takes them for ints."""
    inner = StructType(NestedField(3, "v", LongType(), required=False))
    schema = Schema(NestedField(1, "u", LongType(), required=False), NestedField(2, "s", inner, required=False))
    mapping = create_mapping_from_schema(schema).model_dump_json()
    table = own_catalog.create_table("db.unsigned", schema, properties={"schema.name-mapping.default": mapping})
    values = [0, 7, 2**31 - 1, 2**31, 3_000_000_000, 2**32 - 1, None]
    unsigned = pa.array(values, pa.uint32())
    structs = pa.StructArray.from_arrays([unsigned], ["v"])
    pq.write_table(pa.table({"u": unsigned, "s": structs}), tmp_path / "u.parquet", row_group_size=3)
    table.add_files([str(tmp_path / "u.parquet")])
    compared = {"=": operator.eq, "<": operator.lt, ">=": operator.ge, "!=": operator.ne}
    for sign, holds in compared.items():
        for literal in (-1, 7, 2**31, 3_000_000_000, 2**32 - 1, 2**33):
            rows = [value for value in values if value is not None and holds(value, literal)]
            found = sidecar.scan(table, f"u {sign} {literal}").column("u").to_pylist()
            assert [value for value in found if value is not None] == rows, (sign, literal)
            nested = sidecar.scan(table, f"s.v {sign} {literal}").column("u").to_pylist()
            assert [value for value in nested if value is not None] == rows, (sign, literal)
