"""The one table of Iceberg's primitive types, and of the ways in which files store their values.

Every module that reads a type's text ("long", "decimal(9, 2)", "fixed[16]") calls :meth:`ColumnType.parse`.
A format's own tables (Parquet's logical types, ORC's kinds, the types of Arrow, Spark and pyiceberg) stay in the
modules that know the format, keyed by :attr:`ColumnType.base` or :attr:`ColumnType.family`.

When Iceberg gets a new type:

1. Add a row to ``_TYPES``. Leave ``stored_as`` and ``orc_stored_as`` empty until it is proven that equal values have
   one known form in an encoding: without them, no file is pruned by a column of the type.
2. A type of a listed family (for example, a timestamp of another unit) also needs its Arrow type in
   ``filters/arrow_types.py``. Then its values can be written, hashed and compared.
3. A new family needs an entry in each table that is keyed by families: how a person writes a value
   (``filters/literals.py``), its PLAIN bytes (``filters/values.py``), its keys in ORC (``filters/orc_values.py``), its
   place among bounds (``questions/literal_spans.py``), and its keys in a join (``planning/key_lists.py``,
   ``key_sets.py``).
4. Extend ``tests/filters/test_column_types.py`` (pyiceberg is the oracle), ``test_values.py``, ``test_orc_values.py``,
   ``test_array_hash.py`` and ``test_literals.py``; ``tests/filters/test_writers.py`` compares with foreign writers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,3})\s*\)")
_FIXED = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]")
_PROMOTED = {("int", "long"), ("float", "double")}
MAX_DIGITS = 38
"""Digits of the longest decimal."""
_MAX_LENGTH = 999_999
"""Bytes of the longest FIXED_LEN_BYTE_ARRAY that :mod:`sidecar.filters.encoding` has a name for."""


@dataclass(frozen=True)
class ColumnType:
    """An Iceberg primitive type. A type that sidecar does not know has its text as ``base`` and an empty ``family``."""

    base: str
    """The name without parameters: ``decimal`` of ``decimal(9, 2)``."""
    family: str = ""
    """Types whose values are written alike: ``integer`` (int, long), ``float`` (float, double), ``timestamp`` (all
    four), ``binary`` (binary, fixed); each other type is a family of its own name."""
    width: int | None = None
    """Bytes of every value of the type; for a decimal, the fewest that hold its precision; ``None`` if they vary."""
    encoding: str | None = None
    """Name of the Parquet encoding in which Iceberg's writers store the type (see :mod:`sidecar.filters.encoding`)."""
    stored_as: tuple[str, ...] = ()
    """Parquet encodings in which equal values have one known form; ``flba`` means any length. Empty for decimals, which
    have one known form in every encoding of their scale and a fixed width."""
    orc_encoding: str | None = None
    """Name of the encoding in which sidecar builds ORC filters, as Java's writers do; ``None`` if it builds none."""
    orc_stored_as: tuple[str, ...] = ()
    """Families of ORC encodings in which equal values have known keys."""
    unit: str | None = None
    """``us`` or ``ns`` for times and timestamps."""
    zoned: bool = False
    """Whether a timestamp is an instant, which readers show in their own zone."""
    precision: int | None = None
    scale: int | None = None

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> ColumnType:
        """Return the type that ``text`` names in Iceberg's metadata. Never raises: unknown types have no family."""
        if known := _TYPES.get(text):
            return known
        if match := _DECIMAL.fullmatch(text):
            return _decimal(int(match[1]), int(match[2]))
        if match := _FIXED.fullmatch(text):
            return _fixed(int(match[1]))
        return ColumnType(base=text)

    def holds(self, stored: ColumnType) -> bool:
        """Return whether this type is ``stored``, the type in a file, or a promotion of it that Iceberg allows."""
        if self.family == stored.family == "decimal":
            return self.scale == stored.scale and (stored.precision or 0) <= (self.precision or 0)
        return self == stored or (stored.base, self.base) in _PROMOTED

    def compares_with(self, stored: ColumnType) -> bool:
        """Return whether literals of this type can be compared with values of type ``stored``."""
        if self.family == stored.family == "decimal" or {self.base, stored.base} == {"string", "binary"}:
            return True
        return self.holds(stored) or stored.base == f"{self.base}_ns"

    def __str__(self) -> str:
        if self.precision is not None:
            return f"decimal({self.precision}, {self.scale})"
        return f"fixed[{self.width}]" if self.base == "fixed" and self.family else self.base


def _decimal(precision: int, scale: int) -> ColumnType:
    """Return a decimal type. Damaged files may give any numbers; beyond 38 digits there is no Parquet encoding."""
    width = (10**precision - 1).bit_length() // 8 + 1
    stored = "int32" if precision <= 9 else "int64" if precision <= 18 else f"flba:{width}"
    encoding = f"{stored}/decimal:{scale}" if precision and scale <= precision <= MAX_DIGITS else None
    orc = f"orc/decimal:{scale}" if scale <= MAX_DIGITS else None
    families = ("decimal", "decimal64")
    return ColumnType("decimal", "decimal", width, encoding, (), orc, families, precision=precision, scale=scale)


def _fixed(length: int) -> ColumnType:
    encoding = f"flba:{length}" if 0 < length <= _MAX_LENGTH else None
    return ColumnType("fixed", "binary", length, encoding, ("flba",), "orc/bytes", ("bytes",))


_MS, _US, _NS = "int64/timestamp-ms", "int64/timestamp-us", "int64/timestamp-ns"
_TEXT = ("bytes", "ascii", "char", "varchar")
_WALL, _INSTANT = "orc/timestamp:java:UTC", "orc/instant:java"
_TYPES = {
    row.base: row
    for row in (  # name, family, width, encoding, stored_as, orc_encoding, orc_stored_as, unit, zoned
        ColumnType("boolean", "boolean", 1, "boolean"),
        ColumnType("int", "integer", 4, "int32", ("int32", "uint32"), "orc/long", ("long",)),
        ColumnType("long", "integer", 8, "int64", ("int64", "int32", "uint32", "uint64"), "orc/long", ("long",)),
        ColumnType("float", "float", 4, "float", ("float",), "orc/float", ("float",)),
        ColumnType("double", "float", 8, "double", ("double", "float"), "orc/double", ("double", "float")),
        ColumnType("date", "date", 4, "int32/date", ("int32/date",), "orc/date", ("date",)),
        ColumnType(
            "time",
            "time",
            8,
            "int64/time-us",
            ("int64/time-us", "int32/time-ms"),
            "orc/long",
            ("long",),
            "us",
        ),
        ColumnType("timestamp", "timestamp", 8, _US, (_US, _MS), _WALL, ("timestamp",), "us"),
        ColumnType("timestamptz", "timestamp", 8, _US, (_US, _MS), _INSTANT, ("instant",), "us", zoned=True),
        ColumnType("timestamp_ns", "timestamp", 8, _NS, (_NS,), None, ("timestamp",), "ns"),
        ColumnType("timestamptz_ns", "timestamp", 8, _NS, (_NS,), None, ("instant",), "ns", zoned=True),
        ColumnType("string", "string", None, "byte_array", ("byte_array",), "orc/bytes", _TEXT),
        ColumnType("binary", "binary", None, "byte_array", ("byte_array",), "orc/bytes", ("bytes",)),
        ColumnType("uuid", "uuid", 16, "flba:16", ("flba",), "orc/bytes", ("bytes",)),
    )
}
"""Base name -> type. ``long`` and ``double`` list ``int32`` and ``float`` too: files from before a promotion have them.
Unsigned integers of 64 bits are ``decimal(20, 0)`` where a file is read without a table.
Types in nanoseconds have no ``orc_encoding``: sidecar reads such filters, but builds none."""


def named_types() -> tuple[ColumnType, ...]:
    """Return all types that have no parameters."""
    return tuple(_TYPES.values())
