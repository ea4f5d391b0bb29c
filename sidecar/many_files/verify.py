"""Verifies many files: the problems of each, and totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.engines.work import Progress
from sidecar.errors import Problem
from sidecar.files import ORC, PARQUET, PUFFIN, Verification, verify_file
from sidecar.many_files.each import Paths, each_file
from sidecar.many_files.find import SkippedFile, find_files
from sidecar.many_files.formats import check_some_puffin, known_format
from sidecar.parquet.verify.filters import ValuesLookedUp
from sidecar.results import Result

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


@dataclass(frozen=True, repr=False)
class VerifiedFile(Result):
    """A file, and the result of :func:`sidecar.verify_file`."""

    file: str
    """The path of the file."""
    result: Verification
    """What was found in it."""

    @property
    def problems(self) -> list[Problem]:
        """The problems of the file."""
        return self.result.problems


@dataclass(frozen=True, repr=False)
class VerifiedFiles(Result):
    """The result of :func:`verify_files`."""

    files: tuple[VerifiedFile, ...]
    """What was found in each file, in order."""
    skipped: tuple[SkippedFile, ...]
    """Files and folders that could not be read, so that they were not checked."""
    others: int
    """Files in the named folders that are left out, because they have other endings."""

    @property
    def problems(self) -> list[Problem]:
        """The problems of all files."""
        return [problem for file in self.files for problem in file.problems]

    @property
    def looked_up(self) -> ValuesLookedUp | None:
        """What was looked up in all data files together; ``None`` if no values were asked for."""
        counts = [file.result.looked_up for file in self.files if file.result.looked_up is not None]
        if not counts:
            return None
        return ValuesLookedUp(
            units=sum(count.units for count in counts),
            units_total=sum(count.units_total for count in counts),
            values=sum(count.values for count in counts),
            indexes=sum(count.indexes for count in counts),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar verify --json`` prints it for many files."""
        looked_up = self.looked_up
        return {
            "files": [{"file": file.file, **file.result.to_dict()} for file in self.files],
            "checked": len(self.files),
            "problems": [problem.to_dict() for problem in self.problems],
            **({"looked_up": looked_up.to_dict()} if looked_up is not None else {}),
            "skipped": [file.to_dict() for file in self.skipped],
            "others": self.others,
        }


def verify_files(
    paths: Paths,
    io: FileIO | None = None,
    *,
    data: bool = False,
    sample: float | None = None,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
    skip_bad: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifiedFiles:
    """Check the files that ``paths`` name (files, folders, globs) as :func:`sidecar.verify_file` checks one.

    ``paths``, ``io``, ``skip_bad``, ``threads`` and ``progress`` are as for :func:`sidecar.inspect_files`; ``data``,
    ``sample`` and ``encryption_keys`` as for one file. With ``data`` or ``sample``, files without values (Puffin files,
    single filters) get the check of their structure, and their ``scope`` says so. ``column_names`` names the columns of
    the Puffin files. Damage is a problem of its file. Raises the errors of :func:`find_files` and
    :func:`sidecar.verify_file`.
    """
    found = find_files(paths, io, skip_bad=skip_bad)
    is_asked = data or sample is not None
    formats: set[str | None] = set()

    def verify(file: str, file_io: FileIO | None) -> VerifiedFile:
        kind = known_format(file, file_io) if is_asked or column_names else None
        asked = is_asked and kind in (PARQUET, ORC, None)
        formats.add(kind)
        result = verify_file(
            file,
            file_io,
            data=data and asked,
            sample=sample if asked else None,
            encryption_keys=encryption_keys,
            column_names=column_names if kind == PUFFIN else None,
        )
        return VerifiedFile(file, result)

    files, skipped = each_file(verify, found, io, skip_bad=skip_bad, threads=threads, progress=progress)
    if column_names and not skipped:
        check_some_puffin(formats)
    return VerifiedFiles(tuple(files), skipped, found.others)
