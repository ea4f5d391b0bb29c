"""The facts of a page about one table: status, example lookups, fill of filters, distinct counts, snapshots, advice.

They are numbers and names, and not values of columns, so that the page can be shown to people who may not read the
table.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import SidecarError
from sidecar.reports.advising.report import Advice
from sidecar.reports.status.results import TableStatus
from sidecar.results.base import Result


@dataclass(frozen=True, repr=False, slots=True)
class ExampleLookup(Result):
    """How many data files are left after each step of one lookup."""

    column: str
    """The column."""
    of: str
    """The kind of the value that is looked up: ``a value of a file`` or ``a value beside it``, which may exist too. The
    page does not show the value."""
    files: int
    """The data files of the snapshot."""
    after_bounds: int
    """Files that partitions and bounds leave."""
    after_filters: int
    """Files that filters leave."""
    kept: int
    """Files that page indexes leave, which are read."""
    bytes_kept: int
    """The bytes of these files."""
    index_reads: int
    """The reads of the sidecar."""
    index_bytes: int
    """Their bytes."""


@dataclass(frozen=True, repr=False, slots=True)
class ColumnFill(Result):
    """How full the filters of a column are, by data file."""

    column: str
    """The column."""
    files: list[float | None]
    """The share of set bits by file, the mean of its row groups, by commit and then by path; ``None`` for files
    without filters, and for those that were not read. With more than :data:`MOST_CELLS` files, the mean of
    neighbours."""
    filters_read: int
    """The filters that were read."""
    filters: int
    """The filters of the column."""


@dataclass(frozen=True, repr=False, slots=True)
class DistinctCount(Result):
    """The distinct values of a column, by its sketch."""

    column: str
    """The column."""
    estimate: int
    """The number."""
    low: int
    """Its lower bound, of two standard deviations."""
    high: int
    """Its upper bound."""
    upper_bound: list[str] | None
    """Why the sketch may also have values of rows that are gone: ``removed-files``, ``row-deletes``; ``None`` if it is
    not known to have any. Then only ``high`` is a bound."""
    lower_bound: list[str] | None
    """Why the sketch may lack values: ``files-not-counted``; ``None`` if it is not known to lack any. Then only ``low``
    is a bound."""


@dataclass(frozen=True, repr=False, slots=True)
class SnapshotInfo(Result):
    """A snapshot in the history of the current one."""

    snapshot_id: int
    """The snapshot."""
    committed: float
    """When it was committed, in seconds since 1970."""
    operation: str | None
    """What it did, as its summary says."""
    files: int | None
    """The data files that it has; ``None`` if its summary does not say so."""
    rows: int | None
    """The rows that it has; ``None`` if its summary does not say so."""
    statistics_bytes: int | None
    """The size of the statistics file that is registered for it; ``None`` if there is none."""


@dataclass(frozen=True, repr=False, slots=True)
class TableFacts(Result):
    """All that a page says about one table."""

    status: TableStatus
    """The result of :func:`sidecar.status`."""
    lookups: list[ExampleLookup]
    """Example lookups in columns with filters."""
    fill: list[ColumnFill]
    """How full filters are."""
    distinct: list[DistinctCount]
    """Distinct counts with their bounds."""
    snapshots: list[SnapshotInfo]
    """The last snapshots, oldest first."""
    advice: Advice | None
    """The result of :func:`sidecar.advise`; ``None`` if it was not asked for."""
    warnings: list[str]
    """What could not be found out."""


@dataclass(frozen=True)
class TableOnPage:
    """A table on a page: its facts, or the error that ended the search for them."""

    name: str
    facts: TableFacts | None
    error: SidecarError | None


MOST_CELLS = 400
"""The most files, or groups of neighbours, that a picture of filters shows."""
