"""Leaves out of an inspection what the user does not want to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STATISTICS = ("values", "has_null", "min", "max")


def without_statistics(data: dict[str, Any]) -> dict[str, Any]:
    """The inspection of an ORC file without the values in its row indexes; other files as they are."""
    if "stripes" not in data:
        return data
    return {**data, "units": [_without_values(unit) for unit in data["units"]]}


def _without_values(unit: Mapping[str, Any]) -> dict[str, Any]:
    columns = {}
    for path, column in unit["columns"].items():
        index = column["row_index"]
        kept = index and {name: value for name, value in index.items() if name not in _STATISTICS}
        columns[path] = {**column, "row_index": kept}
    return {**unit, "columns": columns}
