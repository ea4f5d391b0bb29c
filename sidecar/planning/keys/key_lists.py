"""Turns keys that are plain Python values into an Arrow array of their column's type.

Every value must be one that the column can hold exactly, so that none is rounded, truncated or moved to another zone:

| column | values |
| --- | --- |
| boolean | bool |
| int, long | int |
| float, double | float or int, if a number of that width equals it |
| decimal(P, S) | Decimal or int, with no more than S decimal places |
| date, time | date, time |
| timestamp, timestamptz | datetime, without and with a zone |
| string | str |
| binary, fixed[N] | bytes |
| uuid | UUID, or its 16 bytes |

``None`` is a null, which no row matches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from sidecar.errors import UsageError, first_line
from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import nearest_float32


def key_list(values: Sequence[Any], kind: str, wanted: pa.DataType) -> Any:
    """Return ``values`` without nulls, in the Arrow type ``wanted`` of a column of Iceberg type ``kind``.

    Raises :class:`UsageError` with the first value that the column cannot hold.
    """
    parsed = ColumnType.parse(kind)
    fits = _FITS.get(parsed.family)
    held = [value for value in values if value is not None]
    for value in held:
        if fits is None or not fits(value, parsed):
            raise _misfit(value, kind)
    plain: list[Any] = [value.bytes if isinstance(value, UUID) else value for value in held]
    if pa.types.is_floating(wanted):
        plain = [float(value) for value in plain]
    elif pa.types.is_decimal(wanted):
        plain = [Decimal(value) for value in plain]
    try:
        return pa.array(plain, wanted)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise UsageError(f"the keys do not fit their column: {first_line(error)}", expected=kind) from error


def _misfit(value: object, kind: str) -> UsageError:
    shown = f"{type(value).__name__} {value!r}"
    return UsageError("a key is not a value of its column", expected=kind, found=shown)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_floating(value: Any, kind: ColumnType) -> bool:
    if not isinstance(value, float) and not _is_int(value):
        return False
    try:
        number = float(value)
    except OverflowError:
        return False
    nearest = nearest_float32(number) if kind.width == 4 else number
    return bool(number == value == nearest or value != value)


def _is_moment(value: object, kind: ColumnType) -> bool:
    """Check a datetime. It has microseconds: none fits a type that counts nanoseconds, no time of pandas has some."""
    is_fitting = isinstance(value, dt.datetime) and (value.tzinfo is not None) == kind.zoned and kind.unit == "us"
    return is_fitting and not getattr(value, "nanosecond", 0)


_FITS: dict[str, Callable[[Any, ColumnType], bool]] = {
    "boolean": lambda value, _: isinstance(value, bool),
    "integer": lambda value, _: _is_int(value),
    "float": _is_floating,
    "decimal": lambda value, _: _is_int(value) or (isinstance(value, Decimal) and value.is_finite()),
    "date": lambda value, _: isinstance(value, dt.date) and not isinstance(value, dt.datetime),
    "time": lambda value, _: isinstance(value, dt.time) and value.tzinfo is None,
    "timestamp": _is_moment,
    "string": lambda value, _: isinstance(value, str),
    "binary": lambda value, _: isinstance(value, bytes),
    "uuid": lambda value, _: isinstance(value, UUID) or (isinstance(value, bytes) and len(value) == 16),
}
"""Checks of a value, by family of the column's type."""
