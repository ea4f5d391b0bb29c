"""Values of the rows of a life: a small domain that files share, and the values at which indexes have gone wrong."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from decimal import Context, Decimal
from typing import Any

import numpy as np
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

from tests.tables import iceberg_schema

Row = dict[int, Any]
"""Values by field id. That of a struct is whether it is there; lists and maps are tuples."""

SCHEMA = iceberg_schema(
    "id long, part string, i int, l long, f float, d double, dec9 decimal(9, 2), dec38 decimal(38, 4), s string, "
    "b binary, day date, ts timestamp, tz timestamptz, bo boolean",
    NestedField(15, "st", StructType(NestedField(21, "x", LongType()), NestedField(22, "y", StringType()))),
    NestedField(16, "li", ListType(element_id=23, element_type=LongType(), element_required=False)),
    NestedField(17, "mp", MapType(24, StringType(), 25, LongType(), value_required=False)),
    NestedField(
        18,
        "ls",
        ListType(26, StructType(NestedField(27, "a", LongType()), NestedField(28, "b", StringType())), False),
    ),
    NestedField(19, "ms", MapType(29, StringType(), 30, StructType(NestedField(31, "c", DoubleType())), False)),
    NestedField(20, "fx", FixedType(4)),
    NestedField(32, "u", UUIDType()),
    NestedField(33, "t", TimeType()),
)
"""The first columns of a table. The last three are left out where an engine has no such type."""

DOMAIN = 60
"""Different usual values of a column; lookups also ask for values that no row has."""
LONG = "a prefix that is longer than any bound "

_UTC = dt.timezone.utc
_EXACT = Context(prec=60)
_EPOCH = dt.datetime(2024, 1, 1)
_SPECIAL: dict[type[IcebergType], list[Any]] = {
    IntegerType: [2**31 - 1, -(2**31), 0, -1],
    LongType: [2**63 - 1, -(2**63), 2**31, -(2**31) - 1, 2**53 + 1, 0],
    FloatType: [math.nan, 0.0, -0.0, math.inf, -math.inf, *(float(np.float32(v)) for v in (0.1, 3.4028234e38, 1e-45))],
    DoubleType: [math.nan, 0.0, -0.0, math.inf, -math.inf, 0.1, float(np.float32(0.1)), 1.7e308, 5e-324],
    StringType: ["", " ", "it's", "%", "\x00", "ÿ", "日本語", "\U0010ffff", LONG + "1", LONG + "2", LONG + "é" * 20],
    BinaryType: [b"", b"\x00", b"\xff" * 3, b"\xff" * 40, b"prefix" * 10],
    FixedType: [b"\x00" * 4, b"\xff" * 4],
    UUIDType: [uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes, uuid.UUID(int=2**127).bytes],
    DateType: [*(dt.date(y, 12, 31) for y in (1, 1969, 9999)), dt.date(1970, 1, 1), dt.date(1582, 10, 4)],
    TimeType: [dt.time(0), dt.time(23, 59, 59, 999_999)],
    TimestampType: [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)],
    TimestamptzType: [dt.datetime(1969, 12, 31, 23, 59, 59, 1, _UTC), dt.datetime(1583, 1, 1, tzinfo=_UTC)],
    BooleanType: [],
}  # fmt: skip


IN_ORC: dict[type[IcebergType], list[Any]] = {
    DateType: [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1583, 1, 1), dt.date(9999, 12, 31)],
    TimestampType: [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1700, 1, 1), dt.datetime(2262, 1, 1)],
    TimestamptzType: [dt.datetime(1969, 12, 31, 23, 59, 59, 0, _UTC), dt.datetime(1700, 1, 1, tzinfo=_UTC)],
}
"""What all readers read alike from ORC: one calendar, 64 bits of nanoseconds, whole seconds before 1970."""


def special_values(kind: IcebergType) -> list[Any]:
    """The awkward values of a type."""
    if isinstance(kind, DecimalType):
        most = 10**kind.precision - 1
        return [Decimal(n).scaleb(-kind.scale, _EXACT) for n in (most, -most, 0, 10 ** (kind.precision - 2) + 1)]
    return _SPECIAL[type(kind)]


def usual_value(kind: IcebergType, n: int) -> Any:
    """The ``n``-th value of the domain of a type."""
    n = n * 7919 % 1009 - 500
    if isinstance(kind, DecimalType):
        return Decimal(n * 101).scaleb(-kind.scale, _EXACT)
    moment = _EPOCH + dt.timedelta(days=n * 41, microseconds=max(n, 0))
    values: dict[type[IcebergType], Any] = {
        IntegerType: n,
        LongType: n,
        FloatType: n / 4,
        DoubleType: n / 4,
        StringType: f"värde-{n}",
        BinaryType: n.to_bytes(3, "big", signed=True),
        FixedType: n.to_bytes(4, "little", signed=True),
        UUIDType: uuid.UUID(int=(n + 1000) << 80).bytes,
        DateType: moment.date(),
        TimeType: dt.time(abs(n) % 24, abs(n) % 60),
        TimestampType: moment,
        TimestamptzType: moment.replace(tzinfo=_UTC),
        BooleanType: n % 2 == 0,
    }
    return values[type(kind)]


def any_value(kind: IcebergType, rng: random.Random, orc: bool = False, domain: int = DOMAIN) -> Any:
    """A value of a type, now and then an awkward one; with ``orc`` only one that all readers read alike from ORC."""
    special = special_values(kind) if rng.random() < 0.3 else []
    if orc and special:
        special = IN_ORC.get(type(kind), special)
    return rng.choice(special) if special else usual_value(kind, rng.randrange(domain))


def make_record(schema: Schema, key: int, rng: random.Random, orc: bool = False) -> dict[str, Any]:
    """A new row of a schema, by names, as pyarrow takes it."""
    return {field.name: _field_value(field, key, rng, orc) for field in schema.fields}


def _field_value(field: NestedField, key: int, rng: random.Random, orc: bool) -> Any:
    kind = field.field_type
    if field.name == "id":
        return key
    if rng.random() < 0.12:
        return None
    if field.name == "part" and isinstance(kind, StringType):
        return rng.choice(["a", "b", "c"])
    return _value_of(kind, key, rng, orc)


def _value_of(kind: IcebergType, key: int, rng: random.Random, orc: bool) -> Any:
    if isinstance(kind, StructType):
        return {child.name: _field_value(child, key, rng, orc) for child in kind.fields}
    if isinstance(kind, ListType):
        return [rng.choice([None, _value_of(kind.element_type, key, rng, orc)]) for _ in range(rng.randrange(4))]
    if isinstance(kind, MapType):
        pairs = [(kind.key_type, kind.value_type)] * rng.randrange(3)
        return {any_value(one, rng): _value_of(other, key, rng, orc) for one, other in pairs}
    return any_value(kind, rng, orc)


def by_field_id(schema: Schema, record: dict[str, Any]) -> Row:
    """A row by names, of pyarrow or of :func:`make_record`, as one by field ids."""
    row: Row = {}
    for field in schema.fields:
        _flatten(field, record.get(field.name), row)
    return row


def _flatten(field: NestedField, value: Any, row: Row) -> None:
    kind = field.field_type
    if isinstance(kind, StructType):
        row[field.field_id] = None if value is None else True
        for child in kind.fields:
            _flatten(child, None if value is None else value.get(child.name), row)
    elif isinstance(kind, MapType):
        pairs = value.items() if isinstance(value, dict) else value
        row[field.field_id] = _absent(kind.value_type) if value is None else tuple(sorted(pairs, key=repr))
    elif isinstance(kind, ListType):
        row[field.field_id] = _absent(kind.element_type) if value is None else tuple(value)
    else:
        row[field.field_id] = value.bytes if isinstance(value, uuid.UUID) else value


def _absent(inside: IcebergType) -> Any:
    """What a NULL list or map counts as: pyiceberg reads those of structs as empty, if it reads a file whole."""
    return () if isinstance(inside, StructType) else None


def field_ids(schema: Schema) -> list[int]:
    """The field ids that :func:`by_field_id` fills."""
    return list(by_field_id(schema, {}))


def comparable(row: Row, ids: list[int]) -> str:
    """What two equal rows have in common: NaN equals NaN, and -0.0 differs from 0.0."""
    return repr([row.get(field_id) for field_id in ids])
