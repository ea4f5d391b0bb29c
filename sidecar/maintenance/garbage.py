"""Deletes what nothing names: sidecar files of builds that were killed and of entries that are gone; temporary files.

A sidecar file is deleted only if all of this is true:

- it is in the table's metadata folder, and its name ends as those of Puffin files do;
- sidecar wrote it, and each of its segments has the UUID of this table, or it has only copied blobs of others;
- it is older than ``older_than`` by the storage's clock;
- no build would carry over from it: it is not the last sidecar of a branch or tag, displaced by another writer's
  statistics (:func:`sidecar.iceberg.statistics_files.find_sidecar.find_displaced`);
- the table's current metadata does not name it, loaded after the folder was listed and again before the deletion;
- no ``*.metadata.json`` in the folder that is younger than ``older_than`` names it, and none that the current one does
  not come from: the table may have a second name that went its own way (:mod:`sidecar.maintenance.metadata_files`).

A temporary file of :mod:`sidecar.storage.temporary` that is ``older_than`` is deleted wherever it is below the local
folders of the table, folders of other tables excepted: a killed run left it beside a sidecar or a data file. It stays
if it is a whole data file. Other programs add all files of a folder to a table, and that table need not be this one.

A table whose property ``gc.enabled`` is false is left alone: its files may be those of other tables.

What cannot be read or listed is kept, or ends the run before anything is deleted. :func:`find_garbage` is the one
decision; a preview shows it, and a run deletes it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import Table, TableProperties

from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import SidecarError, UsageError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import reload_table, storage_error
from sidecar.iceberg.refs import check_table
from sidecar.iceberg.statistics_files.find_sidecar import find_reusable
from sidecar.iceberg.statistics_files.registering import OTHERS_PROPERTY, REGISTRABLE_FOR
from sidecar.iceberg.statistics_files.write_statistics import statistics_folder
from sidecar.iceberg.table_names import name_of
from sidecar.maintenance.metadata_files import METADATA_ENDINGS, OtherVersions
from sidecar.many_files.find import PUFFIN_ENDINGS
from sidecar.many_files.stored_files import StoredFile, list_stored_files
from sidecar.puffin.types import is_ours
from sidecar.puffin.writer import CREATED_BY
from sidecar.results.base import Result
from sidecar.run import report_progress
from sidecar.run_log import counted, log_run
from sidecar.storage.locations import local_path, refuse_control_characters
from sidecar.storage.temporary import is_temporary, may_be_data_file, old_temporary

log = logging.getLogger(__name__)

OLDER_THAN: timedelta = timedelta(days=3)
"""How old a file must be by default."""

FLOOR = timedelta(seconds=2 * REGISTRABLE_FOR)
"""How old a file must be at least, without ``force``: a build may still register a younger one."""

BATCH = 100
"""Files that are deleted between two looks at the current metadata."""

GC_ENABLED = "gc.enabled"
"""The table property that forbids to delete files."""

ONE_SPELLING = re.compile(r"[\w.-]+", re.ASCII)
"""Names that have one spelling in JSON and in URLs. Other names may be spelled otherwise where they are registered, and
a FileIO may take ``#`` and ``?`` in them for the end of the path. sidecar writes no such names."""


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
    """What :func:`gc` did, or would do."""

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
    """Old files that no metadata names, and that cannot be read; and old files that stay although nothing of this table
    needs them."""
    left_alone: str | None
    """Why nothing was looked for, as a sentence; ``None`` if it was."""


def _log_line(report: GarbageReport) -> str:
    if report.left_alone is not None:
        return f"gc {report.table}: {report.left_alone}"
    counts = {"files deleted": len(report.files), "failed": len(report.failed)}
    return f"gc {report.table}: {counted(counts)}, {report.bytes:,} bytes{', dry run' if report.dry_run else ''}"


def gc(
    table: Table,
    *,
    older_than: timedelta = OLDER_THAN,
    dry_run: bool = False,
    force: bool = False,
) -> GarbageReport:
    """Delete sidecar files in the metadata folder of ``table`` that no metadata names, and left temporary files.

    Example: ``sidecar.gc(table, dry_run=True)``
    ``older_than``: the least age of a file by the storage's clock, by default three days.
    ``dry_run``: only check.
    ``force``: go on in a table whose property ``gc.enabled`` is false, and allow less than 24 hours, at which a running
    build may lose its file.

    Raises :class:`sidecar.errors.UsageError` for less than 24 hours without ``force`` and for a table that was opened
    from a metadata file, :class:`sidecar.errors.UnsupportedFeatureError` if the folder cannot be listed,
    :class:`sidecar.errors.StorageError` if the catalog or a metadata file fails. Nothing is deleted then.
    """
    check_table(table)
    left_alone = None if force else why_left_alone(reload_table(table))
    if left_alone is None:
        check_age(older_than, force)
    warnings: list[str] = []
    found = find_garbage(table, older_than, warnings) if left_alone is None else []
    deleted, failed = (list(found), []) if dry_run else _delete(table, found)
    report = GarbageReport(
        table=name_of(table),
        folder=statistics_folder(table),
        dry_run=dry_run,
        files=deleted,
        bytes=sum(file.size for file in deleted),
        failed=failed,
        warnings=warnings,
        left_alone=left_alone,
    )
    log_run(log, lambda: _log_line(report), [*report.warnings, *report.failed])
    return report


def check_age(older_than: timedelta, force: bool = False) -> None:
    """Raise :class:`UsageError` for an age at which a running build may lose its file."""
    if older_than < (timedelta(0) if force else FLOOR):
        hint = "If no build of the table is running: sidecar.gc(table, older_than=..., force=True) in Python."
        raise UsageError(
            "the age of files to delete is too low: a running build writes its files before it registers them",
            expected="at least 24 hours" if not force else "no negative age",
            found=f"{older_than.total_seconds() / 3600:g} hours",
            hint=None if force else hint,
        )


def why_left_alone(table: Table) -> str | None:
    """Return a sentence if the table's properties forbid to delete files, else ``None``."""
    if table.properties.get(GC_ENABLED, "true").strip().lower() == "true":
        return None
    return f"the table's property {GC_ENABLED} is false: no registration is removed and no file is deleted"


def find_garbage(table: Table, older_than: timedelta, warnings: list[str]) -> list[GarbageFile]:
    """Return the files that may be deleted now. Old files that cannot be read are named in ``warnings``.

    Raises the errors of :func:`gc`.
    """
    now = reload_table(table)
    folder = statistics_folder(now)
    hit("gc: list")
    listed = list_stored_files(folder, now.io)
    latest = _clock(folder, listed) - older_than.total_seconds()
    others = OtherVersions(now, folder, latest)
    old = [
        file
        for file in listed
        if file.modified < latest and file.name.lower().endswith(PUFFIN_ENDINGS) and ONE_SPELLING.fullmatch(file.name)
    ]
    hit("gc: load")
    unnamed = _unnamed(reload_table(table), old)
    ours = [file for file in unnamed if _is_ours(now, f"{folder}/{file.name}", file.size, warnings)]
    ours = others.without_named(ours, listed)
    if ours:
        # Commits since the first listing have left metadata files. Files that were written since then stay.
        hit("gc: list again")
        again = list_stored_files(folder, now.io)
        still = set(again)
        ours = others.without_named([file for file in ours if file in still], again)
    if others.keeping:
        warnings.append(
            "old files stay, because versions of the metadata that the current one does not come from name them: of a "
            f"second name of the table, or of a commit that failed: {others.keeping[0]}"
        )
    hit("gc: load again")
    latest_version = reload_table(table)
    ours = _not_reusable(latest_version, _unnamed(latest_version, ours), warnings)
    unnamed_files = [GarbageFile(f"{folder}/{file.name}", file.size, file.modified) for file in ours]
    return unnamed_files + _abandoned(now, time.time() - older_than.total_seconds(), warnings)


def _abandoned(table: Table, latest: float, warnings: list[str]) -> list[GarbageFile]:
    """Return the half-written files below the table's local folders that were not written to since ``latest``.

    Their paths are local. What cannot be read or listed is left out. Whole files are named in ``warnings``.
    """
    found, whole = [], []
    for path in _temporary_files(table):
        with contextlib.suppress(OSError):  # it was published or deleted meanwhile
            state = old_temporary(path, latest)
            if state is not None and may_be_data_file(path):
                whole.append(path)
            elif state is not None:
                found.append(GarbageFile(path, state.st_size, state.st_mtime))
    if whole:
        more = f" and {len(whole) - 1} more" if whole[1:] else ""
        warnings.append(f"old temporary files are whole data files, and stay: a table may name {whole[0]}{more}")
    return found


def _temporary_files(table: Table) -> list[str]:
    """Return the paths of files with temporary names below the table's local folders, but in no other table."""
    folders = {table.location(), statistics_folder(table), table.properties.get(TableProperties.WRITE_DATA_PATH, "")}
    found: set[str] = set()
    for folder in filter(None, map(local_path, folders)):
        root = os.path.abspath(folder)
        for parent, below, names in os.walk(root):
            if parent != root and "metadata" in below and _has_metadata(os.path.join(parent, "metadata")):
                below.clear()
            else:
                found.update(os.path.join(parent, name) for name in names if is_temporary(name))
    return sorted(found)


def _has_metadata(folder: str) -> bool:
    """Return whether a table has its metadata in a local folder; also if the folder cannot be listed."""
    try:
        return any(name.endswith(METADATA_ENDINGS) for name in os.listdir(folder))
    except OSError:
        return True


def _clock(folder: str, listed: Sequence[StoredFile]) -> float:
    """Return the storage's time: of local files this machine's clock, else the time of the folder's newest file.

    An object store does not say what time it is. Its newest file is seldom later than now, so that a wrong clock of
    this machine makes no file look older than it is. Where times can be set, a file from the future does not either.
    """
    newest = max((file.modified for file in listed), default=0.0)
    return time.time() if local_path(folder) is not None else min(newest, time.time())


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


def _not_reusable(table: Table, files: Sequence[StoredFile], warnings: list[str]) -> list[StoredFile]:
    """Return the files without sidecars that were displaced, and from which a build of a branch or tag carries over."""
    reusable: dict[str, str] = {}
    for snapshot_id in {ref.snapshot_id for ref in table.metadata.refs.values()} if files else ():
        found = find_reusable(table, snapshot_id)
        if found is not None:
            found.sidecar.close()
            if found.displaced is not None:
                path = found.statistics.statistics_path
                reusable[path.rpartition("/")[2]] = (
                    f"{path} stays: it was {found.displaced.sentence}, and a refresh needs it"
                )
    warnings += [reusable[file.name] for file in files if file.name in reusable]
    return [file for file in files if file.name not in reusable]


def _is_ours(table: Table, path: str, size: int, warnings: list[str]) -> bool:
    """Return whether sidecar wrote a file for this table: its segments are of it, or it has blobs of others alone."""
    try:
        source = Access(table.io).open(path, size)
        try:
            sidecar = SidecarFile.open(source, file_size=size)
            uuids = {segment.header.table_uuid for segment in sidecar.segments}
            properties = sidecar.puffin.metadata.properties
            if OTHERS_PROPERTY in properties and not any(is_ours(blob.type) for blob in sidecar.puffin.metadata.blobs):
                uuids = {properties[OTHERS_PROPERTY]}
        finally:
            source.close()
    except SidecarError as error:
        warnings.append(f"an old file that no metadata names cannot be read, and stays: {error}")
        return False
    by_us = properties.get(CREATED_BY, "").startswith("sidecar")
    if by_us and not uuids:
        warnings.append(f"an old file that no metadata names has no readable segment, and stays: {path}")
    return by_us and uuids == {str(table.metadata.table_uuid)}


def _delete(table: Table, files: Sequence[GarbageFile]) -> tuple[list[GarbageFile], list[str]]:
    """Delete files, and return those that were deleted and what failed. Each batch asks the current metadata again."""
    deleted, failed = [], []
    for batch in _batches(files):
        names = [StoredFile(file.path.rpartition("/")[2], file.size, file.modified) for file in batch]
        unnamed = {file.name for file in _unnamed(reload_table(table), names)}
        for file in batch:
            if file.path.rpartition("/")[2] not in unnamed:
                continue
            hit("gc: delete")
            try:
                _delete_file(table, file.path)
            except FileNotFoundError:
                continue  # somebody else was faster
            except Exception as error:
                failed.append(str(storage_error("cannot delete the file", error, table, file.path)))
                continue
            deleted.append(file)
            report_progress("deleting", len(deleted), len(files))
    hit("gc: done")
    return deleted, failed


def _delete_file(table: Table, path: str) -> None:
    if is_temporary(path):
        os.unlink(path)  # a FileIO may take a part of the name of the data file for something else
    else:
        refuse_control_characters(path)
        table.io.delete(path)


def _batches(files: Sequence[GarbageFile]) -> Iterator[Sequence[GarbageFile]]:
    for start in range(0, len(files), BATCH):
        yield files[start : start + BATCH]
