"""Embeds filters and page indexes into a table: rewrites its data files and swaps them in one commit.

Each file gets a successor with the same pages (:func:`sidecar.embedding.file.embed_parquet`). One commit with the
operation ``replace`` puts all successors in place (:mod:`sidecar.iceberg.replace`). Until then the table does not
change. After an error the new files are deleted, unless the commit may have succeeded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.embedding.file import MOST_THREADS, NewIndexes
from sidecar.embedding.rewritten_files import EmbeddedFields, RewrittenFile, RewrittenFiles, SuccessorWriter
from sidecar.embedding.table_report import EmbedTableReport, LeftAlone, ReplacedFile
from sidecar.engines.choice import choose_engine, work_engine
from sidecar.engines.work import LocalWork, WorkEngine
from sidecar.errors import SidecarError
from sidecar.failpoints import hit
from sidecar.iceberg.catalog import held, show_commit
from sidecar.iceberg.listing import SnapshotFile
from sidecar.iceberg.replace import CommitUnknownError, NewPaths, Replaceable, commit_replace, find_replaceable
from sidecar.iceberg.resolve import resolve_columns
from sidecar.iceberg.snapshot_producer import NewFile
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.iceberg.table_names import name_of
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.indexing.request import BuildMeans
from sidecar.maintenance.refreshing import refresh_with
from sidecar.run import threads_of
from sidecar.run_log import log_run

log = logging.getLogger(__name__)

NOTHING_TO_EMBED = "no file can be replaced"
"""The reason for the engine where no file gets a successor."""


def embed_table(
    table: Table,
    means: BuildMeans,
    indexes: NewIndexes,
    *,
    refresh: bool,
    dry_run: bool,
) -> EmbedTableReport:
    """Do :func:`sidecar.embed` for the data files of a table's current snapshot.

    Every file is rewritten under a new path, and one ``replace`` commit swaps the files. Files that stay as they are,
    each with a reason, are in the report's ``left_alone``. If the table has a sidecar, or declares what is indexed,
    ``refresh`` brings the sidecar up to date afterwards; an error of this step is in the report.

    Raises :class:`UsageError` for unknown columns and a table without a snapshot, :class:`UnsupportedFeatureError` for
    format versions other than 2, :class:`StorageError`, and :class:`CommitConflictError` if another commit changed one
    of the files meanwhile. The new files are then deleted, unless nobody knows whether the commit succeeded; the error
    says so.
    """
    start = time.monotonic()
    with held(table) as own:
        fields = _fields(own, indexes.bloom)
        replaceable = find_replaceable(own)
        report = EmbedTableReport(name_of(own), dry_run, replaceable.listing.snapshot_id, indexes.fpp)
        report.left_alone += [LeftAlone(file.path, reason) for file, reason in replaceable.left_alone]
        if dry_run:
            report.engine, report.engine_reason = choose_engine(
                means.chosen_engine(), means.spark, lambda: _size(replaceable.files), own.io
            )
            report.replaced += [ReplacedFile(file.path, file.file_size) for file in replaceable.files]
        else:
            at_once, each = _threads(means.threads, len(replaceable.files))
            workers = _engine_for(own, replaceable.files, means, at_once)
            report.engine, report.engine_reason = workers.name, workers.reason
            # On Spark, the session says how many files are written at the same time.
            each = each if workers.name == "local" else means.threads or 1
            writer = SuccessorWriter(means.access(own), NewPaths.of(own), fields, replace(indexes, threads=each))
            _write_and_commit(RewrittenFiles(writer, workers), own, replaceable, report)
            if refresh and replaceable.files:  # also if none was replaced: an earlier run may have ended before it
                _refresh(own, report, means)
    report.seconds = time.monotonic() - start
    log_run(log, report.log_line, report.warnings())
    return report


def _fields(table: Table, bloom: Sequence[str]) -> EmbeddedFields:
    schema = table.schema()
    columns = tuple(resolve_columns(schema, bloom)) if bloom else ()
    return EmbeddedFields(columns, schema, name_mapping_of(table))


def _threads(threads: int | None, files: int) -> tuple[int, int]:
    """Return how many files are written at the same time in this process, and how many threads work on each."""
    threads = threads_of(threads, MOST_THREADS)
    at_once = max(min(threads, files), 1)
    return at_once, threads // at_once


def _engine_for(table: Table, files: Sequence[SnapshotFile], means: BuildMeans, threads: int) -> WorkEngine:
    if not files:
        means.chosen_engine()
        return LocalWork(reason=NOTHING_TO_EMBED)
    return work_engine(means.engine, means.spark, lambda: _size(files), threads=threads, io=table.io)


def _size(files: Sequence[SnapshotFile]) -> int:
    return sum(file.file_size for file in files)


def _write_and_commit(
    work: RewrittenFiles,
    table: Table,
    replaceable: Replaceable,
    report: EmbedTableReport,
) -> None:
    """Write the successors and commit them. If the commit fails, delete them."""
    new_files: dict[str, NewFile] = {}
    try:
        with closing(work.write_all(replaceable.files)) as successors:
            for file, written in successors:
                _sort_result(file, written, new_files, report)
        report.replaced.sort(key=lambda replaced: replaced.old_path)
        if not new_files:
            return
        hit("embed: files written")
        stale = _sidecar_path(table)
        committed = commit_replace(table, replaceable.listing, new_files)
    # The commit may have succeeded, and then the table refers to the new files: they must stay.
    except CommitUnknownError as error:
        error.file = f"{next(iter(new_files.values())).path} and {len(new_files) - 1} more"
        raise
    except BaseException as error:
        left = work.delete_written()
        if left and isinstance(error, SidecarError):  # the cause is what the caller must know
            error.hint = " ".join(filter(None, (error.hint, left)))
        elif left:
            log.warning(left)
        raise
    hit("embed: committed")
    report.snapshot_id, report.parent_snapshot_id = committed.snapshot_id, committed.parent_snapshot_id
    report.attempts = committed.attempts
    report.stale_sidecar = stale
    show_commit(table)


def _refresh(table: Table, report: EmbedTableReport, means: BuildMeans) -> None:
    """Bring the sidecar up to date. The files are committed, so an error is a part of the report."""
    try:
        done = refresh_with(table, means)
    except SidecarError as error:
        report.refresh_error = str(error)
        return
    if done.action != "undeclared":
        report.refresh, report.stale_sidecar = done, None


def _sort_result(
    file: SnapshotFile,
    written: RewrittenFile | LeftAlone,
    new_files: dict[str, NewFile],
    report: EmbedTableReport,
) -> None:
    if isinstance(written, LeftAlone):
        report.left_alone.append(written)
        return
    new_files[file.path] = written.file
    report.count(written.outcomes)
    report.encrypted_filters |= written.encrypted_filters
    report.replaced.append(ReplacedFile(file.path, file.file_size, written.file.path, written.file.size))


def _sidecar_path(table: Table) -> str | None:
    found = find_sidecar(table, Access(table.io))
    if found is None:
        return None
    found.sidecar.close()
    return found.statistics.statistics_path
