"""Reports what embedding into a table did, or what a dry run would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sidecar.bundle.kinds.declared import IndexKind
from sidecar.conversion.outcome import DICTIONARY, VALUES, Outcome, lost_texts
from sidecar.embedding.report import DUCKDB_ENCRYPTED
from sidecar.maintenance.refresh_report import RefreshReport
from sidecar.results.base import Summarized
from sidecar.run_log import counted


@dataclass(frozen=True)
class ReplacedFile:
    """One file and its successor. In a dry run the successor is missing."""

    old_path: str
    """The path of the file."""
    old_size: int
    """Its size in bytes."""
    new_path: str | None = None
    """The path of its successor."""
    new_size: int | None = None
    """The size of its successor in bytes."""


@dataclass(frozen=True)
class LeftAlone:
    """A file that stays as it is, and why. ``failed``: it is broken or cannot be read here."""

    path: str
    """The path of the file."""
    reason: str
    """Why it stays."""
    failed: bool = False


@dataclass
class IndexCount:
    """Counts the indexes of one column and kind with the same way and reason, over all replaced files."""

    column: str
    """The path of the column."""
    kind: IndexKind
    """The kind of index."""
    way: str
    """Where the indexes come from."""
    reason: str
    """Why an index is missing; empty if it is not."""
    damaged: bool
    """Whether broken bytes are the reason."""
    count: int = 0
    """The number of indexes."""
    bytes: int = 0
    """Their bytes."""
    lost: int = 0
    """Indexes that the old files had and the new ones lack, wholly or in part."""
    worst_rate: float | None = None
    """The worst false-positive rate of a filter; ``None`` without filters."""


@dataclass(repr=False)
class EmbedTableReport(Summarized):
    """The files that were replaced, and what became of every index. In a dry run: the files that would be replaced."""

    table: str
    """The name of the table."""
    dry_run: bool
    """Whether nothing was written."""
    parent_snapshot_id: int
    """The snapshot whose files were looked at."""
    fpp: float
    """The target rate of new filters."""
    snapshot_id: int | None = None
    """The snapshot that was committed; ``None`` if nothing was."""
    replaced: list[ReplacedFile] = field(default_factory=list)
    """The files that have a successor."""
    left_alone: list[LeftAlone] = field(default_factory=list)
    """The files that stay as they are."""
    indexes: dict[tuple[str, IndexKind, str, str, bool], IndexCount] = field(default_factory=dict)
    """What became of the indexes, counted."""
    stale_sidecar: str | None = None
    """Path of the table's sidecar if it was not refreshed. It does not list the new files, so plans keep them."""
    refresh: RefreshReport | None = None
    """How the sidecar was brought up to date; ``None`` if that was not done."""
    refresh_error: str | None = None
    """Why the sidecar could not be brought up to date; ``None`` if it could."""
    encrypted_filters: bool = False
    """Whether an encrypted column of some file has a filter now."""
    attempts: int = 0
    """The number of commits that were tried."""
    seconds: float = 0.0
    """The time that it took."""
    engine: str = "local"
    """Where the files were written: ``local`` or ``spark``."""
    engine_reason: str = ""
    """Why this engine was chosen."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {
            "table": self.table,
            "dry_run": self.dry_run,
            "snapshot_id": self.snapshot_id,
            "replaced": self.replaced,
            "left_alone": self.left_alone,
            "failed": self.failed,
            "indexes": self.indexes,
            "attempts": self.attempts,
        }

    @property
    def failed(self) -> list[LeftAlone]:
        """Files that are broken or cannot be read here."""
        return [file for file in self.left_alone if file.failed]

    @property
    def lost(self) -> int:
        """The number of indexes that the old files had and the new ones lack; :meth:`warnings` says why."""
        return sum(count.lost for count in self.indexes.values())

    @property
    def size_before(self) -> int:
        """The size of the files that have a successor, in bytes."""
        return sum(file.old_size for file in self.replaced)

    @property
    def size(self) -> int:
        """The size of their successors, in bytes; in a dry run that of the files."""
        return sum(file.new_size or file.old_size for file in self.replaced)

    @property
    def damaged(self) -> bool:
        """Whether an index is missing because bytes of a file are broken."""
        return bool(self.failed) or any(count.damaged for count in self.indexes.values())

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Add what became of the indexes of one file."""
        for outcome in outcomes:
            key = (outcome.column, outcome.kind, outcome.way, outcome.reason, outcome.damaged)
            counted = self.indexes.setdefault(key, IndexCount(*key))
            counted.count += 1
            counted.lost += outcome.is_lost
            counted.bytes += outcome.bytes
            if outcome.rate_after is not None:
                counted.worst_rate = max(outcome.rate_after, counted.worst_rate or 0.0)

    def warnings(self) -> list[str]:
        """Return what the caller should know or do next."""
        found = [
            f"{count.column}: a filter admits {count.worst_rate:.2g} of absent values; its row group has more "
            "distinct values than its footer says"
            for count in self.indexes.values()
            if count.way in (DICTIONARY, VALUES) and (count.worst_rate or 0.0) > 2 * self.fpp
        ]
        found += lost_texts({(c.column, c.kind, c.reason): c.lost for c in self.indexes.values() if c.lost})
        if self.encrypted_filters:
            found.append(DUCKDB_ENCRYPTED)
        if self.refresh is not None:
            found += self.refresh.warnings
        if self.refresh_error is not None:
            found.append(f"the files are replaced, but the sidecar could not be refreshed: {self.refresh_error}")
        if self.stale_sidecar is not None:
            found.append(
                f"the sidecar {self.stale_sidecar} lists the replaced files: refresh it, "
                "or every plan keeps the new files"
            )
        return found

    def log_line(self) -> str:
        """What was replaced, and why other files were left alone, for the log."""
        verb = "to be replaced" if self.dry_run else "replaced"
        reasons = counted(Counter(file.reason for file in self.left_alone))
        done = f"{self.table}: {len(self.replaced):,} files {verb}, left alone: {reasons}"
        return f"{done}; {self.seconds:.3f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "table": self.table,
            "dry_run": self.dry_run,
            "parent_snapshot_id": self.parent_snapshot_id,
            "snapshot_id": self.snapshot_id,
            "files": {
                "total": len(self.replaced) + len(self.left_alone),
                "replaced": len(self.replaced),
                "left_alone": len(self.left_alone),
                "failed": len(self.failed),
            },
            "size_before": self.size_before,
            "size": self.size,
            "replaced": [asdict(file) for file in self.replaced],
            "left_alone": [asdict(file) for file in self.left_alone],
            "indexes": [asdict(self.indexes[key]) for key in sorted(self.indexes)],
            "lost": self.lost,
            "rebuild_needed": self.stale_sidecar is not None,
            "refresh": None if self.refresh is None else self.refresh.to_dict(),
            "refresh_error": self.refresh_error,
            "warnings": self.warnings(),
            "attempts": self.attempts,
            "seconds": self.seconds,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
        }
