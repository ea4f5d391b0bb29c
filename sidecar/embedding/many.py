"""Embeds indexes into many files, or strips them, into new files in one folder.

Each new file keeps its path below the folder that was named; of several folders, below the deepest that they share. All
targets are checked before the first is written. A file is written whole or not at all, and an existing one is never
replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.conversion.harvest import GOOD, HarvestRule
from sidecar.embedding.file import embed_file, strip_file
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.target_folder import check_inside, make_folder_of, targets_in
from sidecar.engines.choice import BuildEngine, work_engine
from sidecar.engines.work import FileIOs, LocalWork, WorkEngine, estimated_size
from sidecar.errors import UsageError
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.many_files.each import FileResults, each_file
from sidecar.many_files.find import DATA_ENDINGS, FoundFiles, Paths, find_files
from sidecar.parquet.embed import Placement
from sidecar.source import local_path
from sidecar.target import repeatable

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys

Write = Callable[..., EmbedReport]
"""Writes a new file: gets the source, the target and options."""


@dataclass(frozen=True, repr=False, kw_only=True)
class WrittenFiles(FileResults[EmbedReport]):
    """What :func:`embed_files` and :func:`strip_files` wrote for each file."""

    folder: str
    """The folder that the files were written into."""
    seconds: float
    """The seconds that it took."""
    engine: str = "local"
    """Where the files were written: ``local`` or ``spark``."""
    engine_reason: str = ""
    """Why this engine was chosen."""

    @property
    def damaged(self) -> bool:
        """Whether an index is missing in some file because bytes of its source are broken."""
        return any(report.damaged for report in self.files)

    def warnings(self) -> list[str]:
        """Return the warnings of all files, each with its file."""
        return [f"{report.source}: {text}" for report in self.files for text in report.warnings()]

    def totals(self) -> dict[str, Any]:
        """Return the sizes of all files, and what is true of the run."""
        return {
            **super().totals(),
            "size_before": sum(report.size_before for report in self.files),
            "size": sum(report.written.size for report in self.files),
            "ways": self.ways(),
        }

    def ways(self) -> dict[str, dict[str, int]]:
        """Count the indexes of all files by kind and by way."""
        total: dict[str, dict[str, int]] = {}
        for report in self.files:
            for kind, ways in report.ways().items():
                for way, count in ways.items():
                    counts = total.setdefault(kind, {})
                    counts[way] = counts.get(way, 0) + count
        return total


def embed_files(
    paths: Paths,
    folder: str,
    *,
    bloom: Sequence[str] = (),
    page_index: bool = False,
    fpp: float = DEFAULT_FPP,
    placement: Placement = "end",
    harvest: HarvestRule = GOOD,
    threads: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> WrittenFiles:
    """Do :func:`sidecar.embed_file` for all data files that ``paths`` name (files, folders, globs), into ``folder``.

    ``bloom``, ``page_index``, ``fpp``, ``placement``, ``harvest``, ``threads`` and ``encryption_keys`` are as for one
    file. ``folder`` is made if it is missing. ``io`` opens the files if it is given. ``engine`` and ``spark`` say where
    the files are written, as for :func:`sidecar.build`: on Spark each file is a task of one thread, and ``folder`` is
    one that all workers share. A file that fails among many is in ``failed``. Raises
    :class:`UsageError` before anything is written if a target exists or two files would have the same target, and the
    errors of :func:`sidecar.embed_file`.
    """
    options = {
        "bloom": bloom,
        "page_index": page_index,
        "fpp": fpp,
        "placement": placement,
        "harvest": harvest,
        "encryption_keys": encryption_keys,
    }
    run = _WriteAll(paths, folder, io)
    run.engine = work_engine(engine, spark, run.size)
    if run.engine.name == "spark":
        threads = threads or 1
    return run.run(embed_file, {**options, "threads": threads})


def strip_files(
    paths: Paths,
    folder: str,
    *,
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> WrittenFiles:
    """Do :func:`sidecar.strip_file` for all data files that ``paths`` name, into ``folder``, as :func:`embed_files`.

    ``encryption_keys``, ``io``, ``engine`` and ``spark`` are as for :func:`embed_files`, and so are the errors.
    """
    run = _WriteAll(paths, folder, io)
    run.engine = work_engine(engine, spark, run.size)
    return run.run(strip_file, {"encryption_keys": encryption_keys})


class _WriteAll:
    """Writes a new file for each of many."""

    def __init__(
        self,
        paths: Paths,
        folder: str,
        io: FileIO | None,
    ) -> None:
        self.start = time.monotonic()
        self.folder = folder
        self.io = io
        self.engine: WorkEngine = LocalWork()
        self.found = find_files(paths, io, endings=DATA_ENDINGS)
        self.targets = targets_of(self.found, folder)
        _check_free(self.targets.values())

    def size(self) -> int:
        return estimated_size(self.found.files, FileIOs(self.io))

    def run(self, write: Write, options: Mapping[str, Any]) -> WrittenFiles:
        """Call ``write`` with each file, its target and ``options``."""
        is_spark = self.engine.name == "spark"
        work = _WriteOne(write, self.targets, self.io, is_spark, options)
        files, failed = each_file(work, self.found, self.io, engine=self.engine)
        return WrittenFiles(
            files,
            failed,
            others=self.found.others,
            folder=self.folder,
            seconds=time.monotonic() - self.start,
            engine=self.engine.name,
            engine_reason=self.engine.reason,
        )


@dataclass(frozen=True)
class _WriteOne:
    """The work for one file: write its new file. On Spark it may run twice, and then takes what is there already."""

    write: Write
    targets: Mapping[str, str]
    io: FileIO | None = field(repr=False)
    is_repeatable: bool
    options: Mapping[str, Any] = field(repr=False)

    def __call__(self, source: str, _: FileIO | None) -> EmbedReport:
        io = repeatable(self.io) if self.is_repeatable else self.io
        target = self.targets[source]
        make_folder_of(target)
        return self.write(source, target, **self.options, io=io)


def targets_of(found: FoundFiles, folder: str) -> dict[str, str]:
    """Return the new path in ``folder`` for each file. Raises as :func:`targets_in`, and for links that lead out."""
    if not found.files:
        return {}
    locations = [_absolute(file) for file in found.files]
    if len({local_path(file) is None for file in found.files}) > 1:
        raise UsageError("local and remote files have no folder in common", hint="Write them one after another.")
    targets = targets_in(folder, locations, [_absolute(root) for root in found.roots])
    check_inside(folder, targets)
    return dict(zip(found.files, targets, strict=True))


def _absolute(location: str) -> str:
    local = local_path(location)
    return location if local is None else os.path.abspath(local or ".")


def _check_free(targets: Iterable[str]) -> None:
    """Raise :class:`UsageError` if a local target exists; for remote ones, creating the file says so."""
    taken = next((target for target in targets if os.path.lexists(local_path(target) or "")), None)
    if taken is not None:
        raise UsageError("the file exists already", file=taken, hint="Choose another folder.")
