"""Cast values of a file to the type of the table's column, which theta sketches hash.

A sketch hashes Iceberg's single-value serialization in the column's type in the snapshot, so the INT32 values of a
column that was promoted to long count as longs. Only casts that are exact for every value are made; other columns get
no sketch. (Filters hash the file's own bytes and need no cast.)
"""

from __future__ import annotations

import pyarrow as pa

from sidecar.errors import UsageError
from sidecar.filters.arrow_types import arrow_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.layouts import ArrayLike, Spans

_SMALL = (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())


def to_column_type(values: ArrayLike, column_type: str) -> ArrayLike:
    """Return ``values`` cast to the Iceberg type ``column_type``.

    Raises :class:`UsageError` unless the cast is exact for all values.
    """
    source = values.type
    kind = ColumnType.parse(column_type)
    if kind.base in ("string", "binary"):
        if _is_bytes(source):
            return values
        raise UsageError(f"no sketch of a {column_type} column stored as {source}")
    target = arrow_type(kind)
    if source == target:
        return values
    if isinstance(values, Spans) or not _exact(source, target):
        raise UsageError(f"no sketch of a {column_type} column stored as {source}")
    try:
        return values.cast(target)
    except pa.ArrowInvalid as error:  # an overflow in milliseconds, or a decimal that is too long
        raise UsageError(f"values stored as {source} do not fit {column_type}") from error


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def _exact(source: pa.DataType, target: pa.DataType) -> bool:
    if target == pa.int32():
        return source in _SMALL
    if target == pa.int64():
        return source in (*_SMALL, pa.int32(), pa.uint32())
    if target == pa.float64():
        return source == pa.float32()
    if pa.types.is_decimal(target):
        return pa.types.is_decimal(source) and source.scale == target.scale
    if target == pa.time64("us"):
        return source == pa.time32("ms")
    if pa.types.is_timestamp(target):
        return _exact_timestamp(source, target)
    return False


def _exact_timestamp(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a timestamp keeps its value: its unit is the same or coarser, and both or neither have a zone."""
    if not isinstance(source, pa.TimestampType) or not isinstance(target, pa.TimestampType):
        return False
    if (source.tz is None) != (target.tz is None):
        return False
    units = ("s", "ms", "us", "ns")
    return units.index(source.unit) <= units.index(target.unit)
