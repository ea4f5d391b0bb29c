"""Literals as a person writes them: exact, or refused with the reason."""

from __future__ import annotations

import contextlib
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.expressions.literals import literal
from pyiceberg.types import DecimalType, LongType, TimestampType, TimestamptzType

from sidecar.errors import UsageError
from sidecar.filters.literals import literal_from_text

GOOD: list[tuple[str, str, Any]] = [
    ("-5", "int", -5),
    ("+5", "long", 5),
    ("5.0", "int", 5),
    ("1e3", "long", 1000),
    ("-9223372036854775808", "long", -(2**63)),
    ("2147483647", "int", 2**31 - 1),
    ("1.5", "double", 1.5),
    ("1e3", "float", 1000.0),
    (".5", "double", 0.5),
    ("0.1", "float", 0.1),
    ("inf", "double", math.inf),
    ("-Infinity", "float", -math.inf),
    ("9007199254740992", "double", 2.0**53),
    ("1.5", "decimal(9, 2)", Decimal("1.50")),
    ("-1e3", "decimal(9, 2)", Decimal("-1000.00")),
    ("99999999999999999999999999999999999.999", "decimal(38, 3)", Decimal("9" * 35 + ".999")),
    ("0", "decimal(9,2)", Decimal("0.00")),
    ("2024-01-01", "date", 19723),
    ("1969-12-31", "date", -1),
    ("12:34", "time", (12 * 3600 + 34 * 60) * 10**6),
    ("00:00:00.000001000", "time", 1),
    ("2024-01-01", "timestamp", 19723 * 86400 * 10**6),
    ("2024-01-01T00:00:01.5", "timestamp", (19723 * 86400 + 1) * 10**6 + 500000),
    ("2024-01-01 00:00:01", "timestamp", (19723 * 86400 + 1) * 10**6),
    ("1969-12-31 23:59:59.999999", "timestamp", -1),
    ("2024-01-01T02:00:00+02:00", "timestamptz", 19723 * 86400 * 10**6),
    ("2024-01-01 00:00:00 UTC", "timestamptz", 19723 * 86400 * 10**6),
    ("2024-01-01Z", "timestamptz", 19723 * 86400 * 10**6),
    ("2023-12-31 21:30-0230", "timestamptz", 19723 * 86400 * 10**6),
    ("2024-01-01 00:00:00.123456789", "timestamp_ns", 19723 * 86400 * 10**9 + 123456789),
    ("2024-01-01 00:00:00Z", "timestamptz_ns", 19723 * 86400 * 10**9),
    ("f79c3e09-677c-4bbd-a479-3f349cb785e7", "uuid", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
    ("F79C3E09677C4BBDA4793F349CB785E7", "uuid", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
    ("0x00ff", "binary", b"\x00\xff"),
    ("1e39", "float", 1e39),
    ("3.4028235e38", "float", 3.4028235e38),
    ("16777217", "float", 16777217.0),
    ("9007199254740993", "double", 9007199254740992.0),
    ("0x", "binary", b""),
    ("0x00ff", "fixed[2]", b"\x00\xff"),
    ("TRUE", "boolean", True),
    ("false", "boolean", False),
    ("  padded ", "string", "  padded "),
    ("", "string", ""),
]

BAD: list[tuple[str, str]] = [
    ("5.5", "int"),
    ("2147483648", "int"),
    ("-9223372036854775809", "long"),
    ("1e400", "long"),
    ("1e999999999", "long"),
    ("1_000", "long"),
    ("٣", "long"),
    ("abc", "long"),
    ("", "long"),
    ("1.505", "decimal(9, 2)"),
    ("10000000.00", "decimal(9, 2)"),
    ("nan", "decimal(9, 2)"),
    ("1e400", "double"),
    ("1e-400", "double"),
    ("2024-02-30", "date"),
    ("2024-01-01T00:00:00", "date"),
    ("19000", "date"),
    ("0000-01-01", "date"),
    ("24:00", "time"),
    ("00:00:60", "time"),
    ("00:00:00.0000001", "time"),
    ("2024-01-01 00:00:00.0000001", "timestamp"),
    ("2024-01-01T00:00:00Z", "timestamp"),
    ("2024-01-01", "timestamptz"),
    ("2024-01-01 00:00:00+19:00", "timestamptz"),
    ("2300-01-01", "timestamp_ns"),
    ("f79c3e09677c-4bbd-a479-3f349cb785e7", "uuid"),
    ("00ff", "binary"),
    ("0x0", "binary"),
    ("0x00ff", "fixed[3]"),
    ("yes", "boolean"),
    ("1", "boolean"),
    ("\ud800", "string"),
    ("1", "list<int>"),
    ("1", "unknown"),
]


@pytest.mark.parametrize(("text", "iceberg_type", "value"), GOOD)
def test_text_becomes_the_value_that_a_person_means(text: str, iceberg_type: str, value: Any) -> None:
    found = literal_from_text(text, iceberg_type, quoted=True)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, Decimal):
        assert str(found) == str(value)


@pytest.mark.parametrize(("text", "iceberg_type"), BAD)
def test_what_does_not_fit_is_refused(text: str, iceberg_type: str) -> None:
    with pytest.raises(UsageError):
        literal_from_text(text, iceberg_type, quoted=True)


def test_a_bare_token_is_never_a_string() -> None:
    with pytest.raises(UsageError, match="not quoted"):
        literal_from_text("5", "string", quoted=False)
    assert literal_from_text("5", "int", quoted=False) == 5


def test_nan_and_negative_zero_keep_their_meaning() -> None:
    nan, zero = (literal_from_text(text, "double", quoted=False) for text in ("NaN", "-0.0"))
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert math.copysign(1.0, float(zero)) == -1.0


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_survive_printing(unscaled: int, scale: int) -> None:
    kind = DecimalType(38, scale)
    value = from_bytes(kind, to_bytes(kind, Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))))
    found = literal_from_text(str(value), str(kind), quoted=False)
    assert (found, str(found)) == (value, str(value))


@given(st.datetimes())
def test_timestamps_agree_with_pyiceberg(moment: Any) -> None:
    text = moment.isoformat()
    assert literal_from_text(text, "timestamp", quoted=True) == literal(text).to(TimestampType()).value
    zoned = literal(text + "+01:30").to(TimestamptzType()).value
    assert literal_from_text(text + "+01:30", "timestamptz", quoted=True) == zoned


@given(
    st.text(max_size=20),
    st.sampled_from(["int", "float", "decimal(5, 2)", "date", "timestamp", "uuid", "binary"]),
)
def test_any_text_gives_a_value_or_our_error(text: str, iceberg_type: str) -> None:
    with contextlib.suppress(UsageError):
        literal_from_text(text, iceberg_type, quoted=False)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_printing(value: float) -> None:
    found = literal_from_text(repr(value), "double", quoted=False)
    assert str(found) == str(value)


def test_long_values_agree_with_pyiceberg() -> None:
    assert literal_from_text("123", "long", quoted=False) == literal(123).to(LongType()).value
