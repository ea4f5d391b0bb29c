"""Rows for a predicate, read from the files that can hold them.

pyiceberg's own reader is given the tasks of a :class:`~sidecar.iceberg.planning.Plan` and nothing else is done to
the rows: it applies deletes by row position, resolves columns, and evaluates the whole predicate again. So the
result is that of ``table.scan(predicate).to_arrow()``, up to the order of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.planning import Plan, plan
from sidecar.iceberg.resolve import resolve_columns

log = logging.getLogger(__name__)


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
    found = plan(table, predicate, snapshot_id=snapshot_id, case_sensitive=case_sensitive)
    for warning in found.warnings:
        log.warning("%s", warning)
    return read(found, columns, limit, case_sensitive=case_sensitive)


def read(
    planned: Plan,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    case_sensitive: bool = True,
) -> pa.Table:
    """The rows that ``planned`` leads to.

    Raises :class:`UsageError` for an unknown column or a negative limit, :class:`StorageError`,
    :class:`DamagedFileError` or :class:`UnsupportedFeatureError` for data files that cannot be read.
    """
    if limit is not None and limit < 0:
        raise UsageError("a limit cannot be negative", found=limit)
    table = planned.table
    schema = table.scan(snapshot_id=planned.snapshot_id if planned.time_travel else None).projection()
    if columns is not None:
        schema = _select(schema, columns, case_sensitive)
    reader = ArrowScan(table.metadata, table.io, schema, planned.row_filter, limit=limit)
    try:
        return reader.to_table(list(planned.tasks))  # a generator would be read twice and give no rows
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
