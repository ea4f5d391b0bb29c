"""Reports what a build did, as an object for programs and as a dict for the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.assemble import StageResults, kinds_of
from sidecar.indexing.columns import Options
from sidecar.indexing.engine_choice import NOTHING_TO_INDEX
from sidecar.indexing.groups import expected_false_units
from sidecar.indexing.kinds import PARTS
from sidecar.indexing.previous.earlier import ReusableSidecar
from sidecar.puffin.metadata import BlobMetadata
from sidecar.results.base import Result, Summarized, plain_data
from sidecar.run_log import counted


@dataclass(frozen=True, repr=False, slots=True)
class DistinctValues(Result):
    """The number of distinct values of a column, by its sketch."""

    omitted_if_none = ("upper_bound", "lower_bound")

    estimate: float
    """The estimate; it is exact for few values."""
    lower: float
    """Two standard deviations below it."""
    upper: float
    """Two standard deviations above it."""
    upper_bound: list[str] | None = None
    """Why the estimate is only an upper bound: ``removed-files`` (values of files that were removed from the table,
    at most 5 % of the rows of a group of files), ``row-deletes`` (values of rows that delete files remove); ``None`` if
    it is not one."""
    lower_bound: list[str] | None = None
    """Why the estimate is only a lower bound: ``files-not-counted`` (values of data files that are not counted);
    ``None`` if it is not one. With both, it is neither."""


@dataclass(frozen=True, repr=False, slots=True)
class BlobReport(Result):
    """A blob of the sidecar."""

    type: str
    """The type of the blob."""
    fields: list[int]
    """The ids of its columns; empty if it is about all of them."""
    length: int
    """Its length in bytes."""


@dataclass(repr=False)
class ColumnReport(Summarized):
    """The results of one column over all units."""

    name: str
    """The name of the column."""
    field_id: int
    """Its field id."""
    type: str
    """Its Iceberg type."""
    filters: dict[str, int]
    """Filters by origin: ``reused``, ``dictionary``, ``scanned``."""
    filter_bytes: int
    """The bytes of all filters of the column."""
    expected_false_units: float
    """Units that a lookup of an absent value keeps on average, by the rates that the filters' bits show."""
    ndv: DistinctValues | None
    """The number of distinct values; ``None`` without a sketch."""
    page_indexes: dict[str, int]
    """Page indexes by origin: ``reused``, ``built``."""
    uncovered: dict[str, dict[str, int]]
    """The number of units without an index, by kind and reason."""


@dataclass(repr=False)
class BuildReport(Summarized):
    """The result of :func:`sidecar.indexing.driver.build`."""

    records_in = "columns"

    snapshot_id: int | None
    """The snapshot that was indexed; ``None`` for a table that has none yet, so that there was nothing to index."""
    statistics_path: str | None
    """The path of the sidecar; ``None`` if there was nothing to register."""
    engine: str
    """Where the build ran: ``local`` or ``spark``."""
    engine_reason: str
    """Why it ran there."""
    files_total: int
    """The data files of the snapshot."""
    files_indexed: int
    """The data files that have indexes now."""
    files_failed: dict[str, str]
    """The reason by path for each file that could not be indexed, or not in all its column chunks."""
    files_unsupported: dict[str, str]
    """The reason by path for each file in a format that is not indexed."""
    units: int
    """The row groups that were indexed."""
    fpp: float
    """The target false-positive rate of new filters."""
    columns: list[ColumnReport]
    """The results by column."""
    bytes_read: int
    """The bytes read from data files."""
    blobs: list[BlobReport] = field(default_factory=list)
    """The blobs of the sidecar."""
    file_size: int = 0
    """The size of the sidecar in bytes."""
    files_carried: int = 0
    """Files that an earlier sidecar serves; ``units``, filters and bytes do not count them."""
    segments_carried: int = 0
    """The segments of an earlier sidecar that were carried over."""
    bytes_carried: int = 0
    """The bytes of these segments that were copied; 0 if nothing was written."""
    files_left: int = 0
    """Files that could be indexed but are left for a later run, because their number was limited."""
    behind: dict[str, int] = field(default_factory=dict)
    """Columns with indexes that this build was not asked for, and the number of files that lack some of these."""
    warnings: list[str] = field(default_factory=list)
    """What the caller should know."""
    seconds: float = 0.0
    """The time that the build took."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {
            "snapshot_id": self.snapshot_id,
            "statistics_path": self.statistics_path,
            "engine": self.engine,
            "files_total": self.files_total,
            "files_indexed": self.files_indexed,
            "files_carried": self.files_carried,
            "files_failed": self.files_failed,
            "units": self.units,
            "columns": self.columns,
            "file_size": self.file_size,
            "warnings": self.warnings,
        }

    @property
    def expected_false_units(self) -> float:
        """The most units that any column keeps on average for a value that no file has."""
        return max((column.expected_false_units for column in self.columns), default=0.0)

    def carry(self, earlier: ReusableSidecar, behind: Mapping[str, int], notes: Sequence[str] = ()) -> None:
        """Add what an earlier sidecar contributes. If nothing new is registered, its file is reported.

        ``behind`` becomes :attr:`behind`; ``notes`` become warnings.
        """
        self.warnings += notes
        self.behind = dict(behind)
        if behind:
            names = ", ".join(f"{name} ({count:,})" for name, count in behind.items())
            self.warnings.append(
                f"indexes that this build was not asked for lack files, and are kept for the others: {names}"
            )
        self.files_carried = len(earlier.served)
        self.segments_carried = len(earlier.segments)
        if earlier.why_not:
            self.warnings.append(f"all files were indexed again: {earlier.why_not}")
        # If no file is served, all filters of these columns are built anew and the earlier ones are dropped.
        for column in self.columns if earlier.served else ():
            for segment in earlier.segments:
                for bundle in segment.bundles_of(column.field_id)[
                    :1
                ]:  # a field's two bundles have the same number: count it once
                    column.expected_false_units += bundle.toc.expected_false_units or 0.0
        if earlier.found is not None:
            entry, puffin = earlier.found.statistics, earlier.found.sidecar.puffin
            self.statistics_path, self.file_size = entry.statistics_path, entry.file_size_in_bytes
            self.blobs = [blob_report(blob) for blob in puffin.metadata.blobs]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar build --json`` prints it."""
        return {
            "snapshot_id": self.snapshot_id,
            "statistics_path": self.statistics_path,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
            "files": {
                "total": self.files_total,
                "indexed": self.files_indexed,
                "failed": len(self.files_failed),
            },
            "carried": {"files": self.files_carried, "segments": self.segments_carried},
            "bytes_carried": self.bytes_carried,
            "files_left": self.files_left,
            "behind": self.behind,
            "failed_files": self.files_failed,
            "unsupported_files": self.files_unsupported,
            "units": self.units,
            "fpp": self.fpp,
            "columns": {column.name: _column_dict(column) for column in self.columns},
            "blobs": plain_data(self.blobs),
            "file_size": self.file_size,
            "expected_false_units": self.expected_false_units,
            "bytes_read": self.bytes_read,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


def log_line(report: BuildReport, table: str, what: str = "build") -> str:
    """A build, or another operation that built, for the log: what was indexed and carried over, and where it ran."""
    counts = {
        "new": report.files_indexed - report.files_carried,
        "carried over": report.files_carried,
        "failed": len(report.files_failed),
        "in formats that are not indexed": len(report.files_unsupported),
    }
    columns = ", ".join(column.name for column in report.columns)
    return (
        f"{what} of {table}: {report.files_indexed:,} of {report.files_total:,} files indexed ({counted(counts)}), "
        f"{report.units:,} units, columns {columns}; {report.file_size:,} bytes in {report.statistics_path}; "
        f"engine {report.engine} ({report.engine_reason}); {report.seconds:.3f} s"
    )


def blob_report(blob: BlobMetadata) -> BlobReport:
    """Return a blob as the report lists it."""
    return BlobReport(blob.type, list(blob.fields), blob.length)


def empty_report(fpp: float | str, seconds: float) -> BuildReport:
    """Return the report for a table without a snapshot."""
    return BuildReport(
        snapshot_id=None,
        statistics_path=None,
        engine="local",
        engine_reason=NOTHING_TO_INDEX,
        files_total=0,
        files_indexed=0,
        files_failed={},
        files_unsupported={},
        units=0,
        fpp=DEFAULT_FPP if isinstance(fpp, str) else fpp,
        columns=[],
        bytes_read=0,
        seconds=seconds,
    )


def make_report(
    listing: Listing,
    indexed: StageResults,
    columns: Sequence[TableColumn],
    options: Options,
    engine: tuple[str, str],
) -> BuildReport:
    """Return the report of stage 1. Registering fills in the rest later."""
    paths = {file.ordinal: file.path for file in listing.files}
    failed = {paths[ordinal]: reason for ordinal, reason in sorted(indexed.failed.items())}
    for unit in indexed.units:
        for record in (*unit.columns.values(), *unit.pages.values()):
            if record.fault:
                failed.setdefault(paths[unit.file], record.reason or record.theta_reason)
    unsupported = {file.path: file.not_indexable for file in listing.files if file.not_indexable}
    name, why = engine
    return BuildReport(
        snapshot_id=listing.snapshot_id,
        statistics_path=None,
        engine=name,
        engine_reason=why,
        files_total=len(listing.files),
        files_indexed=len(listing.files) - len(failed) - len(unsupported),
        files_failed=failed,
        files_unsupported=unsupported,
        units=len(indexed.units),
        fpp=options.fpp,
        columns=[_column(column, indexed, options) for column in columns],
        bytes_read=indexed.bytes_read,
    )


def _column(column: TableColumn, indexed: StageResults, options: Options) -> ColumnReport:
    records = [unit.columns[column.field_id] for unit in indexed.units]
    filters = [record for record in records if record.blocks]
    pages = [unit.pages[column.field_id] for unit in indexed.units if column.field_id in unit.pages]
    uncovered: dict[str, dict[str, int]] = {}
    for kind in kinds_of(options.of(column.field_id)):
        found = (unit.records(kind).get(column.field_id) for unit in indexed.units)
        reasons = Counter(PARTS[kind].reason(record) for record in found if record is not None)
        del reasons[""]
        uncovered[kind] = dict(reasons)
    return ColumnReport(
        name=column.path,
        field_id=column.field_id,
        type=column.type,
        filters=dict(Counter(record.how for record in filters)),
        filter_bytes=sum(record.filter_bytes for record in filters),
        expected_false_units=expected_false_units(indexed, column.field_id),
        ndv=_ndv(indexed, column.field_id),
        page_indexes=dict(Counter(record.how for record in pages if record.length)),
        uncovered=uncovered,
    )


def _ndv(indexed: StageResults, field_id: int) -> DistinctValues | None:
    sketch = indexed.sketches.get(field_id)
    if sketch is None:
        return None
    marks = indexed.marks.get(field_id, CountMarks())
    bounds = sketch.lower_bound(2), sketch.upper_bound(2)
    return DistinctValues(sketch.estimate, *bounds, marks.upper_bound, marks.lower_bound)


def _column_dict(column: ColumnReport) -> dict[str, Any]:
    return {
        "field_id": column.field_id,
        "type": column.type,
        "filters": column.filters,
        "filter_bytes": column.filter_bytes,
        "expected_false_units": column.expected_false_units,
        "ndv": plain_data(column.ndv),
        "page_indexes": column.page_indexes,
        "uncovered": column.uncovered,
    }
