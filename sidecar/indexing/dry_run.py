"""What a build would do: the result of a dry run, which opens no data file and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import FileFormat

from sidecar.engines.choice import ChosenEngine
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.listing import SnapshotFile
from sidecar.iceberg.statistics_files.registering import check_mergeable
from sidecar.iceberg.statistics_files.write_statistics import statistics_folder
from sidecar.indexing.assemble import kinds_of
from sidecar.indexing.engine_choice import NOTHING_TO_INDEX
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.preparing import PreparedBuild
from sidecar.indexing.sketch_groups import group_files
from sidecar.indexing.writing import bytes_carried
from sidecar.results.base import Result
from sidecar.run_log import counted


@dataclass(frozen=True, repr=False, slots=True)
class FileToIndex(Result):
    """A data file that a build would index."""

    path: str
    """The path of the file."""
    size: int
    """The size of the file in bytes."""


@dataclass(frozen=True, repr=False, slots=True)
class ColumnToIndex(Result):
    """A column that a build would index."""

    name: str
    """The name of the column."""
    field_id: int
    """Its field id."""
    type: str
    """Its Iceberg type."""
    sealed: bool
    """Whether its indexes would be encrypted in the sidecar."""
    kinds: list[str]
    """The kinds of its indexes that would be built."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class PlannedBuild(Result):
    """The result of :func:`sidecar.indexing.driver.build` with ``dry_run``: what a build would do now."""

    dry_run: bool = True
    """Always true: nothing was built."""
    snapshot_id: int | None
    """The snapshot that would be indexed; ``None`` for a table that has none yet."""
    commits: bool
    """Whether the table would get a commit. If not, there is nothing to do: everything is indexed already."""
    folder: str | None
    """The folder in which the sidecar would be written; ``None`` if nothing would be."""
    engine: str
    """Where the build would run: ``local`` or ``spark``."""
    engine_reason: str
    """Why it would run there."""
    files_total: int
    """The data files of the snapshot."""
    files: list[FileToIndex]
    """The data files that would be indexed."""
    files_carried: int
    """The data files that an earlier sidecar answers for."""
    files_unsupported: dict[str, str]
    """The reason by path for each file in a format that is not indexed."""
    row_groups: int | None
    """The row groups of the files that would be indexed, by the split offsets in the manifests. ``None`` if a manifest
    has none for a file, and for ORC files, whose manifests name stripes."""
    columns: list[ColumnToIndex]
    """The columns that would be indexed."""
    kinds: list[str]
    """The kinds of indexes that would be built, of all columns."""
    fpp: float
    """The target false-positive rate of new filters."""
    tasks: int
    """The tasks that the files would be packed into."""
    files_size: int
    """The size of the files to be indexed or counted again in bytes, an upper bound of what would be read of them: a
    build reads their footers and the columns. A part that it reads twice counts once."""
    segments_carried: int
    """The segments of an earlier sidecar that would be copied."""
    bytes_carried: int
    """The bytes of these segments that would be copied."""
    warnings: list[str]
    """What the caller should know."""
    seconds: float
    """The time that the dry run took."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        names = ("snapshot_id", "commits", "folder", "engine", "files_total", "files", "files_carried")
        others = ("columns", "files_size", "bytes_carried", "warnings")
        return {name: getattr(self, name) for name in (*names, *others)}

    def log_line(self, table: str) -> str:
        """What would be done, for the log."""
        counts = {"in formats that are not indexed": len(self.files_unsupported), "kept": self.files_carried}
        return (
            f"dry run of a build of {table}: {len(self.files):,} of {self.files_total:,} files would be indexed "
            f"({counted(counts)}), {self.files_size:,} bytes in these; {self.seconds:.3f} s"
        )


def nothing_planned(fpp: float | str, seconds: float) -> PlannedBuild:
    """Return the result for a table without a snapshot."""
    return PlannedBuild(
        snapshot_id=None,
        commits=False,
        folder=None,
        engine="local",
        engine_reason=NOTHING_TO_INDEX,
        files_total=0,
        files=[],
        files_carried=0,
        files_unsupported={},
        row_groups=0,
        columns=[],
        kinds=[],
        fpp=DEFAULT_FPP if isinstance(fpp, str) else fpp,
        tasks=0,
        files_size=0,
        segments_carried=0,
        bytes_carried=0,
        warnings=[],
        seconds=seconds,
    )


def planned_build(prepared: PreparedBuild, engine: ChosenEngine) -> PlannedBuild:
    """Return what a build would do that has got as far as its first data file.

    ``engine`` is what would index the files. Raises the errors of
    :func:`sidecar.iceberg.statistics_files.registering.check_mergeable` if the table would get a commit.
    """
    table, listing, plan, earlier = prepared.table, prepared.listing, prepared.plan, prepared.earlier
    indexable = prepared.to_index
    commits = bool(indexable) or not earlier.is_registered(table, listing.snapshot_id)
    notes = check_mergeable(table, listing.snapshot_id, prepared.request.force) if commits else ()
    again = [f"all files are indexed again: {earlier.why_not}"] if earlier.why_not else []
    options = plan.options
    return PlannedBuild(
        snapshot_id=listing.snapshot_id,
        commits=commits,
        folder=statistics_folder(table) if commits else None,
        engine=engine.name,
        engine_reason=engine.reason,
        files_total=len(listing.files),
        files=[FileToIndex(file.path, file.file_size) for file in indexable],
        files_carried=len(earlier.served),
        files_unsupported={file.path: file.not_indexable for file in listing.files if file.not_indexable},
        row_groups=_row_groups(indexable),
        columns=[
            ColumnToIndex(c.path, c.field_id, c.type, c.field_id in options.sealed, kinds_of(options.of(c.field_id)))
            for c in plan.columns
        ],
        kinds=list(kinds_of(options)),
        fpp=options.fpp,
        tasks=len(make_tasks(group_files(indexable), engine.name)),
        files_size=sum(file.file_size for file in indexable),
        segments_carried=len(earlier.segments),
        bytes_carried=bytes_carried(table, plan, earlier) if commits else 0,
        warnings=[*prepared.notes, *again, *notes],
        seconds=prepared.request.seconds(),
    )


def _row_groups(files: Sequence[SnapshotFile]) -> int | None:
    """Return the number of row groups if the manifests tell it for all files."""
    offsets = [file.data_file.split_offsets for file in files]
    if not all(offsets) or any(file.data_file.file_format != FileFormat.PARQUET for file in files):
        return None
    return sum(len(found or ()) for found in offsets)
