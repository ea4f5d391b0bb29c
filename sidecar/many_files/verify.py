"""Verifies many files: the problems of each, and totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.engines.choice import BuildEngine, asked_engine, work_engine
from sidecar.engines.work import FileIOs, LocalWork, WorkEngine, estimated_size
from sidecar.errors import Problem
from sidecar.files import ORC, PARQUET, PUFFIN, Verification, verify_file
from sidecar.many_files.each import Paths, each_file, threads_for
from sidecar.many_files.find import SkippedFile, find_files
from sidecar.many_files.formats import check_some_puffin, known_format
from sidecar.parquet.verify.filters import ValuesLookedUp
from sidecar.results.base import Result

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


STRUCTURE_IS_SMALL = "the check of structures alone reads little"
"""The reason for the engine of a check without values."""


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
    engine: str = "local"
    """Where the files were read: ``local`` or ``spark``."""
    engine_reason: str = ""
    """Why this engine was chosen."""

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
            "engine": self.engine,
            "engine_reason": self.engine_reason,
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
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> VerifiedFiles:
    """Check the files that ``paths`` name (files, folders, globs) as :func:`sidecar.verify_file` checks one.

    ``paths``, ``io``, ``skip_bad`` and ``threads`` are as for :func:`sidecar.inspect_files`; ``data``,
    ``sample`` and ``encryption_keys`` as for one file. With ``data`` or ``sample``, files without values (Puffin files,
    single filters) get the check of their structure, and their ``scope`` says so. ``column_names`` names the columns of
    the Puffin files. ``engine`` and ``spark`` say where the values of data files are looked up, as for
    :func:`sidecar.build`; without values the check reads little and runs in this process. Damage is a problem of its
    file. Raises the errors of :func:`find_files` and
    :func:`sidecar.verify_file`.
    """
    found = find_files(paths, io, skip_bad=skip_bad)
    most = threads_for(found.files, threads)
    workers: WorkEngine = LocalWork(most, STRUCTURE_IS_SMALL)
    if data or sample is not None:
        ios = FileIOs(io)
        workers = work_engine(engine, spark, lambda: estimated_size(found.files, ios), threads=most)
    else:
        asked_engine(engine, spark)
    work = _VerifyOne(data, sample, encryption_keys, column_names)
    answers, skipped = each_file(work, found, io, skip_bad=skip_bad, engine=workers)
    if column_names and not skipped:
        check_some_puffin({kind for _, kind in answers})
    files = tuple(file for file, _ in answers)
    return VerifiedFiles(files, skipped, found.others, workers.name, workers.reason)


@dataclass(frozen=True)
class _VerifyOne:
    """The work for one file: check it. The parameters are those of :func:`verify_files`."""

    data: bool
    sample: float | None
    encryption_keys: EncryptionKeys | None = field(repr=False)
    column_names: Mapping[int, str] | None

    def __call__(self, file: str, io: FileIO | None) -> tuple[VerifiedFile, str | None]:
        """Return what was found, and the format of the file if it matters."""
        is_asked = self.data or self.sample is not None
        kind = known_format(file, io) if is_asked or self.column_names else None
        asked = is_asked and kind in (PARQUET, ORC, None)
        result = verify_file(
            file,
            io,
            data=self.data and asked,
            sample=self.sample if asked else None,
            encryption_keys=self.encryption_keys,
            column_names=self.column_names if kind == PUFFIN else None,
        )
        return VerifiedFile(file, result), kind
