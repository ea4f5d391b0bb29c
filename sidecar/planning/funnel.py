"""Counts what a plan did with the snapshot's manifests and data files, and names the sidecar that it asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from sidecar.bundle.model import UnitState
from sidecar.results.base import Summarized


class KeptFilesBecause(Enum):
    """Why a plan keeps a file; ``text`` is the reason in words."""

    NOT_ASKED = "no part of the predicate is one that the index can answer"
    NO_SIDECAR = "no sidecar"
    UNREADABLE = "index unreadable"
    NOT_LISTED = "not listed in the sidecar"
    NO_UNITS = "not indexed: no row group of it is known"
    DAMAGED = "may match: part of the index cannot be read"
    MAY_MATCH = "may match"
    SOME_GROUPS = "may match in some row groups"
    SOME_PAGES = "may match in some pages"
    TOO_MANY = "too many keys within its bounds for filters to help"

    @property
    def text(self) -> str:
        """The reason in words."""
        return self.value


class NotIndexed(NamedTuple):
    """The reason to keep a file if a column that the predicate compares has no entry in the index.

    ``why`` is the state of the column in the coverage, or another reason in words.
    """

    column: str
    why: str

    @property
    def text(self) -> str:
        """The reason in words."""
        return f"not indexed: {self.column}: {self.why}"

    @property
    def is_locked(self) -> bool:
        """Whether there is no entry because the column is encrypted."""
        return self.why in (UnitState.ENCRYPTED, UnitState.REFUSED)


KeptReason = KeptFilesBecause | NotIndexed
"""Why a plan keeps one file."""


@dataclass(frozen=True)
class SidecarUsed:
    """The sidecar file that a plan asked."""

    path: str
    """The path of the file."""
    snapshot_id: int
    """The snapshot that it was built for."""
    snapshots_behind: int
    """How many commits this snapshot is older than that of the plan."""


@dataclass(frozen=True)
class Funnel(Summarized):
    """Counts of the live data files of a snapshot, from all of them down to those that are read.

    ``listed`` and ``indexed`` count files that the sidecar lists and files that it could answer for; both are 0 if it
    was not asked. Row groups are those of listed files that partition values and bounds left.
    """

    total: int = 0
    """The live data files of the snapshot."""
    listed: int = 0
    indexed: int = 0
    dropped_by_metadata: int = 0
    """Files that partition values or bounds dropped."""
    dropped_by_filter: int = 0
    """Files that bounds would drop as well count here if filters were asked first, as in large tables."""
    dropped_by_page_index: int = 0
    """Files in which filters left row groups, but page indexes left no row of them."""
    kept: int = 0
    """The files to read."""
    kept_because: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The number of kept files by reason."""
    row_groups: int = 0
    """The row groups of listed files that partition values and bounds left."""
    row_groups_dropped_by_filter: int = 0
    """Row groups that filters dropped."""
    row_groups_dropped_by_page_index: int = 0
    """Row groups that page indexes dropped."""

    @property
    def row_groups_kept(self) -> int:
        """Row groups to read, as far as the sidecar knows them."""
        return self.row_groups - self.row_groups_dropped_by_filter - self.row_groups_dropped_by_page_index

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "total": self.total,
            "listed": self.listed,
            "indexed": self.indexed,
            "dropped": {
                "partition_or_bounds": self.dropped_by_metadata,
                "filter": self.dropped_by_filter,
                "page_index": self.dropped_by_page_index,
            },
            "kept": self.kept,
            "kept_because": dict(self.kept_because),
            "row_groups": {
                "total": self.row_groups,
                "dropped": {
                    "filter": self.row_groups_dropped_by_filter,
                    "page_index": self.row_groups_dropped_by_page_index,
                },
                "kept": self.row_groups_kept,
            },
        }


@dataclass
class ManifestUse:
    """Counts of the manifests of a snapshot that one plan opened, and of those that it did not have to open."""

    total: int = 0
    """Data manifests in the manifest list."""
    listed: int = 0
    """Data manifests that were not opened because a sidecar lists their entries."""
    opened: int = 0
    """Data manifests that were opened."""
    deletes: int = 0
    """Delete manifests in the manifest list."""
    deletes_opened: int = 0
    """Delete manifests that were opened."""

    @property
    def ruled_out(self) -> int:
        """Data manifests that the list's partition summaries ruled out."""
        return self.total - self.listed - self.opened

    def explain(self) -> str:
        """One line of text."""
        parts = [
            f"{self.listed} answered by the sidecar",
            f"{self.opened} opened",
            f"{self.ruled_out} ruled out by the manifest list",
        ]
        if self.deletes:
            parts.append(f"{self.deletes_opened} of {self.deletes} of deletes opened")
        return f"{self.total} manifests of data: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "total": self.total,
            "ruled_out": self.ruled_out,
            "listed": self.listed,
            "opened": self.opened,
            "deletes": {"total": self.deletes, "opened": self.deletes_opened},
        }
