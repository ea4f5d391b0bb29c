"""Inspects files: the indexes of each, and a summary of each column over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sidecar.access import Access
from sidecar.engines.work import LocalWork
from sidecar.errors import UsageError, enough_memory, refuse_text
from sidecar.files import PUFFIN, FileInfo, inspect_file
from sidecar.many_files.columns import columns_of, with_columns
from sidecar.many_files.each import FileResults, each_file, known_format, threads_for
from sidecar.many_files.find import Paths, find_files
from sidecar.many_files.totals import ColumnSummary, FileSummary, summarize_columns, summarize_file
from sidecar.results.choices import NameList

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


@dataclass(frozen=True, repr=False)
class InspectedFiles(FileResults[FileInfo]):
    """The indexes of each file, and of each column over all files."""

    @cached_property
    def _plain(self) -> list[dict[str, Any]]:
        return [file.to_dict() for file in self.files]

    @property
    def lines(self) -> tuple[FileSummary, ...]:
        """Each file in one line, in order."""
        return tuple(map(summarize_file, self._plain))

    @property
    def columns(self) -> tuple[ColumnSummary, ...]:
        """Each column over all data files, in the order in which the files have them."""
        return summarize_columns(self._plain)

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each file."""
        return [line.to_dict() for line in self.lines]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar inspect --json`` prints it."""
        return {**super().to_dict(), "files": self._plain}

    def totals(self) -> dict[str, Any]:
        """Return the sums of all files, and a line for each column."""
        lines = self.lines
        return {
            "size": sum(line.size for line in lines),
            "rows": sum(line.rows or 0 for line in lines),
            "row_groups": sum(line.row_groups for line in lines),
            "filters": sum(line.filters for line in lines),
            "filter_bytes": sum(line.filter_bytes for line in lines),
            "lines": [line.to_dict() for line in lines],
            "columns": [column.to_dict() for column in self.columns],
        }


@enough_memory()
def inspect(
    paths: Paths,
    *,
    columns: NameList | None = None,
    fill: bool = False,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> InspectedFiles:
    """Return the indexes of the files that ``paths`` name (files, folders, globs, or a list), and of each column.

    Example: ``sidecar.inspect("lake/*.parquet")``
    ``columns`` are those that are shown (default: all). ``fill`` reads all filters of Puffin files and counts their
    bits. ``threads`` files are read at a time. ``io`` opens the files. ``encryption_keys`` show what is encrypted in
    Parquet files. Raises the error of a file that is named alone, and :class:`UsageError` for unknown columns.
    """
    refuse_text(columns=columns)
    access = Access(io, encryption_keys)
    found = find_files(paths, access)

    def work(file: str) -> FileInfo:
        filled = fill and (found.is_one or known_format(file, access) == PUFFIN)
        return inspect_file(file, access, fill=filled)

    inspected = InspectedFiles(*each_file(work, found, LocalWork(threads_for(found.files, threads))))
    if fill and not inspected.failed:
        _check_some_puffin(file.format for file in inspected)
    if columns is None:
        return inspected
    known = dict.fromkeys(name for file in inspected for name in columns_of(file))
    for name in columns:
        if name not in known:
            raise UsageError(
                f"no file has a column '{name}'", hint=f"The columns are {', '.join(known) or 'not known'}."
            )
    return replace(inspected, files=tuple(with_columns(file, columns) for file in inspected))


def _check_some_puffin(formats: Iterable[str | None]) -> None:
    """Raise :class:`UsageError` if no file is a Puffin file, though these alone have what was asked for."""
    if PUFFIN not in formats:
        raise UsageError("--fill is for Puffin files", found="no Puffin file among the files")
