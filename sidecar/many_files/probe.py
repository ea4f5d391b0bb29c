"""Looks up one value in the filters of files: which of them may hold it, and what reading them costs."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.access import Access
from sidecar.engines.work import LocalWork
from sidecar.errors import UsageError, enough_memory
from sidecar.files import probe_source
from sidecar.many_files.each import FileResults, each_file, threads_for
from sidecar.many_files.find import DATA_ENDINGS, Paths, find_files
from sidecar.results.base import ProbedRowGroup, Result
from sidecar.storage.source import CountingSource

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.filters.literals import LiteralValue


@dataclass(frozen=True, repr=False)
class ProbedFile(Result):
    """The answers of a column's filters in one file."""

    omitted_if_none = ("fields", "types", "warnings")

    file: str
    """The path of the file."""
    size: int
    """Bytes of the file."""
    might_contain: bool | None
    """False if no row group can have the value, ``None`` if it is not certain that one may; a file is read then."""
    reason: str
    """Why the file cannot be asked, such as a missing column; empty if it was asked."""
    reads: int
    """Reads of footer and filters."""
    bytes_read: int
    """Bytes that these reads have."""
    units: list[ProbedRowGroup]
    """The answer of each row group. In the answers of a sidecar each names its data file."""
    fields: list[int] | None = None
    """The field ids that a sidecar has for the column; ``None`` for a data file."""
    types: list[str] | None = None
    """The Iceberg types as which the value was read for a sidecar; ``None`` for a data file."""
    warnings: list[str] | None = None
    """What is wrong with a sidecar, in words; ``None`` for a data file."""


@dataclass(frozen=True, repr=False)
class ProbedFiles(FileResults[ProbedFile]):
    """The answers of a column's filters in files."""

    column: str = field(kw_only=True)
    """The column that was asked for."""

    @property
    def kept(self) -> tuple[ProbedFile, ...]:
        """The files that may hold the value, known or not. The files in ``failed`` may hold it, too."""
        return tuple(file for file in self.files if file.might_contain is not False)

    def totals(self) -> dict[str, Any]:
        """Return the column, how many files have which answer, and what the answers cost."""
        answers = Counter(file.might_contain for file in self.files)
        return {
            "column": self.column,
            "cannot_hold": answers[False],
            "may_hold": answers[True],
            "unknown": answers[None],
            "size": sum(file.size for file in self.files),
            "kept_size": sum(file.size for file in self.kept),
            "reads": sum(file.reads for file in self.files),
            "bytes_read": sum(file.bytes_read for file in self.files),
        }


@enough_memory()
def probe(
    paths: Paths,
    column: str | int,
    value: LiteralValue,
    *,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> ProbedFiles:
    """Look up one value in the filters of a column in the files that ``paths`` name (files, folders, globs, or a list).

    Example: ``sidecar.probe("lake/*.parquet", "id", 42)``
    ``column`` may be a field id in a sidecar: a number is one before it is a name. For a file that is one filter it is
    the values' type. ``value`` is text, or a value of the column's type. ``threads`` files are read at a time. ``io``
    opens the files. Encrypted columns need ``encryption_keys``. Puffin files in folders are left out. A file without
    the column is kept, with the reason. Raises the error of a file that is named alone.
    """
    access = Access(io, encryption_keys)
    found = find_files(paths, access, endings=DATA_ENDINGS)
    refused: dict[str, UsageError] = {}

    def work(file: str) -> ProbedFile:
        with closing(CountingSource(access.open(file))) as source:
            try:
                answer = probe_source(access, source, column, value)
            except UsageError as error:
                if found.is_one:
                    raise
                refused[file] = error
                return ProbedFile(file, source.size, None, error.what, source.reads, source.bytes_read, [])
            may = {unit.might_contain for unit in answer.units}
            return ProbedFile(
                file,
                source.size,
                True if True in may else None if None in may else False,
                "",
                source.reads,
                source.bytes_read,
                answer.units,
                answer.fields,
                answer.types,
                answer.warnings,
            )

    probed = ProbedFiles(*each_file(work, found, LocalWork(threads_for(found.files, threads))), column=str(column))
    if refused and len(refused) == len(probed):
        raise refused[probed[0].file]
    return probed
