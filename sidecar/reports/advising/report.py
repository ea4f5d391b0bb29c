"""The result of :func:`sidecar.advise`: a verdict and its evidence for each column, and what to type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sidecar.results.base import Result

Verdict: TypeAlias = Literal["yes", "no", "not judged"]
"""Whether a column deserves filters."""


@dataclass(frozen=True, repr=False, slots=True)
class PredictedLookup(Result):
    """How many data files a lookup of one value would keep, on average."""

    by_bounds: float
    """The files that bounds and partitions in manifests leave."""
    with_filters: float
    """The files that are left if all files have filters of the column."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class ColumnEvidence(Result):
    """The evidence about a column. Figures of row groups that were not sampled are estimated from sampled ones."""

    row_groups_sampled: int
    """The row groups in which the column was read."""
    bounds_overlap: float | None
    """The share of the other files whose bounds overlap those of a file, on average: 0 if the files are sorted by the
    column, 1 if all files have the same range. ``None`` with a single file."""
    distinct_per_file: int
    """The distinct values of a file, on average."""
    distinct_in_table: int
    """The distinct values of the table. If not all row groups were sampled, an estimate that is rough for columns with
    few frequent values and many rare ones."""
    filter_bytes: int
    """The size in bytes that filters of all row groups would have."""
    filter_rate: float
    """The false-positive rate that the filter of a row group would have, on average."""
    column_bytes: int | None
    """The size of the column in all files in bytes, by the manifests; ``None`` if a manifest has no sizes."""
    existing: PredictedLookup
    """A lookup of a value that exists: one of the distinct values of a file, both chosen at random."""
    absent: PredictedLookup | None
    """A lookup of a value that no file has, just above one of the column's values. ``None`` if the column seems to have
    every value between its lowest and its highest: bounds rule out all others."""
    pages_left: float | None
    """The share of the pages of a row group whose bounds admit one of its values, on average. ``None`` if row groups
    have fewer than four pages, or if their order was not read."""
    has_page_index: bool
    """Whether all sampled row groups have a page index of the column."""
    has_filters: bool
    """Whether all sampled row groups have a filter of the column."""


@dataclass(frozen=True, repr=False, slots=True)
class AdvisedColumn(Result):
    """The advice for a column."""

    name: str
    """The name of the column."""
    field_id: int
    """Its field id."""
    type: str
    """Its Iceberg type."""
    filters: Verdict
    """Whether filters are worth their size."""
    kinds: list[str]
    """What to build: ``bloom`` and ``theta``, ``page-index``, both or nothing."""
    reason: str
    """Why."""
    evidence: ColumnEvidence | None
    """The numbers behind it; ``None`` if the column was not sampled."""


@dataclass(frozen=True, repr=False, slots=True)
class AdviceSample(Result):
    """What was read for the advice, besides the manifests."""

    files: int
    """The data files of the sample."""
    row_groups: int
    """The sampled row groups; in ORC files stripes."""
    reads: int
    """The reads of data files."""
    bytes_read: int
    """Their bytes."""


@dataclass(frozen=True, repr=False, slots=True)
class SizeOfParts(Result):
    """The sizes of the sampled row groups and of their pages. Sizes are in bytes, as stored."""

    row_group: int | None
    """The median of the row groups."""
    page: int | None
    """The median of the pages that were met."""
    remarks: list[str]
    """The remarks of the format's advice about the column."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class Advice(Result):
    """The result of :func:`sidecar.advise`."""

    records_in = "columns"

    table: str
    """The name of the table."""
    snapshot_id: int | None
    """The snapshot that was looked at; ``None`` for a table that has none yet."""
    files: int
    """The data files of the snapshot."""
    fpp: float | None
    """The target false-positive rate of the filters; ``None`` for a table without a snapshot."""
    sample: AdviceSample
    """What was read."""
    columns: list[AdvisedColumn]
    """The advice for each primitive column."""
    sizes: SizeOfParts
    """The sizes of row groups and pages, and a judgement of them."""
    properties: dict[str, str]
    """The table's properties about filters in new files."""
    alter_table: str | None
    """The statement after which new files bring the advised filters; ``None`` if there is nothing to set."""
    commands: list[str]
    """What to type."""
    warnings: list[str]
    """What the caller should know."""
    seconds: float
    """The time that it took."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        advised = [column.name for column in self.columns if column.filters == "yes"]
        return {"table": self.table, "files": self.files, "filters_for": ", ".join(advised), "commands": self.commands}

    def log_line(self) -> str:
        """The advice as a line of the log."""
        advised = sum(column.filters == "yes" for column in self.columns)
        read = self.sample
        return (
            f"advice on {self.table}: filters for {advised} of {len(self.columns)} columns, by {read.row_groups} row "
            f"groups of {read.files} of {self.files:,} files; {read.bytes_read:,} bytes in {read.reads:,} reads; "
            f"{self.seconds:.3f} s"
        )
