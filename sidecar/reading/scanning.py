"""Rows for a predicate, read from the files, row groups and pages that can hold them.

Each file of a :class:`~sidecar.planning.plan.Plan` is read by :mod:`sidecar.reading.table_files`, several at a time
(:mod:`sidecar.reading.read_ahead`), and handed over in the order of the plan: the same rows, in the same types, as
pyiceberg's own reader gives for the same files. So the result is that of ``table.scan(predicate).to_arrow()``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import (
    DamagedFileError,
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
    foreign_reason,
)
from sidecar.iceberg.resolve import resolve_columns
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.key_sets import Keys
from sidecar.planning.plan import Plan
from sidecar.planning.planner import equality_deletes_error, plan
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.key_rows import KeyRows
from sidecar.reading.read_ahead import read_ahead
from sidecar.reading.report import TableScanReport
from sidecar.reading.table_files import DataFileReader, FileRows
from sidecar.source import local_path

log = logging.getLogger(__name__)

MOST_THREADS = 8
"""Files that are read at once unless the caller says otherwise."""

_Batches = Generator[pa.RecordBatch, None, None]


def scan(
    table: Table,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    keys: Mapping[str, Keys] | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> pa.Table:
    """The rows of a snapshot (that of a branch or tag ``ref``, or the current one) that match ``predicate``.

    ``columns`` are read in the order of the schema, all of them by default; ``limit`` is the most rows wanted;
    ``threads`` is the number of files that are read at once (see :func:`threads_of`). Warnings of the plan are
    logged; who wants the plan too calls :func:`sidecar.planning.planner.plan`, then its ``to_arrow``. Errors are
    those of both.
    """
    found = plan(
        table,
        predicate,
        snapshot_id=snapshot_id,
        ref=ref,
        case_sensitive=case_sensitive,
        keys=keys,
        encryption_keys=encryption_keys,
    )
    _log(found.warnings)
    return read(found, columns, limit, case_sensitive=case_sensitive, threads=threads)


def scan_batches(
    table: Table,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    case_sensitive: bool = True,
    threads: int | None = None,
    keys: Mapping[str, Keys] | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> pa.RecordBatchReader:
    """The rows of :func:`scan` as a stream: see :func:`read_batches`."""
    found = plan(
        table,
        predicate,
        snapshot_id=snapshot_id,
        ref=ref,
        case_sensitive=case_sensitive,
        keys=keys,
        encryption_keys=encryption_keys,
    )
    _log(found.warnings)
    return read_batches(found, columns, limit, case_sensitive=case_sensitive, threads=threads)


def read(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    case_sensitive: bool = True,
    threads: int | None = None,
    report: TableScanReport | None = None,
) -> pa.Table:
    """The rows that ``planned`` leads to; ``report`` is filled in with what was read for them, warnings
    included, which are logged without one.

    Raises :class:`UsageError` for an unknown column, a negative limit or no thread, :class:`StorageError`,
    :class:`DamagedFileError` or :class:`UnsupportedFeatureError` for data files that cannot be read.
    """
    schema, rows = _rows(planned, columns, limit, case_sensitive, threads, report)
    tables = [pa.Table.from_batches([batch]) for batch in rows]
    if not tables:
        return schema_to_pyarrow(schema, include_field_ids=False).empty_table()
    with _our_errors():
        return pa.concat_tables(tables, promote_options="permissive")  # files may differ in large types


def read_batches(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    case_sensitive: bool = True,
    threads: int | None = None,
    report: TableScanReport | None = None,
) -> pa.RecordBatchReader:
    """The rows of :func:`read` as a stream, to be read once, in the order of the plan's tasks.

    Types are those of pyiceberg's ``to_arrow_batch_reader`` (large strings throughout). Memory holds the matching rows
    of at most ``threads`` files, that of the batch at hand among them; nothing is read before the first batch is
    asked for, and nothing more once the reader is let go of. Errors are those of :func:`read`; those of data files
    are raised by the batch that cannot be had.
    """
    schema, rows = _rows(planned, columns, limit, case_sensitive, threads, report)
    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.RecordBatchReader.from_batches(wanted, _cast(rows, wanted))


def threads_of(threads: int | None, remote: bool = False) -> int:
    """The number of files to read at once: pyiceberg's setting ``max-workers``, else one a processor, at most 8.

    8 of ``remote`` files, which are waited for more than they are worked on.
    """
    if threads is None:
        at_once = MOST_THREADS if remote else min(MOST_THREADS, os.cpu_count() or 1)
        return ExecutorFactory.max_workers() or at_once
    if threads < 1:
        raise UsageError("files are read by at least one thread", found=threads)
    return threads


def _rows(
    planned: Plan,
    columns: Sequence[str] | None,
    limit: int | None,
    case_sensitive: bool,
    threads: int | None,
    report: TableScanReport | None,
) -> tuple[Schema, _Batches]:
    """The schema that was asked for, and the rows; what is wrong with the call is said at once."""
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    if planned.equality_deletes:
        raise equality_deletes_error(min(planned.equality_deletes))
    remote = any(local_path(task.file.file_path) is None for task in planned.tasks)
    at_once = threads_of(threads, remote)
    schema = planned.table.scan(snapshot_id=planned.snapshot_id if planned.time_travel else None).projection()
    if columns is not None:
        schema = _select(schema, columns, case_sensitive)
    if report is not None:
        return schema, _batches(planned, schema, limit, at_once, report)
    return schema, _logging(partial(_batches, planned, schema, limit, at_once))


def _logging(batches: Callable[[TableScanReport], _Batches]) -> _Batches:
    report = TableScanReport()
    try:
        yield from batches(report)
    finally:
        _log(report.warnings)


def _log(warnings: Iterable[str]) -> None:
    for warning in warnings:
        log.warning("%s", warning)


def _cast(rows: _Batches, wanted: pa.Schema) -> _Batches:
    with closing(rows), _our_errors():
        for batch in rows:
            yield batch if batch.schema.equals(wanted) else batch.cast(wanted)
            del batch


def _batches(
    planned: Plan, schema: Schema, limit: int | None, at_once: int, report: TableScanReport
) -> _Batches:
    """Matching rows, at most ``limit``, in the order of the tasks."""
    tasks, left = list(planned.tasks), limit
    if not tasks or left == 0:
        return
    with _our_errors():
        among = _key_rows(planned, schema)
        table_reader = TableReader(
            planned.table, among.schema if among else schema, planned.row_filter, planned.encryption_keys
        )
        question = FileQuestion(table_reader.row_filter, planned.table.schema())
        deletes = table_reader.read_deletes(tasks)
        most = None if among else limit
        reader = DataFileReader(table_reader, planned.table.io, deletes, most, question, planned.is_locked)
        if planned.stored is not None:
            _fetch_pages(planned, reader, report)

        def rows_of(task: FileScanTask) -> FileRows:
            path = task.file.file_path
            with _our_errors(path):
                found = reader.read(task, planned.row_groups.get(path), path in planned.answered)
            return among.only(found) if among else found

        with closing(read_ahead(rows_of, tasks, at_once, reader.stopped)) as files:
            for found in files:
                report.add(found)
                while found.batches:  # none is kept once it is handed over
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
    full = planned.table.scan(snapshot_id=planned.snapshot_id if planned.time_travel else None).projection()
    return KeyRows(planned.keys, schema, full)


def _fetch_pages(planned: Plan, reader: DataFileReader, report: TableScanReport) -> None:
    """Page indexes of the projected columns from the sidecar; without them, files have their own."""
    assert planned.stored is not None
    kept = ((task, planned.row_groups.get(task.file.file_path)) for task in planned.tasks)
    files = [found for task, found in kept if found is not None and not reader.much_is_left(task, found)]
    try:
        reads, num_bytes = planned.stored.fetch(files, sorted(reader.reader.field_ids))
    except Exception as error:  # no query may fail because of a sidecar
        report.warnings.append(f"the sidecar is not used: {foreign_reason(error)}")
        return
    report.sidecar_reads += reads
    report.sidecar_bytes += num_bytes


@contextmanager
def _our_errors(file: str | None = None) -> Iterator[None]:
    """Foreign errors as ours, with the file that is being read, if it is one."""
    try:
        yield
    except SidecarError:
        raise
    except pa.ArrowInvalid as error:
        what = f"a data file cannot be read: {foreign_reason(error)}"
        raise DamagedFileError(what, file=file) from error
    except OSError as error:
        raise StorageError(f"a data file cannot be read: {foreign_reason(error)}", file=file) from error
    except Exception as error:
        raise UnsupportedFeatureError(f"pyiceberg cannot read the rows: {foreign_reason(error)}") from error


def _select(schema: Schema, columns: Sequence[str], case_sensitive: bool) -> Schema:
    try:
        return schema.select(*columns, case_sensitive=case_sensitive)
    except ValueError as error:
        resolve_columns(schema, columns, case_sensitive)  # says which one, and what there is instead
        raise UsageError(f"these columns cannot be read: {foreign_reason(error)}") from error
