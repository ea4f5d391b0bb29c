"""Reports what a build did, as an object for programs and as a dict for the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.convert.outcome import PAGE_INDEX
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import Listing
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.assemble import THETA, Indexed, kinds_of
from sidecar.indexing.columns import Options
from sidecar.indexing.earlier import Earlier
from sidecar.indexing.groups import expected_false_units
from sidecar.indexing.tasks import Record
from sidecar.puffin.metadata import BlobMetadata


@dataclass
class ColumnReport:
    """The results of one column over all units."""

    name: str
    field_id: int
    type: str
    filters: dict[str, int]
    """Filters by origin: ``harvested``, ``dictionary``, ``scanned``."""
    filter_bytes: int
    expected_false_units: float
    """Units that a lookup of an absent value keeps on average, by the rates that the filters' bits show."""
    ndv: dict[str, float] | None
    """``estimate``, with ``lower`` and ``upper`` at two standard deviations; ``None`` without a sketch."""
    page_indexes: dict[str, int]
    """Page indexes by origin: ``harvested``, ``built``."""
    uncovered: dict[str, dict[str, int]]
    """The number of units without an index, by kind and reason."""


@dataclass
class BuildReport:
    """The result of :func:`sidecar.indexing.driver.build`."""

    snapshot_id: int
    statistics_path: str | None
    engine: str
    engine_reason: str
    files_total: int
    files_indexed: int
    files_failed: dict[str, str]
    """The reason by path for each file that could not be indexed, or not in all its column chunks."""
    files_unsupported: dict[str, str]
    """The reason by path for each file in a format that is not indexed."""
    units: int
    fpp: float
    columns: list[ColumnReport]
    bytes_read: int
    blobs: list[dict[str, Any]] = field(default_factory=list)
    file_size: int = 0
    files_carried: int = 0
    """Files that an earlier sidecar serves; ``units``, filters and bytes do not count them."""
    segments_carried: int = 0
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def expected_false_units(self) -> float:
        """The most units that any column keeps on average for a value that no file has."""
        return max((column.expected_false_units for column in self.columns), default=0.0)

    def carry(self, earlier: Earlier) -> None:
        """Add what an earlier sidecar contributes. If nothing new is registered, its file is reported."""
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
            self.blobs = [blob_dict(blob) for blob in puffin.metadata.blobs]

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
            "failed_files": self.files_failed,
            "unsupported_files": self.files_unsupported,
            "units": self.units,
            "fpp": self.fpp,
            "columns": {column.name: _column_dict(column) for column in self.columns},
            "blobs": self.blobs,
            "file_size": self.file_size,
            "expected_false_units": self.expected_false_units,
            "bytes_read": self.bytes_read,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


def blob_dict(blob: BlobMetadata) -> dict[str, Any]:
    """Return a blob as the report lists it."""
    return {"type": blob.type, "fields": list(blob.fields), "length": blob.length}


def make_report(
    listing: Listing,
    indexed: Indexed,
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
        bytes_read=sum(
            record.bytes_read
            for unit in indexed.units
            for record in (*unit.columns.values(), *unit.pages.values())
        ),
    )


def _column(column: TableColumn, indexed: Indexed, options: Options) -> ColumnReport:
    records = [unit.columns[column.field_id] for unit in indexed.units]
    filters = [record for record in records if record.blocks]
    pages = [unit.pages[column.field_id] for unit in indexed.units if column.field_id in unit.pages]
    uncovered: dict[str, dict[str, int]] = {}
    for kind in kinds_of(options):
        of_kind = pages if kind == PAGE_INDEX else records
        reasons = Counter(_reason(record, kind) for record in of_kind)
        del reasons[""]
        uncovered[kind] = dict(reasons)
    return ColumnReport(
        name=column.path,
        field_id=column.field_id,
        type=column.type,
        filters=dict(Counter(record.how for record in filters)),
        filter_bytes=sum(record.filter_bytes for record in filters),
        expected_false_units=expected_false_units(indexed, column.field_id),
        ndv=_ndv(indexed.sketches.get(column.field_id)),
        page_indexes=dict(Counter(record.how for record in pages if record.length)),
        uncovered=uncovered,
    )


def _reason(record: Record, kind: str) -> str:
    return record.theta_reason if kind == THETA else record.reason


def _ndv(sketch: ThetaSketch | None) -> dict[str, float] | None:
    if sketch is None:
        return None
    return {"estimate": sketch.estimate, "lower": sketch.lower_bound(2), "upper": sketch.upper_bound(2)}


def _column_dict(column: ColumnReport) -> dict[str, Any]:
    return {
        "field_id": column.field_id,
        "type": column.type,
        "filters": column.filters,
        "filter_bytes": column.filter_bytes,
        "expected_false_units": column.expected_false_units,
        "ndv": column.ndv,
        "page_indexes": column.page_indexes,
        "uncovered": column.uncovered,
    }
