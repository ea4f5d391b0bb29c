"""Asks a filter for a value when the type of its column is not known: only the encoding of the filter is.

Several types share an encoding: text and binary values are both ``byte_array``, and a long may be stored as ``int32``.
A value is read as each type that the encoding can hold and that the value fits. The filter is asked for all of these
readings together. It excludes the value only if it excludes each reading, so the answer is right for every type.
"""

from __future__ import annotations

import re
from datetime import date, time
from decimal import Decimal
from typing import Any

from sidecar.errors import UsageError
from sidecar.filters.column_types import MAX_DIGITS, ColumnType, named_types
from sidecar.filters.literals import LiteralValue, as_literal
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.probes import AnyEncoding, any_of, probe_for
from sidecar.filters.values import Probe

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "float": (float, int),
    "decimal": (Decimal, int),
    "date": (int,),
    "time": (int,),
    "timestamp": (int,),
    "string": (str,),
    "uuid": (bytes,),
    "binary": (bytes,),
}
"""Python types of the values of a family of column types, as :mod:`sidecar.filters.literals` lists them."""


def possible_types(encoding: AnyEncoding) -> tuple[str, ...]:
    """Return the Iceberg types whose values ``encoding`` can hold with certain bytes; empty if there is none."""
    if encoding.scale is not None:
        return (f"decimal({MAX_DIGITS}, {encoding.scale})",) if encoding.scale <= MAX_DIGITS else ()
    if isinstance(encoding, OrcEncoding):
        return tuple(kind.base for kind in named_types() if encoding.family in kind.orc_stored_as)
    if encoding.name.startswith("flba:"):
        return (f"fixed[{encoding.width}]", *(("uuid",) if encoding.width == 16 else ()))
    return tuple(kind.base for kind in named_types() if encoding.name in kind.stored_as)


def readings_of(
    value: LiteralValue, encoding: AnyEncoding, iceberg_type: str | None = None
) -> list[tuple[str, LiteralValue]]:
    """Return (type, value of this type) for each type that ``encoding`` can hold and ``value`` fits.

    Text is parsed as :mod:`sidecar.filters.literals` describes. ``iceberg_type`` is the column's type, if it is known.
    If it is not, nobody refuses other spellings of bytes than ``0x00ff``: text that may be one is read as bytes, too.
    """
    types = possible_types(encoding) if iceberg_type is None else (iceberg_type,)
    found = []
    for name in types:
        is_binary = iceberg_type is None and ColumnType.parse(name).family == "binary"
        read = _read(_as_hex(value) if is_binary else value, name)
        if read is not None:
            found.append((name, read))
    return found


def probe_as_any(value: LiteralValue, encoding: AnyEncoding, iceberg_type: str | None = None) -> Probe:
    """Return how to look ``value`` up in a filter of ``encoding``, whichever of the possible types the column has.

    The verdict is ``unknown`` if one reading of the value is unknown, or if the value fits no type.
    """
    if iceberg_type is None and not possible_types(encoding):
        return Probe("unknown", reason=f"no certain rule for values in {encoding}")
    probes = [probe_for(read, name, encoding) for name, read in readings_of(value, encoding, iceberg_type)]
    if not probes:
        return Probe("unknown", reason=f"the value does not fit a column that is stored as {encoding}")
    return any_of(probes)


def _read(value: Any, name: str) -> LiteralValue | None:
    """Return ``value`` as a value of the type; ``None`` if it does not fit."""
    if isinstance(value, str | date | time):
        try:
            read: Any = as_literal(value, name)
            return None if isinstance(read, date | time) else read
        except UsageError:
            return None
    family = ColumnType.parse(name).family
    if isinstance(value, bool) and family != "boolean":
        return None
    given: Any = value
    return given if isinstance(value, _PYTHON_TYPES.get(family, ())) else None


def _as_hex(value: LiteralValue) -> LiteralValue:
    """Return ``00ff``, ``\\x00ff`` and ``X'00ff'`` as ``0x00ff``, how binary literals are written; else ``value``."""
    found = re.fullmatch(r"(?:\\x)?((?:[0-9a-f]{2})+)|x'((?:[0-9a-f]{2})*)'", str(value).strip(), re.IGNORECASE)
    return f"0x{found[1] or found[2]}" if isinstance(value, str) and found else value
