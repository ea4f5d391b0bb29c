"""Rows for a predicate, read from the files, row groups and pages that can hold them.

Each file of a :class:`~sidecar.iceberg.planning.Plan` is read by :mod:`sidecar.iceberg.table_files`, several at a time:
the same rows, in the same types, as pyiceberg's own reader gives for the same files. So the result is that of
``table.scan(predicate).to_arrow()``, up to the order of rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.arrow_reader import TableReader
from sidecar.iceberg.conditions import FileQuestion
from sidecar.iceberg.planning import Plan, plan
from sidecar.iceberg.resolve import resolve_columns
from sidecar.iceberg.table_files import DataFileReader, FileRows

log = logging.getLogger(__name__)


@dataclass
class TableScanReport:
    """What a scan of a table read of its data files, and of the sidecar after the plan was made."""

    files: int = 0
    whole_files: Counter[str] = field(default_factory=Counter)
    """Files that pyiceberg read, by why."""
    row_groups: int = 0
    row_groups_read: int = 0
    data_pages: int = 0
    rows_found: int = 0
    file_bytes: int = 0
    """Sizes of the files that were read in part; what pyiceberg read of the others is not known."""
    footer_bytes: int = 0
    index_bytes: int = 0
    data_bytes: int = 0
    reads: int = 0
    sidecar_bytes: int = 0
    sidecar_reads: int = 0
    warnings: list[str] = field(default_factory=list)

    def add(self, found: FileRows) -> None:
        """Count a file."""
        own = found.report
        self.files += 1
        self.rows_found += sum(batch.num_rows for batch in found.batches)
        self.warnings += [f"{own.file}: {warning}" for warning in found.warnings]
        if found.whole:
            self.whole_files[found.whole] += 1
            return
        self.row_groups += own.row_groups
        self.row_groups_read += own.row_groups_read
        self.data_pages += own.data_pages
        self.file_bytes += own.file_bytes
        self.footer_bytes += own.footer_bytes
        self.index_bytes += own.index_bytes
        self.data_bytes += own.data_bytes
        self.reads += own.index_reads + own.data_reads

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "files": self.files,
            "whole_files": dict(self.whole_files),
            "row_groups": {"total": self.row_groups, "read": self.row_groups_read},
            "data_pages_read": self.data_pages,
            "rows_found": self.rows_found,
            "file_bytes": self.file_bytes,
            "footer_bytes_read": self.footer_bytes,
            "index_bytes_read": self.index_bytes,
            "data_bytes_read": self.data_bytes,
            "reads": self.reads,
            "sidecar_bytes_read": self.sidecar_bytes,
            "sidecar_reads": self.sidecar_reads,
            "warnings": list(self.warnings),
        }


def scan(
    table: Table,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    snapshot_id: int | None = None,
    *,
    case_sensitive: bool = True,
) -> pa.Table:
    """The rows of a snapshot (the current one by default) that match ``predicate``.

    ``columns`` are read in the order of the schema, all of them by default; ``limit`` is the most rows wanted.
    Warnings of the plan are logged; who wants the plan too calls :func:`sidecar.iceberg.planning.plan`, then
    :func:`read`. Errors are those of both.
    """
    found, report = (
        plan(table, predicate, snapshot_id=snapshot_id, case_sensitive=case_sensitive),
        TableScanReport(),
    )
    rows = read(found, columns, limit, case_sensitive=case_sensitive, report=report)
    for warning in (*found.warnings, *report.warnings):
        log.warning("%s", warning)
    return rows


def read(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    case_sensitive: bool = True,
    report: TableScanReport | None = None,
) -> pa.Table:
    """The rows that ``planned`` leads to; ``report`` is filled in with what was read for them.

    Raises :class:`UsageError` for an unknown column or a negative limit, :class:`StorageError`,
    :class:`DamagedFileError` or :class:`UnsupportedFeatureError` for data files that cannot be read.
    """
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    table = planned.table
    schema = table.scan(snapshot_id=planned.snapshot_id if planned.time_travel else None).projection()
    if columns is not None:
        schema = _select(schema, columns, case_sensitive)
    report = report or TableScanReport()
    with _our_errors():
        batches = list(_batches(planned, schema, limit, report))
        if not batches:
            return schema_to_pyarrow(schema, include_field_ids=False).empty_table()
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        return pa.concat_tables(tables, promote_options="permissive")  # files may differ in large types


def _batches(
    planned: Plan, schema: Schema, limit: int | None, report: TableScanReport
) -> Iterator[pa.RecordBatch]:
    """Matching rows, at most ``limit``, in the order of the tasks."""
    tasks, left = list(planned.tasks), limit
    if not tasks or left == 0:
        return
    table_reader = TableReader(planned.table, schema, planned.row_filter)
    if planned.stored is not None:
        _fetch_pages(planned, table_reader.field_ids, report)
    question = FileQuestion(table_reader.row_filter, planned.table.schema())
    deletes = table_reader.read_deletes(tasks)
    reader = DataFileReader(table_reader, planned.table.io, deletes, limit, question)

    def rows_of(task: FileScanTask) -> FileRows:
        path = task.file.file_path
        return reader.read(task, planned.row_groups.get(path), path in planned.answered)

    for found in ExecutorFactory.get_or_create().map(rows_of, tasks):
        report.add(found)
        for batch in found.batches:
            part = batch if left is None else batch.slice(0, left)
            left = None if left is None else left - part.num_rows
            yield part
            if left == 0:
                return


def _fetch_pages(planned: Plan, field_ids: set[int], report: TableScanReport) -> None:
    """Page indexes of the projected columns from the sidecar; without them, files have their own."""
    stored = planned.stored
    assert stored is not None
    before = stored.sidecar.index_reads, stored.sidecar.index_bytes
    try:
        stored.fetch(list(planned.row_groups.values()), sorted(field_ids))
    except Exception as error:  # no query may fail because of a sidecar
        report.warnings.append(f"the sidecar is not used: {_line(error)}")
    report.sidecar_reads += stored.sidecar.index_reads - before[0]
    report.sidecar_bytes += stored.sidecar.index_bytes - before[1]


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except SidecarError:
        raise
    except pa.ArrowInvalid as error:
        raise DamagedFileError(f"a data file cannot be read: {_line(error)}") from error
    except OSError as error:
        raise StorageError(f"a data file cannot be read: {_line(error)}") from error
    except Exception as error:
        raise UnsupportedFeatureError(f"pyiceberg cannot read the rows: {_line(error)}") from error


def _select(schema: Schema, columns: Sequence[str], case_sensitive: bool) -> Schema:
    try:
        return schema.select(*columns, case_sensitive=case_sensitive)
    except ValueError as error:
        resolve_columns(schema, columns, case_sensitive)  # says which one, and what there is instead
        raise UsageError(f"these columns cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")[:300]
    return f"{type(error).__name__}: {first}"
