"""Parquet encodings: how a column's value becomes the bytes that a filter of one file hashes.

Two files may store the same Iceberg column as INT32 and as INT64 (after a promotion), as decimals of different widths,
or as timestamps of different units. A filter hashes the PLAIN bytes *of its own file*. So every filter has the encoding
in which it was built, with a fixed name that bundles store:

    int32  int64  uint32  uint64  float  double  float16  boolean  int96  interval
    int32/date  int32/time-ms  int64/time-us  int64/time-ns
    int64/timestamp-ms  int64/timestamp-us  int64/timestamp-ns
    int32/decimal:S  int64/decimal:S  flba:N/decimal:S  byte_array/decimal:S
    byte_array  flba:N

S is the scale, N the length in bytes. Small signed integers are INT32 and hash as ``int32``; unsigned ones hash as
``uint32`` or ``uint64``. STRING, ENUM, JSON, BSON and unannotated BYTE_ARRAY are ``byte_array``,
a UUID is ``flba:16``. Parquet specification, "Bloom filter" and "PLAIN encoding".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sidecar.errors import UnsupportedFeatureError

_FIXED = {
    # name: (physical type, width in bytes)
    "int32": ("INT32", 4),
    "int64": ("INT64", 8),
    "uint32": ("INT32", 4),
    "uint64": ("INT64", 8),
    "float": ("FLOAT", 4),
    "double": ("DOUBLE", 8),
    "float16": ("FIXED_LEN_BYTE_ARRAY", 2),
    "boolean": ("BOOLEAN", 1),
    "int96": ("INT96", 12),
    "interval": ("FIXED_LEN_BYTE_ARRAY", 12),
    "int32/date": ("INT32", 4),
    "int32/time-ms": ("INT32", 4),
    "int64/time-us": ("INT64", 8),
    "int64/time-ns": ("INT64", 8),
    "int64/timestamp-ms": ("INT64", 8),
    "int64/timestamp-us": ("INT64", 8),
    "int64/timestamp-ns": ("INT64", 8),
    "byte_array": ("BYTE_ARRAY", None),
}
_DECIMAL = re.compile(r"(int32|int64|byte_array|flba:([1-9][0-9]{0,5}))/decimal:(0|[1-9][0-9]{0,2})")
_FLBA = re.compile(r"flba:([1-9][0-9]{0,5})")

OF_BOOLEANS = "a filter of two values is useless, and readers disagree on its bytes"
"""Why a column of booleans has no filters, whatever the file."""
_NOT_INDEXABLE = {
    "boolean": OF_BOOLEANS,
    "float16": "readers disagree on the bytes of FLOAT16",
    "interval": "readers disagree on the bytes of INTERVAL",
    "int64/time-ns": "nanoseconds of a TIME cannot be told from the column's microseconds",
    "int96": "INT96 nanoseconds cannot be told from the column's microseconds",
}


@dataclass(frozen=True)
class Encoding:
    """One entry of the registry; equal encodings have equal names.

    ``physical`` is the Parquet physical type, ``width`` the bytes of one value (``None`` for BYTE_ARRAY),
    ``scale`` the scale of a decimal (``None`` otherwise).
    """

    name: str
    """The registered name."""
    physical: str
    width: int | None
    scale: int | None = None

    @staticmethod
    def parse(name: str) -> Encoding:
        """Return the encoding of a registered name. Raises :class:`UnsupportedFeatureError` for any other name."""
        if name in _FIXED:
            physical, width = _FIXED[name]
            return Encoding(name, physical, width)
        if match := _DECIMAL.fullmatch(name):
            base, length, scale = match.groups()
            if length:
                return Encoding(name, "FIXED_LEN_BYTE_ARRAY", int(length), int(scale))
            return Encoding(name, *_FIXED.get(base, ("BYTE_ARRAY", None)), int(scale))
        if match := _FLBA.fullmatch(name):
            return Encoding(name, "FIXED_LEN_BYTE_ARRAY", int(match.group(1)))
        raise UnsupportedFeatureError("unknown encoding", found=name[:80])

    @property
    def is_decimal(self) -> bool:
        """Whether the values are unscaled decimals."""
        return self.scale is not None

    @property
    def is_unsigned(self) -> bool:
        """Whether the values are unsigned integers."""
        return self.name in ("uint32", "uint64")

    @property
    def not_indexable(self) -> str | None:
        """The reason why sidecar builds no filter in this encoding, or ``None`` if it does."""
        if self.is_decimal and self.physical == "BYTE_ARRAY":
            return "a decimal in a BYTE_ARRAY may be stored in several widths"
        return _NOT_INDEXABLE.get(self.name)

    def __str__(self) -> str:
        return self.name
