"""Does the same work for each of many files and keeps the order of the files, on whatever engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from sidecar.engines.work import FileIOs, LocalWork, WorkEngine
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.many_files.find import FoundFiles, SkippedFile
from sidecar.source import REQUESTS_AT_ONCE, local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

R = TypeVar("R")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

UNREADABLE = (DamagedFileError, UnsupportedFeatureError, StorageError)
"""Errors of one file that ``skip_bad`` goes past."""

LOCAL_THREADS = 4
"""Local files that are read at the same time, at most."""


@dataclass(frozen=True)
class _OneFile(Generic[R]):
    """The work for one file, with what opens the file."""

    work: Callable[[str, FileIO | None], R] = field(repr=False)
    ios: FileIOs

    def __call__(self, file: str) -> R:
        return self.work(file, self.ios.of(file))


def each_file(
    work: Callable[[str, FileIO | None], R],
    found: FoundFiles,
    io: FileIO | None = None,
    *,
    skip_bad: bool = False,
    threads: int | None = None,
    engine: WorkEngine | None = None,
) -> tuple[list[R], tuple[SkippedFile, ...]]:
    """Return ``work(file, io)`` for each file, and the files that could not be read, after unreadable folders.

    ``engine`` runs the work, by default this process: ``threads`` files are read at the same time, by default
    :data:`REQUESTS_AT_ONCE` remote or :data:`LOCAL_THREADS` local ones. Without ``skip_bad``, the error of the first
    bad file in order is raised. This process then does not read the rest; other engines have read it already. Raises
    :class:`UsageError` for fewer than one thread.
    """
    files = found.files
    workers: WorkEngine = engine or LocalWork(threads_for(files, threads))
    results: list[R] = []
    skipped = list(found.unreadable)
    with closing(workers.run(_OneFile(work, FileIOs(io)), files)) as answers:
        for file, answer in zip(files, answers, strict=True):
            if not isinstance(answer, SidecarError):
                results.append(answer)
            elif skip_bad and isinstance(answer, UNREADABLE):
                skipped.append(SkippedFile(file, answer))
            else:
                raise answer
    return results, tuple(skipped)


def threads_for(files: Sequence[str], threads: int | None = None) -> int:
    """Return how many files are read at the same time in this process. Raises :class:`UsageError` for fewer than 1."""
    if threads is not None:
        if threads < 1:
            raise UsageError("the number of threads is at least 1", found=threads)
        return threads
    if any(local_path(file) is None for file in files):
        return REQUESTS_AT_ONCE
    return min(os.cpu_count() or 1, LOCAL_THREADS)
