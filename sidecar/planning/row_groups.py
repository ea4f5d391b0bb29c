"""What a sidecar leaves of one data file: row groups, and the rows of each that may match.

Row groups are known by their places and lengths as they were indexed; a file that has others is read whole. Page
indexes that were read for the plan are kept, so that a scan needs only those of the columns that it projects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias

from sidecar.bundle.model import UnitEntry
from sidecar.bundle.page_indexes import StoredPageIndex
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.questions.row_ranges import RowRanges
from sidecar.source import Source

FilePart: TypeAlias = "tuple[int, int | None]"
"""Rows of a file, from the first to before the last (``None``: to the end)."""


@dataclass(frozen=True, eq=False)
class KeptRowGroups:
    """The row groups of one data file; ``rows`` has those of each, counted from its first, that may match."""

    units: tuple[UnitEntry, ...]
    rows: tuple[RowRanges, ...]
    by_filter: int = 0
    """Row groups that filters dropped; page indexes dropped the others."""
    places: tuple[tuple[Segment, int], ...] = ()
    """Segments that list the file, and the ordinal of its first unit there."""
    stored: dict[tuple[int, int], StoredPageIndex] = field(default_factory=dict)
    """Page indexes by field id and row group."""
    row_indexes: int = 0
    """Row indexes (of ORC files) that were asked."""
    part: FilePart | None = None
    """The only rows that are wanted: someone else reads the others."""

    @property
    def total(self) -> int:
        """Number of row groups."""
        return len(self.units)

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
    """Reads page indexes of kept files from the sidecar that a plan asked, after the plan is done.

    Safe to share between threads: one reads at a time, the next finds what it has read.
    """

    sidecar: SidecarFile
    reopen: Callable[[], Source]
    holds: Callable[[int, str], bool]
    """Whether a column (field id) is still found in a file as it was (resolution)."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    def fetch(self, files: Sequence[KeptRowGroups], field_ids: Iterable[int]) -> tuple[int, int]:
        """Read what is missing of ``field_ids``, for the kept row groups of those files that pages narrowed.

        The reads and bytes that it took.
        """
        with self._lock:
            wanted = _missing([file for file in files if file.stored], list(field_ids))
            if not wanted:
                return 0, 0
            before = self.sidecar.index_reads, self.sidecar.index_bytes
            self.sidecar.reopen(self.reopen())
            try:
                for segment, fields in wanted:
                    self._fetch(segment, fields)
            finally:
                self.sidecar.close()
            return self.sidecar.index_reads - before[0], self.sidecar.index_bytes - before[1]

    def _fetch(self, segment: Segment, fields: _Wanted) -> None:
        for field_id, found in self.sidecar.page_indexes(segment, fields).items():
            for ordinal, stored in found.items():
                if self.holds(field_id, stored.kind.resolution):
                    file, row_group = fields[field_id][ordinal]
                    file.stored[field_id, row_group] = stored


_Wanted = dict[int, dict[int, tuple[KeptRowGroups, int]]]
"""By field and unit of a segment, the file and row group whose page index is missing."""


def _missing(files: Sequence[KeptRowGroups], field_ids: Sequence[int]) -> list[tuple[Segment, _Wanted]]:
    """What the first segment that has page indexes of a field knows of each file."""
    wanted: dict[int, tuple[Segment, _Wanted]] = {}
    for file in files:
        for field_id in field_ids:
            place = next((p for p in file.places if field_id in p[0].page_index_blobs), None)
            if place is None:
                continue
            segment, first = place
            for at, (unit, rows) in enumerate(zip(file.units, file.rows, strict=True)):
                if rows and (field_id, unit.row_group) not in file.stored:
                    own = wanted.setdefault(id(segment), (segment, {}))[1].setdefault(field_id, {})
                    own[first + at] = file, unit.row_group
    return list(wanted.values())
