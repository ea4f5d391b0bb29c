"""Turns a literal into the hashes to probe a split-block filter with: the table *value -> bytes -> hash*.

A filter holds hashes of PLAIN bytes in the encoding of its own file: XXH64 with seed 0 (Parquet specification,
"Bloom filter"), MurmurHash3 in the historical form. To probe it, the literal is turned into the same bytes, once for
each encoding of the column. Three answers are possible:

    probe         the unit may hold the value only if one of ``hashes`` is in its filter
    cannot-exist  no value of that encoding equals the literal; only for listed one-to-one pairs
    unknown       the filter cannot decide: keep the unit

Only the pairs (column type, encoding) in :mod:`sidecar.filters.column_types` are certain. Everything else is unknown:
NaN, nanoseconds or INT96 in a column of microseconds, decimals in a BYTE_ARRAY (several widths), a
number that no float32 equals in a float column (engines round it differently), and every future type or encoding.
0.0 and -0.0 are equal but have different hashes, so both are probed. Unsigned integers have the bits of the literal,
which some readers show as a negative number.

This module has no compiled code: planning hashes only a few literals, with the xxhash package.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.float32 import nearest_float32
from sidecar.filters.plain_bytes_hash import XXH64, PlainHash

ProbeVerdict = Literal["probe", "cannot-exist", "unknown"]


@dataclass(frozen=True)
class Probe:
    """The way to ask a filter for a literal: if ``verdict`` is ``probe``, whether it has any of ``hashes``."""

    verdict: ProbeVerdict
    hashes: tuple[int, ...] = ()
    reason: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether a filter can answer: that no value equals the literal is certain, and so are hashes."""
        return self.verdict == "cannot-exist" or (self.verdict == "probe" and bool(self.hashes))


class _CannotExist(Exception):
    """No value of the encoding equals the literal."""


class _NoCertainBytes(Exception):
    """The literal has no certain bytes in the encoding."""


def probe_hashes(value: object, iceberg_type: str, encoding: Encoding, function: PlainHash = XXH64) -> Probe:
    """Return the hashes to probe a filter of ``encoding`` with for ``value``; the filter hashes with ``function``.

    ``value`` is the literal bound to the column, as pyiceberg keeps it: int (also days, microseconds; nanoseconds
    for the ``_ns`` types), float, Decimal, str, bytes, UUID, bool. ``iceberg_type`` is the column's type
    as text ("long", "decimal(9, 2)"). A value that cannot be encoded gives the verdict ``unknown``, never an error.
    """
    try:
        forms = _plain_forms(value, iceberg_type, encoding)
    except _CannotExist as reason:
        return Probe("cannot-exist", reason=str(reason))
    except _NoCertainBytes as reason:
        return Probe("unknown", reason=str(reason))
    return Probe("probe", tuple(map(function.digest, forms)))


def plain_forms(value: object, iceberg_type: str, encoding: Encoding) -> tuple[bytes, ...] | None:
    """Return the PLAIN bytes of every value of ``encoding`` that equals ``value``.

    The tuple is empty if no value of ``encoding`` equals it. ``None`` means that this is not certain.
    """
    try:
        return _plain_forms(value, iceberg_type, encoding)
    except _CannotExist:
        return ()
    except _NoCertainBytes:
        return None


def _plain_forms(value: object, iceberg_type: str, encoding: Encoding) -> tuple[bytes, ...]:
    """Return every PLAIN form whose value equals ``value``; the first is that of ``value`` itself."""
    kind = ColumnType.parse(iceberg_type)
    if not _is_certain(kind, encoding):
        raise _NoCertainBytes(f"no certain rule for {iceberg_type} in {encoding}")
    if encoding.is_unsigned:
        return _unsigned(value, encoding)
    return _FORMS[kind.family](value, encoding)


def _is_certain(kind: ColumnType, encoding: Encoding) -> bool:
    """Return whether equal values of the type have the forms of ``_FORMS`` in the encoding, and no others."""
    if kind.scale is not None:
        return encoding.scale == kind.scale or (kind.scale == 0 and encoding.name == "uint64")
    is_flba = encoding.name.startswith("flba:") and not encoding.is_decimal
    return ("flba" if is_flba else encoding.name) in kind.stored_as


def _integer(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Return the signed little-endian bytes; columns have microseconds, but their files may have milliseconds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _NoCertainBytes(f"{type(value).__name__} is not an integer")
    unit = 1_000 if encoding.name.endswith("-ms") else 1
    stored, rest = divmod(value, unit)
    if rest:
        raise _CannotExist(f"the file counts in steps of {unit}")
    return (_signed(stored, encoding.width or 0, "little"),)


def _unsigned(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Return the bytes of an unsigned integer, or of the negative one that readers of signed integers show for it."""
    number, width = unscaled(value, 0), encoding.width or 0
    if not -(1 << (8 * width - 1)) <= number < 1 << (8 * width):
        raise _CannotExist(f"{number} does not fit in {width} bytes")
    return ((number % (1 << (8 * width))).to_bytes(width, "little"),)


def _signed(number: int, width: int, order: Literal["little", "big"]) -> bytes:
    try:
        return number.to_bytes(width, order, signed=True)
    except OverflowError:
        raise _CannotExist(f"{number} does not fit in {width} bytes") from None


def _float(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Return the bytes of a float or double; both zeros for a zero.

    For FLOAT, some engines round the literal to float32 and others compare as double. They agree only on literals that
    are a float32. A promoted column needs the same care: pyiceberg rounds the values of an IN to the file's type.
    """
    number = _number(value)
    if encoding.width == 4 and nearest_float32(number) != number:
        raise _NoCertainBytes("no float32 equals the literal, and engines round differently")
    return _zeros(number, "<f" if encoding.width == 4 else "<d")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _NoCertainBytes(f"{type(value).__name__} is not a floating-point number")
    try:
        number = float(value)
    except OverflowError:
        raise _NoCertainBytes("the number is too large for a double") from None
    if math.isnan(number):
        raise _NoCertainBytes("the bits of NaN differ between writers, and engines disagree on its equality")
    if number != value:
        raise _NoCertainBytes("no double equals the integer")
    return number


def _zeros(number: float, form: str) -> tuple[bytes, ...]:
    if number == 0:
        return struct.pack(form, 0.0), struct.pack(form, -0.0)
    return (struct.pack(form, number),)


def _text(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    if not isinstance(value, str):
        raise _NoCertainBytes(f"{type(value).__name__} is not a string")
    try:
        return (value.encode("utf-8"),)
    except UnicodeEncodeError:
        raise _NoCertainBytes("the string has no UTF-8 form") from None


def _binary(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _NoCertainBytes(f"{type(value).__name__} is not a binary value")
    data = bytes(value)
    if encoding.width is not None and len(data) != encoding.width:
        raise _NoCertainBytes(f"the literal has {len(data)} bytes, the values of the column have {encoding.width}")
    return (data,)


def _uuid(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    return _binary(value.bytes if isinstance(value, uuid.UUID) else value, encoding)


def _decimal(value: object, encoding: Encoding) -> tuple[bytes, ...]:
    """Return the unscaled number in two's complement; column and encoding have the same scale."""
    if encoding.width is None:
        raise _NoCertainBytes("a decimal in a BYTE_ARRAY may be stored in several widths")
    order: Literal["little", "big"] = "big" if encoding.physical == "FIXED_LEN_BYTE_ARRAY" else "little"
    return (_signed(unscaled(value, encoding.scale or 0), encoding.width, order),)


def unscaled(value: object, scale: int) -> int:
    """Return the unscaled integer of a Decimal (or int) at ``scale``, exactly under every decimal context."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _NoCertainBytes(f"{type(value).__name__} is not a decimal")
    number = Decimal(value)
    if not number.is_finite():
        raise _NoCertainBytes("the decimal is not finite")
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    if abs(shift) > 1_000 or len(digits) > 1_000:
        raise _NoCertainBytes("the decimal is larger or finer than any column")
    magnitude = int("".join(map(str, digits)))
    if shift < 0:
        magnitude, rest = divmod(magnitude, 10**-shift)
        if rest:
            raise _NoCertainBytes(
                f"the decimal has more than the column's {scale} decimal places, and engines may round it"
            )
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
"""Family of a column type -> the function that makes its PLAIN forms."""
