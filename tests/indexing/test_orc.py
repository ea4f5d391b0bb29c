"""Stage 1 over ORC files: the same filters and sketches as of the same values in Parquet, unit by unit."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.indexing.stage_one.tasks import BuildPlan, FilePiece, StageResult, UnitsTask, index_units
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.protobuf import encode
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.storage.local import LocalSource
from tests.indexing.cases import bound_value, columns_of, filter_of, misses, plan_for, rng, sketch_of
from tests.orc_cases import STRIDE, write_orc
from tests.tables import iceberg_schema

EPOCH = dt.datetime(1970, 1, 1)
ROWS = 2_500


def stage_one(path: Path, plan: BuildPlan, cuts: tuple[float, ...] = ()) -> list[StageResult]:
    """All records of an ORC file, read in the pieces between ``cuts``."""
    size = path.stat().st_size
    bounds = [0, *(int(size * cut) for cut in cuts), size]
    pieces = [FilePiece(0, str(path), size, a, b, FileFormat.ORC) for a, b in itertools.pairwise(bounds)]
    return [r for i, p in enumerate(pieces) for r in index_units(UnitsTask(i, (p,)), plan)]


TYPES: dict[str, tuple[IcebergType, Any]] = {
    "int": (IntegerType(), lambda n: n * 7919 - 10**6),
    "long": (LongType(), lambda n: n * (2**40 + 1) - 2**50),
    "float": (FloatType(), lambda n: n / 4 - 100),
    "double": (DoubleType(), lambda n: n / 10 - 100),
    "decimal9": (DecimalType(9, 2), lambda n: Decimal(n - 1000).scaleb(-2)),
    "decimal18": (DecimalType(18, 3), lambda n: Decimal((n - 1000) * 10**9).scaleb(-3)),
    "decimal20": (DecimalType(20, 0), lambda n: Decimal((n - 1000) * 10**15)),
    "decimal38": (DecimalType(38, 4), lambda n: Decimal((n - 1000) * 10**25 + 1).scaleb(-4)),
    "string": (StringType(), lambda n: f"värde-{n}" if n % 50 else ""),
    "binary": (BinaryType(), lambda n: n.to_bytes(n % 3 + 2, "big")),
    "fixed": (FixedType(5), lambda n: n.to_bytes(5, "big")),
    "uuid": (UUIDType(), lambda n: uuid.UUID(int=n << 64).bytes),
    "date": (DateType(), lambda n: dt.date(1950, 1, 1) + dt.timedelta(days=n * 11)),
    "time": (TimeType(), lambda n: dt.time(n % 24, n % 60, n % 59, n)),
    "timestamp": (TimestampType(), lambda n: EPOCH + dt.timedelta(hours=n, microseconds=n)),
    "timestamptz": (TimestamptzType(), lambda n: (EPOCH + dt.timedelta(hours=-n)).replace(tzinfo=dt.timezone.utc)),
    "boolean": (BooleanType(), lambda n: n % 3 == 0),
}  # fmt: skip


def one_column(kind: IcebergType, value: Any) -> tuple[Schema, pa.Table]:
    """A nullable column ``k`` of :data:`ROWS` rows."""
    schema = Schema(NestedField(1, "k", kind))
    cells = [None if n % 7 == 3 else value(n) for n in range(ROWS)]
    arrow = schema_to_pyarrow(schema)
    return schema, pa.Table.from_arrays([pa.array(cells, arrow.field("k").type)], schema=arrow)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_the_filters_and_sketches_of_a_parquet_file(tmp_path: Path, name: str) -> None:
    schema, table = one_column(*TYPES[name])
    pq.write_table(
        table,
        tmp_path / "k.parquet",
        row_group_size=STRIDE,
        use_dictionary=False,
        store_decimal_as_integer=True,
    )
    path = write_orc(tmp_path / "k.orc", table, schema)
    plan = plan_for(schema)
    size = (tmp_path / "k.parquet").stat().st_size
    whole = UnitsTask(0, (FilePiece(0, str(tmp_path / "k.parquet"), size, 0, size),))
    expected = list(index_units(whole, plan))
    found = stage_one(path, plan)
    assert [r[:6] for r in found if r.kind == "unit"] == [r[:6] for r in expected if r.kind == "unit"]
    for ours, theirs in zip(columns_of(found, 1), columns_of(expected, 1), strict=True):
        assert (ours.filter.encoding, ours.data, ours.reason) == (theirs.filter.encoding, theirs.data, theirs.reason)
        assert (ours.theta_reason, ours.fault) == ("", "")
    assert sketch_of(found, 1).to_bytes() == sketch_of(expected, 1).to_bytes()


NESTED = Schema(
    NestedField(1, "st", StructType(NestedField(2, "x", LongType()), NestedField(3, "y", StringType()))),
    NestedField(4, "li", ListType(5, LongType(), element_required=False)),
    NestedField(6, "mp", MapType(7, StringType(), 8, IntegerType(), value_required=False)),
    NestedField(9, "deep", ListType(10, StructType(NestedField(11, "z", StringType())), element_required=False)),
)  # fmt: skip


def test_leaves_of_structs_lists_and_maps(tmp_path: Path) -> None:
    rows = [
        {
            "st": None if n % 5 == 0 else {"x": n, "y": None if n % 3 == 0 else f"y{n}"},
            "li": None if n % 4 == 0 else [n * 10 + i for i in range(n % 3)],
            "mp": None if n % 6 == 0 else [(f"key{n}", n), ("null", None)],
            "deep": None if n % 7 == 0 else [None, {"z": f"z{n}"}],
        }
        for n in range(ROWS)
    ]
    table = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(NESTED))
    path = write_orc(tmp_path / "n.orc", table, NESTED)
    records = stage_one(path, plan_for(NESTED))
    wanted: dict[int, Any] = {
        2: lambda row: [row["st"]["x"]] if row["st"] else [],
        3: lambda row: [row["st"]["y"]] if row["st"] and row["st"]["y"] else [],
        5: lambda row: row["li"] or [],
        7: lambda row: [key for key, _ in row["mp"] or []],
        8: lambda row: [value for _, value in row["mp"] or [] if value is not None],
        11: lambda row: [part["z"] for part in row["deep"] or [] if part],
    }
    for field_id, values in wanted.items():
        kind = str(NESTED.find_type(field_id))
        for record in columns_of(records, field_id):
            mine = rows[record.row_group * STRIDE : (record.row_group + 1) * STRIDE]
            held = [value for row in mine for value in values(row)]
            assert misses(filter_of(record), record.filter.encoding, kind, held) == []
        distinct = {value for row in rows for value in values(row)}
        assert sketch_of(records, field_id).estimate == pytest.approx(len(distinct), rel=0.05)


LONG = iceberg_schema("k long")


def longs(path: Path, values: Any, **options: Any) -> Path:
    return write_orc(path, pa.table({"k": pa.array(values, pa.int64())}), LONG, **options)


def test_units_are_numbered_over_stripes_whoever_reads_them(tmp_path: Path) -> None:
    values = rng().integers(0, 2**62, 60_000)
    path = longs(tmp_path / "s.orc", values, stripe_size=64 << 10, compression="uncompressed", row_index_stride=1_500)
    whole = stage_one(path, plan_for(LONG))
    units = [r.entry for r in whole if r.kind == "unit"]
    stripes = [r for r in units if r[2] != 1_500]
    assert len(stripes) > 2  # a stripe ends with what is left of its rows
    assert [unit[0] for unit in units] == list(range(len(units)))
    assert [first for _, first, _ in units[1:]] == [first + count for _, first, count in units[:-1]]
    assert units[-1][1] + units[-1][2] == len(values)
    for record, (_, first, count) in zip(columns_of(whole, 1), units, strict=True):
        assert misses(filter_of(record), "int64", "long", values[first : first + count].tolist()) == []
    cut = stage_one(path, plan_for(LONG), (0.2, 0.4, 0.41, 0.9))
    assert sorted(r[:6] for r in cut if r.kind == "unit") == [r[:6] for r in whole if r.kind == "unit"]
    assert [r.data for r in columns_of(cut, 1)] == [r.data for r in columns_of(whole, 1)]


def test_a_stripe_without_a_row_index_is_one_unit(tmp_path: Path) -> None:
    path = longs(tmp_path / "n.orc", rng().integers(0, 2**62, 30_000), stripe_size=64 << 10, compression="uncompressed")
    tail = read_tail(LocalSource(str(path)))
    tail.footer.set(8, 0)  # the stride
    footer = encode(tail.footer)
    tail.postscript.set(1, len(footer))
    postscript = encode(tail.postscript)
    path.write_bytes(path.read_bytes()[: tail.footer_offset] + footer + postscript + bytes([len(postscript)]))
    units = [r for r in stage_one(path, plan_for(LONG)) if r.kind == "unit"]
    assert [r.entry.rows for r in units] == [stripe.num_rows for stripe in tail.stripes]
    assert len(units) > 2


def test_a_file_without_rows_has_no_units(tmp_path: Path) -> None:
    assert stage_one(longs(tmp_path / "e.orc", []), plan_for(LONG)) == []


def test_promoted_columns_are_hashed_as_readers_ask(tmp_path: Path) -> None:
    """An int under a long is a long; a float stays one, as in Parquet."""
    before = iceberg_schema("k int, f float, d decimal(9, 2)")
    after = iceberg_schema("k long, f double, d decimal(18, 2)")
    numbers = [n * 0.1 for n in range(100)]
    table = pa.Table.from_arrays(
        [pa.array(range(100), pa.int32()), pa.array(numbers, pa.float32()),
         pa.array([Decimal(n).scaleb(-2) for n in range(100)], pa.decimal128(9, 2))],
        schema=schema_to_pyarrow(before),
    )  # fmt: skip
    path = write_orc(tmp_path / "p.orc", table, before)
    records = stage_one(path, plan_for(after))
    found = {r.field_id: r for r in records if r.kind == "column"}
    assert {i: r.filter.encoding for i, r in found.items()} == {1: "int64", 2: "float", 3: "int64/decimal:2"}
    assert misses(filter_of(found[1]), "int64", "long", range(100)) == []
    assert misses(filter_of(found[2]), "float", "double", table["f"].to_pylist()) == []
    assert misses(filter_of(found[3]), "int64/decimal:2", "decimal(18, 2)", table["d"].to_pylist()) == []
    assert sketch_of(records, 2).estimate == 100


REFUSED: dict[str, tuple[IcebergType, IcebergType, list[Any], str]] = {
    "another type": (StringType(), LongType(), [1], "a string column stored as long"),
    "demoted": (IntegerType(), LongType(), [1], "a int column stored as long"),
    "scale": (DecimalType(9, 3), DecimalType(9, 2), [Decimal("1.00")], "stored as decimal(9, 2)"),
    "uuid in plain bytes": (UUIDType(), BinaryType(), [bytes(16)], "a uuid column stored as binary"),
    "old day": (DateType(), DateType(), [dt.date(1582, 10, 14)], "days before 1582-10-15"),
    "old fraction": (TimestampType(), TimestampType(), [EPOCH - dt.timedelta(microseconds=1)], "before 1970"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_readers_may_not_agree_on_is_not_indexed(tmp_path: Path, name: str) -> None:
    asked, written, values, reason = REFUSED[name]
    schema, theirs = Schema(NestedField(1, "k", asked)), Schema(NestedField(1, "k", written))
    arrow = schema_to_pyarrow(theirs)
    table = pa.Table.from_arrays([pa.array(values, arrow.field("k").type)], schema=arrow)
    (record,) = columns_of(stage_one(write_orc(tmp_path / "r.orc", table, theirs), plan_for(schema)), 1)
    assert record.data is None
    assert reason in record.reason
    assert reason in record.theta_reason
    assert record.fault == ""


def test_columns_are_found_by_the_name_mapping_where_there_are_no_ids(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "k", LongType()),
        NestedField(2, "li", ListType(3, LongType(), element_required=False)),
        NestedField(4, "gone", StringType()),
    )
    written = Schema(*schema.fields[:2])
    table = pa.Table.from_pylist([{"k": 5, "li": [7]}], schema=schema_to_pyarrow(written))
    path = write_orc(tmp_path / "m.orc", table, written, ids=False)
    found = {r.field_id: r for r in stage_one(path, plan_for(schema)) if r.kind == "column"}
    assert {i: r.resolution for i, r in found.items()} == {1: "name:k", 3: "name:li.list.element", 4: ""}
    assert misses(filter_of(found[3]), "int64", "long", [7]) == []
    assert found[4].reason == "column absent from the file"
    assert found[4].theta_reason == ""  # all null: a sketch counts nothing
    without = BuildPlan(**{**vars(plan_for(schema)), "name_mapping": None})
    assert all("no field ids" in r.reason for r in stage_one(path, without) if r.kind == "column")


# --- filters that the file has, and filters in ORC's own form --------------------------------------------------


def orc_filter_of(record: StageResult) -> OrcBloomFilter:
    assert record.data is not None, record
    assert not any(record.data[record.filter.bits // 8 :])
    assert len(record.data) % 32 == 0
    return OrcBloomFilter.from_bytes(record.data[: record.filter.bits // 8], record.filter.hashes)


def orc_misses(record: StageResult, iceberg_type: str, values: Any) -> list[Any]:
    """Values that an ORC filter denies: must be empty."""
    found, encoding = orc_filter_of(record), OrcEncoding.parse(record.filter.encoding)
    assert probe_orc(next(iter(values)), iceberg_type, encoding).verdict == "probe"
    return [value for value in values if not found.might_contain(value, iceberg_type, encoding)]


@pytest.mark.parametrize("name", [name for name in TYPES if name != "boolean"])
def test_every_type_in_orc_form(tmp_path: Path, name: str) -> None:
    kind, value = TYPES[name]
    schema, table = one_column(kind, value)
    path = write_orc(tmp_path / "k.orc", table, schema)
    records = columns_of(stage_one(path, plan_for(schema, filter_format="orc", theta=False)), 1)
    cells = [bound_value(cell, str(kind)) for cell in table["k"].to_pylist()]
    for record in records:
        assert record.how == "scanned"
        assert (record.filter.bits, record.filter.hashes) == size_for(STRIDE, 0.01)
        mine = [v for v in cells[record.row_group * STRIDE : (record.row_group + 1) * STRIDE] if v is not None]
        assert orc_misses(record, str(kind), mine) == []
        assert record.rate < 0.011


REUSED = {
    "long": "orc/long", "double": "orc/double", "decimal9": "orc/decimal:2", "decimal38": "orc/decimal:4",
    "string": "orc/bytes", "binary": "orc/bytes", "uuid": "orc/bytes", "date": "orc/date", "time": "orc/long",
    "timestamp": "orc/timestamp:c++:UTC", "timestamptz": "orc/instant:c++",
}  # fmt: skip


@pytest.mark.parametrize("name", REUSED)
def test_trusted_filters_are_reused_as_they_are(tmp_path: Path, name: str) -> None:
    kind, value = TYPES[name]
    schema, table = one_column(kind, value)
    path = write_orc(tmp_path / "k.orc", table, schema, bloom_filter_columns=[1], bloom_filter_fpp=0.01)
    records = columns_of(stage_one(path, plan_for(schema, filter_format="auto", theta=False)), 1)
    source = LocalSource(str(path))
    tail = read_tail(source)
    (stripe,) = tail.stripes
    footer = read_stripe_footer(source, tail, stripe)
    theirs = read_indexes(source, tail, footer, [1], FileStatistics(source, tail))[1].filters
    cells = [bound_value(cell, str(kind)) for cell in table["k"].to_pylist()]
    for record, found in zip(records, theirs or (), strict=True):
        assert (record.how, record.filter.encoding) == ("reused", REUSED[name])
        assert orc_filter_of(record) == found.filter
        mine = [v for v in cells[record.row_group * STRIDE : (record.row_group + 1) * STRIDE] if v is not None]
        assert orc_misses(record, str(kind), mine) == []
    never = columns_of(stage_one(path, plan_for(schema, filter_format="auto", reuse="never", theta=False)), 1)
    parquet = columns_of(stage_one(path, plan_for(schema, filter_format="parquet", theta=False)), 1)
    assert [r.how for r in never + parquet] == ["scanned"] * 6
    assert not any(r.filter.bits for r in never + parquet)


def test_filters_that_are_not_trusted_or_not_good_are_built_anew(tmp_path: Path) -> None:
    schema, table = one_column(*TYPES["float"])  # C++ writers hash the double that they were given
    path = write_orc(tmp_path / "f.orc", table, schema, bloom_filter_columns=[1], bloom_filter_fpp=0.01)
    assert {r.how for r in columns_of(stage_one(path, plan_for(schema, filter_format="auto")), 1)} == {"scanned"}
    schema, table = one_column(*TYPES["long"])
    path = write_orc(tmp_path / "l.orc", table, schema, bloom_filter_columns=[1], bloom_filter_fpp=0.2)
    plan = plan_for(schema, filter_format="auto")
    assert {r.how for r in columns_of(stage_one(path, plan), 1)} == {"scanned"}
    always = plan_for(schema, filter_format="auto", reuse="always")
    assert {r.how for r in columns_of(stage_one(path, always), 1)} == {"reused"}


@pytest.mark.parametrize("form", ["auto", "parquet", "orc"])
@pytest.mark.parametrize("reuse", ["always", "never"])
def test_nothing_is_taken_of_an_encrypted_column(form: str, reuse: str) -> None:
    """What stands in clear for ``secret`` (filters, row index, statistics) is of the values that mask it."""
    schema = iceberg_schema("id long, secret long, name string")
    path = Path(__file__).resolve().parents[1] / "data" / "orc" / "java_encrypted.orc"
    found = stage_one(path, plan_for(schema, page_index=True, filter_format=form, reuse=reuse))
    units = sum(record.kind == "unit" for record in found)
    assert units > 1
    for field_id, has_some in ((1, True), (2, False), (3, True)):
        for kind in ("column", "pages"):
            own = [record for record in found if (record.kind, record.field_id) == (kind, field_id)]
            assert len(own) == units
            assert [bool(record.data) for record in own] == [has_some] * units, kind
            assert {record.reason for record in own} == ({""} if has_some else {"the column is encrypted"})
    assert not [record for record in found if (record.kind, record.field_id) == ("sketch", 2)]
