"""Defines the plan of a query: the files, row groups and rows that are left for a predicate, and methods to read them.

:func:`sidecar.planning.planner.plan` makes plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import FileScanTask, Table

from sidecar.access import Access
from sidecar.errors import UsageError
from sidecar.planning.funnel import Funnel, ManifestUse, SidecarUsed
from sidecar.planning.keys.key_sets import KeySet
from sidecar.planning.plan_history import FileHistory, PlanHistory
from sidecar.planning.row_groups import KeptRowGroups, StoredPages
from sidecar.results.base import Summarized
from sidecar.run_log import quantity

if TYPE_CHECKING:
    import duckdb
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

    from sidecar.reading.report import TableScanReport

SHOWN = 10
"""Files whose row groups :meth:`Plan.explain` shows one by one."""


@dataclass(frozen=True, repr=False)
class Plan(Summarized):
    """The files to read for a predicate. Methods that read rows are named as in pyiceberg's ``DataScan``.

    ``tasks`` are pyiceberg's own; its ``ArrowScan`` accepts them.
    """

    table: Table = field(repr=False)
    """The table as it was when the plan was made. Its current schema is that of the rows and of ``row_filter``."""
    snapshot_id: int | None
    """The snapshot of the plan; ``None`` for a table that has no snapshot yet."""
    row_filter: BooleanExpression
    """The predicate with exact literals."""
    tasks: list[FileScanTask] = field(default_factory=list, repr=False)
    funnel: Funnel = field(default_factory=Funnel)
    """How many files were dropped by what."""
    sidecar: SidecarUsed | None = None
    """The sidecar that was asked; ``None`` if none was."""
    notes: tuple[str, ...] = ()
    """Parts of the predicate that filters were not asked about, with the reason."""
    warnings: tuple[str, ...] = ()
    """Errors in the index; the rows are right nevertheless."""
    index_bytes_read: int = 0
    """The bytes read from the sidecar."""
    index_reads: int = 0
    """The number of reads from the sidecar."""
    seconds: float = 0.0
    """The time that planning took."""
    row_groups: Mapping[str, KeptRowGroups] = field(default_factory=dict, repr=False)
    """The row groups that are left of each file, by path, if the sidecar knows them."""
    answered: frozenset[str] = field(default=frozenset(), repr=False)
    """Paths of kept files for which filters answered every part of the predicate that filters can answer."""
    stored: StoredPages | None = field(default=None, repr=False)
    """The source from which a scan reads more page indexes of these files."""
    keys: KeySet | None = field(default=None, repr=False)
    """Keys of a join. A row must also have one of them. ``row_filter`` has only the smallest and the largest of
    them."""
    equality_deletes: frozenset[str] = frozenset()
    """Paths of kept files to which equality deletes may apply. Neither sidecar nor pyiceberg applies these."""
    sequence_numbers: Mapping[str, int] = field(default_factory=dict, repr=False)
    """The data sequence number of each kept file, by path. It decides which deletes apply to the file."""
    manifests: ManifestUse = field(default_factory=ManifestUse)
    """Counts of manifests that were opened, and of those that the sidecar answered for."""
    access: Access = field(default_factory=Access, repr=False, compare=False)
    """Opens the files, with the keys of those that are encrypted."""
    is_locked: bool = False
    """Whether the sidecar could not answer for a column because the column is encrypted and its key is missing."""
    history: PlanHistory = field(default_factory=PlanHistory, repr=False, compare=False)
    """The findings of all stages about files."""

    def summary(self) -> Mapping[str, object]:
        """Return the counts that ``repr`` and notebooks show."""
        funnel = self.funnel
        return {
            "snapshot_id": self.snapshot_id,
            "files_total": funnel.total,
            "dropped_by_metadata": funnel.dropped_by_metadata,
            "dropped_by_filter": funnel.dropped_by_filter,
            "dropped_by_page_index": funnel.dropped_by_page_index,
            "files_kept": self.files_kept,
            "row_groups_kept": funnel.row_groups_kept if funnel.row_groups else None,  # None: unknown
            "notes": self.notes,
            "warnings": self.warnings,
        }

    @property
    def kept_files(self) -> list[str]:
        """Paths of the files to read, as in their manifests."""
        return [task.file.file_path for task in self.tasks]

    @property
    def files_total(self) -> int:
        """The number of live data files of the snapshot."""
        return self.funnel.total

    @property
    def files_covered(self) -> int:
        """The number of files that the sidecar could answer for."""
        return self.funnel.indexed

    @property
    def files_kept(self) -> int:
        """The number of files to read."""
        return len(self.tasks)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        case_sensitive: bool = True,
        threads: int | None = None,
        report: TableScanReport | None = None,
    ) -> pa.Table:
        """Return the rows; see :func:`sidecar.reading.scanning.read`."""
        from sidecar.reading.scanning import read

        return read(self, columns, limit, case_sensitive, threads, report)

    def to_arrow_batch_reader(
        self,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        case_sensitive: bool = True,
        threads: int | None = None,
        report: TableScanReport | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream in bounded memory; see :func:`sidecar.reading.scanning.read_batches`."""
        from sidecar.reading.scanning import read_batches

        return read_batches(self, columns, limit, case_sensitive, threads, report)

    def to_pandas(self, columns: Sequence[str] | None = None, limit: int | None = None) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame. Raises :class:`UsageError` if pandas is not installed."""
        _library("pandas")
        frame: pandas.DataFrame = self.to_arrow(columns, limit).to_pandas()
        return frame

    def to_polars(self, columns: Sequence[str] | None = None, limit: int | None = None) -> polars.DataFrame:
        """Return the rows as a polars DataFrame. Raises :class:`UsageError` if polars is not installed."""
        frame: polars.DataFrame = _library("polars").from_arrow(self.to_arrow(columns, limit))
        return frame

    def to_duckdb(
        self,
        table_name: str,
        connection: duckdb.DuckDBPyConnection | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """Register the rows as a view ``table_name`` in ``connection``, or in a new one in memory, and return it.

        The view is on an Arrow table, so it can be queried more than once. Raises
        :class:`sidecar.errors.UsageError` if duckdb is not installed.
        """
        database: duckdb.DuckDBPyConnection = connection or _library("duckdb").connect(":memory:")
        database.register(table_name, self.to_arrow(columns, limit))
        return database

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        used = self.sidecar
        return {
            "snapshot_id": self.snapshot_id,
            "files": {"total": self.files_total, "covered": self.files_covered, "kept": self.files_kept},
            "kept_files": self.kept_files,
            "row_groups": {path: kept.to_dict() for path, kept in self.row_groups.items()},
            "funnel": self.funnel.to_dict(),
            "sidecar": None if used is None else vars(used),
            "manifests": self.manifests.to_dict(),
            "index_bytes_read": self.index_bytes_read,
            "index_reads": self.index_reads,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def explain(self) -> str:
        """Return the funnel as lines of text, with the number of kept files for each reason."""
        funnel, used = self.funnel, self.sidecar
        lines = [f"{funnel.total:>8}  data files in the snapshot"]
        if funnel.dropped_by_metadata:
            lines.append(f"{-funnel.dropped_by_metadata:>8}  dropped by partition or bounds")
        if funnel.dropped_by_filter:
            lines.append(f"{-funnel.dropped_by_filter:>8}  dropped by filter")
        if funnel.dropped_by_page_index:
            lines.append(f"{-funnel.dropped_by_page_index:>8}  dropped by page index")
        lines.append(f"{funnel.kept:>8}  kept")
        lines += [f"{count:>14}  {reason}" for reason, count in funnel.kept_because.items()]
        if self.row_groups:
            lines.append(f"row groups: {funnel.row_groups_kept} of {funnel.row_groups} to read")
            lines += self._files_in_part()
        if used is not None:
            behind = used.snapshots_behind
            age = f", {quantity(behind, 'snapshot')} ago" if behind else ""
            lines.append(f"sidecar of snapshot {used.snapshot_id}{age}: {used.path}")
            lines.append(f"{quantity(funnel.listed, 'file')} listed, {funnel.indexed} indexed for this predicate")
        if self.manifests.total:
            lines.append(self.manifests.explain())
        lines.append(
            f"index: {self.index_bytes_read} bytes in {quantity(self.index_reads, 'read')}; "
            f"planned in {self.seconds * 1000:.1f} ms"
        )
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def why(self, file: str) -> FileHistory:
        """Return what each stage of the plan found about a data file, kept or not, and what is left of its row groups.

        ``file`` is a path, or the end of one after a slash. Opens manifests until one has the file. Raises
        :class:`UsageError` if the snapshot has no such live file, or several.
        """
        return self.history.of(file, self.tasks, self.table)

    def _files_in_part(self) -> list[str]:
        shown = list(self.row_groups.items())[:SHOWN]
        lines = [
            f"{len(kept.kept):>8} of {kept.total} row groups, {kept.may_match} of {kept.num_rows} rows: {path}"
            for path, kept in shown
        ]
        more = len(self.row_groups) - len(shown)
        return [*lines, f"{more:>8} more files in part"] if more else lines


def _library(name: str) -> Any:
    """Import an optional package."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed", hint=f"Run pip install {name}.") from error
