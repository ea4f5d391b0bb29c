"""Does the same work for each of many files, on whatever engine; a file that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeAlias, TypeVar, overload

from sidecar.access import Access
from sidecar.engines.work import WorkEngine
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.files import format_of
from sidecar.many_files.find import FoundFiles
from sidecar.results.base import PlainResult, Result, plain_data
from sidecar.run import threads_of
from sidecar.storage.costs import REQUESTS_AT_ONCE
from sidecar.storage.locations import local_path

R = TypeVar("R")


ResultT_co = TypeVar("ResultT_co", bound=PlainResult, covariant=True)

LOCAL_THREADS = 4
"""Local files that are read at the same time, at most."""


@dataclass(frozen=True, repr=False)
class FileResults(Result, Sequence[ResultT_co]):
    """The results of many files, in order: a sequence. Subclasses add what is true of all files together."""

    records_in = "files"

    files: tuple[ResultT_co, ...]
    """The result of each file that could be read, in order."""
    failed: dict[str, SidecarError]
    """The error of each file and folder that could not be read, by its path."""
    others: int = 0
    """Files in the named folders that are left out, because they have other endings."""

    @property
    def only(self) -> ResultT_co:
        """The one result. Raises the error of the one file that failed, and :class:`UsageError` for more files."""
        if len(self.files) + len(self.failed) != 1:
            raise UsageError("there is not one file", found=f"{len(self.files) + len(self.failed)} files")
        for error in self.failed.values():
            raise error
        return self.files[0]

    @overload
    def __getitem__(self, index: int) -> ResultT_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ResultT_co, ...]: ...
    def __getitem__(self, index: int | slice) -> ResultT_co | tuple[ResultT_co, ...]:
        return self.files[index]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[ResultT_co]:
        return iter(self.files)

    def __bool__(self) -> NoReturn:
        raise TypeError("results of files are neither true nor false: ask len(), .failed or .ok")

    def totals(self) -> Mapping[str, Any]:
        """Return what is true of all files together, as plain data: by default the attributes of a subclass."""
        known = {field.name for field in fields(FileResults)}
        return {field.name: plain_data(getattr(self, field.name)) for field in fields(self) if field.name not in known}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: ``files``, ``failed`` with the parts of each error, then ``others`` and the totals."""
        return {
            "files": [file.to_dict() for file in self.files],
            "failed": plain_data(self.failed),
            "others": self.others,
            **self.totals(),
        }


Answers: TypeAlias = tuple[tuple[R, ...], dict[str, SidecarError], int]
"""The parts of all :class:`FileResults`: results, errors, and the number of files that are left out."""


def each_file(work: Callable[[str], R], found: FoundFiles, workers: WorkEngine) -> Answers[R]:
    """Return ``work(file)`` for each file, in order, and the error of each file and folder that failed.

    Raises the error of a file that was named alone, and the first error if every file has a :class:`UsageError`.
    """
    with closing(workers.run(work, found.files)) as answers:
        return sorted_out(found, answers)


def sorted_out(found: FoundFiles, answers: Iterable[R | SidecarError]) -> Answers[R]:
    """Return the results and the errors among the ``answers`` of the files in order. Raises as :func:`each_file`."""
    results: list[R] = []
    failed = dict(found.failed)
    for file, answer in zip(found.files, answers, strict=True):
        if not isinstance(answer, SidecarError):
            results.append(answer)
        elif found.is_one:
            raise answer
        else:
            failed[file] = answer
    if not results and all(isinstance(error, UsageError) for error in failed.values()):
        raise next(iter(failed.values()))
    return tuple(results), failed, found.others


def threads_for(files: Sequence[str], threads: int | None = None) -> int:
    """Return how many files are read at the same time in this process. Raises :class:`UsageError` for fewer than 1.

    The default is :data:`REQUESTS_AT_ONCE` remote or :data:`LOCAL_THREADS` local ones.
    """
    is_remote = threads is None and any(local_path(file) is None for file in files)
    return REQUESTS_AT_ONCE if is_remote else threads_of(threads, LOCAL_THREADS)


def known_format(file: str, access: Access) -> str | None:
    """Return the format of a file as :func:`format_of` does; ``None`` for a damaged file. Reads only its magic."""
    with closing(access.open(file)) as source:
        try:
            return format_of(source)
        except DamagedFileError:
            return None
