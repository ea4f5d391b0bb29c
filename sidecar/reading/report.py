"""Reports what a scan of a table read: an object for programs, and the same as a dict for the command line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sidecar.reading.table_files import FileRows
from sidecar.results.base import Summarized


@dataclass(repr=False)
class TableScanReport(Summarized):
    """Counts of what a table scan read from data files and, after planning, from the sidecar."""

    files: int = 0
    """The files that were read."""
    whole_files: Counter[str] = field(default_factory=Counter)
    """Number of files that pyiceberg read whole, by reason."""
    row_groups: int = 0
    """The row groups of files that were read in part."""
    row_groups_read: int = 0
    """The row groups of these that were read."""
    data_pages: int = 0
    """The data pages that were read."""
    rows_found: int = 0
    """The rows that match."""
    file_bytes: int = 0
    """Total size of the files that were read in part; files that pyiceberg read are not counted."""
    footer_bytes: int = 0
    """The bytes of footers that were read."""
    index_bytes: int = 0
    """The bytes of indexes in files that were read."""
    data_bytes: int = 0
    """The bytes of data that were read."""
    reads: int = 0
    """The number of reads of data files."""
    sidecar_bytes: int = 0
    """The bytes read from the sidecar."""
    sidecar_reads: int = 0
    """The number of reads from the sidecar."""
    warnings: list[str] = field(default_factory=list)
    """What is wrong with indexes, in words."""

    def add(self, found: FileRows) -> None:
        """Add the counts of one file."""
        own = found.report
        self.files += 1
        self.rows_found += sum(batch.num_rows for batch in found.batches)
        self.warnings += [f"{own.file}: {warning}" for warning in found.warnings]
        if found.whole:
            self.whole_files[found.whole] += 1
            return
        self.row_groups += own.row_groups
        self.row_groups_read += own.row_groups_read
        self.data_pages += own.data_pages
        self.file_bytes += own.file_bytes
        self.footer_bytes += own.footer_bytes
        self.index_bytes += own.index_bytes
        self.data_bytes += own.data_bytes
        self.reads += own.index_reads + own.data_reads

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as a dict for JSON."""
        return {
            "files": self.files,
            "whole_files": dict(self.whole_files),
            "row_groups": {"total": self.row_groups, "read": self.row_groups_read},
            "data_pages_read": self.data_pages,
            "rows_found": self.rows_found,
            "file_bytes": self.file_bytes,
            "footer_bytes_read": self.footer_bytes,
            "index_bytes_read": self.index_bytes,
            "data_bytes_read": self.data_bytes,
            "reads": self.reads,
            "sidecar_bytes_read": self.sidecar_bytes,
            "sidecar_reads": self.sidecar_reads,
            "warnings": list(self.warnings),
        }
