"""Leaves out of an inspection what the user does not want to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.errors import UsageError
from sidecar.many_files.columns import columns_of, with_columns

_NAMING = " A column of a Puffin file is named with id=name, such as 3=user_id."
_STATISTICS = ("values", "has_null", "min", "max")


def only_columns(data: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The inspection of a file or a table with ``columns`` alone. Raises :class:`UsageError` for unknown names."""
    if "coverage" in data:
        _check(columns, data["coverage"])
        return {**data, "coverage": {name: data["coverage"][name] for name in columns}}
    if "bloom_filter" in data:
        raise UsageError("--columns is for data files, Puffin files and tables", found=str(data["file"]))
    _check(columns, dict.fromkeys(columns_of(data)))
    return with_columns(data, columns)


def _check(columns: Sequence[str], known: Mapping[str, Any]) -> None:
    for name in columns:
        if name not in known:
            raise UsageError(
                f"there is no column '{name}' to show",
                hint=f"The columns are {', '.join(known) or 'not known'}.{_NAMING if '=' in name else ''}",
            )


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
