"""The vectors of ``tests/data/orc``: what the ORC writers were given, and the filters they made of it."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

FOLDER = Path(__file__).parents[1] / "data/orc"
EPOCH = datetime(1970, 1, 1)
LOS_ANGELES = ZoneInfo("America/Los_Angeles")
RAW_OFFSET = -8 * 3600
"""Of Los Angeles: what java.util.TimeZone applies before the first rule it knows, in 1883."""
FIRST_RULE = -2717640000


@lru_cache(maxsize=8)
def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def column(name: str) -> list[Any]:
    return load("values.json")["columns"][name]


def floats(name: str, kind: str) -> Any:
    """Bit patterns as a float array, nulls kept; numpy only moves the bits."""
    width = 4 if kind == "float32" else 8
    bits = [0 if v is None else int(v, 16) for v in column(name)]
    words = np.array(bits, np.uint32 if width == 4 else np.uint64)
    return pa.array(words.view(kind), mask=np.array([v is None for v in column(name)]))


def canonical_nans(values: Any) -> Any:
    """As Java stores them."""
    numbers = values.to_numpy(zero_copy_only=False)
    numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)
    return pa.array(numbers, mask=np.asarray(values.is_null()))


def milliseconds_java_stores(seconds: int, nanos: int) -> int:
    """Of the instant that a Java file gives back: between -1 s and 0, one second more than was written."""
    millis = seconds * 1000 + nanos // 1_000_000
    return millis + 1000 if seconds == -1 and nanos > 999_999 else millis


def wall_clock(millis: int) -> int:
    """Of Los Angeles, as Java knows it."""
    if millis // 1000 < FIRST_RULE:
        return millis + RAW_OFFSET * 1000
    instant = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=millis)
    offset = instant.astimezone(LOS_ANGELES).utcoffset()
    assert offset is not None
    return millis + int(offset.total_seconds()) * 1000


def java_timestamps(name: str, *, wall: bool) -> Any:
    out = []
    for value in column(name):
        millis = None if value is None else milliseconds_java_stores(*value)
        out.append(wall_clock(millis) if wall and millis is not None else millis)
    return pa.array(out, pa.timestamp("ms"))


def pyarrow_timestamps(name: str) -> Any:
    """Nanoseconds; what lies outside their range was written as null."""
    wide = [None if v is None else v[0] * 10**9 + v[1] for v in column(name)]
    return pa.array([v if v is not None and -(2**63) <= v < 2**63 else None for v in wide], pa.timestamp("ns"))


def strings(name: str) -> Any:
    return pa.array([None if v is None else bytes.fromhex(v).decode() for v in column(name)])


def binaries(name: str) -> Any:
    return pa.array([None if v is None else bytes.fromhex(v) for v in column(name)])


def decimals(name: str, precision: int, scale: int) -> Any:
    kind = pa.decimal128(precision, scale)
    return pa.array([None if v is None else Decimal(v) for v in column(name)], kind)


def dates(name: str) -> Any:
    return pa.array(column(name), pa.int32()).cast(pa.date32())


def integers(name: str, kind: Any) -> Any:
    return pa.array([None if v is None else int(v) for v in column(name)], kind)


WALL = "America/Los_Angeles"


@lru_cache(maxsize=1)
def java_columns() -> dict[str, tuple[Any, str]]:
    """Column -> its values as the file gives them back, and the encoding of its BLOOM_FILTER_UTF8 stream."""
    return {
        "c_tiny": (integers("c_tiny", pa.int8()), "orc/long"),
        "c_small": (integers("c_small", pa.int16()), "orc/long"),
        "c_int": (integers("c_int", pa.int32()), "orc/long"),
        "c_big": (integers("c_big", pa.int64()), "orc/long"),
        "c_float": (canonical_nans(floats("c_float", "float32")), "orc/float"),
        "c_double": (canonical_nans(floats("c_double", "float64")), "orc/double"),
        "c_sdict": (strings("c_sdict"), "orc/bytes"),
        "c_sdir": (strings("c_sdir"), "orc/bytes"),
        "c_char": (strings("c_char"), "orc/char:8"),
        "c_vchar": (strings("c_vchar"), "orc/varchar:10"),
        "c_bin": (binaries("c_bin"), "orc/bytes"),
        "c_date": (dates("c_date"), "orc/date"),
        "c_ts": (java_timestamps("c_ts", wall=True), f"orc/timestamp:java:{WALL}"),
        "c_tsi": (java_timestamps("c_tsi", wall=False), "orc/instant:java"),
        "c_dec10": (decimals("c_dec10", 10, 2), "orc/decimal:2"),
        "c_dec18": (decimals("c_dec18", 18, 6), "orc/decimal:6"),
        "c_dec38": (decimals("c_dec38", 38, 18), "orc/decimal:18"),
        "c_null": (integers("c_null", pa.int32()), "orc/long"),
    }


@lru_cache(maxsize=1)
def pyarrow_columns() -> dict[str, tuple[Any, str]]:
    """The same of pyarrow's files, without the columns whose filters it writes wrong."""
    same = java_columns()
    kept = (
        "c_small",
        "c_int",
        "c_big",
        "c_sdict",
        "c_sdir",
        "c_bin",
        "c_date",
        "c_dec10",
        "c_dec18",
        "c_dec38",
    )
    return {
        **{name: same[name] for name in kept},
        "c_float": (floats("c_float", "float32"), "orc/float"),
        "c_double": (floats("c_double", "float64"), "orc/double"),
        "c_ts": (pyarrow_timestamps("c_ts"), "orc/timestamp:c++:UTC"),
        "c_tsi": (pyarrow_timestamps("c_tsi"), "orc/instant:c++"),
    }


def groups(values: Any) -> list[Any]:
    """Row groups of 1000, 1000 and 300 rows."""
    return [values[at : at + 1000] for at in range(0, 2300, 1000)]


def literal(value: Any) -> Any:
    """A value of an Arrow array as pyiceberg binds it."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return value
