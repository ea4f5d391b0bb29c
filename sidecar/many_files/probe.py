"""Looks up one value in many data files: which of them may hold it, and what reading them costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.errors import UsageError
from sidecar.files import PUFFIN, format_of, probe_source
from sidecar.many_files.each import Paths, each_file
from sidecar.many_files.find import DATA_ENDINGS, SkippedFile, find_files
from sidecar.many_files.formats import check_some_puffin
from sidecar.results.base import ProbedRowGroup, Result
from sidecar.source import CountingSource, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.filters.literals import LiteralValue


@dataclass(frozen=True, repr=False)
class ProbedFile(Result):
    """The answer of one file."""

    file: str
    """The path of the file."""
    size: int
    """Bytes of the file."""
    units: tuple[ProbedRowGroup, ...]
    """The answer of each row group, as in the result of :func:`sidecar.probe_file`."""
    refused: UsageError | None
    """Why the file cannot be asked, such as a missing column; ``None`` if it was asked."""
    reads: int
    """Reads of footer and filters."""
    bytes_read: int
    """Bytes that these reads have."""
    warnings: tuple[str, ...] = ()
    """What is wrong with a sidecar, in words."""

    @property
    def might_contain(self) -> bool | None:
        """False if no row group can have the value, ``None`` if it is not certain that one may; a file is read then."""
        if self.refused is not None:
            return None
        answers = {unit.might_contain for unit in self.units}
        return True if True in answers else None if None in answers else False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "file": self.file,
            "size": self.size,
            "might_contain": self.might_contain,
            "reason": "" if self.refused is None else str(self.refused),
            "reads": self.reads,
            "bytes_read": self.bytes_read,
            "units": [unit.to_dict() for unit in self.units],
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }


@dataclass(frozen=True, repr=False)
class ProbedFiles(Result):
    """The result of :func:`probe_files`."""

    column: str
    """The column that was asked for."""
    files: tuple[ProbedFile, ...]
    """The answer of each file, in order."""
    skipped: tuple[SkippedFile, ...]
    """Files and folders that could not be read: they may hold the value, too."""
    others: int
    """Files in the named folders that are left out, because they have other endings."""

    @property
    def kept(self) -> tuple[ProbedFile, ...]:
        """The files that may hold the value, or of which nothing is certain."""
        return tuple(file for file in self.files if file.might_contain is not False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar probe --json`` prints it for many files."""
        answers = Counter(file.might_contain for file in self.files)
        return {
            "column": self.column,
            "files": [file.to_dict() for file in self.files],
            "summary": {
                "files": len(self.files),
                "cannot_hold": answers[False],
                "may_hold": answers[True],
                "unknown": answers[None],
                "size": sum(file.size for file in self.files),
                "kept_size": sum(file.size for file in self.kept),
                "reads": sum(file.reads for file in self.files),
                "bytes_read": sum(file.bytes_read for file in self.files),
            },
            "skipped": [file.to_dict() for file in self.skipped],
            "others": self.others,
        }


def probe_files(
    paths: Paths,
    column: str,
    value: LiteralValue,
    io: FileIO | None = None,
    *,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
    skip_bad: bool = False,
    threads: int | None = None,
) -> ProbedFiles:
    """Look up one value in a column of all data files that ``paths`` name (files, folders, globs).

    Puffin files that are named are asked as :func:`sidecar.probe_file` asks one, with ``column_names``; those in
    folders are left out.

    ``paths``, ``io``, ``skip_bad`` and ``threads`` are as for :func:`sidecar.inspect_files`; ``column``,
    ``value`` and ``encryption_keys`` as for one file. A file is ruled out only if each of its row groups is. A file
    that cannot be asked (it does not have the column, or the value does not fit its type) is kept, with the reason. If
    no file can be asked, the first reason is raised as :class:`UsageError`. Raises the errors of :func:`find_files` and
    :func:`sidecar.probe_file`.
    """
    found = find_files(paths, io, endings=DATA_ENDINGS, skip_bad=skip_bad)
    formats: set[str | None] = set()

    def probe(file: str, file_io: FileIO | None) -> ProbedFile:
        with closing(CountingSource(open_source(file, file_io))) as source:
            named = column_names if column_names and format_of(source) == PUFFIN else None
            formats.add(PUFFIN if named else None)
            answer, refused = None, None
            try:
                answer = probe_source(source, file, column, value, encryption_keys, named)
            except UsageError as error:
                refused = error
            units = () if answer is None else tuple(answer.units)
            warnings = () if answer is None else tuple(answer.warnings or ())
            return ProbedFile(file, source.size, units, refused, source.reads, source.bytes_read, warnings)

    files, skipped = each_file(probe, found, io, skip_bad=skip_bad, threads=threads)
    if column_names and not skipped:
        check_some_puffin(formats)
    reasons = [file.refused for file in files if file.refused is not None]
    if reasons and len(reasons) == len(files):
        raise reasons[0]
    return ProbedFiles(column, tuple(files), skipped, found.others)
