"""Columns that a file lacks have the value of its partition or their initial default, in rows and in predicates."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNull,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

import sidecar
from sidecar.reading import arrow_reader, table_files
from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files, orc_file, parquet_file
from tests.iceberg.table_cases import commit_files

ZONE = dt.timezone.utc
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "boolean": (False, True, True),
    "int": (-(2**31), 7, 2**31 - 1),
    "long": (-(2**63), 2**40, 2**63 - 1),
    "float": (float(np.float32(-0.1)), float(np.float32(2.222)), float(np.float32(3e38))),
    "double": (-0.1, 2.222, 1e300),
    "decimal(9, 2)": (Decimal("-1.20"), Decimal("14.20"), Decimal("9999999.99")),
    "decimal(38, 10)": (Decimal("-0.0000000001"), Decimal("14.2000000000"), Decimal("9" * 28 + "." + "9" * 10)),
    "date": (dt.date(1969, 12, 31), dt.date(2024, 1, 31), dt.date(9999, 12, 31)),
    "time": (dt.time(0), dt.time(12, 34, 56, 789), dt.time(23, 59, 59, 999_999)),
    "timestamp": (dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 31, 12, 0, 0, 1), dt.datetime(9999, 12, 31)),
    "timestamptz": tuple(dt.datetime(year, 1, 31, 12, 0, 0, 1, ZONE) for year in (1901, 2024, 9999)),
    "string": ("", "m'ä", "z"),
    "uuid": (UUID(int=1), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), UUID(int=2**128 - 1)),
    "fixed[2]": (b"\x00\x00", b"\x0f\xff", b"\xff\xff"),
    "binary": (b"\x00", b"\x0f\xff", b"\xff"),
}  # fmt: skip
"""By type, a value that is less than that of files without the column, that value, and a greater one."""
ORC = [kind for kind in VALUES if kind not in ("time", "uuid", "fixed[2]")]
"""Types that pyiceberg reads from ORC."""


def given(value: Any) -> Any:
    """A value as literals take it."""
    return value.bytes if isinstance(value, UUID) else value


def stored(value: Any) -> Any:
    """A value as manifests have it."""
    if isinstance(value, dt.datetime):
        return datetime_to_micros(value)
    if isinstance(value, dt.date):
        return date_to_days(value)
    return time_to_micros(value) if isinstance(value, dt.time) else value


def predicates(low: Any, value: Any, high: Any) -> Iterator[tuple[BooleanExpression, Callable[[Any], bool]]]:
    """Predicates on ``x``, and what they mean for a value that is not NULL."""
    compared: dict[Any, Callable[[Any, Any], bool]] = {
        EqualTo: operator.eq, NotEqualTo: operator.ne, LessThan: operator.lt, LessThanOrEqual: operator.le,
        GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge,
    }  # fmt: skip
    for kind, means in compared.items():
        for asked in (low, value, high) if kind in (EqualTo, LessThan) else (value,):
            yield kind("x", given(asked)), lambda own, asked=asked, means=means: means(own, asked)
    yield In("x", {given(low), given(value)}), lambda own: own in (low, value)
    yield NotIn("x", {given(low), given(value)}), lambda own: own not in (low, value)
    yield IsNull("x"), lambda own: False
    yield NotNull("x"), lambda own: True


def set_default(table: Table, kind: str, value: Any) -> Table:
    """The table as if ``x`` had been added with an initial default."""
    fields = [
        NestedField.model_validate({"id": 2, "name": "x", "type": kind, "required": False, "initial-default": None})
    ]
    made = NestedField(2, "x", fields[0].field_type, required=False, initial_default=value)
    schema = Schema(table.schema().find_field("k"), made, schema_id=table.schema().schema_id)
    metadata = table.metadata.model_copy(update={"schemas": [schema]})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def schema_of(kind: str) -> Schema:
    field = NestedField.model_validate({"id": 2, "name": "x", "type": kind, "required": False})
    return Schema(NestedField(1, "k", LongType()), field)


def rows_without(count: int = 3) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64())})


def check(table: Table, kind: str, rows: dict[int, Any]) -> None:
    """Each predicate finds the rows that it means; ``rows`` has ``x`` by ``k``."""
    full = sidecar.scan(table, "true")
    shown = {key: value.as_py() for key, value in zip(full["k"].to_pylist(), full["x"], strict=True)}
    assert shown == rows
    for predicate, means in predicates(*VALUES[kind]):
        found = sorted(sidecar.scan(table, predicate)["k"].to_pylist())
        assert found == [key for key, value in rows.items() if means(value)], str(predicate)
        assert sorted(sidecar.scan(table, predicate, ["k"])["k"].to_pylist()) == found, str(predicate)
    value = VALUES[kind][1]
    keys = [given(value)]
    assert sorted(sidecar.scan(table, "true", keys={"x": keys})["k"].to_pylist()) == [
        key for key, own in rows.items() if own == value
    ]
    if kind != "boolean":
        text = value.hex() if isinstance(value, bytes) else f"{value}"
        text = f"0x{text}" if isinstance(value, bytes) else text
        assert sidecar.find(table, {"x": text}).conditions[0].rows == sum(own == value for own in rows.values())


@pytest.mark.parametrize(
    ("kind", "way"), [*((kind, "whole") for kind in VALUES), ("date", "pages"), ("uuid", "pages"), ("string", "pages")]
)
def test_initial_defaults(catalog: Any, kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg 0.12 compares dates with numbers: ``=`` finds nothing, ranges are a TypeError."""
    if way == "pages":  # by the indexes of pages, not by Arrow's scanner
        monkeypatch.setattr(table_files, "SMALL", 0)
        monkeypatch.setattr(table_files, "TOO_MUCH", math.inf)
        monkeypatch.setattr(arrow_reader, "SMALL", 0)
    name = f"default_{list(VALUES).index(kind)}_{way}"
    table = catalog.create_table(f"db.{name}", schema_of(kind))
    append_files(table, [parquet_file(table, rows_without())])
    low, _, high = map(given, VALUES[kind])
    written = pa.table(
        {"k": pa.array([7, 8], pa.int64()), "x": pa.array([low, high]).cast(table.schema().as_arrow().field("x").type)}
    )
    append_files(table, [parquet_file(table, written)])
    if kind in ORC:
        append_files(table, [orc_file(table, pa.table({"k": pa.array([20], pa.int64())}))])
    table = set_default(table, kind, VALUES[kind][1])
    rows = dict.fromkeys(range(3), VALUES[kind][1]) | {7: VALUES[kind][0], 8: VALUES[kind][2]}
    check(table, kind, rows | ({20: VALUES[kind][1]} if kind in ORC else {}))


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind != "boolean"])
@pytest.mark.parametrize("build", [False, True])
def test_values_of_identity_partitions(catalog: Any, kind: str, build: bool) -> None:
    """pyiceberg's compiled decoder reads doubles of manifests as floats."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    name = f"partition_{list(VALUES).index(kind)}_{build}"
    table = catalog.create_table(f"db.{name}", schema_of(kind), partition_spec=spec)
    for at, value in enumerate(VALUES[kind]):
        append_files(
            table, [parquet_file(table, pa.table({"k": pa.array([at * 10, at * 10 + 1])}), Record(stored(value)))]
        )
    if build:
        sidecar.build(table, ["k"], kinds=["bloom", "page-index"], engine="local")
        table.refresh()
    check(table, kind, {at * 10 + more: value for at, value in enumerate(VALUES[kind]) for more in (0, 1)})


@pytest.mark.parametrize("source", ["default", "partition"])
def test_a_float_is_compared_as_a_float(catalog: Any, source: str) -> None:
    spec = (
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x")) if source == "partition" else PartitionSpec()
    )
    table = catalog.create_table(f"db.float_{source}", schema_of("float"), partition_spec=spec)
    value = float(np.float32(2.222))
    append_files(table, [parquet_file(table, rows_without(), Record(value) if spec.fields else None)])
    table = table if spec.fields else set_default(table, "float", 2.222)
    for predicate, count in (
        ("x = 2.222", 3),
        ("x in (2.222, 5)", 3),
        ("x != 2.222", 0),
        ("x < 2.222", 0),
        ("x >= 2.222", 3),
    ):
        assert sidecar.scan(table, predicate).num_rows == count, predicate
    assert sidecar.find(table, {"x": "2.222"}).conditions[0].rows == 3


IN = StructType(NestedField(5, "b", LongType()), NestedField(7, "y", LongType(), initial_default=7))
NESTED = Schema(
    NestedField(1, "k", LongType()),
    NestedField(
        2,
        "st",
        StructType(
            NestedField(3, "a", LongType()),
            NestedField(6, "x", StringType(), initial_default="d"),
            NestedField(4, "in", IN, required=True),
            NestedField(8, "gone", StructType(NestedField(9, "z", LongType(), initial_default=9))),
        ),
    ),
)


def nested_table(catalog: Any, name: str, orc: bool) -> Table:
    """Rows without the columns with defaults; in two of four the struct is NULL."""
    inner = StructType(NestedField(3, "a", LongType()), NestedField(4, "in", StructType(IN.fields[0])))
    old = Schema(NestedField(1, "k", LongType()), NestedField(2, "st", inner))
    table = catalog.create_table(f"db.{name}", old)
    structs = [{"a": 0, "in": {"b": 0}}, None, {"a": None, "in": {"b": None}}, None]
    rows = pa.table({"k": range(4), "st": structs}).cast(old.as_arrow())
    append_files(table, [(orc_file if orc else parquet_file)(table, rows)])
    schema = Schema(*NESTED.fields, schema_id=0)
    metadata = table.metadata.model_copy(update={"schemas": [schema]})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


@pytest.mark.parametrize("orc", [False, True])
@pytest.mark.parametrize("columns", [None, ["k"], ["k", "st.x"]])
def test_fields_of_a_struct_that_is_null_have_no_default(catalog: Any, orc: bool, columns: list[str] | None) -> None:
    table = nested_table(catalog, f"nested_default_{orc}_{columns is None or len(columns)}", orc)
    if columns is None:
        rows = sidecar.scan(table, "true")["st"].to_pylist()
        made = [row if row is None else (row["x"], row["in"]["y"], row["gone"]) for row in rows]
        assert made == [("d", 7, None), None, ("d", 7, None), None]
    for predicate, found in (
        ("st.x = 'd'", [0, 2]),
        ("st.x != 'd'", []),
        ("not (st.x = 'e')", [0, 2]),
        ("not (st.x = 'd')", []),
        ("not (not (st.x = 'd'))", [0, 2]),
        ("st.x is null", [1, 3]),
        ("not (st.x is null)", [0, 2]),
        ("st.x is not null", [0, 2]),
        ("st.x like 'd%'", [0, 2]),
        ("st.x = 'e' or k = 3", [3]),
        ('st."in".y = 7 and k < 2', [0]),
        ('st."in".y > 7', []),
        ('st."in".y is null', [1, 3]),
        ("st.gone.z = 9", []),
        ("st.gone.z is null", [0, 1, 2, 3]),
        ("st.a is null and st.x = 'd'", [2]),
    ):
        assert sidecar.scan(table, predicate, columns)["k"].to_pylist() == found, predicate
    assert sidecar.find(table, {"st.x": "d"}).conditions[0].rows == 2
    assert sidecar.scan(table, "true", keys={"st.x": ["d"]})["k"].to_pylist() == [0, 2]


@pytest.mark.parametrize("build", [False, True])
def test_a_partition_by_a_field_of_a_struct(catalog: Any, build: bool) -> None:
    schema = Schema(
        NestedField(1, "k", LongType()),
        NestedField(2, "st", StructType(NestedField(3, "a", LongType()), NestedField(4, "x", StringType()))),
    )
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "x"))
    table = catalog.create_table(f"db.nested_partition_{build}", schema, partition_spec=spec)
    without = StructType(NestedField(3, "a", LongType()))
    arrow = Schema(NestedField(1, "k", LongType()), NestedField(2, "st", without)).as_arrow()
    for at, (value, struct) in enumerate([("p", {"a": 1}), ("q", {"a": 2}), (None, None)]):
        rows = pa.table({"k": [at], "st": [struct]}).cast(arrow)
        file = parquet_file(table, pa.table({"k": [at]}), Record(value))
        pq.write_table(rows, local(file.file_path))
        file[5] = local(file.file_path).stat().st_size
        append_files(table, [file])
    if build:
        sidecar.build(table, ["k"], engine="local")
        table.refresh()
    for predicate, found in (
        ("st.x = 'p'", [0]),
        ("st.x != 'p'", [1, 2]),
        ("st.x is null", [2]),
        ("st.x in ('q', 'r')", [1]),
        ("st.x < 'q'", [0]),
    ):
        assert sorted(sidecar.scan(table, predicate, ["k"])["k"].to_pylist()) == found, predicate
    assert sidecar.find(table, {"st.x": "q"}).conditions[0].rows == 1


def test_a_manifest_without_its_partition_field(catalog: Any) -> None:
    """Written with a spec of no fields under the id of one that has some: nothing is ruled out, and nothing is lost."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    table = catalog.create_table("db.short_partition", schema_of("long"), partition_spec=spec)
    file = parquet_file(table, pa.table({"k": [1, 2], "x": [5, 6]}))
    append_files(table, [parquet_file(table, pa.table({"k": [3], "x": [7]}), Record(7))])
    commit_files(table, file, PartitionSpec(), 9)
    table.refresh()
    for predicate, found in (("x = 5", [1]), ("x > 5", [2, 3]), ("x is null", []), ("k = 2", [2])):
        assert sorted(sidecar.scan(table, predicate)["k"].to_pylist()) == found, predicate
    assert sidecar.find(table, {"x": 6}).conditions[0].rows == 1
