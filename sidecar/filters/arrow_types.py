"""Maps Iceberg types to Arrow types."""

from __future__ import annotations

import pyarrow as pa

from sidecar.errors import UsageError
from sidecar.filters.column_types import ColumnType

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "uuid": pa.binary(16),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type of ``kind``.

    Raises :class:`UsageError` for unknown types, and for string and binary, which have several layouts in Arrow.
    """
    if kind.base in _ARROW:
        return _ARROW[kind.base]
    if kind.precision is not None and 0 < kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale or 0)
    if kind.base == "fixed" and kind.width is not None:
        return pa.binary(kind.width)
    raise UsageError(f"no sketch of type {kind}")
