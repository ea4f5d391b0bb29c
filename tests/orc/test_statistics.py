"""What is believed of statistics: outer bounds, or nothing."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sidecar.errors import DamagedFileError
from sidecar.orc.protobuf import BYTES, FIXED64, VARINT, Message, encode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.bounds import cannot_hold, literal_span
from sidecar.orc.statistics.column_statistics import INVERTED, ColumnStatistics, decode_statistics
from sidecar.orc.statistics.contradictions import Contradictions
from sidecar.orc.tail import CPP, JAVA, OrcTail, read_tail
from tests.orc.files import PYARROW, read_all, source, zigzag

TAIL = read_tail(source("java_none_utf8.orc"))
DAY_NS = 86_400 * 10**9


def column(kind: str, **parts: Any) -> OrcColumn:
    found = TAIL.column("c_int")
    assert found is not None
    return replace(found, kind=kind, **parts)


def tail_by(writer: int = JAVA, version: int = 9, calendar: str = "proleptic_gregorian") -> OrcTail:
    return replace(TAIL, writer=writer, writer_version=version, calendar=calendar)


def statistics(field: int, fields: list[Any], values: int = 5) -> Message:
    return Message([(1, VARINT, values), (field, BYTES, encode(Message(fields)))])


def signed(low: int, high: int, first: int = 1) -> list[Any]:
    return [(first, VARINT, zigzag(low) & (2**64 - 1)), (first + 1, VARINT, zigzag(high) & (2**64 - 1))]


def doubles(*values: float) -> list[Any]:
    return [(i + 1, FIXED64, struct.unpack("<Q", struct.pack("<d", v))[0]) for i, v in enumerate(values)]


def texts(**parts: str) -> list[Any]:
    numbers = {"low": 1, "high": 2, "lower": 4, "upper": 5}
    return [(numbers[name], BYTES, text.encode()) for name, text in parts.items()]


def decoded(message: Message, kind: str, tail: OrcTail | None = None, zone: str | None = "UTC") -> ColumnStatistics:
    return decode_statistics(message, column(kind), tail or tail_by(), zone)


def bounds(message: Message, kind: str, tail: OrcTail | None = None, zone: str | None = "UTC") -> Any:
    found = decoded(message, kind, tail, zone)
    assert (found.min is None) == (found.max is None) == bool(found.reason)
    return None if found.min is None else (found.min, found.max, found.exact)


@pytest.mark.parametrize("kind", ["BYTE", "SHORT", "INT", "LONG", "DATE"])
def test_whole_numbers(kind: str) -> None:
    assert bounds(statistics(2 if kind != "DATE" else 7, signed(-5, 7)), kind) == (-5, 7, True)


@pytest.mark.parametrize(("kind", "bits"), [("BYTE", 8), ("SHORT", 16), ("INT", 32)])
def test_bounds_outside_of_the_type_are_not_believed(kind: str, bits: int) -> None:
    limit = 1 << (bits - 1)
    assert bounds(statistics(2, signed(-limit, limit - 1)), kind) == (-limit, limit - 1, True)
    assert bounds(statistics(2, signed(0, limit)), kind) is None
    assert bounds(statistics(2, signed(-limit - 1, 0)), kind) is None


def test_bounds_that_contradict_each_other_are_named() -> None:
    assert decoded(statistics(3, doubles(2.0, 1.0, 3.0)), "DOUBLE").reason == INVERTED
    assert decoded(statistics(4, texts(low="b", high="a")), "STRING").reason == INVERTED
    assert bounds(statistics(2, signed(7, 5)), "INT") is None


def test_a_writer_that_says_nothing_of_nulls_may_have_some() -> None:
    message = statistics(2, signed(1, 2))
    assert decoded(message, "INT").has_null
    for said in (0, 1):
        told = Message([*message.fields, (10, VARINT, said)])
        assert decoded(told, "INT").has_null is bool(said)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_floats_need_a_sum_that_is_a_number(kind: str) -> None:
    assert bounds(statistics(3, doubles(-1.5, 2.5, 1.0)), kind) == (-1.5, 2.5, True)
    for values in ((-1.5, 2.5), (-1.5, 2.5, math.nan), (math.nan, math.nan, math.nan), (math.nan, 2.0, 1.0)):
        found = decoded(statistics(3, doubles(*values)), kind)
        assert found.min is None
        assert found.may_hold_nan


def test_bounds_of_floats_are_rounded_as_the_values_were() -> None:
    """C++ counts 0.1 and stores the float next to it, which lies above."""
    low, high, exact = bounds(statistics(3, doubles(0.1, 0.1, 0.2)), "FLOAT", tail_by(CPP, 6))
    assert low == high == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert low > 0.1
    assert not exact
    assert bounds(statistics(3, doubles(0.0, 1e300, 1e300)), "FLOAT")[1] == math.inf


def test_texts() -> None:
    assert bounds(statistics(4, texts(low="", high="é")), "STRING") == ("", "é", True)
    assert bounds(statistics(4, texts(lower="a", upper="b")), "VARCHAR") == ("a", "b", False)
    assert bounds(statistics(4, texts(low="a", upper="b")), "STRING") == ("a", "b", False)
    assert bounds(statistics(4, texts(low="a", upper="b?")), "STRING") is None
    assert bounds(statistics(4, texts(low="", upper="")), "STRING") is None  # nothing is left of a value that was cut
    assert bounds(statistics(4, texts(low="a")), "STRING") is None
    assert bounds(statistics(4, texts(low="a", high="b")), "CHAR", tail_by(CPP, 6)) is None
    assert bounds(statistics(4, [(1, BYTES, b"\xff"), (2, BYTES, b"z")]), "STRING") is None


def test_nothing_of_the_first_writer_version_is_believed() -> None:
    assert bounds(statistics(2, signed(1, 2)), "INT", tail_by(version=0)) is None
    assert bounds(statistics(2, signed(1, 2)), "INT", tail_by(version=1)) == (1, 2, True)


def test_decimals() -> None:
    fields = [(1, BYTES, b"-1.50"), (2, BYTES, b"100")]
    assert bounds(statistics(6, fields), "DECIMAL") == (Decimal("-1.5"), Decimal(100), True)
    assert bounds(statistics(6, fields), "DECIMAL", tail_by(version=6)) is None
    assert bounds(statistics(6, fields), "DECIMAL", tail_by(CPP, 6)) is not None
    for text in (b"", b"NaN", b"1e999999999", b"one", b"9" * 300):
        assert bounds(statistics(6, [(1, BYTES, b"0"), (2, BYTES, text)]), "DECIMAL") is None


def test_bounds_of_decimals_with_an_impossible_scale_are_not_compared() -> None:
    message = statistics(6, [(1, BYTES, b"-1.50"), (2, BYTES, b"100")])
    for scale, believed in ((38, True), (39, False), (1 << 40, False)):
        found = decode_statistics(message, column("DECIMAL", scale=scale), tail_by(), "UTC")
        assert (found.min is not None, found.max is not None) == (believed, believed)


def test_timestamps() -> None:
    utc = statistics(9, signed(1000, 2000, 3))
    assert bounds(utc, "TIMESTAMP") == (10**9, 2 * 10**9 + 999_999, False)
    assert bounds(utc, "TIMESTAMP_INSTANT", zone=None) == (10**9, 2 * 10**9 + 999_999, False)
    assert bounds(utc, "TIMESTAMP", zone="Europe/Berlin") == (
        10**9 - DAY_NS,
        2 * 10**9 + 999_999 + DAY_NS,
        False,
    )
    assert bounds(utc, "TIMESTAMP", tail_by(version=5)) is None
    assert bounds(statistics(9, signed(1000, 2000, 1)), "TIMESTAMP") is None


def test_the_second_before_1970_reaches_into_the_one_after_it() -> None:
    """-500 ms is stored as +500 ms."""
    low, high, _ = bounds(statistics(9, signed(-500, -500, 3)), "TIMESTAMP_INSTANT")
    assert low <= -500 * 10**6
    assert high >= 500 * 10**6


def test_before_1970_what_other_writers_say_is_a_second_wider() -> None:
    low, high, _ = bounds(statistics(9, signed(-10_000, -5_000, 3)), "TIMESTAMP_INSTANT", tail_by(CPP, 6))
    assert low <= -11_001 * 10**6
    assert high >= -4_999 * 10**6
    low, *_ = bounds(statistics(9, signed(0, 5_000, 3)), "TIMESTAMP_INSTANT", tail_by(CPP, 6))
    assert low < -999_999  # the last microseconds of 1969, which Arrow gives as 0 s and fewer than 0 ns


@pytest.mark.parametrize(("kind", "field", "first", "unit"), [("DATE", 7, 1, 1), ("TIMESTAMP", 9, 3, 86_400_000)])
def test_before_the_calendars_agree(kind: str, field: int, first: int, unit: int) -> None:
    early, late = (statistics(field, signed(day * unit, 0, first)) for day in (-141_428, -141_427))
    assert bounds(early, kind, tail_by(calendar="julian_gregorian")) is None
    assert bounds(early, kind, tail_by(calendar="unknown")) is None
    assert bounds(early, kind) is not None
    assert bounds(early, kind, tail_by(CPP, 6, "unknown")) is not None
    assert bounds(late, kind, tail_by(calendar="julian_gregorian")) is not None


@pytest.mark.parametrize(("trues", "expected"), [(0, (False, False)), (5, (True, True)), (3, (False, True)), (6, None)])
def test_booleans_are_counted(trues: int, expected: Any) -> None:
    found = bounds(statistics(5, [(1, BYTES, bytes([trues]))]), "BOOLEAN")
    assert (found and found[:2]) == expected


def test_masked_values_say_nothing() -> None:
    message = statistics(2, signed(1, 2))
    assert decode_statistics(message, column("INT", encrypted=True), tail_by()).min is None
    masked = decode_statistics(statistics(2, signed(1, 2), values=0), column("INT", encrypted=True), tail_by())
    assert cannot_hold(masked, 5, "int", column("INT", encrypted=True)) == ""


def test_damage_is_damage() -> None:
    with pytest.raises(DamagedFileError):
        decoded(Message([(2, VARINT, 5)]), "INT")
    with pytest.raises(DamagedFileError):
        decoded(Message([(2, BYTES, b"\x08")]), "INT")


# --- excluding a value --------------------------------------------------------------------------------------


def test_values_outside_of_the_bounds_are_excluded() -> None:
    found = decoded(statistics(2, signed(-5, 7)), "INT")
    assert [bool(cannot_hold(found, v, "int", column("INT"))) for v in (-6, -5, 0, 7, 8)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert cannot_hold(found, 8, "long", column("INT"))
    assert cannot_hold(decoded(statistics(2, [], values=0), "INT"), 1, "int", column("INT")) == "no values, only nulls"
    assert cannot_hold(None, 8, "int", column("INT")) == ""
    uncounted = decoded(Message([(2, BYTES, encode(Message(signed(1, 5))))]), "INT")
    assert uncounted.num_values is None
    assert [bool(cannot_hold(uncounted, v, "int", column("INT"))) for v in (0, 1, 5, 6)] == [
        True,
        False,
        False,
        True,
    ]
    assert cannot_hold(decoded(Message([]), "INT"), 1, "int", column("INT")) == "", "nobody counted, nobody knows"


@pytest.mark.parametrize(
    ("kind", "iceberg_type", "value"),
    [
        ("INT", "timestamp", 5),
        ("DATE", "timestamp", 5),
        ("CHAR", "string", "a"),
        ("STRING", "string", "\ud800"),
        ("DOUBLE", "double", math.nan),
        ("DOUBLE", "double", 1),
        ("DOUBLE", "float", 1.0),
        ("INT", "int", True),
        ("BOOLEAN", "boolean", 1),
        ("DECIMAL", "decimal(9, 2)", Decimal("NaN")),
        ("DECIMAL", "decimal(9, 2)", 1),
        ("BINARY", "binary", b"a"),
        ("LONG", "timestamptz", 5),
        ("TIMESTAMP", "timestamptz", 5),
    ],
)
def test_what_cannot_be_compared_is_kept(kind: str, iceberg_type: str, value: Any) -> None:
    assert literal_span(value, iceberg_type, column(kind)) is None


def test_microseconds_are_compared_with_nanoseconds() -> None:
    found = decoded(statistics(9, signed(1000, 2000, 3)), "TIMESTAMP")
    answers = [
        bool(cannot_hold(found, v, "timestamp", column("TIMESTAMP"))) for v in (999_999, 10**6, 2_000_999, 2_001_000)
    ]
    assert answers == [True, False, False, True]
    assert not cannot_hold(found, 10**9, "timestamp_ns", column("TIMESTAMP"))


@pytest.mark.parametrize("name", ["java_zlib_2stripes_utf8.orc", PYARROW])
def test_statistics_of_a_stripe_are_those_of_its_row_groups(name: str) -> None:
    tail, stripes = read_all(source(name))
    for stripe in stripes:
        for found in tail.columns:
            index = stripe.indexes[found.id]
            assert index.contradictions == Contradictions()
            groups = [index.statistics(g) for g in range(stripe.footer.stripe.num_row_groups)]
            total = index.whole
            assert total is not None
            assert total.num_values == sum(g.num_values or 0 for g in groups if g)
            lows = [g.min for g in groups if g and g.min is not None]
            if total.min is not None and len(lows) == len(groups):
                assert total.min == min(lows)  # type: ignore[type-var]
