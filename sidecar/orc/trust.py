"""Decide which Bloom filters of an ORC file may be probed, and with which keys.

A filter does not say how it was made, but its file names the writer. These filters are not probed:

| filter | reason |
| --- | --- |
| C++, no version, below 1.6.12, or 1.7.0 | hashes of integers were shifted wrongly (ORC-1024) |
| C++, BYTE | hashes packed bytes, so it denies values that it was given |
| C++, CHAR | hashes bytes after the value in memory |
| C++, FLOAT | hashes the double that it was given, but stores the float |
| C++ 1.6, BINARY, DECIMAL, timestamps | empty (ORC-773); untrimmed (ORC-573); other keys |
| C++ below 1.7.5, TIMESTAMP not in UTC | other keys (ORC-1151) |
| Java below writer version 6 (ORC-135), DECIMAL, timestamps | other text; local time |
| Java of writer version 6, DECIMAL of up to 18 digits | no reader probes them (ORC-517) |
| TIMESTAMP without bloomEncoding 1 or time zone | local time of an unknown zone |
| bloomEncoding above 1 | a future version |
| BLOOM_FILTER of other than numbers, dates, binary and text | the writer's charset, or instants probed as wall clock |
| Presto, Trino: all but integers, dates and text | not compared with other writers |
| all other writers | not compared with other writers |
| encrypted columns | Java writes twice the filters, half of them for the plain values |
| elements of lists and maps | a row may have many values |
| BOOLEAN, compound and unknown types | the filter holds no values, or counts |

Text in BLOOM_FILTER is in the charset of the writing machine, so only ASCII may be probed: see ``orc/ascii`` in
:mod:`sidecar.filters.orc_encoding`. Java and C++ readers probe some of these filters all the same, and lose rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import ColumnEncoding
from sidecar.orc.tail import CPP, JAVA, PRESTO, TRINO, OrcTail

LEGACY, UTF8 = "BLOOM_FILTER", "BLOOM_FILTER_UTF8"
UTF8_UTC = 1
"""``bloomEncoding`` of filters that hash text as UTF-8, and timestamps independently of the reader's zone."""

_INTEGERS = frozenset({"BYTE", "SHORT", "INT", "LONG"})
_TIMES = frozenset({"TIMESTAMP", "TIMESTAMP_INSTANT"})
_LEGACY_KINDS = _INTEGERS | {"FLOAT", "DOUBLE", "DATE", "BINARY", "STRING"}
_COMPARED_ALIKE = _INTEGERS - {"BYTE"} | {"DATE", "STRING", "VARCHAR"}
_UNSTABLE = (1, 9999)
_DECIMAL64_DIGITS = 18
_ORC_135, _ORC_517 = 6, 7

_UTC = frozenset({"GMT", "GMT0", "Greenwich", "UCT", "UTC", "Universal", "Zulu"})
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(?:-.*)?")


def encoding_of(
    tail: OrcTail,
    column: OrcColumn,
    column_encoding: ColumnEncoding,
    stream_kind: str,
    writer_timezone: str | None,
) -> tuple[OrcEncoding | None, bool, str]:
    """Return (encoding, trusted, reason) of the filters of ``column`` in a stripe's stream of ``stream_kind``.

    ``column_encoding`` and ``writer_timezone`` are from the stripe's footer. The encoding gives the keys that the
    writer meant to hash; it is ``None`` if they are unknown. A "no" of the filter counts only if ``trusted``. Otherwise
    ``reason`` says why not; it is empty if ``trusted``.
    """
    encoding = _encoding(tail, column, stream_kind, writer_timezone)
    reasons = (
        _column_reason(column),
        _writer_reason(tail, column, encoding),
        _stream_reason(tail, column, column_encoding, stream_kind),
        "" if encoding else f"the keys of {column.kind} in {stream_kind} are unknown",
    )
    reason = next(filter(None, reasons), "")
    return encoding, not reason, reason


def hashes_wrongly(tail: OrcTail) -> bool:
    """Return whether a C++ writer with ORC-1024 wrote the file; readers then ignore all filters, even correct ones."""
    return tail.writer == CPP and (_version(tail) < (1, 6, 12) or _version(tail) == (1, 7, 0))


def utc_or_name(zone: str | None) -> str | None:
    """Return ``UTC`` for every name of UTC, and any other zone's name as it is; ``None`` if there is none."""
    return "UTC" if zone and zone.removeprefix("Etc/") in _UTC else zone or None


# --- the keys that the writer meant to hash -----------------------------------------------------------------


def _encoding(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> OrcEncoding | None:
    naming = _NAMES.get(column.kind)
    name = None if naming is None else naming(tail, column, stream, zone)
    return None if name is None else OrcEncoding.parse(name)


def _decimal(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> str | None:
    if column.precision is None or (column.scale or 0) > 38:
        return None
    short = tail.file_version == _UNSTABLE and column.precision <= _DECIMAL64_DIGITS
    if not short or tail.writer != JAVA:
        return f"orc/decimal:{column.scale or 0}"
    return f"orc/decimal64:{column.scale or 0}" if stream == UTF8 else None


def _text(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> str | None:
    if column.kind == "STRING":
        return "orc/bytes" if stream == UTF8 else "orc/ascii"
    bounded = stream == UTF8 and column.max_length is not None and 0 < column.max_length < 1 << 31
    return f"orc/{column.kind.lower()}:{column.max_length}" if bounded else None


def _time(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> str | None:
    writer = "c++" if tail.writer == CPP else "java"
    if column.kind == "TIMESTAMP_INSTANT":
        return f"orc/instant:{writer}"
    name = utc_or_name(zone)
    usable = stream == UTF8 and name is not None and re.fullmatch("[A-Za-z0-9_+:/-]{1,64}", name)
    return f"orc/timestamp:{writer}:{name}" if usable else None


def _named(name: str) -> Callable[[OrcTail, OrcColumn, str, str | None], str | None]:
    return lambda tail, column, stream, zone: name


_NAMES: dict[str, Callable[[OrcTail, OrcColumn, str, str | None], str | None]] = {
    **dict.fromkeys(_INTEGERS, _named("orc/long")),
    "DATE": _named("orc/date"),
    "FLOAT": _named("orc/float"),
    "DOUBLE": _named("orc/double"),
    "BINARY": _named("orc/bytes"),
    **dict.fromkeys(("STRING", "CHAR", "VARCHAR"), _text),
    "DECIMAL": _decimal,
    **dict.fromkeys(_TIMES, _time),
}


# --- reasons not to trust a filter --------------------------------------------------------------------------


def _column_reason(column: OrcColumn) -> str:
    if column.encrypted:
        return "the column is encrypted, so its filters are doubled or hold masked values"
    if column.is_compound or column.kind == "BOOLEAN":
        return f"filters of {column.kind} hold no values"
    return "the column is inside a list or map, so a row may have many values" if column.nested_in_repeated else ""


def _writer_reason(tail: OrcTail, column: OrcColumn, encoding: OrcEncoding | None) -> str:
    if tail.writer == JAVA:
        return _java_reason(tail, column)
    if tail.writer == CPP:
        return _cpp_reason(tail, column, encoding)
    if tail.writer in (PRESTO, TRINO) and column.kind in _COMPARED_ALIKE:
        return ""
    return f"filters of {column.kind} by this writer ({tail.created_by}) are not compared with those of others"


def _java_reason(tail: OrcTail, column: OrcColumn) -> str:
    if column.kind in _TIMES and tail.writer_version < _ORC_135:
        return "timestamps before ORC-135 are hashed in local time"
    if column.kind == "DECIMAL":
        if tail.writer_version < _ORC_135:
            return "decimals before ORC-135 may be hashed as another text"
        short = column.precision is not None and column.precision <= _DECIMAL64_DIGITS
        if short and tail.writer_version < _ORC_517:
            return "no reader probes filters of decimals of up to 18 digits from before ORC-517"
    return ""


def _version(tail: OrcTail) -> tuple[int, ...]:
    match = _VERSION.fullmatch(tail.software_version or "")
    return tuple(map(int, match.groups())) if match else (0, 0, 0)


def _cpp_reason(tail: OrcTail, column: OrcColumn, encoding: OrcEncoding | None) -> str:
    version = _version(tail)
    if hashes_wrongly(tail):
        return "filters of C++ writers up to 1.6.11, and of 1.7.0, hash integers wrongly (ORC-1024)"
    if column.kind == "BYTE":
        return "C++ writers hash packed bytes for tinyint: the filter denies values that it was given"
    if column.kind == "CHAR":
        return "C++ writers hash bytes after a char in memory, so the filter denies values that it was given"
    if column.kind == "FLOAT":
        return "C++ writers hash the double that they were given for a float, which may be another number"
    if version < (1, 7, 0) and column.kind in _TIMES | {"BINARY", "DECIMAL"}:
        return f"C++ writers of 1.6 hash {column.kind} by other keys, or not at all"
    if version < (1, 7, 5) and encoding is not None and encoding.zone not in (None, "UTC"):
        return "C++ writers before 1.7.5 hash timestamps of zones other than UTC wrongly (ORC-1151)"
    return ""


def _stream_reason(tail: OrcTail, column: OrcColumn, encoding: ColumnEncoding, stream: str) -> str:
    bloom = encoding.bloom_encoding or 0
    if bloom > UTF8_UTC:
        return f"bloomEncoding {bloom} is unknown"
    if stream == LEGACY:
        if tail.writer != JAVA:
            return "only Java's BLOOM_FILTER streams are known"
        if column.kind not in _LEGACY_KINDS:
            return f"BLOOM_FILTER of {column.kind} depends on the charset or time zone of its writer"
    elif stream != UTF8:
        return f"{stream} is not a filter stream"
    if column.kind in _TIMES and bloom != UTF8_UTC:
        return "timestamps without bloomEncoding 1 are hashed in local time"
    return ""
