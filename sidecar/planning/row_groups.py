"""Holds what a sidecar leaves of one data file: its row groups, and the rows of each that may match.

Row groups are identified by their ordinals and row counts as they were indexed. A file with other row groups is read
whole. Page indexes that the plan read are kept, so a scan reads only those of the other columns that it projects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from sidecar.bundle.indexes.page_indexes import StoredPageIndex
from sidecar.bundle.model import UnitEntry
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.filters.probes import Resolutions
from sidecar.puffin.types import PAGE_INDEX
from sidecar.questions.row_ranges import RowRanges
from sidecar.storage.source import Source


@dataclass(frozen=True, eq=False)
class KeptRowGroups:
    """The row groups of one data file. ``rows`` has the rows of each that may match, counted from its first row."""

    units: tuple[UnitEntry, ...]
    """The row groups as they were indexed."""
    rows: tuple[RowRanges, ...]
    denied: frozenset[int] = frozenset()
    """Ordinals of the row groups that filters dropped. Page indexes dropped all others without a row that is left."""
    places: tuple[tuple[int, int], ...] = ()
    """The numbers of the file and of its first unit in each segment that lists the file."""
    stored: dict[tuple[int, int], StoredPageIndex] = field(default_factory=dict)
    """Page indexes by field id and row group."""
    row_indexes: int = 0
    """The number of row indexes (of ORC files) that were asked."""

    @property
    def total(self) -> int:
        """Number of row groups."""
        return len(self.units)

    @property
    def by_filter(self) -> int:
        """Number of row groups that filters dropped."""
        return len(self.denied)

    @property
    def kept(self) -> list[int]:
        """Ordinals of the row groups in which rows may match."""
        return [unit.row_group for unit, rows in zip(self.units, self.rows, strict=True) if rows]

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return sum(unit.rows for unit in self.units)

    @property
    def may_match(self) -> int:
        """Rows that may match."""
        return sum(rows.num_rows for rows in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "total": self.total,
            "kept": self.kept,
            "rows": {"total": self.num_rows, "may_match": self.may_match},
        }


@dataclass(frozen=True, eq=False)
class StoredPages:
    """Reads page indexes of kept files from the sidecar of a plan, after the plan is done.

    Threads can share it: one reads at a time, and the next finds what that one has read.
    """

    sidecar: SidecarFile
    resolutions: Resolutions
    """How columns are found in files today. Page indexes of other resolutions are not used."""
    reopen: Callable[[], Source]
    _lock: Lock = field(default_factory=Lock, repr=False)

    def fetch(self, files: Sequence[KeptRowGroups], field_ids: Iterable[int]) -> tuple[int, int]:
        """Read the missing page indexes of ``field_ids``, for kept row groups of files that page indexes narrowed.

        Returns the number of reads and of bytes.
        """
        with self._lock:
            wanted = _missing([file for file in files if file.stored], list(field_ids), self.sidecar)
            if not wanted:
                return 0, 0
            self.sidecar.reopen(self.reopen())
            try:
                self._fetch(wanted)
            finally:
                self.sidecar.close()
            return self.sidecar.index_reads, self.sidecar.index_bytes

    def _fetch(self, wanted: _Wanted) -> None:
        for field_id, found in self.sidecar.page_indexes_of(wanted).items():
            for unit, stored in found.items():
                if self.resolutions[field_id, stored.kind.resolution]:
                    file, row_group = wanted[field_id][unit]
                    file.stored[field_id, row_group] = stored


_Wanted = dict[int, dict[int, tuple[KeptRowGroups, int]]]
"""The file and row group whose page index is missing, by field and unit."""


def _missing(files: Sequence[KeptRowGroups], field_ids: Sequence[int], sidecar: SidecarFile) -> _Wanted:
    """Find the page indexes to read; of each file and field in the first segment that has the field."""
    wanted: _Wanted = {}
    for file in files:
        for field_id in field_ids:
            known = (unit for number, unit in file.places if field_id in sidecar.fields_with(number, PAGE_INDEX))
            first = next(known, None)
            if first is None:
                continue
            for at, (unit, rows) in enumerate(zip(file.units, file.rows, strict=True)):
                if rows and (field_id, unit.row_group) not in file.stored:
                    wanted.setdefault(field_id, {})[first + at] = file, unit.row_group
    return wanted
