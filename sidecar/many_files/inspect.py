"""Inspects many files: the indexes of each, and a summary of each column over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.errors import UsageError, refuse_text
from sidecar.files import PUFFIN, FileInfo, inspect_file
from sidecar.many_files.columns import columns_of, with_columns
from sidecar.many_files.each import Paths, each_file
from sidecar.many_files.find import SkippedFile, find_files
from sidecar.many_files.formats import check_some_puffin, known_format
from sidecar.many_files.totals import ColumnSummary, FileSummary, summarize_columns, summarize_file
from sidecar.results.base import Result

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


@dataclass(frozen=True, repr=False)
class InspectedFiles(Result):
    """The result of :func:`inspect_files`."""

    files: tuple[FileInfo, ...]
    """The result of :func:`sidecar.inspect_file` for each file."""
    lines: tuple[FileSummary, ...]
    """Each file in one line, in the same order."""
    columns: tuple[ColumnSummary, ...]
    """Each column over all data files, in the order in which the files have them."""
    skipped: tuple[SkippedFile, ...]
    """Files and folders that could not be read."""
    others: int
    """Files in the named folders that are left out, because they have other endings."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar inspect --json`` prints it for many files."""
        return {
            "files": [file.to_dict() for file in self.files],
            "summary": {
                "files": len(self.lines),
                "size": sum(line.size for line in self.lines),
                "rows": sum(line.rows or 0 for line in self.lines),
                "row_groups": sum(line.row_groups for line in self.lines),
                "filters": sum(line.filters for line in self.lines),
                "filter_bytes": sum(line.filter_bytes for line in self.lines),
                "lines": [line.to_dict() for line in self.lines],
                "columns": [column.to_dict() for column in self.columns],
            },
            "skipped": [file.to_dict() for file in self.skipped],
            "others": self.others,
        }


def inspect_files(
    paths: Paths,
    io: FileIO | None = None,
    *,
    columns: Sequence[str] | None = None,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
    fill: bool = False,
    skip_bad: bool = False,
    threads: int | None = None,
) -> InspectedFiles:
    """Return the indexes of the files that ``paths`` name (files, folders, globs), and a summary of each column.

    The result of each file is that of :func:`sidecar.inspect_file` with ``encryption_keys``; ``column_names`` and
    ``fill`` are for the Puffin files among them. ``columns`` are those that the summary counts, by default all. ``io``
    opens the files if it is given. ``skip_bad`` goes past files that cannot be read, and lists them in ``skipped``;
    without it, the first of them raises. ``threads`` files are read at the same time.
    Raises :class:`UsageError` for a column that no file has and for options of
    Puffin files without such a file, and the errors of :func:`find_files` and :func:`sidecar.inspect_file`.
    """
    refuse_text(columns=columns)
    found = find_files(paths, io, skip_bad=skip_bad)

    def inspect(file: str, file_io: FileIO | None) -> FileInfo:
        if (column_names or fill) and known_format(file, file_io) == PUFFIN:
            return inspect_file(file, file_io, encryption_keys=encryption_keys, column_names=column_names, fill=fill)
        return inspect_file(file, file_io, encryption_keys=encryption_keys)

    files, skipped = each_file(inspect, found, io, skip_bad=skip_bad, threads=threads)
    if (column_names or fill) and not skipped:
        check_some_puffin(file.format for file in files)
    plain = [file.to_dict() for file in files]
    if columns is not None:
        plain = [with_columns(data, columns) for data in plain]
    lines = tuple(summarize_file(data) for data in plain)
    summary = summarize_columns(plain)
    known = {name for data in plain for name in columns_of(data)}
    missing = [name for name in columns or () if name not in known]
    if missing:
        raise UsageError(f"no file has a column '{missing[0]}'")
    return InspectedFiles(tuple(files), lines, summary, skipped, found.others)
