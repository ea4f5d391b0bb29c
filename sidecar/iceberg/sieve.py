"""The sidecar as a sieve: asked about each data file that would be read, counting what becomes of it.

The index is opened when the first data file comes by, and only if the predicate asks something of filters. A
sidecar is advisory: whatever goes wrong with it becomes a warning, and from then on files are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import SidecarError
from sidecar.iceberg.may_match import Question
from sidecar.iceberg.resolve import resolution_holds
from sidecar.iceberg.statistics import find_sidecar
from sidecar.iceberg.verdicts import UNREADABLE, Counts, Verdict, Verdicts

NOT_ASKED = "no part of the predicate is one that filters can answer"
NO_SIDECAR = "no sidecar"

T = TypeVar("T")


@dataclass(frozen=True)
class SidecarUsed:
    """The sidecar file that a plan asked."""

    path: str
    snapshot_id: int
    snapshots_behind: int


@dataclass(frozen=True)
class Funnel:
    """Live data files of a snapshot, from all of them down to those that are read.

    ``listed`` and ``indexed`` count files that the sidecar knows and that it could answer for; both are 0
    where it was not asked.
    """

    total: int = 0
    listed: int = 0
    indexed: int = 0
    dropped_by_metadata: int = 0
    """By partition values and bounds, in pyiceberg's own planning."""
    dropped_by_filter: int = 0
    kept: int = 0
    kept_because: Mapping[str, int] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "total": self.total,
            "listed": self.listed,
            "indexed": self.indexed,
            "dropped": {"partition_or_bounds": self.dropped_by_metadata, "filter": self.dropped_by_filter},
            "kept": self.kept,
            "kept_because": dict(self.kept_because),
        }


class Sieve:
    """Keeps or drops the data files of one plan."""

    def __init__(self, table: Table, snapshot: Snapshot, question: Question | None) -> None:
        self.used: SidecarUsed | None = None
        self._table = table
        self._snapshot = snapshot
        self._question = question
        self._sidecar: SidecarFile | None = None
        self._verdicts: Verdicts | None = None
        self._is_open = question is None
        self._otherwise = Verdict(True, NOT_ASKED)
        self._warnings: list[str] = []
        self._kept: Counter[str] = Counter()
        self._dropped = 0

    def keep(self, data_file: DataFile) -> bool:
        """Whether the file has to be read."""
        if not self._is_open:
            self._is_open = True
            self._otherwise = Verdict(True, NO_SIDECAR)
            self._advised(self._open, None)
        verdict = self._verdict(data_file)
        if verdict.keep:
            self._kept[verdict.reason] += 1
        else:
            self._dropped += 1
        return verdict.keep

    def funnel(self, manifests: list[ManifestFile]) -> Funnel:
        """What became of the live files of ``manifests``, the data manifests of the snapshot."""
        planned, counts = self._kept.total() + self._dropped, Counts(0, 0)
        if self._verdicts is not None:
            counts = self._advised(partial(self._verdicts.counts, manifests), counts)
        total = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests)
        return Funnel(
            total=max(total, planned),
            listed=counts.listed,
            indexed=counts.indexed,
            dropped_by_metadata=max(total - planned, 0),
            dropped_by_filter=self._dropped,
            kept=self._kept.total(),
            kept_because=dict(self._kept.most_common()),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the index, each fault once."""
        found = self._warnings + (list(self._sidecar.warnings) if self._sidecar else [])
        return tuple(dict.fromkeys(found))

    @property
    def index_reads(self) -> int:
        """Reads of the sidecar file."""
        return self._sidecar.index_reads if self._sidecar else 0

    @property
    def index_bytes(self) -> int:
        """Bytes read of the sidecar file."""
        return self._sidecar.index_bytes if self._sidecar else 0

    def close(self) -> None:
        """Close the sidecar file."""
        if self._sidecar is not None:
            self._sidecar.close()

    def _open(self) -> None:
        assert self._question is not None
        found = find_sidecar(self._table, self._snapshot.snapshot_id, warnings=self._warnings)
        if found is None:
            if self._warnings:
                self._otherwise = Verdict(True, UNREADABLE)
            return
        self._sidecar = found.sidecar
        behind = generations(self._table, self._snapshot.snapshot_id, found.snapshot_id)
        self.used = SidecarUsed(found.statistics.statistics_path, found.snapshot_id, behind)
        mapping, schema = self._table.metadata.name_mapping(), self._table.schema()
        self._verdicts = Verdicts(
            found.sidecar.segments,
            self._question,
            lambda field_id, resolution: resolution_holds(resolution, field_id, mapping, schema),
            found.sidecar.warnings,
        )

    def _verdict(self, data_file: DataFile) -> Verdict:
        if self._verdicts is None:
            return self._otherwise
        path, size, rows = data_file.file_path, data_file.file_size_in_bytes, data_file.record_count
        return self._advised(partial(self._verdicts.of, path, size, rows), self._otherwise)

    def _advised(self, ask: Callable[[], T], otherwise: T) -> T:
        """An answer of the index; as no query may fail because of one, a failure ends the asking."""
        try:
            return ask()
        except Exception as error:
            what = str(error) if isinstance(error, SidecarError) else f"{type(error).__name__}: {error}"
            self._warnings.append(f"the sidecar is not used: {what}")
            self._verdicts, self._otherwise = None, Verdict(True, UNREADABLE)
            return otherwise


def generations(table: Table, snapshot_id: int, ancestor_id: int) -> int:
    """Commits from an ancestor to a snapshot."""
    count, current = 0, table.metadata.snapshot_by_id(snapshot_id)
    while current is not None and current.snapshot_id != ancestor_id:
        count += 1
        parent = current.parent_snapshot_id
        current = None if parent is None else table.metadata.snapshot_by_id(parent)
    return count
