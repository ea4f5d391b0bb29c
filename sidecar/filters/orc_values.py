"""The table *value -> key -> hash* of ORC filters: what a literal of a column is in a file's ORC encoding.

A literal is turned first into its exact PLAIN forms by :mod:`sidecar.filters.values`, which refuses what is not
certain (NaN, a double that no float equals, a decimal of more places), then into keys of the filter's encoding:

| column | encoding | keys that equal values can have been hashed by |
| --- | --- | --- |
| int, long, time | long | the number; a promotion from int to long changes nothing |
| date | date | the day; unknown before 1582-10-15, where readers disagree over the calendar |
| float, double | float, double | the bits as a double; of both zeros |
| string, binary, fixed, uuid | bytes | the bytes |
| string | ascii | the bytes, of ASCII alone |
| string | char, varchar | filled with blanks, or as it is; unknown if longer than the column |
| decimal | decimal, decimal64 | the shortest plain number; the unscaled integer |
| timestamp, timestamptz | timestamp, instant | see below |

**Timestamps** are hashed in milliseconds. Java rounds down; C++ as it is fed, so both neighbours are asked for.
A file may have nanoseconds where the column has microseconds, and readers round them down or toward zero: up to 1970
the literal stands for all that can become it. There Java also takes pyarrow's negative nanoseconds for a second less,
so what it reads is asked for one second later too. Both writers store an instant between -1 s and 0 as its mirror
image one second later: the first second of 1970 is asked for one second earlier as well. Before 1582-10-15
calendars differ: unknown.

A TIMESTAMP is the wall clock of the writer's zone. Writer and reader may know different rules for a zone, so away
from UTC the literal is asked for at each difference of two offsets that the zone has had since 1970; earlier
wall clocks (zone databases disagree, local mean time) and zones of many offsets are unknown.

No compiled code here: planning hashes a handful of literals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.orc_key_hash import hash_bytes, hash_long
from sidecar.filters.values import Probe, plain_forms, probe_hashes

GREGORIAN_DAY = -141_427
"""1582-10-15 in days since 1970-01-01: the first day on which all calendars agree."""
_DAY_MS = 86_400_000
_MS = 1_000_000
_WEEK_S = 7 * 86_400
_MAX_DIFFERENCES = 9

Keys = tuple[int | bytes, ...]


class _NoCertainKey(Exception):
    """The literal has no certain key in the encoding."""


def probe_orc(value: object, iceberg_type: str, encoding: OrcEncoding) -> Probe:
    """The hashes by which an ORC filter of ``encoding`` is asked for ``value``, a literal of ``iceberg_type``.

    Both are as for :func:`sidecar.filters.values.probe_hashes`. Never raises: what is not certain is ``unknown``.
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


def _number(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    return (int.from_bytes(form, "little", signed=True),)


def _day(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    (day,) = struct.unpack("<i", form)
    if day < GREGORIAN_DAY:
        raise _NoCertainKey("readers disagree over the calendar before 1582-10-15")
    return (day,)


def _widened(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    return _number(struct.pack("<d", *struct.unpack("<f", form)), kind, encoding)


def _bytes(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    return (form,)


def _ascii(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    if not form.isascii():
        raise _NoCertainKey("text beyond ASCII, hashed in the unknown charset of the writer")
    return (form,)


def _bounded_text(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    assert encoding.length is not None
    missing = encoding.length - len(form.decode())
    if missing < 0:
        raise _NoCertainKey(f"text longer than the file's column of {encoding.length}")
    return (form + b" " * missing if encoding.family == "char" else form,)


def _decimal_text(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    assert encoding.scale is not None
    return (decimal_text(int.from_bytes(form, "big", signed=True), encoding.scale),)


def decimal_text(unscaled: int, scale: int) -> bytes:
    """``unscaled / 10**scale`` as the shortest plain number: no exponent, no trailing zero of a fraction."""
    digits = str(abs(unscaled)).zfill(scale + 1)
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    text = f"{whole}.{fraction}" if fraction else whole
    return f"-{text}".encode() if unscaled < 0 else text.encode()


def _milliseconds(form: bytes, kind: ColumnType, encoding: OrcEncoding) -> Keys:
    unit = 1 if kind.unit == "ns" else 1_000
    nanos = struct.unpack("<q", form)[0] * unit
    if nanos < GREGORIAN_DAY * _DAY_MS * _MS:
        raise _NoCertainKey("readers disagree over the calendar before 1582-10-15")
    if encoding.zone not in (None, "UTC"):
        return _zoned(nanos // _MS, encoding.zone or "")
    hidden = unit - 1 if nanos <= 0 else 0
    return _at_utc((nanos - hidden, nanos + hidden), encoding)


def _at_utc(ends: tuple[int, int], encoding: OrcEncoding) -> Keys:
    """Keys of both ends of a range of less than a millisecond."""
    keys = [end // _MS for end in ends]
    if encoding.writer != "java":
        keys += [-(-end // _MS) for end in ends if end < 0]
        keys += [key + 1000 for key in keys if ends[0] < 0]
    return (*keys, *(key - 1000 for key in keys if 0 <= key < 1000))


def _zoned(floor: int, zone: str) -> Keys:
    """At or after 1970-01-02 on the wall, so after 1970 began everywhere: no fraction is rounded but down."""
    if floor < _DAY_MS:
        raise _NoCertainKey(f"zone databases disagree over {zone} before 1970")
    differences = _offset_differences(zone)
    if differences is None:
        raise _NoCertainKey(f"the offsets of {zone} are unknown or too many")
    return tuple(floor + 1000 * difference for difference in differences)


@lru_cache(maxsize=64)
def _offset_differences(zone: str) -> tuple[int, ...] | None:
    """Every difference, in seconds, of two offsets that ``zone`` has had since 1970; ``None`` if not usable."""
    try:
        info = ZoneInfo(zone)
    except Exception:  # not found, or no name at all: each platform has errors of its own
        return None
    weeks = (datetime.fromtimestamp(t, timezone.utc) for t in range(0, 1 << 31, _WEEK_S))
    offsets = {int(week.astimezone(info).utcoffset().total_seconds()) for week in weeks}  # type: ignore[union-attr]
    differences = sorted({a - b for a in offsets for b in offsets}, key=abs)
    return tuple(differences) if len(differences) <= _MAX_DIFFERENCES else None


# --- the tables ---------------------------------------------------------------------------------------------

_PLAIN = {
    "float": "float",  # of a promoted column too
    "decimal": "flba:16/decimal:{scale}",
    "decimal64": "int64/decimal:{scale}",
}
"""Family of the encoding -> PLAIN encoding that a literal is put in first, if it is not the usual one of its column."""

_KEYS: dict[str, Callable[[bytes, ColumnType, OrcEncoding], Keys]] = {
    "long": _number,
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
"""Family of the encoding -> keys of a PLAIN form."""
