"""Reports what a refresh did, or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from sidecar.results.base import Result

if TYPE_CHECKING:
    from pyiceberg.table.statistics import StatisticsFile

    from sidecar.indexing.preparing import PreparedBuild
    from sidecar.indexing.report import BuildReport

RefreshAction: TypeAlias = Literal["current", "registered", "written", "removed", "postponed", "empty", "undeclared"]
"""How a refresh ended: nothing to do; the same file was registered for the snapshot; a new file was written; the table
has dropped all columns of the sidecar, which is no longer registered; a large sidecar lacks little and was left; the
table has no snapshot; no column is to be indexed."""


@dataclass(repr=False, kw_only=True)
class RefreshReport(Result):
    """The result of :func:`sidecar.refresh`. In a dry run, what it would do."""

    table: str
    """The name of the table."""
    dry_run: bool
    """Whether nothing was written."""
    branch: str | None
    """The branch that was refreshed; ``None`` for the current snapshot."""
    action: RefreshAction = "current"
    """How the refresh ended."""
    reason: str = ""
    """Why, for people."""
    snapshot_id: int | None = None
    """The snapshot; ``None`` for a table that has none."""
    columns: list[str] = field(default_factory=list)
    """The columns that are to be indexed."""
    statistics_path: str | None = None
    """The path of the sidecar that plans use now; ``None`` without one."""
    file_size: int = 0
    """The size of that file in bytes."""
    files_total: int | None = None
    """The data files of the snapshot; ``None`` if they were not listed, because nothing is to be done."""
    files_indexed: int = 0
    """The data files that were indexed now; in a dry run, that would be."""
    files_carried: int = 0
    """The data files that the earlier sidecar answers for."""
    files_left: int = 0
    """The data files that could be indexed and are left for a later run."""
    files_failed: dict[str, str] = field(default_factory=dict)
    """The reason by path for each file that could not be indexed, or not in all its column chunks."""
    files_unsupported: dict[str, str] = field(default_factory=dict)
    """The reason by path for each file in a format that is not indexed."""
    filters: dict[str, int] = field(default_factory=dict)
    """New filters of all columns by origin: ``reused``, ``dictionary``, ``scanned``."""
    uncovered: float = 0.0
    """The share of rows, before the refresh, in files that could be indexed and were not."""
    behind: dict[str, int] = field(default_factory=dict)
    """Columns that the sidecar has besides, and the number of files that it lacks for them."""
    unregistered: list[int] = field(default_factory=list)
    """The snapshots whose superseded entries were removed."""
    engine: str = "local"
    """Where files were indexed: ``local`` or ``spark``."""
    bytes_read: int = 0
    """The bytes read from data files."""
    bytes_carried: int = 0
    """The bytes of earlier segments that were copied."""
    warnings: list[str] = field(default_factory=list)
    """What the caller should know."""
    seconds: float = 0.0
    """The time that the refresh took."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        names = (
            "table dry_run action reason snapshot_id files_total files_indexed files_carried files_left files_failed"
        )
        return {name: getattr(self, name) for name in (*names.split(), "statistics_path", "file_size", "warnings")}

    def end(self, action: RefreshAction, reason: str) -> None:
        """Set how the refresh ends, and why. A later call takes its place."""
        self.action, self.reason = action, reason

    def take(self, entry: StatisticsFile | None) -> None:
        """Set the sidecar that plans use."""
        self.statistics_path = None if entry is None else entry.statistics_path
        self.file_size = 0 if entry is None else entry.file_size_in_bytes

    def count(self, prepared: PreparedBuild) -> None:
        """Add what is known before a data file is opened."""
        files = [file for file in prepared.listing.files if file.not_indexable is None]
        rows = sum(file.record_count for file in files)
        missing = sum(file.record_count for file in prepared.indexable)
        self.columns = [column.path for column in prepared.plan.columns]
        self.files_total = len(prepared.listing.files)
        self.files_carried = len(prepared.earlier.served)
        self.files_left = len(prepared.indexable)
        self.files_unsupported = {f.path: f.not_indexable for f in prepared.listing.files if f.not_indexable}
        self.uncovered = missing / rows if rows else float(bool(prepared.indexable))
        self.warnings += prepared.notes
        if self.dry_run:
            self.files_indexed = len(prepared.to_index)
            self.files_left -= self.files_indexed
            from sidecar.indexing.writing import bytes_carried

            self.bytes_carried = bytes_carried(prepared.table, prepared.plan, prepared.earlier)

    def add_build(self, built: BuildReport) -> None:
        """Add what the build of a new file came to."""
        self.statistics_path, self.file_size = built.statistics_path, built.file_size
        self.files_indexed = built.files_indexed
        self.files_left, self.files_failed = built.files_left, built.files_failed
        self.behind, self.engine = built.behind, built.engine
        self.bytes_read, self.bytes_carried = built.bytes_read, built.bytes_carried
        self.filters = dict(sum((Counter(column.filters) for column in built.columns), Counter()))
        self.warnings = built.warnings

    def log_line(self) -> str:
        """How the refresh ended, for the log."""
        verb = "dry run of a refresh" if self.dry_run else "refresh"
        return f"{verb} of {self.table}: {self.action}, {self.reason}; {self.seconds:.3f} s"
