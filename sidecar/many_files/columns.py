"""Narrows what ``inspect`` finds in a file to some columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sidecar.bundle.contents import SidecarColumnInfo
    from sidecar.bundle.inspect import PuffinFileInfo
    from sidecar.files import FileInfo

C = TypeVar("C")
_BY_FIELD = ("bundles", "page_indexes", "row_indexes", "coverage")


def columns_of(file: FileInfo) -> list[str]:
    """Return the columns in a file: names, and field ids of Puffin files. A single filter has no columns."""
    if file.format == "puffin":
        return [name for column in file.columns for name in _names(column)]
    if file.format == "bloom-filter":
        return []
    return list(dict.fromkeys(name for unit in file.units for name in unit.columns))


def with_columns(file: FileInfo, columns: Sequence[str]) -> FileInfo:
    """Return what was found in a file with those of ``columns`` that the file has.

    A column of a Puffin file is its name or its field id. A single filter stays as it is.
    """
    if file.format == "puffin":
        return _with_fields(file, columns)
    if file.format == "bloom-filter":
        return file
    found: Any = file
    narrowed: FileInfo = replace(
        found, units=[replace(unit, columns=_chosen(unit.columns, columns)) for unit in found.units]
    )
    return narrowed


def _with_fields(file: PuffinFileInfo, columns: Sequence[str]) -> PuffinFileInfo:
    """Return a Puffin file with the blobs and indexes of some columns, and with the blobs that are of no column."""
    kept = [column for column in file.columns if set(_names(column)) & set(columns)]
    fields = {column.id for column in kept}
    segments = [
        {**segment, **{kind: [one for one in segment[kind] if one["field"] in fields] for kind in _BY_FIELD}}
        for segment in file.segments
    ]
    blobs = [blob for blob in file.blobs if not blob.fields or fields.intersection(blob.fields)]
    return replace(file, blobs=blobs, segments=segments, columns=kept)


def _names(column: SidecarColumnInfo) -> list[str]:
    return [name for name in (column.name, str(column.id)) if name is not None]


def _chosen(found: Mapping[str, C], columns: Sequence[str]) -> dict[str, C]:
    return {name: found[name] for name in columns if name in found}
