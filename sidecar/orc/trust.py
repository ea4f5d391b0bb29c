"""Decides which Bloom filters and statistics of an ORC file may be believed, by who wrote it.

Neither a filter nor a statistic says how it was made, but its file names the writer. :data:`_WRITERS` is the table of
what writers got wrong: writer, versions, kinds of columns, and whether filters or bounds are not believed. Java's
versions are those in the postscript, other writers' those in the footer.

These filters are not probed, whoever wrote them:

| filter | reason |
| --- | --- |
| TIMESTAMP without bloomEncoding 1 or time zone | local time of an unknown zone |
| bloomEncoding above 1 | a future version |
| BLOOM_FILTER of other than numbers, dates, binary and text | the writer's charset, or instants probed as wall clock |
| encrypted columns | Java writes twice the filters, half of them for the plain values |
| elements of lists and maps | a row may have many values |
| BOOLEAN, compound and unknown types | the filter holds no values, or counts |

Text in BLOOM_FILTER is in the charset of the writing machine, so only ASCII may be probed: see ``orc/ascii`` in
:mod:`sidecar.filters.orc.encoding`. Java and C++ readers probe some of these filters all the same, and lose rows.

The table does not concern filters that sidecar embedded since: see :mod:`sidecar.orc.filter_mark`.

What a file's own numbers show to be false is found by :mod:`sidecar.orc.statistics.contradictions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import ColumnEncoding
from sidecar.orc.tail import CPP, DECIMAL64_DIGITS, JAVA, PRESTO, TRINO, UNSTABLE_VERSION, OrcTail

LEGACY, UTF8 = "BLOOM_FILTER", "BLOOM_FILTER_UTF8"
UTF8_UTC = 1
"""``bloomEncoding`` of filters that hash text as UTF-8, and timestamps independently of the reader's zone."""

_INTEGERS = frozenset({"BYTE", "SHORT", "INT", "LONG"})
_TIMES = frozenset({"TIMESTAMP", "TIMESTAMP_INSTANT"})
_LEGACY_KINDS = _INTEGERS | {"FLOAT", "DOUBLE", "DATE", "BINARY", "STRING"}

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
        "" if column.id in tail.columns_with_our_filters else writer_doubt("filters", tail, column, encoding),
        _stream_reason(tail, column, column_encoding, stream_kind),
        "" if encoding else f"the keys of {column.kind} in {stream_kind} are unknown",
    )
    reason = next(filter(None, reasons), "")
    return encoding, not reason, reason


def utc_or_name(zone: str | None) -> str | None:
    """Return ``UTC`` for every name of UTC, and any other zone's name as it is; ``None`` if there is none."""
    return "UTC" if zone and zone.removeprefix("Etc/") in _UTC else zone or None


# --- what writers got wrong ---------------------------------------------------------------------------------


class WrittenBy(Protocol):
    """The properties of a file that decide which parts are believed; an :class:`OrcTail` has them."""

    @property
    def writer(self) -> int:
        """The number of the writer, as in Footer.writer."""

    @property
    def writer_version(self) -> int:
        """The version number in the postscript, which Java's writers count up."""

    @property
    def software_version(self) -> str | None:
        """The version of the program in words, if the footer says it."""

    @property
    def calendar(self) -> str:
        """The name of the calendar of dates and timestamps."""


@dataclass(frozen=True)
class _AllBut:
    """All things except some."""

    named: frozenset[int] | frozenset[str] = frozenset()

    def __contains__(self, one: object) -> bool:
        return one not in self.named


class _Defect(NamedTuple):
    """A line of the table: a part that is not believed of columns of these kinds by these writers, and the reason."""

    part: Literal["filters", "bounds"]
    writers: Container[int]
    first: tuple[int, ...]
    """The first version that is wrong."""
    fixed: tuple[int, ...] | None
    """The first version after it that is right; ``None`` if there is none."""
    kinds: Container[str]
    reason: str
    applies: Callable[[OrcColumn, OrcEncoding | None], bool] = lambda column, encoding: True
    """Whether it is so for a column whose filters have keys of the encoding."""

    def concerns(self, writer: int, version: tuple[int, ...]) -> bool:
        """Return whether it is so for files of a writer in a version of :func:`_version`."""
        return writer in self.writers and self.first <= version and (self.fixed is None or version < self.fixed)


def _is_short(column: OrcColumn, encoding: OrcEncoding | None) -> bool:
    return column.precision is not None and column.precision <= DECIMAL64_DIGITS


def _is_zoned(column: OrcColumn, encoding: OrcEncoding | None) -> bool:
    return encoding is not None and encoding.zone not in (None, "UTC")


_EVERY = _AllBut()
_BY_JAVA, _BY_CPP, _BY_PRESTO = frozenset({JAVA}), frozenset({CPP}), frozenset({PRESTO, TRINO})
_DECIMAL = frozenset({"DECIMAL"})
_HIVE_8732, _ORC_135, _ORC_517 = (1,), (6,), (7,)
_FIRST, _1_6_12, _1_7_0, _1_7_1, _1_7_5 = (0,), (1, 6, 12), (1, 7, 0), (1, 7, 1), (1, 7, 5)
_ONE_WAY_TO_HASH = _INTEGERS - {"BYTE"} | {"DATE", "STRING", "VARCHAR"}
_NOT_COMPARED = "filters of {kind} by this writer are not compared with those of others"

_SHIFTED = "filters of C++ writers up to 1.6.11, and of 1.7.0, hash integers wrongly (ORC-1024)"
_ORC_1024 = tuple(
    _Defect("filters", _BY_CPP, first, fixed, _EVERY, _SHIFTED)
    for first, fixed in ((_FIRST, _1_6_12), (_1_7_0, _1_7_1))
)
"""Readers use no filter of such a file, not even a right one."""

# fmt: off
_WRITERS = (
    _Defect("bounds", _BY_JAVA, _FIRST, _HIVE_8732, _EVERY,
            "bounds of Java's first writer version are not trusted (HIVE-8732)"),
    _Defect("bounds", _BY_JAVA, _FIRST, _ORC_135, _TIMES,
            "timestamp bounds before Java's writer version 6 are in local time (ORC-135)"),
    _Defect("bounds", _BY_JAVA, _ORC_135, _ORC_517, _DECIMAL,
            "decimal bounds of Java's writer version 6 are not trusted (ORC-517)"),
    _Defect("bounds", _AllBut(_BY_JAVA), _FIRST, None, frozenset({"CHAR"}),
            "bounds of CHAR are trusted only in files of Java's writer, because others read past the values"),
    _Defect("filters", _BY_JAVA, _FIRST, _ORC_135, _TIMES, "timestamps before ORC-135 are hashed in local time"),
    _Defect("filters", _BY_JAVA, _FIRST, _ORC_135, _DECIMAL, "decimals before ORC-135 may be hashed as another text"),
    _Defect("filters", _BY_JAVA, _ORC_135, _ORC_517, _DECIMAL,
            "no reader probes filters of decimals of up to 18 digits from before ORC-517", _is_short),
    *_ORC_1024,
    _Defect("filters", _BY_CPP, _FIRST, None, frozenset({"BYTE"}),
            "C++ writers hash packed bytes for tinyint: the filter denies values that it was given"),
    _Defect("filters", _BY_CPP, _FIRST, None, frozenset({"CHAR"}),
            "C++ writers hash bytes after a char in memory, so the filter denies values that it was given"),
    _Defect("filters", _BY_CPP, _FIRST, None, frozenset({"FLOAT"}),
            "C++ writers hash the double that they were given for a float, which may be another number"),
    _Defect("filters", _BY_CPP, _FIRST, _1_7_0, _TIMES | _DECIMAL | {"BINARY"},  # ORC-573, ORC-773
            "C++ writers of 1.6 hash {kind} by other keys, or not at all"),
    _Defect("filters", _BY_CPP, _FIRST, _1_7_5, _TIMES,
            "C++ writers before 1.7.5 hash timestamps of zones other than UTC wrongly (ORC-1151)", _is_zoned),
    _Defect("filters", _BY_PRESTO, _FIRST, None, _AllBut(_ONE_WAY_TO_HASH), _NOT_COMPARED),
    _Defect("filters", _AllBut(_BY_JAVA | _BY_CPP | _BY_PRESTO), _FIRST, None, _EVERY, _NOT_COMPARED),
)
# fmt: on


def writer_doubt(
    part: Literal["filters", "bounds"], file: WrittenBy, column: OrcColumn, encoding: OrcEncoding | None = None
) -> str:
    """Return why ``file``'s writer is not believed in ``part`` of ``column``; an empty text if it is.

    ``encoding`` is that of the keys of filters.
    """
    for wrong in _wrongs_of(part, column.kind, file.writer, file.writer_version, file.software_version):
        if wrong.applies(column, encoding):
            return wrong.reason.format(kind=column.kind)
    return ""


@lru_cache(maxsize=1024)
def _wrongs_of(
    part: str, kind: str, writer: int, writer_version: int, software_version: str | None
) -> tuple[_Defect, ...]:
    """Return the lines of the table for a file's writer and columns of a kind; a file asks once for each row group."""
    version = _version(writer, writer_version, software_version)
    of_kind = (wrong for wrong in _WRITERS if wrong.part == part and kind in wrong.kinds)
    return tuple(wrong for wrong in of_kind if wrong.concerns(writer, version))


def hashes_wrongly(tail: OrcTail) -> bool:
    """Return whether a C++ writer with ORC-1024 wrote the file; readers then ignore all filters, even correct ones."""
    version = _version(tail.writer, tail.writer_version, tail.software_version)
    return any(wrong.concerns(tail.writer, version) for wrong in _ORC_1024)


def _version(writer: int, writer_version: int, software_version: str | None) -> tuple[int, ...]:
    """Return the version that the table has for a file's writer."""
    if writer == JAVA:
        return (writer_version,)
    match = _VERSION.fullmatch(software_version or "")
    return tuple(map(int, match.groups())) if match else (0, 0, 0)


# --- the keys that the writer meant to hash -----------------------------------------------------------------


def _encoding(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> OrcEncoding | None:
    naming = _NAMES.get(column.kind)
    name = None if naming is None else naming(tail, column, stream, zone)
    return None if name is None else OrcEncoding.parse(name)


def _decimal(tail: OrcTail, column: OrcColumn, stream: str, zone: str | None) -> str | None:
    if column.precision is None or (column.scale or 0) > 38:
        return None
    short = tail.file_version == UNSTABLE_VERSION and column.precision <= DECIMAL64_DIGITS
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
