"""Deletes what nothing names: sidecar files of builds that were killed and of entries that are gone; temporary files.

A sidecar file is deleted only if all of this is true:

- it is in the table's metadata folder, and its name ends as those of Puffin files do;
- sidecar wrote it, and each of its segments has the UUID of this table;
- it is older than ``older_than`` by the storage's clock;
- the table's current metadata does not name it, loaded after the folder was listed and again before the deletion;
- no ``*.metadata.json`` in the folder that is younger than ``older_than`` names it, and none that is younger than the
  current one: the table may be registered under a second name, or an older version was registered again.

A temporary file of :mod:`sidecar.target` that is ``older_than`` is deleted wherever it is below the local folders of
the table: a killed run left it beside a sidecar or a data file. It stays if a snapshot of the table names it: it may be
whole, and other programs add all files of a folder to a table.

What cannot be read or listed is kept, or ends the run before anything is deleted. :func:`find_garbage` is the one
decision; a preview shows it, and a run deletes it.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyiceberg.table import Table, TableProperties

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.outcome import Progress
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from sidecar.iceberg.catalog import reload_table
from sidecar.iceberg.entry_commits import is_gone
from sidecar.iceberg.manifests import read_manifest, read_manifests
from sidecar.iceberg.paths import normal_folder
from sidecar.iceberg.refs import check_table
from sidecar.iceberg.registering import REGISTRABLE_FOR
from sidecar.iceberg.write_statistics import statistics_folder, storage_error
from sidecar.many_files.find import PUFFIN_ENDINGS
from sidecar.many_files.stored_files import StoredFile, list_stored_files
from sidecar.puffin.writer import CREATED_BY
from sidecar.results import Result
from sidecar.run_log import counted, logged
from sidecar.run_steps import reached
from sidecar.source import local_path, open_source, read_file
from sidecar.target import is_temporary

log = logging.getLogger(__name__)

OLDER_THAN = timedelta(days=3)
"""How old a file must be by default."""

FLOOR = timedelta(seconds=2 * REGISTRABLE_FOR)
"""How old a file must be at least, without ``force``: a build may still register a younger one."""

BATCH = 100
"""Files that are deleted between two looks at the current metadata."""

METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")
"""The second one is that of old writers; today's write ``.gz.metadata.json``."""
ONE_SPELLING = re.compile(r"[\w.-]+", re.ASCII)
"""Names that have one spelling in JSON and in URLs. Other names may be spelled otherwise where they are registered, and
a FileIO may take ``#`` and ``?`` in them for the end of the path. sidecar writes no such names."""
READERS = 8
"""Metadata files that are read at the same time."""


@dataclass(frozen=True, repr=False, slots=True)
class GarbageFile(Result):
    """A file that was deleted, or would be."""

    path: str
    """The file."""
    size: int
    """Bytes."""
    modified: float
    """When it was written, in seconds since 1970, by the storage's clock."""


@dataclass(frozen=True, repr=False, slots=True)
class GarbageReport(Result):
    """What :func:`collect_garbage` did, or would do."""

    table: str
    """The name of the table."""
    folder: str
    """The folder of sidecar files that was looked at."""
    dry_run: bool
    """Whether nothing was deleted."""
    files: list[GarbageFile]
    """The files that were deleted, or would be."""
    bytes: int
    """Their bytes."""
    failed: list[str]
    """Files that could not be deleted, each with the reason."""
    warnings: list[str]
    """Old files that no metadata names, and that cannot be read; and why temporary files stay, if they all do."""


def _log_line(report: GarbageReport) -> str:
    counts = {"files deleted": len(report.files), "failed": len(report.failed)}
    return f"gc {report.table}: {counted(counts)}, {report.bytes:,} bytes{', dry run' if report.dry_run else ''}"


@logged(log, _log_line, lambda report: [*report.warnings, *report.failed])
def collect_garbage(
    table: Table,
    *,
    older_than: timedelta = OLDER_THAN,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> GarbageReport:
    """Delete the files of sidecar in the metadata folder of ``table`` that no metadata names, and left temporary files.

    A file must be ``older_than`` by the storage's clock, as :mod:`sidecar.maintenance.garbage` explains. ``dry_run``
    makes the same checks and deletes nothing. ``force`` allows an ``older_than`` below 24 hours, at which a running
    build may lose its file. ``progress`` is called as files are deleted.

    Raises :class:`sidecar.errors.UsageError` for an ``older_than`` below 24 hours without ``force`` and for a table
    that was opened from a metadata file, :class:`sidecar.errors.UnsupportedFeatureError` if the folder cannot be
    listed, and :class:`sidecar.errors.StorageError` if the catalog fails or a metadata file cannot be read. Nothing is
    deleted then.
    """
    check_table(table)
    if older_than < (timedelta(0) if force else FLOOR):
        raise UsageError(
            "older_than is below 24 hours, and a running build may lose its file",
            found=older_than,
            hint=None if force else "With force, if no build of this table is running anywhere.",
        )
    warnings: list[str] = []
    found = find_garbage(table, older_than, warnings)
    deleted, failed = (list(found), []) if dry_run else _delete(table, found, progress)
    return GarbageReport(
        table=".".join(table.name()),
        folder=statistics_folder(table),
        dry_run=dry_run,
        files=deleted,
        bytes=sum(file.size for file in deleted),
        failed=failed,
        warnings=warnings,
    )


def find_garbage(table: Table, older_than: timedelta, warnings: list[str]) -> list[GarbageFile]:
    """Return the files that may be deleted now. Old files that cannot be read are named in ``warnings``.

    Raises the errors of :func:`collect_garbage`.
    """
    now = reload_table(table)
    folder = statistics_folder(now)
    reached("gc: list")
    listed = list_stored_files(folder, now.io)
    latest = _clock(folder, listed) - older_than.total_seconds()
    since = min(latest, _written(now, folder, listed))
    old = [
        file
        for file in listed
        if file.modified < latest and file.name.lower().endswith(PUFFIN_ENDINGS) and ONE_SPELLING.fullmatch(file.name)
    ]
    reached("gc: load")
    unnamed = _unnamed(reload_table(table), old)
    ours = [file for file in unnamed if _is_ours(now, f"{folder}/{file.name}", file.size, warnings)]
    read: set[str] = set()
    ours = _without_young_names(now, folder, ours, listed, since, read)
    if ours:
        # Commits since the first listing have left metadata files. Files that were written since then stay.
        reached("gc: list again")
        again = list_stored_files(folder, now.io)
        still = set(again)
        ours = [file for file in ours if file in still]
        ours = _without_young_names(now, folder, ours, again, since, read)
    reached("gc: load again")
    ours = _unnamed(reload_table(table), ours)
    unnamed_files = [GarbageFile(f"{folder}/{file.name}", file.size, file.modified) for file in ours]
    return unnamed_files + _abandoned(now, time.time() - older_than.total_seconds(), warnings)


def _abandoned(table: Table, latest: float, warnings: list[str]) -> list[GarbageFile]:
    """Return the temporary files below the table's local folders that were not written to since ``latest``.

    Their paths are local. Folders that cannot be listed are left out. If there are such files, the manifests of all
    snapshots are read: what they name stays, and all stay if one cannot be read.
    """
    found = _old_temporary_files(table, latest)
    if not found:
        return []
    try:
        named = _named_by_snapshots(reload_table(table))
    except SidecarError as error:
        warnings.append(f"old temporary files stay, because it is not known which files snapshots name: {error}")
        return []
    return [file for file in found if _digits(file.path) not in named]


def _digits(temporary: str) -> str:
    """Return the random digits of a temporary name. The rest of a path may be spelled otherwise in a manifest."""
    return temporary.rsplit(".", 2)[1]


def _named_by_snapshots(table: Table) -> set[str]:
    """Return the digits of the data files and delete files of all snapshots that have temporary names.

    Raises :class:`SidecarError` if a manifest cannot be read.
    """
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    with ThreadPoolExecutor(READERS) as pool:
        lines = {
            line.manifest_path: line
            for found in pool.map(partial(read_manifests, table.io), sorted(lists))
            for line in found
        }
        return {
            _digits(raw.entry.data_file.file_path)
            for manifest in pool.map(partial(read_manifest, table.io), lines.values())
            for raw in manifest.entries
            if is_temporary(raw.entry.data_file.file_path)
        }


def _old_temporary_files(table: Table, latest: float) -> list[GarbageFile]:
    folders = {table.location(), statistics_folder(table), table.properties.get(TableProperties.WRITE_DATA_PATH, "")}
    found: dict[str, GarbageFile] = {}
    for folder in filter(None, map(local_path, folders)):
        for parent, _, names in os.walk(os.path.abspath(folder)):
            for path in (os.path.join(parent, name) for name in names if is_temporary(name)):
                with contextlib.suppress(FileNotFoundError):  # it was published or deleted meanwhile
                    state = os.stat(path, follow_symlinks=False)
                    if state.st_mtime < latest and stat.S_ISREG(state.st_mode):
                        found[path] = GarbageFile(path, state.st_size, state.st_mtime)
    return [found[path] for path in sorted(found)]


def _clock(folder: str, listed: Sequence[StoredFile]) -> float:
    """Return the storage's time: of local files this machine's clock, else the time of the folder's newest file.

    An object store does not say what time it is. Its newest file is seldom later than now, so that a wrong clock of
    this machine makes no file look older than it is. Where times can be set, a file from the future does not either.
    """
    newest = max((file.modified for file in listed), default=0.0)
    return time.time() if local_path(folder) is not None else min(newest, time.time())


def _written(table: Table, folder: str, listed: Iterable[StoredFile]) -> float:
    """Return when the current metadata file was written; the beginning of time if it is not in the folder.

    It is elsewhere if the table's folder was copied and registered again; the folder has the files of both tables then.
    """
    place, _, name = table.metadata_location.rpartition("/")
    is_here = normal_folder(place) == normal_folder(folder)
    return next((file.modified for file in listed if is_here and file.name == name), 0.0)


def _unnamed(table: Table, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Return the files whose names are not in the table's metadata.

    Only the names in the folder are compared, so that no spelling of a path makes a difference. If a local path leads
    through a link, the name that it leads to counts too.
    """
    metadata = table.metadata
    paths = [entry.statistics_path for entry in (*metadata.statistics, *metadata.partition_statistics)]
    named = {path.rpartition("/")[2] for path in paths}
    named |= {os.path.basename(os.path.realpath(local)) for path in paths if (local := local_path(path)) is not None}
    return [file for file in files if file.name not in named]


def _is_ours(table: Table, path: str, size: int, warnings: list[str]) -> bool:
    """Return whether sidecar wrote a file, and all its segments are of this table."""
    try:
        source = open_source(path, table.io, size)
        try:
            sidecar = SidecarFile.open(source, file_size=size)
            uuids = {segment.header.table_uuid for segment in sidecar.segments}
        finally:
            source.close()
    except SidecarError as error:
        warnings.append(f"an old file that no metadata names cannot be read, and stays: {error}")
        return False
    by_us = sidecar.puffin.metadata.properties.get(CREATED_BY, "").startswith("sidecar")
    if by_us and not uuids:
        warnings.append(f"an old file that no metadata names has no readable segment, and stays: {path}")
    return by_us and uuids == {str(table.metadata.table_uuid)}


def _without_young_names(
    table: Table,
    folder: str,
    files: Sequence[StoredFile],
    listed: Iterable[StoredFile],
    since: float,
    read: set[str],
) -> list[StoredFile]:
    """Return the files that no metadata file in ``listed`` names that was written ``since`` and is not yet ``read``.

    A name counts wherever it is in the text of a metadata file. Raises :class:`StorageError` for a metadata file that
    is there and cannot be read.
    """
    young = [f.name for f in listed if f.modified >= since and f.name.endswith(METADATA_ENDINGS) and f.name not in read]
    read.update(young)
    left = list(files)
    with ThreadPoolExecutor(READERS) as pool:
        for text in pool.map(partial(_metadata_text, table), [f"{folder}/{name}" for name in young] if left else []):
            left = [file for file in left if file.name.encode() not in text]
    return left


def _metadata_text(table: Table, path: str) -> bytes:
    """Return the plain text of a metadata file; nothing if the file is gone meanwhile."""
    try:
        text = read_file(path, table.io)
        text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
        if text and not text.lstrip().startswith(b"{"):
            raise DamagedFileError("a metadata file is not JSON", file=path)
        return text
    except (SidecarError, OSError, EOFError, zlib.error) as error:
        if is_gone(table, path):
            return b""
        raise StorageError(
            "a young metadata file cannot be read, so it is not known which files it names", file=path
        ) from error


def _delete(
    table: Table, files: Sequence[GarbageFile], progress: Progress | None
) -> tuple[list[GarbageFile], list[str]]:
    """Delete files, and return those that were deleted and what failed. Each batch asks the current metadata again."""
    deleted, failed = [], []
    for batch in _batches(files):
        names = [StoredFile(file.path.rpartition("/")[2], file.size, file.modified) for file in batch]
        unnamed = {file.name for file in _unnamed(reload_table(table), names)}
        for file in batch:
            if file.path.rpartition("/")[2] not in unnamed:
                continue
            reached("gc: delete")
            try:
                _delete_file(table, file.path)
            except FileNotFoundError:
                continue  # somebody else was faster
            except Exception as error:
                failed.append(str(storage_error("cannot delete the file", error, table, file.path)))
                continue
            deleted.append(file)
            if progress is not None:
                progress("deleting", len(deleted), len(files))
    reached("gc: done")
    return deleted, failed


def _delete_file(table: Table, path: str) -> None:
    if is_temporary(path):
        os.unlink(path)  # a FileIO may take a part of the name of the data file for something else
    else:
        table.io.delete(path)


def _batches(files: Sequence[GarbageFile]) -> Iterator[Sequence[GarbageFile]]:
    for start in range(0, len(files), BATCH):
        yield files[start : start + BATCH]
