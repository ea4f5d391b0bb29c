"""Writes a new file for each of the files that are named: one under the name that is given, many into one folder.

In the folder each new file keeps its path below the folder that was named; of several folders, below the deepest that
they share. All targets are checked before the first is written. A file is written whole or not at all, and an existing
one is never replaced.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.access import Access
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.target_folder import check_inside, make_folder_of, targets_in
from sidecar.engines.work import WorkEngine, estimated_size
from sidecar.errors import UsageError
from sidecar.many_files.each import FileResults, each_file, sorted_out
from sidecar.many_files.find import DATA_ENDINGS, FoundFiles, Paths, find_files
from sidecar.run_log import log_run
from sidecar.storage.locations import local_path
from sidecar.storage.source import AnyPath

log = logging.getLogger(__name__)

Write = Callable[[Access, str, str], EmbedReport]
"""Writes a new file: gets what opens both, the source and the target."""


@dataclass(frozen=True, repr=False)
class WrittenFiles(FileResults[EmbedReport]):
    """The files that were written, each with what became of its indexes."""

    into: str = field(kw_only=True)
    """The file or folder that was named for them."""
    seconds: float = field(kw_only=True)
    """The seconds that it took."""
    engine: str = field(kw_only=True)
    """Where the files were written: ``local`` or ``spark``."""
    engine_reason: str = field(kw_only=True)
    """Why this engine was chosen."""
    sidecar_bytes: int = field(default=0, kw_only=True)
    """Bytes read from the sidecar that the indexes come out of."""

    @property
    def damaged(self) -> bool:
        """Whether an index is missing in some file because bytes of its source are broken."""
        return any(report.damaged for report in self.files)

    def warnings(self) -> list[str]:
        """Return the warnings of all files, each of several with its file."""
        if len(self.files) == 1:
            return self.files[0].warnings()
        return [f"{report.source}: {text}" for report in self.files for text in report.warnings()]

    def ways(self) -> dict[str, dict[str, int]]:
        """Count the indexes of all files by kind and by way."""
        total: dict[str, dict[str, int]] = {}
        for report in self.files:
            for kind, ways in report.ways().items():
                for way, count in ways.items():
                    counts = total.setdefault(kind, {})
                    counts[way] = counts.get(way, 0) + count
        return total

    def totals(self) -> dict[str, Any]:
        """Return where the files are, their sizes together, and what became of their indexes."""
        return {
            "size_before": sum(report.size_before for report in self.files),
            "size": sum(report.written.size for report in self.files),
            "ways": self.ways(),
            "lost": sum(report.lost for report in self.files),
            **super().totals(),
        }


@dataclass(frozen=True)
class NewFiles:
    """The files that are to be written: ``targets`` has the new path of each that was found."""

    access: Access
    found: FoundFiles
    into: str
    targets: Mapping[str, str]
    is_one: bool = False
    """Whether one file is written under the name that was given for it."""

    @classmethod
    def of(cls, access: Access, source: Paths, into: AnyPath) -> NewFiles:
        """Return the files for the data files that ``source`` names; see :func:`sidecar.embed`.

        Raises the errors of :func:`find_files` and :func:`targets_in`, and :class:`UsageError` if a target exists.
        """
        found, into = find_files(source, access, endings=DATA_ENDINGS), os.fspath(into)
        if found.is_one and isinstance(source, str | os.PathLike) and not _is_folder(into):
            return cls(access, found, into, {found.files[0]: into}, is_one=True)
        targets = targets_of(found, into)
        check_free(targets.values())
        return cls(access, found, into, targets)

    def size(self) -> int:
        """Return about how many bytes the files have that are read."""
        return estimated_size(self.found.files, self.access)

    def write(self, write: Write, workers: WorkEngine) -> WrittenFiles:
        """Call ``write`` for each file. Raises as :func:`each_file`."""
        start = time.monotonic()
        access = self.access.repeated() if workers.name == "spark" else self.access
        work = _WriteOne(write, access, self.targets, not self.is_one)
        if self.is_one and workers.name == "local":  # its own steps are reported, and its error is raised
            answers = sorted_out(self.found, [work(self.found.files[0])])
        else:
            answers = each_file(work, self.found, workers)
        return WrittenFiles(
            *answers,
            into=self.into,
            seconds=time.monotonic() - start,
            engine=workers.name,
            engine_reason=workers.reason,
        )


@dataclass(frozen=True)
class _WriteOne:
    """The work for one file: write its new file. On Spark it may run twice; the second run takes the file that the
    first one wrote."""

    write: Write
    access: Access
    targets: Mapping[str, str]
    makes_folders: bool

    def __call__(self, source: str) -> EmbedReport:
        target = self.targets[source]
        if self.makes_folders:
            make_folder_of(target)
        report = self.write(self.access, source, target)
        log_run(log, report.log_line, report.warnings())
        return report


def _is_folder(into: str) -> bool:
    local = local_path(into)
    return into.endswith("/") or (local is not None and os.path.isdir(local))


def targets_of(found: FoundFiles, folder: str) -> dict[str, str]:
    """Return the new path in ``folder`` for each file. Raises as :func:`targets_in`, and for links that lead out."""
    locations = [_absolute(file) for file in found.files]
    if len({local_path(file) is None for file in found.files}) > 1:
        raise UsageError("local and remote files have no folder in common", hint="Write them one after another.")
    targets = targets_in(folder, locations, [_absolute(root) for root in found.roots])
    check_inside(folder, targets)
    return dict(zip(found.files, targets, strict=True))


def targets_of_listed(files: Sequence[str], folder: str) -> dict[str, str]:
    """Return the new path in ``folder`` for each file that a sidecar lists. Raises as :func:`targets_in`."""
    targets = targets_in(folder, files)
    check_inside(folder, targets)
    check_free(targets)
    return dict(zip(files, targets, strict=True))


def _absolute(location: str) -> str:
    local = local_path(location)
    return location if local is None else os.path.abspath(local or ".")


TAKEN = "If an earlier run was ended while it wrote it, delete it; else choose another folder."


def check_free(targets: Iterable[str]) -> None:
    """Raise :class:`UsageError` if a local target exists; for remote ones, creating the file says so."""
    taken = next((target for target in targets if os.path.lexists(local_path(target) or "")), None)
    if taken is not None:
        raise UsageError("the file exists already", file=taken, hint=TAKEN)
