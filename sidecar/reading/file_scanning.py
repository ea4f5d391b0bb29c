"""Reads the rows of one plain Parquet or ORC file that match a predicate, by the indexes in the file.

Predicates are those of tables (:mod:`sidecar.iceberg.predicates.predicate`), with the meaning of pyiceberg's
expressions in Arrow: for NULL, = and != are not true but NOT IN is; for NaN, only != and NOT IN are true. So the result
equals that of pyarrow reading the whole file and filtering it. :mod:`sidecar.parquet.scan.page_scan` and
:mod:`sidecar.reading.orc_scanning` skip most of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids

from sidecar.access import Access
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, enough_memory, refuse_text
from sidecar.iceberg.predicates.conditions import condition_of
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.resolve import UnknownColumnError
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.orc.tail import is_orc
from sidecar.parquet.encrypted.plain_view import open_parquet
from sidecar.parquet.footer import Footer
from sidecar.parquet.scan.page_scan import FoundRows, PageRequest, ScanReport, scan_pages
from sidecar.parquet.scan.schema_parts import read_shape
from sidecar.planning.keys.key_sets import Keys, key_set
from sidecar.reading.file_columns import file_columns
from sidecar.reading.file_keys import key_residual, with_keys
from sidecar.reading.orc_scanning import plan_orc_scan
from sidecar.reading.residual import residual_of
from sidecar.results.base import Summarized
from sidecar.storage.source import AnyPath, CountingSource, Source

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


@dataclass(frozen=True, repr=False)
class FileScan(Summarized):
    """The scan of one file. Iterate :meth:`found` once; ``report`` is filled in meanwhile."""

    schema: pa.Schema
    """The columns of the rows."""
    report: ScanReport
    start: Callable[[], Iterator[FoundRows]]
    """Starts the scan; :meth:`found` and :meth:`to_table` call it."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {"columns": self.schema.names, "report": self.report}

    def found(self) -> Iterator[FoundRows]:
        """Yield the matching rows with their positions, by row groups (Parquet) or stripes (ORC)."""
        return self.start()

    def to_table(self) -> pa.Table:
        """Return all matching rows."""
        tables = [found.rows for found in self.found()]
        return pa.concat_tables(tables) if tables else pa.Table.from_batches([], self.schema)


def stream_file(
    file: AnyPath | Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None,
    limit: int | None,
    **options: Any,
) -> pa.RecordBatchReader:
    """Return the rows of a file as a stream that can be read once. The file is closed after it."""
    with ExitStack() as stack:
        scan = stack.enter_context(open_scan(file, predicate, columns, limit, **options))
        rows = _batches(scan, stack.pop_all())
    return pa.RecordBatchReader.from_batches(scan.schema, rows)


def _batches(scan: FileScan, opened: ExitStack) -> Iterator[pa.RecordBatch]:
    with opened:
        for found in scan.found():
            yield from found.rows.to_batches()


@contextmanager
def open_scan(
    file: AnyPath | Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    access: Access | None = None,
    case_sensitive: bool = True,
    keys: Mapping[str, Keys] | None = None,
) -> Iterator[FileScan]:
    """Open the scan of a file, to get rows with positions, row group by row group, and the report.

    Columns may be dotted names for fields of structs. Types are those of pyarrow, with INT96 as microseconds. Raises
    :class:`UsageError` for a predicate or column that does not fit the file and for a missing footer key,
    :class:`DamagedFileError`, :class:`UnsupportedFeatureError` (a column without key, a type that cannot be compared)
    and :class:`sidecar.errors.StorageError`.
    """
    refuse_text(columns=columns)
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    access = access or Access()
    source = access.open(file) if isinstance(file, str | os.PathLike) else file
    try:
        with enough_memory():
            counted = CountingSource(source)
            opened = _open_parquet(access, counted)
            if opened is None and keys is not None:
                raise UnsupportedFeatureError("keys cannot be used with ORC files", file=source.name)
            if opened is None:
                scan = plan_orc_scan(source, predicate, columns, limit, case_sensitive)
                yield FileScan(scan.schema, scan.report, scan.found)
            else:
                view, footer = opened
                request = _request(footer, predicate, columns, case_sensitive, keys)
                report = ScanReport(footer_bytes=counted.bytes_read)
                data = source if view is counted else view
                start = partial(scan_pages, data, footer, request, limit, report)
                yield FileScan(request.shape.schema, report, start)
    finally:
        if source is not file:
            source.close()


def file_schema(access: Access, file: AnyPath) -> Schema:
    """Return the columns of a Parquet file as an Iceberg schema. Raises the errors of :func:`open_scan`."""
    with closing(access.open(file)) as source:
        opened = _open_parquet(access, source)
        if opened is None:
            raise UnsupportedFeatureError("the file is not a Parquet file", file=source.name)
        return file_columns(read_shape(opened[1]), opened[1].name).schema


def _open_parquet(access: Access, source: Source) -> tuple[Source, Footer] | None:
    """Open a Parquet file; return the source of its pages and its footer, or ``None`` for an ORC file."""
    try:
        return open_parquet(source, access.keys)
    except DamagedFileError:
        if is_orc(source):
            return None
        raise


def _request(
    footer: Footer,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None,
    case_sensitive: bool,
    keys: Mapping[str, Keys] | None,
) -> PageRequest:
    shape = read_shape(footer)
    known = file_columns(shape, footer.name)
    try:
        join_keys = None if keys is None else key_set(keys, known.schema, case_sensitive)
        expression = as_expression(predicate, known.schema, case_sensitive)
    except UnknownColumnError as error:
        if error.name in known.ambiguous:
            raise UsageError(f"the file has more than one column '{error.name}'", file=footer.name) from error
        raise
    bound = bound_to(known.schema, expression)
    indexed = bound if join_keys is None else bound_to(known.schema, with_keys(expression, join_keys))
    ids = sorted(extract_field_ids(bound))
    known.check(ids)
    # Without rewrite_not: NOT (x > 1) is true for NaN, but rewrite_not makes it x <= 1, which is false.
    residual = None if isinstance(bound, AlwaysTrue) else residual_of(bound, known, ids)
    if join_keys is not None:
        residual, ids = key_residual(residual, join_keys, known), sorted({*ids, join_keys.field_id})
    return PageRequest(
        shape.select(columns),
        condition_of(indexed, known.compared),
        shape.select_paths([known.columns[field_id].enough for field_id in ids]) if ids else None,
        residual,
    )
