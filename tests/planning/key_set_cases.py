"""A semi-join by pyarrow, the oracle of plans for a join's keys."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pyarrow as pa


def value_of(row: dict[str, Any], column: str) -> Any:
    value: Any = row
    for part in column.split("."):
        value = None if value is None else value[part]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value.bytes if isinstance(value, uuid.UUID) else value


def semi_join(rows: pa.Table, column: str, keys: pa.Array) -> list[str]:
    """Rows whose value is a key, as Python compares: NaN with NaN, 0.0 with -0.0, null with nothing."""
    wanted = {value_of({"k": key}, "k") for key in keys.to_pylist()} - {None}
    return sorted(repr(row) for row in rows.to_pylist() if value_of(row, column) in wanted)
