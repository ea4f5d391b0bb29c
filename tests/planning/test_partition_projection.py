"""Partition values at the ends of types: no plan drops a partition that Java made of a matching value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    DateLiteral,
    DecimalLiteral,
    FixedLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType, NestedField, TimestampNanoType

import sidecar
from sidecar.planning.evaluators import evaluators_of
from sidecar.planning.partition_projection import exact_transform
from sidecar.planning.whole_match import WholeMatch
from tests.iceberg.mixed_tables import append_files, parquet_file
from tests.planning.java_partitions import JavaPartition, partitions_of_java

LITERALS: dict[str, Callable[[Any], Literal[Any]]] = {
    "int": LongLiteral,
    "long": LongLiteral,
    "date": DateLiteral,
    "time": TimeLiteral,
    "timestamp": TimestampLiteral,
    "timestamptz": TimestampLiteral,
    "decimal": lambda value: DecimalLiteral(Decimal(value)),
    "string": StringLiteral,
    "binary": lambda value: BinaryLiteral(bytes.fromhex(value)),
    "fixed": lambda value: FixedLiteral(bytes.fromhex(value)),
    "uuid": lambda value: UUIDLiteral(UUID(value).bytes),
}
COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    NotEqualTo: operator.ne,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: operator.eq,
}
RULES_NOTHING_OUT = {("int", "truncate[2147483647]"), ("long", "truncate[2147483647]")}
KINDS = [
    (kind, of, list(found))
    for (kind, of), found in groupby(partitions_of_java(), lambda one: one[:2])
    if kind != "timestamp_ns"  # pyiceberg has no literals of it
]


def literal_of(kind: str, value: Any) -> Literal[Any]:
    return LITERALS[kind.partition("(")[0].partition("[")[0]](value)


def create(catalog: Any, name: str, kind: Any, transform: str) -> Table:
    field = NestedField.model_validate({"id": 1, "name": "x", "type": kind, "required": False})
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform(transform), "part"))
    made: Table = catalog.create_table(f"db.{name}", Schema(field), partition_spec=spec)
    return made


def of_partition(kind: IcebergType, value: Any) -> tuple[DataFile, ManifestFile]:
    """A file of a partition, and the line of its manifest."""
    if isinstance(value, Decimal):  # the least one may have more digits than its type
        raw = int(Decimal(value.as_tuple()._replace(exponent=0))).to_bytes(17, "big", signed=True)
    else:
        raw = to_bytes(kind, value)  # type: ignore[arg-type]
    summary = PartitionFieldSummary(False, False, raw, raw)
    return DataFile.from_args(partition=Record(value)), ManifestFile.from_args(
        partition_spec_id=0, partitions=[summary]
    )


@pytest.mark.parametrize(("kind", "transform", "found"), KINDS, ids=[f"{kind}-{of}" for kind, of, _ in KINDS])
def test_partitions_of_java_are_kept_and_decide_nothing_wrong(
    catalog: Any, kind: str, transform: str, found: list[JavaPartition]
) -> None:
    table = create(catalog, f"partition_{KINDS.index((kind, transform, found))}", kind, transform)
    part = table.spec().partition_type(table.schema()).fields[0].field_type
    has_type_of_column = part == table.schema().fields[0].field_type
    rows, refused = [], 0
    for one in found:
        value = literal_of(kind, one.partition).value if has_type_of_column else one.partition
        rows.append((literal_of(kind, one.value).value, of_partition(part, value)))
    for sign, (asked, _), one in ((sign, *pair) for sign in COMPARED for pair in zip(rows, found, strict=True)):
        given = literal_of(kind, one.value)
        predicate = sign("x", {given, literal_of(kind, found[0].value)} if sign is In else given)
        evaluators = evaluators_of(table.scan(row_filter=predicate))
        whole = WholeMatch(table.metadata, predicate)
        for value, (file, line) in rows:
            matches = COMPARED[sign](value, asked) or (sign is In and value == rows[0][0])
            is_kept = evaluators.partition(0)(file), evaluators.manifest(line)
            assert all(is_kept) or not matches, (str(predicate), value)
            refused += not all(is_kept)
            residual = evaluators.residual(file, 0)
            assert not isinstance(residual, AlwaysFalse if matches else AlwaysTrue), (str(predicate), value)
            assert matches or not whole._by_partition[0](file), (str(predicate), value)
    assert refused or (kind, transform) in RULES_NOTHING_OUT


def test_transforms_of_nanoseconds_are_those_of_java() -> None:
    of_nanos = [one for one in partitions_of_java() if one.type == "timestamp_ns"]
    assert len({one.transform for one in of_nanos}) == 5
    for one in of_nanos:
        compute = exact_transform(parse_transform(one.transform)).transform(TimestampNanoType())
        assert compute(one.value) == one.partition, one


LEAST = -(2**31)
"""The least int."""


@pytest.mark.parametrize("kind", ["int", "promoted", "long"])
def test_the_least_numbers_are_found_where_java_put_them(catalog: Any, kind: str) -> None:
    table = create(catalog, f"least_{kind}", "long" if kind == "long" else "int", "truncate[10]")
    least, wrapped = (-(2**63), 2**63 - 2) if kind == "long" else (LEAST, 2**31 - 2)
    for values, partition in (([least, least + 3], wrapped), ([-7, -3], -10), ([7], 0)):
        append_files(table, [parquet_file(table, pa.table({"x": values}), Record(partition))])
    if kind == "promoted":
        with table.update_schema() as update:
            update.update_column("x", LongType())
    for _ in range(2):
        for predicate, rows in (
            (f"x = {least}", [least]),
            (f"x in ({least + 3}, 7)", [7, least + 3]),
            ("x < -6", [-7, least, least + 3]),
            (f"x <= {least + 3}", [least, least + 3]),
            (f"x < {least + 1} or x > 0", [7, least]),
            ("x > -7", [-3, 7]),
            (f"x != {least}", [-3, -7, 7, least + 3]),
        ):
            assert sorted(sidecar.scan(table, predicate)["x"].to_pylist(), key=str) == sorted(rows, key=str), predicate
        assert sidecar.plan(table, f"x = {least}").files_kept == 1
        found = sidecar.scan(table, "true", keys={"x": [least, least + 1]})["x"].to_pylist()
        assert found == [least]
        report = sidecar.find(table, {"x": [str(least), str(least + 1)]})
        assert [(one.value, one.rows) for one in report.files] == [(str(least), 1)]
        assert [one.answer for one in report.conditions] == ["found", "absent"]
        sidecar.build(table, ["x"], kinds=["bloom", "page-index"], engine="local")
        table.refresh()


DAY_9999 = "9999-12-31"


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
def test_ranges_may_end_on_the_last_day_of_pythons_dates(catalog: Any, transform: str) -> None:
    """The partition beside the end of the range is that of the year 10000."""
    kind, last = ("timestamp", f"{DAY_9999}T23:59:59.999999") if transform == "hour" else ("date", DAY_9999)
    table = create(catalog, f"last_day_{transform}", kind, transform)
    values = pa.array(["2024-01-01", DAY_9999]).cast(pa.date32()).cast(table.schema().as_arrow().field("x").type)
    far = {"year": 8029, "month": 96359, "day": 2932896, "hour": 70389504}[transform]
    near = {"year": 54, "month": 648, "day": 19723, "hour": 473352}[transform]
    for value, partition in zip(values, (near, far), strict=True):
        append_files(table, [parquet_file(table, pa.table({"x": [value.as_py()]}), Record(partition))])
    first = "0001-01-01T00:00:00" if transform == "hour" else "0001-01-01"
    for predicate, count in (
        (f"x > '{last}'", 0),
        (f"x >= '{last}'", transform != "hour"),
        (f"x <= '{last}'", 2),
        (f"not (x <= '{last}')", 0),
        (f"x < '{first}'", 0),
        (f"x between '{first}' and '{last}'", 2),
    ):
        assert sidecar.scan(table, predicate).num_rows == count, predicate
    assert sidecar.scan(table, "true", keys={"x": values}).num_rows == 2
    assert sidecar.plan(table, "true", keys={"x": values[1:]}).files_kept == 1
    assert sidecar.find(table, {"x": last}).conditions[0].rows == (transform != "hour")


@pytest.mark.parametrize(("transform", "partitions"), [("year", (8029, 9000)), ("month", (96359, 108007))])
def test_days_after_the_year_9999_are_planned_and_advised(
    catalog: Any, transform: str, partitions: tuple[int, int]
) -> None:
    table = create(catalog, f"far_days_{transform}", "date", transform)
    days = (2_932_896, 3_287_396)  # the last day of 9999, and one of the year 10970
    for day, partition in zip(days, partitions, strict=True):
        values = pa.array([day], pa.int32()).cast(pa.date32())
        append_files(table, [parquet_file(table, pa.table({"x": values}), Record(partition))])
    for kind, day, kept in (
        (EqualTo, days[1], 1),
        (GreaterThan, days[0], 1),
        (LessThan, days[0], 1),
        (LessThan, days[1], 2),
    ):
        assert sidecar.plan(table, kind("x", DateLiteral(day))).files_kept == kept, (kind, day)
    assert [column.name for column in sidecar.advise(table).columns] == ["x"]
