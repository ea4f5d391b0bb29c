"""The result of :func:`sidecar.status`: facts about a table's sidecars, missed thresholds, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sidecar.bundle.runs import RunRecord
from sidecar.iceberg.repair import RepairInfo
from sidecar.reports.status.indexes import KindCoverage, TableFileCounts, TableSegmentInfo, TableSidecarInfo
from sidecar.results.base import Result

Threshold: TypeAlias = Literal["max_behind", "min_coverage"]
"""A limit of :func:`sidecar.status`."""


@dataclass(frozen=True, repr=False, slots=True)
class RefInfo(Result):
    """A branch or a tag, and the sidecar that its plans use."""

    name: str
    """The name of the branch or tag."""
    type: str
    """``branch`` or ``tag``."""
    snapshot_id: int
    """Its snapshot."""
    statistics_snapshot_id: int | None
    """The snapshot whose sidecar plans use: itself, the nearest ancestor that has one, or else another one. ``None`` if
    there is none."""
    snapshots_behind: int | None
    """How many commits its history lacks; ``None`` if there is none."""


@dataclass(frozen=True, repr=False, slots=True)
class CoveredRows(Result):
    """How many data files have one kind of index of a column in all their row groups, and how many rows these have."""

    files: int
    """The data files."""
    rows: int
    """Their rows."""
    share: float
    """Their share of the rows of all files that have the column; 1 if there are none, and for filters of booleans."""
    waiting: int
    """The data files that the sidecar says nothing about. A refresh indexes them."""


@dataclass(frozen=True, repr=False, slots=True)
class WaitingFiles(Result):
    """The data files that a refresh would index: for some index, the sidecar says nothing about them."""

    files: int
    """The data files."""
    rows: int
    """Their rows."""
    bytes: int
    """Their bytes."""
    since: float | None
    """When the first of them was committed, in seconds since 1970; if that snapshot has expired, the time of the last
    one before it, else that of the oldest one. ``None`` if no file waits."""
    seconds: float
    """For how long this file has been waiting: the time behind. 0 if no file waits."""
    or_longer: bool = False
    """Whether it may have waited longer: all snapshots that the table still has are newer than the file."""


@dataclass(frozen=True, repr=False, slots=True)
class LookupCost(Result):
    """What a lookup of one value reads of the sidecar, and how well it rules out row groups.

    It is measured: a hash that is chosen at random is asked, which no value has.
    """

    segments: int
    """The segments with filters of the column."""
    reads: int
    """The reads: the file's tail, the lists of manifests and row groups, the rows of the filters."""
    bytes_read: int
    """Their bytes."""
    row_groups: int
    """The row groups with filters, in all segments."""
    rate: float | None
    """The share of these row groups that the filters' bits kept, by ``probes`` hashes: an estimate of their
    false-positive rate. ``None`` if there are no such row groups."""
    probes: int
    """The hashes that were asked. The more row groups and hashes, the better the estimate."""


@dataclass(frozen=True, repr=False, slots=True)
class RegisteredSidecars(Result):
    """The statistics files that the table's metadata names."""

    entries: int
    """The entries."""
    files: int
    """The files; several entries may name one."""
    bytes: int
    """Their bytes."""


@dataclass(frozen=True, repr=False, slots=True)
class UnreferencedFiles(Result):
    """Files of sidecar in the table's metadata folder that the current metadata does not name."""

    files: int | None
    """The files, also young ones, which a running build may have written; ``None`` if that is unknown."""
    bytes: int | None
    """Their bytes."""
    deletable: int | None
    """Files that ``sidecar gc`` would delete now, with its usual age."""
    unknown_because: str | None
    """Why it is not known: nobody looked, or the storage cannot be listed."""


@dataclass(frozen=True, repr=False, slots=True)
class LosableSidecar(Result):
    """A branch or tag that would lose its sidecar if only the snapshots of branches and tags were kept."""

    ref: str
    """The branch or tag."""
    statistics_snapshot_id: int
    """The snapshot that its sidecar is registered for."""
    statistics_path: str
    """The sidecar."""


@dataclass(frozen=True, repr=False, slots=True)
class MissedThreshold(Result):
    """A threshold that the table misses."""

    threshold: Threshold
    """Which one."""
    limit: float
    """The limit: seconds, or a share of rows."""
    found: float
    """What was found."""
    text: str
    """The missed threshold in words."""


@dataclass(frozen=True, repr=False, slots=True)
class NextStep(Result):
    """Something to do about the table's sidecars."""

    why: str
    """The reason."""
    command: str
    """What to type."""


@dataclass(frozen=True, repr=False, kw_only=True)
class TableStatus(Result):
    """The indexes of a table, facts about them, thresholds that were missed, and what to do."""

    table: str
    """The name of the table."""
    table_uuid: str
    """The identity of the table."""
    snapshot_id: int | None
    """The snapshot that was asked about; ``None`` for a table that has none yet."""
    sidecar: TableSidecarInfo | None
    """The sidecar file that answers for it; ``None`` if there is none."""
    files: TableFileCounts
    """How many files the snapshot has."""
    coverage: dict[str, dict[str, KindCoverage]]
    """How much has which index, by column and kind (such as ``bloom``)."""
    segments: list[TableSegmentInfo]
    """What each build added to the sidecar."""
    warnings: list[str]
    """What is wrong with the sidecar, in words."""

    refs: list[RefInfo]
    """The branches and tags."""
    repairs: list[RepairInfo]
    """What :func:`sidecar.repair` would do."""
    rows: int
    """The rows of the snapshot's data files, also those that row-level deletes have removed."""
    data_bytes: int
    """The size of the data files in bytes."""
    lost: list[str] | None
    """The data files of the snapshot that are not stored, so that scans fail; ``None`` if nobody has looked: with
    ``quick``, and in a table of more than 10,000 files or 100 folders."""
    delete_files: int
    """The files with row-level deletes. With them, distinct counts are upper bounds."""
    size_share: float | None
    """The size of the sidecar as a share of the data; ``None`` without a sidecar or without data."""
    share_covered: float | None
    """The least of the shares in ``covered``; 0 without a sidecar, ``None`` without data files. Distinct counts count
    only if the sidecar has nothing else."""
    covered: dict[str, dict[str, CoveredRows]]
    """The rows that have an index, by column and kind."""
    waiting: WaitingFiles
    """What the sidecar does not know yet."""
    lookups: dict[str, LookupCost]
    """What a lookup reads, by column. Columns whose filters are encrypted are left out."""
    registered: RegisteredSidecars
    """The table's statistics files."""
    unreferenced: UnreferencedFiles
    """Files that nothing references."""
    losable: list[LosableSidecar]
    """What would be lost if old snapshots expired now."""
    runs: list[RunRecord]
    """The last runs that wrote the sidecar, the newest last."""
    missed: list[MissedThreshold]
    """The thresholds that the table misses."""
    to_do: list[NextStep]
    """What to do."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {
            "table": self.table,
            "files": self.files.live,
            "waiting": self.waiting.files,
            "share_covered": self.share_covered,
            "missed": [one.text for one in self.missed],
            "to_do": [one.command for one in self.to_do],
        }
