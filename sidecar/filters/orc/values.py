"""Turns a literal into the hashes to probe an ORC filter with: the table *value -> key -> hash*.

First, :mod:`sidecar.filters.values` turns the literal into its exact PLAIN forms; it refuses uncertain ones (NaN, a
double that no float equals, a decimal with more places). Then each form becomes keys of the filter's encoding:

| column | encoding | keys under which writers may have hashed an equal value |
| --- | --- | --- |
| int, long, time | long | the number, which no promotion changes; -32768 to -1 also as 16 unsigned bits (old Hive) |
| date | date | the day; unknown before 1582-10-15, because readers disagree on the calendar |
| float, double | float, double | the bits as a double; for a zero, those of 0.0 and -0.0 |
| string, binary, fixed, uuid | bytes | the bytes |
| string | ascii | the bytes; unknown for text beyond ASCII |
| string | char, varchar | the text, for char padded with blanks; unknown if longer than the column |
| decimal | decimal, decimal64 | the shortest plain number; the unscaled integer |
| timestamp, timestamptz | timestamp, instant | see below |

**Timestamps** are hashed in milliseconds. A literal gets several keys, because writers and readers round differently:

- Java rounds down. C++ hashes what its caller passes, so both neighbouring milliseconds are keys.
- The file may have nanoseconds where the column has microseconds. Readers round them down or toward zero, so up to 1970
  every nanosecond that may become the literal gives a key.
- Before 1970, Java reads pyarrow's negative nanoseconds as one second less, so the key one second later is added.
- Both writers store an instant between -1 s and 0 s one second later, so in the first second of 1970 the key one second
  earlier is added.
- Before 1582-10-15 calendars differ: unknown.

A TIMESTAMP is the wall clock of the writer's zone. Writer and reader may have different rules for a zone. For zones
other than UTC the literal is shifted by each difference between two offsets of the zone since 1970. Wall clocks before
1970 (zone databases disagree on them) and zones with many offsets are unknown.

This module has no compiled code: planning hashes only a few literals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.key_hash import hash_bytes, hash_long
from sidecar.filters.values import Probe, plain_forms, probe_hashes

GREGORIAN_DAY = -141_427
"""1582-10-15 in days since 1970-01-01: the first day on which all calendars agree."""
DAY_MS = 86_400_000
"""Milliseconds of a day."""
_MS = 1_000_000
_WEEK_S = 7 * 86_400
_MAX_DIFFERENCES = 9

OrcKeys = tuple[int | bytes, ...]


class _NoCertainKey(Exception):
    """The literal has no certain key in the encoding."""


def probe_orc(value: object, iceberg_type: str, encoding: OrcEncoding) -> Probe:
    """Return the hashes to probe an ORC filter of ``encoding`` with for ``value``, a literal of ``iceberg_type``.

    ``value`` and ``iceberg_type`` are as for :func:`sidecar.filters.values.probe_hashes`. Never raises: an uncertain
    literal gives the verdict ``unknown``.
    """
    kind = ColumnType.parse(iceberg_type)
    if kind.base == "int":  # a promotion changes no key
        kind = ColumnType.parse("long")
    name = _PLAIN.get(encoding.family, kind.encoding)
    if encoding.family not in kind.orc_stored_as or name is None:
        return Probe("unknown", reason=f"no certain rule for {iceberg_type} in {encoding}")
    plain = Encoding.parse(name.format(scale=encoding.scale))
    forms = plain_forms(value, str(kind), plain)
    if not forms:
        return probe_hashes(value, str(kind), plain)
    try:
        keys = [key for form in forms for key in _KEYS[encoding.family](form, kind, encoding)]
    except _NoCertainKey as reason:
        return Probe("unknown", reason=str(reason))
    return Probe("probe", tuple(dict.fromkeys(map(_hash, keys))))


def _hash(key: int | bytes) -> int:
    return hash_bytes(key) if isinstance(key, bytes) else hash_long(key)


# --- keys of one PLAIN form ---------------------------------------------------------------------------------


def _number(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    return (int.from_bytes(form, "little", signed=True),)


def _integer(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    number = int.from_bytes(form, "little", signed=True)
    return (number, number + (1 << 16)) if -(1 << 15) <= number < 0 else (number,)


def _day(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    (day,) = struct.unpack("<i", form)
    if day < GREGORIAN_DAY:
        raise _NoCertainKey("readers disagree over the calendar before 1582-10-15")
    return (day,)


def _widened(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    return _number(struct.pack("<d", *struct.unpack("<f", form)), kind, encoding)


def _bytes(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    return (form,)


def _ascii(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    if not form.isascii():
        raise _NoCertainKey("text beyond ASCII is hashed in the writer's charset, which is unknown")
    return (form,)


def _bounded_text(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    assert encoding.length is not None
    missing = encoding.length - len(form.decode())
    if missing < 0:
        raise _NoCertainKey(f"the text is longer than the file's column of {encoding.length} characters")
    return (form + b" " * missing if encoding.family == "char" else form,)


def _decimal_text(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    assert encoding.scale is not None
    return (decimal_text(int.from_bytes(form, "big", signed=True), encoding.scale),)


def decimal_text(unscaled: int, scale: int) -> bytes:
    """Return ``unscaled / 10**scale`` as the shortest plain number: no exponent, no trailing zeros in a fraction."""
    digits = str(abs(unscaled)).zfill(scale + 1)
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    text = f"{whole}.{fraction}" if fraction else whole
    return f"-{text}".encode() if unscaled < 0 else text.encode()


def _milliseconds(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> OrcKeys:
    unit = 1 if kind.unit == "ns" else 1_000
    nanos = struct.unpack("<q", form)[0] * unit
    if nanos < GREGORIAN_DAY * DAY_MS * _MS:
        raise _NoCertainKey("readers disagree over the calendar before 1582-10-15")
    if encoding.zone not in (None, "UTC"):
        return _zoned(nanos // _MS, encoding.zone or "")
    hidden = unit - 1 if nanos <= 0 else 0
    return _at_utc((nanos - hidden, nanos + hidden), encoding)


def _at_utc(ends: tuple[int, int], encoding: OrcEncoding) -> OrcKeys:
    """Return the keys of a range of less than a millisecond; ``ends`` are its nanoseconds since 1970."""
    keys = [end // _MS for end in ends]
    if encoding.writer != "java":
        keys += [-(-end // _MS) for end in ends if end < 0]
        keys += [key + 1000 for key in keys if ends[0] < 0]
    return (*keys, *(key - 1000 for key in keys if 0 <= key < 1000))


def _zoned(floor: int, zone: str) -> OrcKeys:
    """Return the keys of ``floor``, milliseconds on the wall clock of ``zone``, under every pair of zone rules.

    From 1970-01-02 on, the instant is after 1970-01-01 UTC in every zone, so all writers round fractions down.
    """
    if floor < DAY_MS:
        raise _NoCertainKey(f"zone databases disagree on {zone} before 1970")
    differences = _offset_differences(zone)
    if differences is None:
        raise _NoCertainKey(f"the offsets of {zone} are unknown or too many")
    return tuple(floor + 1000 * difference for difference in differences)


@lru_cache(maxsize=64)
def _offset_differences(zone: str) -> tuple[int, ...] | None:
    """Return the differences, in seconds, of the offsets of ``zone`` since 1970; ``None`` if unknown or too many."""
    try:
        info = ZoneInfo(zone)
    except Exception:  # an unknown zone or an invalid name: the class of the error depends on the platform
        return None
    weeks = (datetime.fromtimestamp(t, timezone.utc) for t in range(0, 1 << 31, _WEEK_S))
    offsets = {int(week.astimezone(info).utcoffset().total_seconds()) for week in weeks}  # type: ignore[union-attr]
    differences = sorted({a - b for a in offsets for b in offsets}, key=abs)
    return tuple(differences) if len(differences) <= _MAX_DIFFERENCES else None


# --- the tables ---------------------------------------------------------------------------------------------

_PLAIN = {
    "float": "float",  # for a column promoted to double too
    "decimal": "flba:16/decimal:{scale}",
    "decimal64": "int64/decimal:{scale}",
}
"""Family of the encoding -> PLAIN encoding of the literal, where it differs from the usual one of the column type."""

_KEYS: dict[str, Callable[[bytes, ColumnType, OrcEncoding], OrcKeys]] = {
    "long": _integer,
    "date": _day,
    "float": _widened,
    "double": _number,
    "bytes": _bytes,
    "ascii": _ascii,
    "char": _bounded_text,
    "varchar": _bounded_text,
    "decimal": _decimal_text,
    "decimal64": _number,
    "timestamp": _milliseconds,
    "instant": _milliseconds,
}
"""Family of the encoding -> the function that makes keys of a PLAIN form."""
