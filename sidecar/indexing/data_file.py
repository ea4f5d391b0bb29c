"""What stage 1 asks of a data file, whatever its format; each format answers in a module of its own.

A file is cut into *units*: row groups of Parquet, row groups (strides) of ORC. The file's columns are resolved
once; then the file gives its units in order, each with what became of every column that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.bundle.model import UnitEntry
from sidecar.bundle.page_indexes import PageIndexKind
from sidecar.bundle.row_indexes import RowIndexKind
from sidecar.iceberg.resolve import FileLeaf
from sidecar.indexing.columns import ColumnResult

IndexKind = PageIndexKind | RowIndexKind
"""What a reader must know of a page index, or of a row index."""

_FORMS: dict[str, type[IndexKind]] = {"page-index": PageIndexKind, "row-index": RowIndexKind}


def describe(kind: IndexKind) -> str:
    """A kind as text, equal ones alike."""
    name = next(name for name, form in _FORMS.items() if isinstance(kind, form))
    return json.dumps([name, *kind], separators=(",", ":"))


def described(text: str) -> IndexKind:
    """Inverse of :func:`describe`."""
    name, *values = json.loads(text)
    return _FORMS[name](*values)


@dataclass(frozen=True)
class WantedColumn:
    """A column of the table as this file has it: its Iceberg type, the file's leaf, and how that was found."""

    type: str
    leaf: Any
    """One of the file's own :attr:`DataFile.leaves`."""
    resolution: str


@dataclass(frozen=True)
class PagesResult:
    """The page index of one column of one unit, or in ORC its row index.

    ``parts`` are ColumnIndex and OffsetIndex, or one RowIndexEntry; empty if there is none.
    """

    kind: IndexKind
    parts: tuple[bytes, ...] = (b"",)
    how: str = ""
    reason: str = ""
    """Why there is none."""
    fault: str = ""
    bytes_read: int = 0


@dataclass(frozen=True)
class IndexedUnit:
    """A unit, and by field id what became of the columns that were asked for."""

    entry: UnitEntry
    columns: Mapping[int, ColumnResult]
    pages: Mapping[int, PagesResult] = field(default_factory=dict)
    """Page indexes, if they were asked for."""


class DataFile(Protocol):
    """An open data file whose metadata was read. To be closed; the source stays open."""

    @property
    def leaves(self) -> Sequence[FileLeaf]:
        """All leaf columns of the file."""

    def is_encrypted(self, leaf: Any) -> bool:
        """Whether the file has that leaf encrypted, be its key at hand or not."""

    def is_locked(self, leaf: Any) -> bool:
        """Whether it is encrypted and its key is not at hand."""

    def index(self, start: int, stop: int, columns: Mapping[int, WantedColumn]) -> Iterator[IndexedUnit]:
        """The units that begin in the bytes ``[start, stop)``, in order.

        What is wrong with the bytes of a column costs that column of the units that it hits, and is told in
        their results; nothing is raised for it.
        """

    def close(self) -> None:
        """Close what was opened for decoding."""
