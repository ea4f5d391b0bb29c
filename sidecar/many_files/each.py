"""Does the same work for each of many files, with a few threads, and keeps the order of the files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.many_files.find import FoundFiles, SkippedFile
from sidecar.source import REQUESTS_AT_ONCE, local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

R = TypeVar("R")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Progress = Callable[[str, int, int], None]

UNREADABLE = (DamagedFileError, UnsupportedFeatureError, StorageError)
"""Errors of one file that ``skip_bad`` goes past."""

LOCAL_THREADS = 4
"""Local files that are read at the same time, at most."""


def each_file(
    work: Callable[[str, FileIO | None], R],
    found: FoundFiles,
    io: FileIO | None = None,
    *,
    skip_bad: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[R], tuple[SkippedFile, ...]]:
    """Return ``work(file, io)`` for each file, and the files that could not be read, after unreadable folders.

    ``threads`` files are read at the same time, by default :data:`REQUESTS_AT_ONCE` remote or :data:`LOCAL_THREADS`
    local ones. Without ``skip_bad``, the error of the first bad file in order is raised, and the rest is not read.
    Raises :class:`UsageError` for fewer than one thread.
    """
    files = found.files
    if threads is not None and threads < 1:
        raise UsageError("the number of threads is at least 1", found=threads)
    ios = _ios(files, io)
    results: list[R] = []
    skipped = list(found.unreadable)

    def one(file: str) -> R | SidecarError:
        try:
            return work(file, ios.get(_scheme(file), io))
        except UNREADABLE as error:
            return error

    for number, answer in enumerate(_in_turn(one, files, threads or _threads(files))):
        if progress is not None:
            progress("files", number + 1, len(files))
        if not isinstance(answer, SidecarError):
            results.append(answer)
        elif skip_bad:
            skipped.append(SkippedFile(files[number], answer))
        else:
            raise answer
    return results, tuple(skipped)


def _threads(files: Sequence[str]) -> int:
    if any(local_path(file) is None for file in files):
        return REQUESTS_AT_ONCE
    return min(os.cpu_count() or 1, LOCAL_THREADS)


def _scheme(file: str) -> str | None:
    return None if local_path(file) is not None else file.partition("://")[0]


def _ios(files: Sequence[str], io: FileIO | None) -> dict[str | None, FileIO]:
    """Return one ``FileIO`` for the remote files of each scheme, so that they share connections."""
    remote = {scheme: file for file in reversed(files) if (scheme := _scheme(file)) is not None}
    if io is not None or not remote:
        return {}
    from pyiceberg.io import load_file_io

    return {scheme: load_file_io(location=file) for scheme, file in remote.items()}


def _in_turn(work: Callable[[str], R], files: Sequence[str], threads: int) -> Iterator[R]:
    """Yield ``work(file)`` in the order of ``files``. Threads work at most twice their number of files ahead."""
    if min(threads, len(files)) < 2:
        yield from map(work, files)
        return
    pool = ThreadPoolExecutor(threads, "sidecar-file")
    waiting: deque[Future[R]] = deque()
    try:
        for file in files:
            waiting.append(pool.submit(work, file))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
