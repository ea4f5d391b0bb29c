"""The one table of *value -> bytes -> hash*: what a literal of a column looks like in a file's encoding.

A filter holds hashes of PLAIN bytes in the encoding of its own file: XXH64 with seed 0 (Parquet specification,
"Bloom filter"), MurmurHash3 in the historical form. To ask it for a literal, the literal is turned into those
bytes, once for each encoding that the column has. Three answers are possible:

    probe         the unit may hold the value only if one of ``hashes`` is in its filter
    cannot-exist  no value of that encoding equals the literal; said for listed one-to-one pairs only
    unknown       nothing certain can be said: keep

Certain are exactly the pairs (column type, encoding) that :mod:`sidecar.filters.column_types` lists. Whatever is
not listed is unknown: NaN, unsigned widths, nanoseconds or INT96 under microseconds, decimals in a BYTE_ARRAY (several
widths), a float column asked for a number that no float32 equals (engines disagree on the rounding), and every type or
encoding to come. 0.0 and -0.0 are equal and hash apart, so both are asked for.

No compiled code here: planning hashes a handful of literals with the xxhash package.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from sidecar.errors import UsageError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.float32 import nearest_float32
from sidecar.filters.plain_bytes_hash import XXH64, PlainHash

Verdict = Literal["probe", "cannot-exist", "unknown"]


@dataclass(frozen=True)
class Probe:
    """What to ask a filter: ``hashes`` (any one may match) if ``verdict`` is ``probe``."""

    verdict: Verdict
    hashes: tuple[int, ...] = ()
    reason: str = ""


class _CannotExist(Exception):
    """No value of the encoding equals the literal."""


class _NoCertainBytes(Exception):
    """The literal has no certain bytes in the encoding."""


def probe_hashes(value: object, iceberg_type: str, encoding: Encoding, function: PlainHash = XXH64) -> Probe:
    """The hashes by which a filter of ``encoding`` that hashes with ``function`` is asked for ``value``.

    ``value`` is the literal bound to the column, as pyiceberg keeps it: int (also days, microseconds; nanoseconds
    for the ``_ns`` types), float, Decimal, str, bytes, UUID, bool. ``iceberg_type`` is the column's type
    as text ("long", "decimal(9, 2)"). Never raises for a value that it cannot encode: that is ``unknown``.
    """
    try:
        forms = _plain_forms(value, iceberg_type, encoding)
    except _CannotExist as reason:
        return Probe("cannot-exist", reason=str(reason))
    except _NoCertainBytes as reason:
        return Probe("unknown", reason=str(reason))
    return Probe("probe", tuple(map(function.digest, forms)))


def encode_value(value: object, iceberg_type: str, encoding: Encoding) -> bytes:
    """PLAIN bytes of ``value`` in ``encoding``, without a length prefix; :class:`UsageError` if it has none."""
    try:
        return _plain_forms(value, iceberg_type, encoding)[0]
    except (_CannotExist, _NoCertainBytes) as reason:
        raise UsageError(f"the value has no bytes in encoding {encoding}: {reason}", found=value) from None


def plain_forms(value: object, iceberg_type: str, encoding: Encoding) -> tuple[bytes, ...] | None:
    """Every PLAIN form of what equals ``value``: empty if no value of ``encoding`` does, ``None`` if not certain."""
    try:
        return _plain_forms(value, iceberg_type, encoding)
    except _CannotExist:
        return ()
    except _NoCertainBytes:
        return None


def _plain_forms(value: object, iceberg_type: str, encoding: Encoding) -> tuple[bytes, ...]:
    """Every PLAIN form whose value equals ``value``; the first is that of ``value`` itself."""
    kind = ColumnType.parse(iceberg_type)
    if not _is_certain(kind, encoding):
        raise _NoCertainBytes(f"no certain rule for {iceberg_type} in {encoding}")
    return _FORMS[kind.family](value, encoding)


def _is_certain(kind: ColumnType, encoding: Encoding) -> bool:
    """Whether equal values of the type have the forms of ``_FORMS`` in the encoding, and no others."""
    if kind.scale is not None:
        return encoding.scale == kind.scale
    is_flba = encoding.name.startswith("flba:") and not encoding.is_decimal
    return ("flba" if is_flba else encoding.name) in kind.stored_as


def _integer(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Signed little-endian; columns count microseconds where files may count milliseconds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _NoCertainBytes(f"{type(value).__name__} is no integer")
    unit = 1_000 if encoding.name.endswith("-ms") else 1
    stored, rest = divmod(value, unit)
    if rest:
        raise _CannotExist(f"the file counts in steps of {unit}")
    return (_signed(stored, encoding.width or 0, "little"),)


def _signed(number: int, width: int, order: Literal["little", "big"]) -> bytes:
    try:
        return number.to_bytes(width, order, signed=True)
    except OverflowError:
        raise _CannotExist(f"{number} does not fit in {width} bytes") from None


def _float(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """FLOAT: engines round a literal to float32 or compare as double; on exact ones they agree.

    Under a promoted column too: pyiceberg rounds the values of an IN to the type of the file.
    """
    number = _number(value)
    if encoding.width == 4 and nearest_float32(number) != number:
        raise _NoCertainBytes("no float32 equals the literal, and engines round differently")
    return _zeros(number, "<f" if encoding.width == 4 else "<d")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _NoCertainBytes(f"{type(value).__name__} is no floating-point number")
    try:
        number = float(value)
    except OverflowError:
        raise _NoCertainBytes("too large for a double") from None
    if math.isnan(number):
        raise _NoCertainBytes("NaN: its bits differ between writers, and engines disagree on its equality")
    if number != value:
        raise _NoCertainBytes("no double equals the integer")
    return number


def _zeros(number: float, form: str) -> tuple[bytes, ...]:
    if number == 0:
        return struct.pack(form, 0.0), struct.pack(form, -0.0)
    return (struct.pack(form, number),)


def _text(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    if not isinstance(value, str):
        raise _NoCertainBytes(f"{type(value).__name__} is no string")
    try:
        return (value.encode("utf-8"),)
    except UnicodeEncodeError:
        raise _NoCertainBytes("the string has no UTF-8 form") from None


def _binary(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _NoCertainBytes(f"{type(value).__name__} is no binary value")
    data = bytes(value)
    if encoding.width is not None and len(data) != encoding.width:
        raise _NoCertainBytes(f"{len(data)} bytes asked in a column of {encoding.width}")
    return (data,)


def _uuid(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    return _binary(value.bytes if isinstance(value, uuid.UUID) else value, encoding)


def _decimal(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Two's complement of the unscaled number; column and encoding have one scale."""
    if encoding.width is None:
        raise _NoCertainBytes("a decimal in a BYTE_ARRAY may be stored in several widths")
    order: Literal["little", "big"] = "big" if encoding.physical == "FIXED_LEN_BYTE_ARRAY" else "little"
    return (_signed(unscaled(value, encoding.scale or 0), encoding.width, order),)


def unscaled(value: object, scale: int) -> int:
    """The unscaled integer of a Decimal (or int) at ``scale``, exactly, whatever the decimal context is."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _NoCertainBytes(f"{type(value).__name__} is no decimal")
    number = Decimal(value)
    if not number.is_finite():
        raise _NoCertainBytes("not a finite decimal")
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    if abs(shift) > 1_000 or len(digits) > 1_000:
        raise _NoCertainBytes("a decimal beyond every column")
    magnitude = int("".join(map(str, digits)))
    if shift < 0:
        magnitude, rest = divmod(magnitude, 10**-shift)
        if rest:
            raise _NoCertainBytes(f"more than the column's {scale} decimal places; engines may round")
    else:
        magnitude *= int(10**shift)
    return -magnitude if sign else magnitude


_FORMS: dict[str, Callable[[Any, Encoding], tuple[bytes, ...]]] = {
    "integer": _integer,
    "float": _float,
    "decimal": _decimal,
    "date": _integer,
    "time": _integer,
    "timestamp": _integer,
    "string": _text,
    "binary": _binary,
    "uuid": _uuid,
}
"""Family of the column's type -> PLAIN forms."""
