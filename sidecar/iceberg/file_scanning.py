"""Rows of one plain Parquet file for a predicate, by whatever indexes the file has.

The door of plain files: predicates are those of tables (:mod:`sidecar.iceberg.predicate`), and what they mean on the
rows is what pyiceberg's expressions mean in Arrow: NULL matches neither = nor != but NOT IN, NaN no comparison.
So the result is that of pyarrow's reading the whole file and filtering it; :mod:`sidecar.parquet.page_scan` sees to
it that most of the file is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    Not,
    NotIn,
    NotNull,
    Or,
    SetPredicate,
)
from pyiceberg.expressions.visitors import bind, rewrite_not, translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, UUIDType

from sidecar.errors import UnsupportedFeatureError, UsageError, first_line
from sidecar.iceberg.conditions import asked_fields, condition_of
from sidecar.iceberg.file_columns import FileColumns, comparable_column, file_columns, residual_name
from sidecar.iceberg.predicate import as_expression
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.page_scan import FoundRows, Request, Residual, ScanReport, scan_pages
from sidecar.parquet.parts import read_shape
from sidecar.source import CountingSource, Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


@dataclass
class FileScan:
    """A scan of one file: iterate :meth:`found` once; ``report`` fills in meanwhile."""

    source: Source
    footer: Footer
    request: Request
    limit: int | None = None
    report: ScanReport = field(default_factory=ScanReport)

    def found(self) -> Iterator[FoundRows]:
        """Matching rows with their positions, a row group at a time."""
        return scan_pages(self.source, self.footer, self.request, self.limit, self.report)

    def to_table(self) -> pa.Table:
        """All matching rows."""
        tables = [found.rows for found in self.found()]
        schema = self.request.shape.schema
        return pa.concat_tables(tables) if tables else schema.empty_table()


def scan_file(
    file: str | Source,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    io: FileIO | None = None,
    case_sensitive: bool = True,
) -> pa.Table:
    """The rows of a Parquet file that match ``predicate``, reading little else.

    ``columns`` (dotted into structs) come in the order of the file, all of them by default; ``limit`` is the most rows
    wanted. Types are those that pyarrow reads the file as, INT96 as microseconds. Raises :class:`UsageError` for a
    predicate or column that does not fit the file, :class:`sidecar.errors.DamagedFileError`,
    :class:`UnsupportedFeatureError` (encryption, types that cannot be compared) or
    :class:`sidecar.errors.StorageError`.
    """
    with open_scan(file, predicate, columns, limit, io=io, case_sensitive=case_sensitive) as scan:
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
) -> Iterator[FileScan]:
    """As :func:`scan_file`, for those who want the rows' positions, a row group at a time, or the report."""
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    source = open_source(file, io) if isinstance(file, str) else file
    try:
        counted = CountingSource(source)
        footer = read_footer(counted)
        request = _request(footer, predicate, columns, case_sensitive)
        yield FileScan(source, footer, request, limit, ScanReport(footer_bytes=counted.bytes_read))
    finally:
        if isinstance(file, str):
            source.close()


def _request(
    footer: Footer, predicate: str | BooleanExpression, columns: Sequence[str] | None, case_sensitive: bool
) -> Request:
    shape = read_shape(footer)
    known = file_columns(shape, footer.name)
    asked = bind(known.schema, as_expression(predicate, known.schema, case_sensitive), True)
    bound = rewrite_not(asked)
    ids = asked_fields(bound)
    return Request(
        shape.select(columns),
        condition_of(bound, lambda field_id: known.columns[field_id].leaf),
        shape.select_paths([known.columns[field_id].enough for field_id in ids]) if ids else None,
        # As it was asked: NOT (x > 1) holds for NaN, which x <= 1 does not.
        None if isinstance(bound, AlwaysTrue) else _residual(asked, known, ids),
    )


def _residual(bound: BooleanExpression, known: FileColumns, ids: list[int]) -> Residual:
    """The predicate on a flat table of its columns, by pyiceberg's own translation."""
    fields = [known.schema.find_field(field_id) for field_id in ids]
    flat = Schema(*(NestedField(f.field_id, residual_name(f.field_id), _flat_type(f)) for f in fields))
    try:
        unbound = _zeros_made_equal(translate_column_names(bound, flat))
        expression = expression_to_pyarrow(bind(flat, unbound, True))
    except RecursionError as error:
        raise UsageError("the predicate is nested too deeply", hint="Combine long lists with In.") from error

    def matching(table: pa.Table) -> npt.NDArray[np.int64]:
        columns = {residual_name(i): comparable_column(known.columns[i].of(table)) for i in ids}
        columns["row"] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        try:
            rows = pa.table(columns).filter(expression)["row"]
        except (pa.ArrowException, OverflowError) as error:
            raise UnsupportedFeatureError(
                f"the predicate cannot be evaluated: {first_line(error)}"
            ) from error
        return np.sort(rows.to_numpy())  # Arrow filters in threads

    return matching


_equal_to: Callable[..., BooleanExpression] = EqualTo
_not_null: Callable[..., BooleanExpression] = NotNull


def _zeros_made_equal(expression: BooleanExpression) -> BooleanExpression:
    """Lists that hold a zero of either sign as comparisons: Arrow looks lists up by bits, in which the zeros differ."""
    if isinstance(expression, And | Or):
        return type(expression)(_zeros_made_equal(expression.left), _zeros_made_equal(expression.right))
    if isinstance(expression, Not):
        return Not(_zeros_made_equal(expression.child))
    if not isinstance(expression, SetPredicate) or not any(
        isinstance(literal.value, float) and literal.value == 0 for literal in expression.literals
    ):
        return expression
    found: BooleanExpression = AlwaysFalse()
    for literal in expression.literals:
        found = Or(found, _equal_to(expression.term, literal))
    found = And(found, _not_null(expression.term))  # NULL is in no list, so NOT IN holds for it
    return Not(found) if isinstance(expression, NotIn) else found


def _flat_type(field_: NestedField) -> Any:
    return FixedType(16) if isinstance(field_.field_type, UUIDType) else field_.field_type
