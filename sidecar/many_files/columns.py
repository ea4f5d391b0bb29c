"""Narrows what ``inspect`` finds in a file to some columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BY_FIELD = ("coverage", "bundles", "page_indexes", "row_indexes")


def columns_of(data: Mapping[str, Any]) -> list[str]:
    """Return the columns in a result of :func:`sidecar.inspect`: names, and field ids of Puffin files.

    A single filter has no columns.
    """
    if "blobs" in data:
        return [name for column in data["columns"] for name in _names(column)]
    return list(dict.fromkeys(name for unit in data.get("units", ()) for name in unit["columns"]))


def with_columns(data: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return a result of :func:`sidecar.inspect` with those of ``columns`` that the file has.

    A column of a Puffin file is its name or its field id. A single filter stays as it is.
    """
    if "blobs" in data:
        return _with_fields(data, columns)
    if "units" not in data:
        return dict(data)
    return {**data, "units": [_narrowed(unit, columns) for unit in data["units"]]}


def _with_fields(data: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return a Puffin file with the blobs and indexes of some columns, and with the blobs that are of no column."""
    kept = [column for column in data["columns"] if set(_names(column)) & set(columns)]
    fields = {column["id"] for column in kept}
    segments = [
        {**segment, **{kind: [one for one in segment[kind] if one["field"] in fields] for kind in _BY_FIELD}}
        for segment in data["segments"]
    ]
    blobs = [blob for blob in data["blobs"] if not blob["fields"] or fields & set(blob["fields"])]
    return {**data, "blobs": blobs, "segments": segments, "columns": kept}


def _names(column: Mapping[str, Any]) -> list[str]:
    return [name for name in (column["name"], str(column["id"])) if name is not None]


def _narrowed(unit: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {**unit, "columns": {name: unit["columns"][name] for name in columns if name in unit["columns"]}}
