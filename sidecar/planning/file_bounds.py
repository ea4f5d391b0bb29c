"""Reads the bounds and counts of a manifest entry as :class:`Bounds` of one set of rows, the data file.

Bounds are single values as the Iceberg specification serializes them, in the type that the column had when the file was
written: an int or float has four bytes, also if the column is long or double today. So does a date that is a timestamp
today, whose bounds are unknown here. Long strings are truncated to outer bounds. NaN is outside the bounds; it is
possible unless its count is 0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from pyiceberg.manifest import DataFile

from sidecar.errors import SidecarError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import ComparedColumn, Leaf
from sidecar.questions.bounds import Bounds, Comparable

UNKNOWN = Bounds.of_one(None, None)
_SAME_NUMBERS = {"int32", "int64"}, {"float", "double"}


class FileBounds:
    """Decodes the bounds of some columns from manifest entries; ``types`` has their Iceberg types by field id."""

    def __init__(self, types: Mapping[int, str]) -> None:
        columns = {field_id: _column(field_id, kind) for field_id, kind in types.items()}
        self._columns = {field_id: column for field_id, column in columns.items() if column is not None}

    def column(self, field_id: int) -> ComparedColumn | None:
        """Return what a column's bounds are compared as; ``None`` for types without bounds."""
        return self._columns.get(field_id)

    def of(self, data: DataFile, field_id: int) -> Bounds:
        """Return the bounds of a column that the entry ``data`` has."""
        column = self._columns.get(field_id)
        if column is None:
            return UNKNOWN
        nulls, values = _count(data.null_value_counts, field_id), _count(data.value_counts, field_id)
        all_null = nulls is not None and nulls == values == data.record_count
        is_float = column.encoding.name in ("float", "double")
        may_have_nan = is_float and _count(data.nan_value_counts, field_id) != 0 and not all_null
        lower = _decode(data.lower_bounds, field_id, column.encoding)
        upper = _decode(data.upper_bounds, field_id, column.encoding)
        return Bounds.of_one(lower, upper, all_null=all_null, null_count=nulls, may_have_nan=may_have_nan)

    def value(self, field_id: int, raw: bytes) -> Comparable | None:
        """Return a single value of a column as its bounds compare; ``None`` if it does not compare."""
        column = self._columns.get(field_id)
        return None if column is None else _decode({field_id: raw}, field_id, column.encoding)

    def in_terms_of(self, data: DataFile, field_id: int, leaf: Leaf) -> Bounds:
        """Return the bounds of a column in the unit of ``leaf``, a leaf of the file; unknown if the units differ."""
        own = self._columns.get(field_id)
        if own is None:
            return UNKNOWN
        names = {own.encoding.name, leaf.encoding.name}
        scales = own.encoding.scale is not None and own.encoding.scale == leaf.encoding.scale
        alike = len(names) == 1 or scales or any(names <= same for same in _SAME_NUMBERS)
        return self.of(data, field_id) if alike else UNKNOWN


def _column(field_id: int, iceberg_type: str) -> ComparedColumn | None:
    kind = ColumnType.parse(iceberg_type)
    # A manifest stores a decimal in as few big-endian bytes as the number needs, whatever the file uses.
    encoding = kind.encoding if kind.scale is None else f"byte_array/decimal:{kind.scale}"
    if encoding is None:
        return None
    try:
        return ComparedColumn(field_id, iceberg_type, Encoding.parse(encoding))
    except SidecarError:
        return None


def _count(counts: Mapping[int, int] | None, field_id: int) -> int | None:
    return (counts or {}).get(field_id)


def _decode(bounds: Mapping[int, bytes] | None, field_id: int, encoding: Encoding) -> Comparable | None:
    raw = (bounds or {}).get(field_id)
    if raw is None:
        return None
    if encoding.name in ("float", "double"):
        formats = {4: "<f", 8: "<d"}
        value: float = struct.unpack(formats[len(raw)], raw)[0] if len(raw) in formats else math.nan
        return None if math.isnan(value) else value  # a NaN bound proves nothing
    if encoding.physical in ("INT32", "INT64", "BOOLEAN"):
        if len(raw) != encoding.width and (encoding.name, len(raw)) != ("int64", 4):
            return None
        return int.from_bytes(raw, "little", signed=len(raw) > 1)  # one byte is a boolean
    if encoding.is_decimal:
        return int.from_bytes(raw, "big", signed=True) if raw else None
    return raw
