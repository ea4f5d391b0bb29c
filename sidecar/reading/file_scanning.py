"""Rows of one plain file for a predicate, by whatever indexes the file has.

The door of plain files: predicates are those of tables (:mod:`sidecar.iceberg.predicate`), and what they mean on the
rows is what pyiceberg's expressions mean in Arrow: NULL matches neither = nor != but NOT IN, NaN no comparison.
So the result is that of pyarrow's reading the whole file and filtering it; :mod:`sidecar.parquet.scan.page_scan` and
:mod:`sidecar.reading.orc_scanning` see to it that most of the file is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, enough_memory
from sidecar.iceberg.conditions import condition_of
from sidecar.iceberg.predicate import as_expression
from sidecar.orc.tail import is_orc
from sidecar.parquet.encrypted.plain_view import open_parquet
from sidecar.parquet.footer import Footer
from sidecar.parquet.scan.page_scan import FoundRows, PageRequest, ScanReport, scan_pages
from sidecar.parquet.scan.schema_parts import read_shape
from sidecar.planning.key_sets import Keys, key_set
from sidecar.reading.file_columns import file_columns
from sidecar.reading.file_keys import key_residual, with_keys
from sidecar.reading.orc_scanning import plan_orc_scan
from sidecar.reading.residual import residual_of
from sidecar.source import CountingSource, Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema


@dataclass(frozen=True)
class FileScan:
    """A scan of one file: iterate :meth:`found` once; ``report`` fills in meanwhile."""

    schema: pa.Schema
    report: ScanReport
    start: Callable[[], Iterator[FoundRows]]

    def found(self) -> Iterator[FoundRows]:
        """Matching rows with their positions: a row group at a time, of ORC files a stripe."""
        return self.start()

    def to_table(self) -> pa.Table:
        """All matching rows."""
        tables = [found.rows for found in self.found()]
        return pa.concat_tables(tables) if tables else pa.Table.from_batches([], self.schema)


@enough_memory()
def scan_file(
    file: str | Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    io: FileIO | None = None,
    case_sensitive: bool = True,
    encryption_keys: EncryptionKeys | None = None,
    keys: Mapping[str, Keys] | None = None,
) -> pa.Table:
    """The rows of a Parquet or ORC file that match ``predicate``, reading little else.

    ``columns`` (dotted into structs) come in the order of the file, all of them by default; ``limit`` is the most rows
    wanted. ``keys`` of a Parquet file are as in :func:`sidecar.planning.planner.plan`: rows must have one of them too.
    Types are those that pyarrow reads the file as, INT96 as microseconds. Encrypted Parquet files are read with
    ``encryption_keys``. Raises :class:`UsageError` for a predicate or column that does not fit the file, and where the
    key of an encrypted file's footer is missing, :class:`DamagedFileError`,
    :class:`sidecar.errors.UnsupportedFeatureError` (columns without key, types that cannot be compared) or
    :class:`sidecar.errors.StorageError`.
    """
    options: dict[str, Any] = {"io": io, "case_sensitive": case_sensitive, "encryption_keys": encryption_keys}
    with open_scan(file, predicate, columns, limit, keys=keys, **options) as scan:
        return scan.to_table()


@contextmanager
def open_scan(
    file: str | Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    io: FileIO | None = None,
    case_sensitive: bool = True,
    encryption_keys: EncryptionKeys | None = None,
    keys: Mapping[str, Keys] | None = None,
) -> Iterator[FileScan]:
    """As :func:`scan_file`, for those who want the rows' positions, a row group at a time, or the report."""
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    source = open_source(file, io) if isinstance(file, str) else file
    try:
        with enough_memory():
            counted = CountingSource(source)
            opened = _open_parquet(counted, encryption_keys)
            if opened is None and keys is not None:
                raise UnsupportedFeatureError(
                    "keys are not compared with the rows of ORC files", file=source.name
                )
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
        if isinstance(file, str):
            source.close()


def file_schema(
    file: str, *, io: FileIO | None = None, encryption_keys: EncryptionKeys | None = None
) -> Schema:
    """A Parquet file's columns as predicates and keys name them; errors as in :func:`scan_file`."""
    with closing(open_source(file, io)) as source:
        opened = _open_parquet(source, encryption_keys)
        if opened is None:
            raise UnsupportedFeatureError("this is no Parquet file", file=file)
        return file_columns(read_shape(opened[1]), opened[1].name).schema


def _open_parquet(source: Source, keys: EncryptionKeys | None) -> tuple[Source, Footer] | None:
    """What to read pages from, and the footer; ``None`` of an ORC file, which nothing but its beginning tells."""
    try:
        return open_parquet(source, keys)
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
    among = None if keys is None else key_set(keys, known.schema, case_sensitive)
    expression = as_expression(predicate, known.schema, case_sensitive)
    asked = bind(known.schema, expression, True)
    indexed = asked if among is None else bind(known.schema, with_keys(expression, among), True)
    ids = sorted(extract_field_ids(asked))
    # As it was asked: NOT (x > 1) holds for NaN, which x <= 1 does not.
    residual = None if isinstance(asked, AlwaysTrue) else residual_of(asked, known, ids)
    if among is not None:
        residual, ids = key_residual(residual, among, known), sorted({*ids, among.field_id})
    return PageRequest(
        shape.select(columns),
        condition_of(indexed, known.compared),
        shape.select_paths([known.columns[field_id].enough for field_id in ids]) if ids else None,
        residual,
    )
