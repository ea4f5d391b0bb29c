"""Cells of Arrow columns in one form for all readers, which differ in their types for the same values."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DAY = 86_400 * NANOSECONDS["s"]


def columns_of(table: pa.Table) -> dict[str, list[Any]]:
    """The cells of each column; a second column of the same name gets a number."""
    found: dict[str, list[Any]] = {}
    for number, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        key = name if name not in found else f"{name} ({number})"
        found[key] = [cell for chunk in column.chunks for cell in cells(chunk)]
    return found


def cells(array: Any) -> list[Any]:
    """Bytes for texts, nanoseconds for times, texts for numbers, tuples for structs, lists for lists and maps."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return cells(array.storage)
    if types.is_dictionary(kind):
        return cells(array.dictionary_decode())
    if types.is_struct(kind):
        children = [cells(child) for child in array.flatten()]
        rows: Any = zip(*children, strict=True) if children else ((),) * len(array)
        return _with_nulls(array, list(rows))
    if types.is_map(kind):
        pairs = list(zip(cells(array.keys), cells(array.items), strict=True))
        return _with_nulls(array, _divided(array, pairs))
    if types.is_fixed_size_list(kind):
        whole, size = cells(array.values), kind.list_size
        return _with_nulls(
            array, [whole[at * size : (at + 1) * size] for at in range(array.offset, array.offset + len(array))]
        )
    if types.is_list(kind) or types.is_large_list(kind):
        return _with_nulls(array, _divided(array, cells(array.values)))
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        unit = NANOSECONDS[kind.unit]
        integer = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [None if cell is None else cell * unit for cell in array.view(integer).to_pylist()]
    if types.is_date(kind):
        divisor = 1 if types.is_date32(kind) else DAY // NANOSECONDS["ms"]
        days = array.view(pa.int64() if divisor > 1 else pa.int32()).to_pylist()
        return [None if day is None else f"day {day // divisor}" for day in days]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return [*map(without_hyphens, array.cast(pa.large_binary()).to_pylist())]  # it may be no UTF-8
    return [plain(cell) for cell in array.to_pylist()]


def plain(cell: Any) -> Any:
    """The form of a cell that is no time and has no parts."""
    if isinstance(cell, str):
        return without_hyphens(cell.encode("utf-8", "surrogateescape"))
    if isinstance(cell, bool) or cell is None or isinstance(cell, bytes):
        return cell
    if isinstance(cell, float | np.floating):
        return repr(float(cell))
    if isinstance(cell, Decimal):
        text = format(cell, "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text) if cell else "0"
    return str(cell)


def without_hyphens(text: bytes | None) -> bytes | None:
    """A UUID that is spelt out as its bytes: some readers have texts, some bytes."""
    if text is None or len(text) != 36 or text.count(b"-") != 4:
        return text
    with suppress(ValueError):
        return UUID(text.decode()).bytes
    return text


def _with_nulls(array: Any, rows: list[Any]) -> list[Any]:
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _divided(array: Any, values: list[Any]) -> list[Any]:
    return [values[start:stop] for start, stop in pairwise(array.offsets.to_pylist())]
