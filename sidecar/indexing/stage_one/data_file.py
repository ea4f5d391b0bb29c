"""Defines what stage 1 needs from a data file; a module for each format implements it.

A file is divided into *units*: row groups in Parquet, row groups (strides) in ORC. The file's columns are resolved
once. Then the file yields its units in order, each with the results of every requested column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.bundle.indexes.page_indexes import PageIndexKind
from sidecar.bundle.indexes.row_indexes import EntryKind, RowIndexKind
from sidecar.bundle.model import UnitEntry
from sidecar.indexing.columns import ColumnResult

_FORMS: dict[str, type[EntryKind]] = {"page-index": PageIndexKind, "row-index": RowIndexKind}


def describe(kind: EntryKind) -> str:
    """Return a kind as text; equal kinds have equal texts."""
    name = next(name for name, form in _FORMS.items() if isinstance(kind, form))
    return json.dumps([name, *kind], separators=(",", ":"))


def described(text: str) -> EntryKind:
    """Return the kind of a text from :func:`describe`."""
    name, *values = json.loads(text)
    return _FORMS[name](*values)


@dataclass(frozen=True)
class WantedColumn:
    """A table column in this file: its Iceberg type, the file's leaf, and how the leaf was found."""

    type: str
    leaf: Any
    """One of the file's own :attr:`OpenFile.leaves`."""
    resolution: str


@dataclass(frozen=True)
class PagesResult:
    """The page index of one column of one unit; in ORC its row index.

    ``parts`` are ColumnIndex and OffsetIndex, or one RowIndexEntry. A part is empty if there is none. ``how`` says
    where the index came from, in the words of :attr:`sidecar.indexing.stage_one.tasks.StageResult.how`.
    """

    kind: EntryKind
    parts: tuple[bytes, ...] = (b"",)
    how: str = ""
    reason: str = ""
    """Why there is no index."""
    fault: str = ""
    bytes_read: int = 0


@dataclass(frozen=True)
class IndexedUnit:
    """A unit with the results of the requested columns by field id."""

    entry: UnitEntry
    columns: Mapping[int, ColumnResult]
    pages: Mapping[int, PagesResult] = field(default_factory=dict)
    """Page indexes by field id, if requested."""


class DataFile(Protocol):
    """An :class:`OpenFile`, ready to be indexed. Close it; the source stays open."""

    def index(self, start: int, stop: int, columns: Mapping[int, WantedColumn]) -> Iterator[IndexedUnit]:
        """Index the units that begin in the bytes ``[start, stop)``, and yield them in order.

        Damage of a column is a reason in the results of the units that it hits, not an exception.
        """

    def close(self) -> None:
        """Close what was opened for decoding."""
