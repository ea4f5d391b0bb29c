"""Decodes the statistics of a column (of a row group, a stripe or a file), and decides which bounds are trusted.

| ColumnStatistics | | content |
| --- | --- | --- |
| 1 | numberOfValues | values that are not null |
| 2 | IntegerStatistics | 1 minimum, 2 maximum, 3 sum (sint64) |
| 3 | DoubleStatistics | 1 minimum, 2 maximum, 3 sum (double) |
| 4 | StringStatistics | 1 minimum, 2 maximum, 3 sum of lengths, 4 lowerBound, 5 upperBound in place of long texts |
| 5 | BucketStatistics | 1 count of true values (packed) |
| 6 | DecimalStatistics | 1 minimum, 2 maximum, 3 sum (texts) |
| 7 | DateStatistics | 1 minimum, 2 maximum (days, sint32) |
| 8 | BinaryStatistics | 1 sum of lengths |
| 9 | TimestampStatistics | 1, 2 in the writer's zone; 3 minimumUtc, 4 maximumUtc (milliseconds, sint64) |
| 10 | hasNull | absent: not known |
| 11 | bytesOnDisk | |

Minimum and maximum are *outer bounds* in values of the type, or absent. These are not trusted:

- those that the writer is known to get wrong (:mod:`sidecar.orc.trust`);
- floats and doubles whose sum is absent or NaN: if the first value is NaN, both bounds are NaN or wrong;
- timestamps without the UTC fields;
- dates and timestamps before 1582-10-15 in files of Java's writer that are not "proleptic": readers differ on them;
- upper bounds of cut texts that end in a replacement character: incrementing gave no valid character;
- bounds outside the type's range (C++ writers on machines where char is unsigned).

**Counts.** Values and nulls together are the entries that the column has in the rows (:class:`Extent`). Statistics
whose counts cannot be true, with bounds of no value, or with a minimum above the maximum, *contradict themselves*:
nothing of them is believed. ORC Java writes such counts without a row index: 0 values and no nulls, in any number of
rows. "0 values" means that all entries are null only with the typed message of the column's kind, if an empty one:
Java and C++ write it for a column of nulls, but there are files that have nothing but the 0.

Bounds are widened if readers may see other values than the writer counted. FLOAT bounds are rounded to float32, because
the C++ writer counts doubles before it rounds them. Timestamps get whole milliseconds, and one more before 1970,
because writers cut toward zero. The last second before 1970 is widened to the first one after, because it is stored as
that. If the writer's zone is not UTC, bounds are a day wider, because zone rules differ between libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np

from sidecar.errors import DamagedFileError
from sidecar.filters.orc.values import DAY_MS, GREGORIAN_DAY
from sidecar.orc.protobuf import Message
from sidecar.orc.schema import MAX_DIGITS, OrcColumn
from sidecar.orc.tail import JAVA
from sidecar.orc.trust import WrittenBy, utc_or_name, writer_doubt

Bound = bool | int | float | str | Decimal
"""A bound: int for whole numbers, days of DATE, and nanoseconds of timestamps (for TIMESTAMP, of the wall clock)."""

_FIELD = {
    "BOOLEAN": 5,
    "BYTE": 2,
    "SHORT": 2,
    "INT": 2,
    "LONG": 2,
    "FLOAT": 3,
    "DOUBLE": 3,
    "STRING": 4,
    "CHAR": 4,
    "VARCHAR": 4,
    "BINARY": 8,
    "DECIMAL": 6,
    "DATE": 7,
    "TIMESTAMP": 9,
    "TIMESTAMP_INSTANT": 9,
}
"""The field of the typed message of each kind."""
_BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64, "DATE": 32}
_FLOATING = ("FLOAT", "DOUBLE")
INVERTED = "the minimum is above the maximum"
"""The contradiction of such bounds."""

_NS = 1_000_000  # nanoseconds of a millisecond
_MAX_DIGITS = 200  # characters of a decimal's text


class Extent(NamedTuple):
    """How many entries, values and nulls, a column has in a set of rows: at least and at most."""

    least: int
    most: int | None
    """``None`` if there is no limit: a row has any number of the elements of a list."""

    @classmethod
    def of(cls, column: OrcColumn, rows: int) -> Extent:
        """Return the entries of ``column`` in ``rows`` rows, as far as the schema tells: a parent may be null."""
        return cls(0 if column.nullable_parent else rows, None if column.nested_in_repeated else rows)


UNKNOWN = Extent(0, None)
"""The extent of a column in an unknown number of rows."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Decoded statistics. Bounds are ``None`` if unknown, and ``reason`` says why.

    All values except NaN are within the bounds. NaN may occur only if ``may_hold_nan``.
    """

    num_values: int | None
    """Number of values that are not null; ``None`` if the writer left it out, or did not count them."""
    has_null: bool
    """Whether there may be nulls; true if the writer left it out."""
    min: Bound | None
    max: Bound | None
    exact: bool
    """Whether ``min`` and ``max`` are values that occur, rather than wider bounds."""
    may_hold_nan: bool
    reason: str
    counts_none: bool
    """Whether it is said that the column has no value in the rows."""
    all_null: bool
    """Whether that is proven: every entry is null, or there is none."""
    contradiction: str
    """Why the message is false in itself, and so not believed at all; empty if it may be true."""
    raw: Message


_Bounds = tuple[Bound, Bound, bool]


class _Untrusted(Exception):
    """The reason why bounds are not trusted; :func:`decode_statistics` catches it."""


class _Inverted(_Untrusted):
    """The minimum is above the maximum."""

    def __init__(self) -> None:
        super().__init__(INVERTED)


def decode_statistics(
    message: Message,
    column: OrcColumn,
    tail: WrittenBy,
    writer_timezone: str | None = None,
    extent: Extent = UNKNOWN,
) -> ColumnStatistics:
    """Return the statistics of a column, with bounds only if they can be trusted.

    ``writer_timezone`` is from the stripe's footer; without it, bounds of TIMESTAMP are a day wider. Counts are held
    against ``extent``. Raises :class:`DamagedFileError` if the message contradicts the format.
    """
    bounds: _Bounds | None = None
    reason = ""
    try:
        bounds = _bounds(message, column, tail, writer_timezone)
    except _Inverted as why:
        return unknown_statistics(message, column, str(why))
    except _Untrusted as why:
        reason = str(why)
    if contradiction := _count_problem(message, column, bounds, extent):
        return unknown_statistics(message, column, contradiction)
    values = message.varint(1) if message.has(1) else None
    has_null = bool(message.varint(10, 1))
    is_counted = bool(values) or (values == 0 and _is_typed(message, column))
    counts_none = is_counted and not values
    return ColumnStatistics(
        num_values=values if is_counted else None,
        has_null=has_null,
        min=None if bounds is None else bounds[0],
        max=None if bounds is None else bounds[1],
        exact=bounds is not None and bounds[2],
        may_hold_nan=column.kind in _FLOATING and bounds is None,
        reason=reason,
        counts_none=counts_none,
        all_null=counts_none and (has_null or extent.most == 0),
        contradiction="",
        raw=message,
    )


def unknown_statistics(message: Message, column: OrcColumn, contradiction: str) -> ColumnStatistics:
    """Return statistics that prove nothing, in place of false ones."""
    return ColumnStatistics(
        num_values=None,
        has_null=True,
        min=None,
        max=None,
        exact=False,
        may_hold_nan=column.kind in _FLOATING,
        reason=contradiction,
        counts_none=False,
        all_null=False,
        contradiction=contradiction,
        raw=message,
    )


def _count_problem(message: Message, column: OrcColumn, bounds: _Bounds | None, extent: Extent) -> str:
    """Return why the counts of values and nulls cannot be true; empty if they can. Masked values are not counted."""
    if column.encrypted or not message.has(1):
        return ""
    values, nulls = message.varint(1), message.varint(10) if message.has(10) else None
    entries = "entries" if column.nullable_parent else "rows"
    if extent.most is not None and values > extent.most:
        return f"{values} values in {extent.most} {entries}"
    if values < extent.least and nulls == 0:
        return f"{values} values in {extent.most} {entries}, but no nulls"
    if values == extent.most and nulls and not column.nullable_parent:  # C++ counts nulls of parents too
        return f"{values} values in {extent.most} {entries}, but nulls too"
    return "a minimum and a maximum of no values" if not values and bounds is not None else ""


def _is_typed(message: Message, column: OrcColumn) -> bool:
    """Return whether values were counted: there is the typed message, or for other kinds, whether there are nulls."""
    if column.encrypted:
        return False
    return message.has(10) if column.kind not in _FIELD else message.message(_FIELD[column.kind]) is not None


def _bounds(message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds | None:
    field = _FIELD.get(column.kind)
    if field is None or column.kind not in _DECODERS:
        raise _Untrusted("columns of this kind have no bounds")
    if doubt := writer_doubt("bounds", tail, column):
        raise _Untrusted(doubt)
    if column.encrypted:
        raise _Untrusted("the column is encrypted, so the bounds are those of masked values")
    own = message.message(field)
    if own is None:
        raise _Untrusted("no bounds")
    decode = _DECODERS[column.kind]
    found = decode(own, message, column, tail, zone)
    if found is not None and not found[0] <= found[1]:  # type: ignore[operator]
        raise _Inverted
    return found


def _boolean(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    counts, values = own.repeated_varints(1), message.varint(1)
    if not counts or not message.has(1) or counts[0] > values or not values:
        raise _Untrusted("the count of true values is missing or impossible")
    return counts[0] == values, counts[0] > 0, True


def _integer(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    low, high = _signed(own, 1), _signed(own, 2)
    limit = 1 << (_BITS[column.kind] - 1)
    if not -limit <= low <= high < limit:
        raise _Untrusted(f"the bounds {low} and {high} are not in the range of {column.kind}")
    if column.kind == "DATE" and low < GREGORIAN_DAY and _has_two_calendars(tail):
        raise _Untrusted("the bounds are before 1582-10-15 in a hybrid calendar")
    return low, high, True


def _has_two_calendars(tail: WrittenBy) -> bool:
    return tail.calendar != "proleptic_gregorian" and tail.writer == JAVA


def _signed(own: Message, field: int) -> int:
    value = own.signed(field)
    if value is None:
        raise _Untrusted("no bounds")
    return value


def _double(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    low, high, total = own.double(1), own.double(2), own.double(3)
    if low is None or high is None or total is None:
        raise _Untrusted("the bounds or the sum, which shows NaN, are missing")
    if math.isnan(total) or math.isnan(low) or math.isnan(high):
        raise _Untrusted("the sum is NaN, and bounds of values with NaN are not trusted")
    if column.kind == "FLOAT":
        with np.errstate(over="ignore"):
            rounded = float(np.float32(low)), float(np.float32(high))
        return *rounded, rounded == (low, high)
    return low, high, True


def _string(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    low, high = _text(own, 1), _text(own, 2)
    exact = low is not None and high is not None
    low = _text(own, 4) if low is None else low
    if high is None:
        high = _text(own, 5)
        if high is not None and high[-1:] in ("?", "\ufffd", ""):
            raise _Untrusted("the upper bound ends in a replacement character")
    if low is None or high is None:
        raise _Untrusted("no bounds")
    return low, high, exact


def _text(own: Message, field: int) -> str | None:
    try:
        return own.text(field)
    except DamagedFileError as error:
        if not own.bytes_(field):
            raise
        raise _Untrusted("a bound is not UTF-8") from error


def _decimal(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    if (column.scale or 0) > MAX_DIGITS:  # bounds are compared at this scale, which could take forever
        raise _Untrusted("the scale of the decimals is impossible")
    return _number(own, 1), _number(own, 2), True


def _number(own: Message, field: int) -> Decimal:
    text = own.text(field)
    if text is None:
        raise _Untrusted("no bounds")
    try:
        value = Decimal(text.strip()) if len(text) <= _MAX_DIGITS else None
    except InvalidOperation:
        value = None
    if value is None or not value.is_finite() or abs(value.adjusted()) > _MAX_DIGITS:
        raise _Untrusted("a bound is not a number")
    return value


def _timestamp(own: Message, message: Message, column: OrcColumn, tail: WrittenBy, zone: str | None) -> _Bounds:
    low, high = _signed(own, 3), _signed(own, 4)
    if low > high:
        raise _Inverted
    if low < GREGORIAN_DAY * DAY_MS and _has_two_calendars(tail):
        raise _Untrusted("the bounds are before 1582-10-15 in a hybrid calendar")
    if low < 0 and high > -1000:
        high = max(high, 999)
    if tail.writer == JAVA:
        low -= low < 0
    elif low <= 0:  # Arrow gives the C++ writer 0 s and -1000 ns for the last microsecond of 1969, and it counts 0 ms
        low -= 1001
    high += high < 0
    if column.kind == "TIMESTAMP" and utc_or_name(zone) != "UTC":
        low, high = low - DAY_MS, high + DAY_MS
    return low * _NS, high * _NS + _NS - 1, False


_BoundsDecoder = Callable[[Message, Message, OrcColumn, WrittenBy, "str | None"], _Bounds]
_DECODERS: dict[str, _BoundsDecoder] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "DATE"), _integer),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _double),
    **dict.fromkeys(("STRING", "CHAR", "VARCHAR"), _string),
    "DECIMAL": _decimal,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_INSTANT"), _timestamp),
}
