"""Verifies files: the problems of each, and totals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.access import Access
from sidecar.engines.choice import asked_engine, work_engine
from sidecar.engines.work import LocalWork, WorkEngine, estimated_size
from sidecar.errors import Problem, SidecarError, UsageError, enough_memory, refuse_text
from sidecar.files import ORC, PARQUET, VerifiedFile, verify_file
from sidecar.many_files.each import FileResults, each_file, known_format, threads_for
from sidecar.many_files.find import DATA_ENDINGS, Paths, find_files
from sidecar.questions.value_check import ValuesLookedUp
from sidecar.results.choices import BuildEngine

STRUCTURE_IS_SMALL = "the check of structures alone reads little"
"""The reason for the engine of a check without values."""

STRUCTURE_AND_INDEXES = "structure and page indexes; --data looks every value up"


@dataclass(frozen=True, repr=False)
class Verification(FileResults[VerifiedFile]):
    """What ``verify`` found. The check of a table has no result for each file."""

    checked: int = field(kw_only=True)
    """The number of files (for a table: sidecar files and manifests) that were checked."""
    problems: list[Problem] = field(kw_only=True)
    """The defects of all files; empty if there are none."""
    scope: str | None = field(default=None, kw_only=True)
    """What was checked, or what is never looked up, if no value was looked up."""
    looked_up: ValuesLookedUp | None = field(default=None, kw_only=True)
    """How many values were looked up; ``None`` if none were asked for."""
    engine: str | None = field(default=None, kw_only=True)
    """Where values were looked up: ``local`` or ``spark``; ``None`` if none were."""
    engine_reason: str | None = field(default=None, kw_only=True)
    """Why this engine was chosen."""

    @property
    def ok(self) -> bool:
        """Whether there is no problem and no file that could not be checked."""
        return not self.problems and not self.failed

    def summary(self) -> dict[str, object]:
        """See :meth:`Summarized.summary`."""
        return {**self.totals(), "failed": self.failed or None}

    def totals(self) -> dict[str, Any]:
        """Return what was checked in all files, and the problems."""
        known = {name: value for name, value in super().totals().items() if value is not None}
        return {"ok": self.ok, **known}


@dataclass(frozen=True)
class FileCheck:
    """The check of each file, with the parameters of :func:`sidecar.verify`."""

    data: bool
    sample: float | None
    access: Access
    against: Sequence[str] | None = None
    is_one: bool = False
    """Whether one file was named. Among many files, those without values get the check of their structure."""

    @property
    def has_values(self) -> bool:
        """Whether values are looked up."""
        return self.data or self.sample is not None

    def __call__(self, file: str) -> VerifiedFile:
        """Return what was found."""
        kind = known_format(file, self.access) if self.has_values and not self.is_one else None
        looks_up = self.has_values and (self.is_one or kind in (PARQUET, ORC, None))
        return verify_file(
            file,
            self.access,
            data=self.data and looks_up,
            sample=self.sample if looks_up else None,
            against=self.against,
        )


@enough_memory()
def verify_paths(
    paths: Paths,
    check: FileCheck,
    against: Paths | None,
    threads: int | None,
    engine: BuildEngine | None,
    spark: Any,
) -> Verification:
    """Do :func:`sidecar.verify` for files."""
    found = find_files(paths, check.access)
    if against is not None and not found.is_one:
        raise UsageError("a comparison with data files is for one Puffin file", found=f"{len(found.files)} files")
    most = threads_for(found.files, threads)
    workers: WorkEngine = LocalWork(most, STRUCTURE_IS_SMALL)
    if check.has_values:
        workers = work_engine(engine, spark, lambda: estimated_size(found.files, check.access), threads=most)
    else:
        asked_engine(engine, spark)
    others = None if against is None else _data_files(against, check.access)
    work = replace(check, against=others, is_one=found.is_one)
    answers = each_file(work, found, workers)
    files = answers[0]
    looked_up = _sum([file.looked_up for file in files if file.looked_up is not None])
    return Verification(
        *answers,
        checked=len(files) + len(others or ()),
        problems=[problem for file in files for problem in file.problems],
        scope=None if looked_up is not None else _scope(files),
        looked_up=looked_up,
        engine=workers.name,
        engine_reason=workers.reason,
    )


def verify_prefixes(
    files: Sequence[str],
    prefixes: Sequence[bytes | str],
    access: Access,
    failed: Mapping[str, SidecarError] | None = None,
) -> Verification:
    """Check that encrypted Parquet files match ``prefixes`` (AAD prefixes) one to one: none missing, none twice.

    Only footers are read. A rule in the keys also binds each path to its prefix. The problem of a missing
    prefix has no ``file``. Raises :class:`UsageError` without keys and for a prefix that is given twice.
    """
    from sidecar.parquet.encrypted.file_set import verify_file_set

    expected = [prefix.encode() if isinstance(prefix, str) else prefix for prefix in prefixes]
    return Verification((), dict(failed or {}), checked=len(files), problems=verify_file_set(files, expected, access))


def _data_files(against: Paths, access: Access) -> list[str]:
    """Return the data files that ``against`` names, a file twice if it is named twice. Raises if some are not found."""
    refuse_text(against=against)
    named = [os.fspath(path) for path in ([against] if isinstance(against, os.PathLike) else against)]
    if not named:
        return named
    found = find_files(named, access, endings=DATA_ENDINGS)
    for error in found.failed.values():
        raise error
    return list(found.files) if len(found.files) >= len(named) else named


def _scope(files: Sequence[VerifiedFile]) -> str | None:
    """Return what was checked if no values were looked up: what one file says, if all say the same."""
    scopes = dict.fromkeys(file.scope for file in files if file.scope is not None)
    return next(iter(scopes)) if len(scopes) == 1 else STRUCTURE_AND_INDEXES if scopes else None


def _sum(counts: Sequence[ValuesLookedUp]) -> ValuesLookedUp | None:
    if len(counts) < 2:
        return next(iter(counts), None)
    return ValuesLookedUp(
        units=sum(count.units for count in counts),
        units_total=sum(count.units_total for count in counts),
        values=sum(count.values for count in counts),
        indexes=sum(count.indexes for count in counts),
    )
