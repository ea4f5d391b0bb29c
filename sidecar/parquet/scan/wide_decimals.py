"""Reads decimals in more bytes than their precision needs, which pyarrow refuses: in 17 bytes and more, say.

pyarrow decodes such leaves as bytes, without the annotation. Here the bytes become decimals: big-endian numbers in
two's complement. The bytes that a decimal does not need repeat its sign.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.scan.schema_parts import SchemaPart
from sidecar.parquet.schema import is_wide_decimal

_TYPE = 1
_ANNOTATIONS = (6, 7, 8, 10)  # converted_type, scale, precision, logicalType


def with_bytes_for_decimals(part: SchemaPart) -> SchemaPart:
    """Return the part with leaves of bytes in place of wide decimals; the same part if it has none."""
    if not any(map(is_wide_decimal, part.leaves)):
        return part
    leaves = iter(part.leaves)
    elements = []
    for element in part.elements:
        if _TYPE in element.fields and is_wide_decimal(next(leaves)):
            element = type(element)({k: v for k, v in element.fields.items() if k not in _ANNOTATIONS})
        elements.append(element)
    return replace(part, elements=tuple(elements))


def with_decimals(array: Any, kind: Any) -> Any:
    """Return an array of type ``kind`` from one that has bytes in place of some of its decimals.

    Raises :class:`DamagedFileError` for a decimal without bytes, and :class:`UnsupportedFeatureError` for one that
    ``kind`` does not hold.
    """
    t = pa.types
    if array.type.equals(kind):
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([with_decimals(chunk, kind) for chunk in array.chunks], kind)
    if t.is_decimal(kind):
        return _decimals(array, kind)
    if t.is_struct(kind):
        fields = list(kind)
        children = [with_decimals(array.field(i), field.type) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)
    below = pa.struct([kind.key_field, kind.item_field]) if t.is_map(kind) else kind.value_type
    buffers = array.buffers()[: 1 if t.is_fixed_size_list(kind) else 2]
    children = [with_decimals(array.values, below)]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children)


def _decimals(array: Any, kind: Any) -> Any:
    width = kind.bit_width // 8
    rows: Any = _fixed_rows(array, width) if pa.types.is_fixed_size_binary(array.type) else _rows(array, width)
    reversed_rows: Any = np.ascontiguousarray(rows[:, ::-1])
    data = pa.py_buffer(reversed_rows)
    mask: Any = None if not array.null_count else np.packbits(array.is_valid().to_numpy(False), bitorder="little")
    return pa.Array.from_buffers(kind, len(array), [None if mask is None else pa.py_buffer(mask), data])


def _fixed_rows(array: Any, width: int) -> npt.NDArray[np.uint8]:
    stored = array.type.byte_width
    data = np.frombuffer(array.buffers()[1], np.uint8, (array.offset + len(array)) * stored)
    values = data.reshape(-1, stored)[array.offset :]
    if array.null_count:
        values = np.where(array.is_valid().to_numpy(False)[:, None], values, np.uint8(0))
    return _in_width(values, width)


def _rows(array: Any, width: int) -> npt.NDArray[np.uint8]:
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64, array.offset + len(array) + 1)[array.offset :]
    lengths = np.diff(starts)
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    out = np.zeros((len(array), width), np.uint8)
    valid = array.is_valid().to_numpy(False)
    for length in np.unique(lengths[valid]).tolist():
        if not length:
            raise DamagedFileError("a decimal has no bytes")
        found = np.flatnonzero(valid & (lengths == length))
        out[found] = _in_width(values[starts[found][:, None] + np.arange(length)], width)
    return out


def _in_width(values: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """Return big-endian numbers in ``width`` bytes."""
    count, stored = values.shape
    if stored < width:
        sign = np.where(values[:, :1] >> 7, np.uint8(255), np.uint8(0))
        return np.concatenate([np.broadcast_to(sign, (count, width - stored)), values], axis=1)
    kept = values[:, stored - width :]
    sign = np.where(kept[:, :1] >> 7, np.uint8(255), np.uint8(0))
    if (values[:, : stored - width] != sign).any():
        raise UnsupportedFeatureError("a decimal is too large for its precision", expected=f"at most {width} bytes")
    return kept
