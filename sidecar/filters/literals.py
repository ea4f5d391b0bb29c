"""Parses literals as a person writes them into values of the column's type: exact, except for floats.

| Iceberg type | spelling | value |
| --- | --- | --- |
| boolean | `true`, `false` in any case | bool |
| int, long | `-5`, also `5.0` and `5e0` (whole numbers only) | int |
| float, double | `1.5`, `1e3`, `-0.0`, `inf`, `-inf`, `nan` | float: the double nearest to the text |
| decimal(P, S) | `1.5`, `1e3`; no digit may be lost at scale S | Decimal with scale S |
| date | `2024-01-31` | int, days from 1970-01-01 |
| time | `12:34`, `12:34:56.123456` | int, microseconds from midnight |
| timestamp, timestamp_ns | `2024-01-31`, `2024-01-31 12:34:56.5`, `2024-01-31T12:34` | int, us or ns |
| timestamptz, timestamptz_ns | the same with a zone: `Z`, `UTC`, `+02:00`, `+0200`, `+02` | int, us or ns |
| string | quoted text, taken as it is | str |
| uuid | `f79c3e09-677c-4bbd-a479-3f349cb785e7`, with or without hyphens | 16 bytes |
| fixed[N], binary | hexadecimal after `0x`: `0x00ff`, `0x` alone is empty | bytes |

These are the values that pyiceberg's bound literals hold. A zone is required if the type has one and refused if it
has none, because sidecar does not guess a session's zone. A number for a float or double becomes the nearest double, as
in every language. A float column gets that double too, even beyond all 32-bit floats: engines round in different ways,
and ``f < 1e39`` has an answer without rounding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any, NoReturn

from sidecar.errors import UsageError
from sidecar.filters.column_types import ColumnType

LiteralValue = int | float | Decimal | str | bytes | bool
"""The Python value of a bound literal: the last column of the module's table."""

_MAX_TEXT = 1 << 20
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_SPECIAL_FLOAT = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,30}))?)?")
_ZONE = re.compile(r"(?:Z|z|UTC|([+-])([0-9]{2})(?::?([0-9]{2}))?)")
_TIMESTAMP = re.compile(rf"(?P<date>{_DATE.pattern})(?:[T ](?P<time>{_TIME.pattern}))?(?: ?(?P<zone>{_ZONE.pattern}))?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}")
_HEX = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MAX_EXPONENT = 400
_MAX_NUMBER = 2000
_TIMES = ("date", "time", "timestamp")


def as_literal(value: Any, iceberg_type: str) -> LiteralValue:
    """Return a value that a caller gave for a column: text and Python's dates and times as :func:`literal_from_text`
    reads them, others as they are."""
    if isinstance(value, date | time) and ColumnType.parse(iceberg_type).family in _TIMES:
        value = value.isoformat()
    if isinstance(value, str):
        return literal_from_text(value, iceberg_type, quoted=True)
    given: LiteralValue = value
    return given


def literal_from_text(text: str, iceberg_type: str, *, quoted: bool) -> LiteralValue:
    """Return the value that ``text`` means for a column of ``iceberg_type`` (``"long"``, ``"decimal(9, 2)"``, ...).

    ``quoted`` is true for the content of a string literal and for a word of a command line, false for a bare
    token of a predicate: a bare token is never a string. Only floats are rounded. Raises :class:`UsageError` if the
    text does not fit the type; its hint shows how to write such a literal.
    """
    if len(text) > _MAX_TEXT:
        raise UsageError("the literal is too long", expected=f"at most {_MAX_TEXT} characters", found=len(text))
    kind = ColumnType.parse(iceberg_type)
    if kind.family == "string":
        return _string(text, kind, quoted)
    parse = _PARSERS.get(kind.family)
    if parse is None:
        raise UsageError("columns of this type cannot be compared with literals", found=iceberg_type)
    return parse(text.strip(), kind)


def _refuse(text: str, kind: ColumnType, why: str, hint: str | None = None) -> NoReturn:
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise UsageError(f"the literal {shown!r} does not fit a column of type {kind}: {why}", hint=hint)


def _string(text: str, kind: ColumnType, quoted: bool) -> str:
    if not quoted:
        _refuse(text, kind, "it is not quoted", f"Write '{text[:80]}'.")
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(text, kind, "it is not valid Unicode")
    return text


def _boolean(text: str, kind: ColumnType) -> bool:
    if text.lower() not in ("true", "false"):
        _refuse(text, kind, "it is neither true nor false")
    return text.lower() == "true"


def _number(text: str, kind: ColumnType) -> Decimal:
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_NUMBER:
        _refuse(text, kind, "it is not a number")
    number = Decimal(text)
    if number and not -_MAX_EXPONENT <= number.adjusted() <= _MAX_EXPONENT:
        _refuse(text, kind, "its exponent is out of range")
    return number


def _unscaled(number: Decimal, scale: int) -> int | None:
    """Return ``number * 10**scale`` if it is a whole number, else ``None``.

    Ratios of integers are exact; the decimal context may round.
    """
    numerator, denominator = number.as_integer_ratio()
    whole, rest = divmod(numerator * 10**scale, denominator)
    return None if rest else whole


def _integer(text: str, kind: ColumnType) -> int:
    value, bits = _unscaled(_number(text, kind), 0), 8 * (kind.width or 0)
    if value is None:
        _refuse(text, kind, "it is not a whole number")
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        _refuse(text, kind, f"it is outside the range of {bits} bits")
    return value


def _decimal(text: str, kind: ColumnType) -> Decimal:
    precision, scale = kind.precision or 0, kind.scale or 0
    value = _unscaled(_number(text, kind), scale)
    if value is None:
        _refuse(text, kind, f"it has more than {scale} decimal places")
    if abs(value) >= 10**precision:
        _refuse(text, kind, f"it has more than {precision} digits at scale {scale}")
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


def _floating(text: str, kind: ColumnType) -> float:
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text)
    number = _number(text, kind)
    value = float(number)
    if math.isinf(value):
        _refuse(text, kind, "it is out of range")
    if value == 0.0 and number:
        _refuse(text, kind, "it is too near to zero")
    return value


def _days(text: str, kind: ColumnType) -> int:
    match = _DATE.fullmatch(text)
    if not match:
        _refuse(text, kind, "it is not a date", "Write a date as '2024-01-31'.")
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError as error:
        _refuse(text, kind, str(error))


def _time_of_day(text: str, kind: ColumnType, digits: int) -> int:
    """Return the units of ``10**-digits`` seconds from midnight; digits beyond ``digits`` must be zero."""
    match = _TIME.fullmatch(text)
    if not match:
        _refuse(text, kind, "it is not a time", "Write a time as '12:34:56.123456'.")
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        _refuse(text, kind, "hour, minute or second is out of range")
    fraction = match[4] or ""
    if fraction[digits:].strip("0"):
        _refuse(text, kind, f"it is finer than {digits} digits of a second")
    unit: int = 10**digits
    return (hour * 3600 + minute * 60 + second) * unit + int(fraction[:digits].ljust(digits, "0") or 0)


def _time(text: str, kind: ColumnType) -> int:
    return _time_of_day(text, kind, 6)


def _timestamp(text: str, kind: ColumnType) -> int:
    example = "'2024-01-31 12:34:56Z'" if kind.zoned else "'2024-01-31 12:34:56'"
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        _refuse(text, kind, "it is not a timestamp", f"Write a timestamp as {example}.")
    if kind.zoned != (match["zone"] is not None):
        why = "it names no time zone" if kind.zoned else "it names a time zone, but the column has none"
        _refuse(text, kind, why, f"Write {example}.")
    digits = 9 if kind.unit == "ns" else 6
    unit: int = 10**digits
    value = _days(match["date"], kind) * 86400 * unit
    if match["time"]:
        value += _time_of_day(match["time"], kind, digits)
    if kind.zoned:
        value -= _zone_seconds(match["zone"], kind) * unit
    if not -(1 << 63) <= value < 1 << 63:
        _refuse(text, kind, "it is outside the range of 64 bits")
    return value


def _zone_seconds(zone: str, kind: ColumnType) -> int:
    match = _ZONE.fullmatch(zone)
    if not match or not match[1]:
        return 0
    hours, minutes = int(match[2]), int(match[3] or 0)
    if hours > 18 or minutes > 59:
        _refuse(zone, kind, "the zone's offset is out of range")
    return (hours * 3600 + minutes * 60) * (-1 if match[1] == "-" else 1)


def _uuid(text: str, kind: ColumnType) -> bytes:
    if not _UUID.fullmatch(text):
        _refuse(text, kind, "it is not a UUID", "Write 'f79c3e09-677c-4bbd-a479-3f349cb785e7'.")
    return bytes.fromhex(text.replace("-", ""))


def _binary(text: str, kind: ColumnType) -> bytes:
    match = _HEX.fullmatch(text)
    if not match:
        _refuse(text, kind, "it is not hexadecimal", "Write bytes as '0x00ff'.")
    value = bytes.fromhex(match[1])
    if kind.width is not None and len(value) != kind.width:
        _refuse(text, kind, f"it has {len(value)} bytes")
    return value


_PARSERS: dict[str, Callable[[str, ColumnType], LiteralValue]] = {
    "boolean": _boolean,
    "integer": _integer,
    "float": _floating,
    "decimal": _decimal,
    "date": _days,
    "time": _time,
    "timestamp": _timestamp,
    "uuid": _uuid,
    "binary": _binary,
}
"""Family of a column type -> the parser of its literals."""
