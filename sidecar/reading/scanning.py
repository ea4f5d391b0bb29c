"""Reads the rows of a table that match a predicate, from the files, row groups and pages that can hold them.

:mod:`sidecar.reading.table_files` reads each file of a :class:`~sidecar.planning.plan.Plan`, several files at a time
(:mod:`sidecar.reading.read_ahead`). Rows come in the order of the plan and in the types that pyiceberg gives, so the
result equals that of ``table.scan(predicate).to_arrow()``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import (
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
    advisory,
    enough_memory,
    foreign_reason,
    refuse_text,
    undecodable,
)
from sidecar.iceberg.partial_loading import check_has_all_columns
from sidecar.iceberg.refs import check_table
from sidecar.iceberg.resolve import find_field, resolve_columns
from sidecar.many_files.find import DATA_ENDINGS
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.keys.key_sets import Keys
from sidecar.planning.plan import Plan
from sidecar.planning.planner import equality_deletes_error, plan
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.key_rows import KeyRows
from sidecar.reading.read_ahead import read_ahead
from sidecar.reading.report import TableScanReport
from sidecar.reading.table_files import DataFileReader, FileRows
from sidecar.results.choices import NameList
from sidecar.run import threads_of
from sidecar.storage.locations import local_path
from sidecar.storage.source import AnyPath, Source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)

MOST_THREADS = 8
"""The most files that are read at once by default."""

MORE_THREADS = 1
"""Local files that are read at once beside one a processor: a file that begins or ends leaves some of them idle."""

LITTLE = 4 << 20
"""Local files of at most this many bytes together are read one after another: threads would take longer to start."""

_Batches = Generator[pa.RecordBatch, None, None]


def scan(
    source: Table | AnyPath | Source,
    predicate: str | BooleanExpression = "TRUE",
    columns: NameList | None = None,
    limit: int | None = None,
    *,
    keys: Mapping[str, Keys] | None = None,
    at: int | str | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> pa.Table:
    """Return the rows of a table or of one Parquet or ORC file that match ``predicate``.

    Example: ``sidecar.scan(table, "id = 42", ["id", "mail"])``
    ``source``: a table, or a path, URL or open source of a file.
    ``columns``: names [all], in the order of the schema.
    ``limit``: the most rows to return.
    ``keys``: as for :func:`sidecar.plan`; of files, only Parquet.
    ``at``: of a table: a snapshot id, a branch or a tag [the current snapshot].
    ``case_sensitive``: whether names of columns are.
    ``threads``: files of a table that are read at once [about one a processor].
    ``io``: opens the file.
    ``encryption_keys``: of files and sidecars.

    Warnings of the plan are logged. Raises the errors of :func:`sidecar.plan` and of reading data files; for a file
    :class:`UsageError` for a name or a value that does not fit.
    """
    common: dict[str, Any] = {"case_sensitive": case_sensitive, "keys": keys}
    if _is_file(source, at):
        from sidecar.reading.file_scanning import open_scan  # what decodes pages is not needed for a plan

        access = Access(io, encryption_keys)
        with enough_memory(), open_scan(source, predicate, columns, limit, access=access, **common) as opened:
            return opened.to_table()
    found = plan(as_table(source, io), predicate, at=at, encryption_keys=encryption_keys, **common)
    return read(found, columns, limit, case_sensitive, threads)


def scan_batches(
    source: Table | AnyPath | Source,
    predicate: str | BooleanExpression = "TRUE",
    columns: NameList | None = None,
    limit: int | None = None,
    *,
    keys: Mapping[str, Keys] | None = None,
    at: int | str | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of :func:`scan` as a stream; of a file by row groups or stripes.

    Example: ``sidecar.scan_batches(table, "day = '2024-01-31'")``
    ``source``, ``predicate``, ``columns``, ``limit``, ``keys``, ``at``, ``case_sensitive``, ``threads``, ``io`` and
    ``encryption_keys`` are as for :func:`scan`.
    """
    common: dict[str, Any] = {"case_sensitive": case_sensitive, "keys": keys}
    if _is_file(source, at):
        from sidecar.reading.file_scanning import stream_file

        return stream_file(source, predicate, columns, limit, access=Access(io, encryption_keys), **common)
    found = plan(as_table(source, io), predicate, at=at, encryption_keys=encryption_keys, **common)
    return read_batches(found, columns, limit, case_sensitive, threads)


def _is_file(source: Table | AnyPath | Source, at: int | str | None) -> TypeGuard[AnyPath | Source]:
    """Return whether ``source`` is a file. Raises :class:`UsageError` if a snapshot of it is asked for.

    A text without a slash and without a usual ending that names no file is the name of a table.
    """
    if isinstance(source, str):
        is_file = "/" in source or source.endswith(DATA_ENDINGS) or os.path.lexists(source)
    else:
        is_file = isinstance(source, os.PathLike) or hasattr(source, "read")
    if is_file and at is not None:
        raise UsageError("a file has no snapshots", found=f"at={at!r}", hint="Open the table: sidecar.open_table.")
    return is_file


def as_table(source: Any, io: FileIO | None) -> Table:
    """Return ``source``. Raises :class:`UsageError` if it is no open table, and for an ``io``, which it has itself."""
    check_table(source)
    if io is not None:
        raise UsageError("io is for a file: a table opens its files itself")
    table: Table = source
    return table


def read(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    report: TableScanReport | None = None,
) -> pa.Table:
    """Return the matching rows of the files in ``planned``.

    ``report`` is filled in with what was read, warnings included; without a report, warnings are logged. Raises
    :class:`UsageError` for an unknown column, a negative limit or fewer than one thread, and :class:`StorageError`,
    :class:`DamagedFileError` or :class:`UnsupportedFeatureError` for data files that cannot be read.
    """
    schema, rows = _rows(planned, columns, limit, case_sensitive, threads, report)
    tables = [pa.Table.from_batches([batch]) for batch in rows]
    if not tables:
        return pa.Table.from_batches([], schema_to_pyarrow(schema, include_field_ids=False))
    with reading_errors():
        return pa.concat_tables(tables, promote_options="permissive")  # string and large_string may mix


def read_batches(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    report: TableScanReport | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of :func:`read` as a stream that can be read once, in the order of the plan's tasks.

    Types are those of pyiceberg's ``to_arrow_batch_reader`` (large strings everywhere). Memory holds the matching
    rows of at most ``threads`` files, including the file of the current batch. Reading starts with the first batch
    and ends when the reader is freed. Raises the errors of :func:`read`; an error of a data file is raised by the
    batch that needs it.
    """
    schema, rows = _rows(planned, columns, limit, case_sensitive, threads, report)
    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.RecordBatchReader.from_batches(wanted, _cast(rows, wanted))


def reading_threads(threads: int | None, remote: bool = False) -> int:
    """Return the number of files to read at once: ``threads``, or pyiceberg's ``max-workers``.

    The default is one file more than processors, at most 8. It is 8 if files are ``remote``, because reading these is
    mostly waiting. Raises :class:`UsageError` if ``threads`` is less than 1.
    """
    if threads is None:
        threads = ExecutorFactory.max_workers() or (MOST_THREADS if remote else None)
    return threads_of(threads, MOST_THREADS, MORE_THREADS)


def _files_at_once(tasks: Sequence[FileScanTask], threads: int | None) -> int:
    """Return how many files of ``tasks`` are read at once. Raises :class:`UsageError` as :func:`reading_threads`."""
    remote = any(local_path(task.file.file_path) is None for task in tasks)
    if threads is None and (
        len(tasks) < 2 or (not remote and sum(task.file.file_size_in_bytes for task in tasks) <= LITTLE)
    ):
        return 1  # pyiceberg reads its configuration each time that it is asked for its number
    return min(reading_threads(threads, remote), max(1, len(tasks)))


def _rows(
    planned: Plan,
    columns: Sequence[str] | None,
    limit: int | None,
    case_sensitive: bool,
    threads: int | None,
    report: TableScanReport | None,
) -> tuple[Schema, _Batches]:
    """Check the call; return the requested schema and the rows, of which nothing is read yet."""
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    if planned.equality_deletes:
        raise equality_deletes_error(min(planned.equality_deletes))
    at_once = _files_at_once(planned.tasks, threads)
    schema = planned.table.schema()
    refuse_text(columns=columns)
    if columns is None:
        check_has_all_columns(planned.table)
    else:
        schema = _select(schema, columns, case_sensitive)
    return schema, _logging(partial(_batches, planned, schema, limit, at_once), report or TableScanReport())


def _logging(batches: Callable[[TableScanReport], _Batches], report: TableScanReport) -> _Batches:
    try:
        yield from batches(report)
    finally:
        for warning in report.warnings:
            log.warning("%s", warning)


def _cast(rows: _Batches, wanted: pa.Schema) -> _Batches:
    with closing(rows), reading_errors():
        for batch in rows:
            yield batch if batch.schema.equals(wanted) else batch.cast(wanted)
            del batch


def _batches(planned: Plan, schema: Schema, limit: int | None, at_once: int, report: TableScanReport) -> _Batches:
    """Yield the matching rows, at most ``limit``, in the order of the tasks."""
    tasks, left = list(planned.tasks), limit
    if not tasks or left == 0:
        return
    with reading_errors():
        key_rows = _key_rows(planned, schema)
        read_schema = key_rows.schema if key_rows else schema
        question = planned.history.question or FileQuestion(planned.row_filter, planned.table.schema())
        table_reader = TableReader(planned.table, read_schema, question, planned.access)
        deletes = table_reader.read_deletes(tasks)
        most = None if key_rows else limit
        reader = DataFileReader(table_reader, deletes, most, planned.is_locked)
        if planned.stored is not None:
            _fetch_pages(planned, reader, report)

        def rows_of(task: FileScanTask) -> FileRows:
            path = task.file.file_path
            with reading_errors(path):
                found = reader.read(task, planned.row_groups.get(path), path in planned.answered)
            return key_rows.only(found) if key_rows else found

        with closing(read_ahead(rows_of, tasks, at_once, reader.stopped)) as files:
            for found in files:
                report.add(found)
                while found.batches:  # a batch is freed once the caller is done with it
                    part = found.batches.pop(0).slice(0, left)
                    left = None if left is None else left - part.num_rows
                    yield part
                    if left == 0:
                        return
                    del part
                del found


def _key_rows(planned: Plan, schema: Schema) -> KeyRows | None:
    if planned.keys is None:
        return None
    return KeyRows(planned.keys, schema, planned.table.schema())


def _fetch_pages(planned: Plan, reader: DataFileReader, report: TableScanReport) -> None:
    """Read page indexes of the projected columns from the sidecar. If that fails, those of the files are used.

    They are also used if most pages of a file are left: then they are needed only if few rows match an equality.
    """
    assert planned.stored is not None
    kept = ((task, planned.row_groups.get(task.file.file_path)) for task in planned.tasks)
    files = [found for task, found in kept if found is not None and not reader.much_is_left_by_indexes(task, found)]
    try:
        reads, num_bytes = planned.stored.fetch(files, sorted(reader.reader.field_ids))
    except Exception as error:  # no query may fail because of a sidecar
        report.warnings.append(f"the sidecar is not used: {advisory(error)}")
        return
    report.sidecar_reads += reads
    report.sidecar_bytes += num_bytes


@contextmanager
def reading_errors(file: str | None = None) -> Iterator[None]:
    """Turn foreign errors into :class:`SidecarError`; ``file`` is the path of the file that is being read, if any."""
    try:
        yield
    except SidecarError:
        raise
    except pa.ArrowInvalid as error:
        raise undecodable("a data file cannot be read", error, file=file) from error
    except OSError as error:
        raise StorageError(f"a data file cannot be read: {foreign_reason(error)}", file=file) from error
    except Exception as error:
        raise UnsupportedFeatureError(f"pyiceberg cannot read the rows: {foreign_reason(error)}") from error


def _select(schema: Schema, columns: Sequence[str], case_sensitive: bool) -> Schema:
    if not case_sensitive:
        fields = ((name, find_field(schema, name, case_sensitive)) for name in columns)
        columns = [schema.find_column_name(field.field_id) or name for name, field in fields]
    try:
        return schema.select(*columns)
    except ValueError as error:
        resolve_columns(schema, columns)  # raises a better error for an unknown name
        raise UsageError(f"the columns cannot be selected: {foreign_reason(error)}") from error
