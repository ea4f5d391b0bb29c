"""Reports what a build did, as an object for programs and as a dict for the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import FileFormat

from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.engines.choice import ChosenEngine
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.indexing.assemble import StageResults, kinds_of
from sidecar.indexing.engine_choice import NOTHING_TO_INDEX
from sidecar.indexing.groups import expected_false_units
from sidecar.indexing.kinds import PARTS
from sidecar.indexing.preparing import PreparedBuild
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


@dataclass(frozen=True, repr=False, slots=True)
class FileToIndex(Result):
    """A data file that a build indexes."""

    path: str
    """The path of the file."""
    size: int
    """The size of the file in bytes."""


@dataclass(repr=False)
class ColumnReport(Summarized):
    """The results of one column over all units; in a dry run there are none yet."""

    name: str
    """The name of the column."""
    field_id: int
    """Its field id."""
    type: str
    """Its Iceberg type."""
    kinds: list[str]
    """The kinds of its indexes."""
    encrypted: bool = False
    """Whether its indexes are encrypted in the sidecar."""
    filters: dict[str, int] = field(default_factory=dict)
    """Filters by origin: ``reused``, ``dictionary``, ``scanned``."""
    filter_bytes: int = 0
    """The bytes of all filters of the column."""
    expected_false_units: float = 0.0
    """Units that a lookup of an absent value keeps on average, by the rates that the filters' bits show."""
    ndv: DistinctValues | None = None
    """The number of distinct values; ``None`` without a sketch."""
    page_indexes: dict[str, int] = field(default_factory=dict)
    """Page indexes by origin: ``reused``, ``built``."""
    uncovered: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of units without an index, by kind and reason."""


@dataclass(repr=False, kw_only=True)
class BuildReport(Summarized):
    """The result of :func:`sidecar.indexing.driver.build`. In a dry run, what a build would do now."""

    records_in = "columns"

    dry_run: bool = False
    """Whether nothing was built and written."""
    snapshot_id: int | None
    """The snapshot that was indexed; ``None`` for a table that has none yet, so that there was nothing to index."""
    commits: bool = False
    """Whether the table gets a commit. If not, everything is indexed already."""
    folder: str | None = None
    """The folder of the new sidecar; ``None`` if none is written."""
    statistics_path: str | None = None
    """The path of the sidecar; ``None`` if there was nothing to register."""
    engine: str
    """Where the build ran: ``local`` or ``spark``."""
    engine_reason: str
    """Why it ran there."""
    files_total: int = 0
    """The data files of the snapshot."""
    files: list[FileToIndex] = field(default_factory=list)
    """The data files that this build indexes."""
    files_indexed: int = 0
    """The data files that this run has indexed."""
    files_covered: int = 0
    """The data files that have indexes now: those of this run, and those that an earlier sidecar serves."""
    files_failed: dict[str, str] = field(default_factory=dict)
    """The reason by path for each file that could not be indexed, or not in all its column chunks."""
    files_unsupported: dict[str, str] = field(default_factory=dict)
    """The reason by path for each file in a format that is not indexed."""
    row_groups: int | None = 0
    """The row groups of :attr:`files`, by the split offsets in the manifests. ``None`` if a manifest has none for a
    file, and for ORC files, whose manifests name stripes."""
    units: int = 0
    """The row groups that were indexed."""
    kinds: list[str] = field(default_factory=list)
    """The kinds of indexes that are built, of all columns."""
    fpp: float
    """The target false-positive rate of new filters."""
    columns: list[ColumnReport] = field(default_factory=list)
    """The results by column."""
    tasks: int = 0
    """The tasks that the files are packed into."""
    bytes_read: int = 0
    """The bytes read from data files."""
    blobs: list[BlobReport] = field(default_factory=list)
    """The blobs of the sidecar."""
    file_size: int = 0
    """The size of the sidecar in bytes."""
    files_carried: int = 0
    """Files that an earlier sidecar serves; ``units``, filters and bytes do not count them."""
    segments_carried: int = 0
    """The segments of an earlier sidecar that are carried over."""
    bytes_carried: int = 0
    """The bytes of these segments that are copied; 0 if nothing is written."""
    files_left: int = 0
    """Files that could be indexed but are left for a later run, because their number was limited."""
    behind: dict[str, int] = field(default_factory=dict)
    """Columns with indexes that this build was not asked for, and the number of files that lack some of these."""
    warnings: list[str] = field(default_factory=list)
    """What the caller should know."""
    seconds: float = 0.0
    """The time that it took."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        planned = "commits folder engine files_total files files_carried columns files_size bytes_carried"
        built = "statistics_path engine files_total files_indexed files_covered files_failed units columns file_size"
        names = (planned if self.dry_run else built).split()
        return {name: getattr(self, name) for name in ("snapshot_id", *names, "warnings")}

    @property
    def files_size(self) -> int:
        """The size of :attr:`files` in bytes, an upper bound of what is read of them: footers and the columns.

        A part that is read twice counts once.
        """
        return sum(file.size for file in self.files)

    @property
    def expected_false_units(self) -> float:
        """The most units that any column keeps on average for a value that no file has."""
        return max((column.expected_false_units for column in self.columns), default=0.0)

    def carry(self, earlier: ReusableSidecar, behind: Mapping[str, int]) -> None:
        """Add what an earlier sidecar contributes. If nothing new is registered, its file is reported.

        ``behind`` becomes :attr:`behind`.
        """
        self.behind = dict(behind)
        if behind:
            names = ", ".join(f"{name} ({count:,})" for name, count in behind.items())
            self.warnings.append(
                f"indexes that this build was not asked for lack files, and are kept for the others: {names}"
            )
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
        if self.dry_run:
            return self._planned()
        return {
            "snapshot_id": self.snapshot_id,
            "statistics_path": self.statistics_path,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
            "files": {
                "total": self.files_total,
                "indexed": self.files_indexed,
                "covered": self.files_covered,
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

    def _planned(self) -> dict[str, Any]:
        """Return what a dry run found out as plain data."""
        names = "dry_run snapshot_id commits folder engine engine_reason files_total files files_carried"
        counts = "fpp tasks files_size segments_carried bytes_carried warnings seconds"
        known = {name: plain_data(getattr(self, name)) for name in f"{names} files_unsupported row_groups".split()}
        parts = ("name", "field_id", "type", "encrypted", "kinds")
        columns = [{part: getattr(column, part) for part in parts} for column in self.columns]
        last = {name: getattr(self, name) for name in counts.split()}
        return {**known, "columns": columns, "kinds": self.kinds, **last}


def log_line(report: BuildReport, table: str, what: str = "build") -> str:
    """A build, or another operation that built, for the log: what was indexed and carried over, and where it ran."""
    new, failed = report.files_indexed, len(report.files_failed)
    unsupported = {"in formats that are not indexed": len(report.files_unsupported)}
    if report.dry_run:
        counts = counted({**unsupported, "kept": report.files_carried})
        return (
            f"dry run of a {what} of {table}: {len(report.files):,} of {report.files_total:,} files would be indexed "
            f"({counts}), {report.files_size:,} bytes in these; {report.seconds:.3f} s"
        )
    counts = counted({"new": new, "carried over": report.files_carried, "failed": failed, **unsupported})
    columns = ", ".join(column.name for column in report.columns)
    return (
        f"{what} of {table}: {report.files_covered:,} of {report.files_total:,} files covered ({counts}), "
        f"{report.units:,} units, columns {columns}; {report.file_size:,} bytes in {report.statistics_path}; "
        f"engine {report.engine} ({report.engine_reason}); {report.seconds:.3f} s"
    )


def blob_report(blob: BlobMetadata) -> BlobReport:
    """Return a blob as the report lists it."""
    return BlobReport(blob.type, list(blob.fields), blob.length)


def empty_report(fpp: float | str, seconds: float, *, dry_run: bool) -> BuildReport:
    """Return the report for a table without a snapshot."""
    return BuildReport(
        dry_run=dry_run,
        snapshot_id=None,
        engine="local",
        engine_reason=NOTHING_TO_INDEX,
        fpp=DEFAULT_FPP if isinstance(fpp, str) else fpp,
        seconds=seconds,
    )


def report_before(prepared: PreparedBuild, engine: ChosenEngine, tasks: int) -> BuildReport:
    """Return what is known of a build before its first data file is opened."""
    listing, earlier, options = prepared.listing, prepared.earlier, prepared.plan.options
    return BuildReport(
        snapshot_id=listing.snapshot_id,
        engine=engine.name,
        engine_reason=engine.reason,
        files_total=len(listing.files),
        files=[FileToIndex(file.path, file.file_size) for file in prepared.to_index],
        files_covered=len(earlier.served),
        files_unsupported={file.path: file.not_indexable for file in listing.files if file.not_indexable},
        row_groups=_row_groups(prepared.to_index),
        kinds=list(kinds_of(options)),
        fpp=options.fpp,
        columns=[
            ColumnReport(c.path, c.field_id, c.type, kinds_of(options.of(c.field_id)), c.field_id in options.encrypted)
            for c in prepared.plan.columns
        ],
        tasks=tasks,
        files_carried=len(earlier.served),
        segments_carried=len(earlier.segments),
        files_left=len(prepared.left),
        warnings=list(prepared.notes),
    )


def _row_groups(files: Sequence[SnapshotFile]) -> int | None:
    """Return the number of row groups if the manifests tell it for all files."""
    offsets = [file.data_file.split_offsets for file in files]
    if not all(offsets) or any(file.data_file.file_format != FileFormat.PARQUET for file in files):
        return None
    return sum(len(found or ()) for found in offsets)


def add_stage_one(report: BuildReport, listing: Listing, indexed: StageResults) -> None:
    """Add what stage 1 came to. Registering adds the rest later."""
    paths = {file.ordinal: file.path for file in listing.files}
    failed = {paths[ordinal]: reason for ordinal, reason in sorted(indexed.failed.items())}
    for unit in indexed.units:
        for record in (*unit.columns.values(), *unit.pages.values()):
            if record.fault:
                failed.setdefault(paths[unit.file], record.reason or record.theta_reason)
    report.files_failed = failed
    report.files_covered = len(listing.files) - len(failed) - len(report.files_unsupported) - report.files_left
    report.files_indexed = report.files_covered - report.files_carried
    report.units, report.bytes_read = len(indexed.units), indexed.bytes_read
    for column in report.columns:
        _count(column, indexed)


def _count(column: ColumnReport, indexed: StageResults) -> None:
    """Add what stage 1 came to in a column."""
    records = [unit.columns[column.field_id] for unit in indexed.units]
    filters = [record for record in records if record.filter.blocks]
    pages = [unit.pages[column.field_id] for unit in indexed.units if column.field_id in unit.pages]
    for kind in column.kinds:
        found = (unit.records(kind).get(column.field_id) for unit in indexed.units)
        reasons = Counter(PARTS[kind].reason(record) for record in found if record is not None)
        del reasons[""]
        column.uncovered[kind] = dict(reasons)
    column.filters = dict(Counter(record.how for record in filters))
    column.filter_bytes = sum(record.filter.num_bytes for record in filters)
    column.expected_false_units = expected_false_units(indexed, column.field_id)
    column.ndv = _ndv(indexed, column.field_id)
    column.page_indexes = dict(Counter(record.how for record in pages if record.length))


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
