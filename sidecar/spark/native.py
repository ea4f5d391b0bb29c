"""Reads a table with Iceberg's own Spark reader, restricted to the files that a sidecar keeps.

Iceberg's runtime accepts scan tasks instead of planning them. A list of tasks is staged under an id
(``ScanTaskSetManager``), and the table is registered under the same id (``SparkTableCache``). A load of that id reads
these tasks with the vectorised reader, and deletes, projections and filters work as usual. Iceberg itself plans the
tasks, so deletes of every kind come with them. Our plan only says which tasks to keep
(:mod:`sidecar.spark.iceberg_scan`).

Spark says which snapshot is read and with which schema, because a name can mean a branch, a tag, an older snapshot
or, if ``spark.wap.branch`` is set, a branch that the name does not show. pyiceberg's table gets that snapshot and
that schema before anything is planned.

This needs a classic session with Iceberg's runtime: Spark Connect does not give access to the JVM. In all other cases
the table is read in full and a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties

from sidecar.access import Access
from sidecar.dependencies.pyspark import is_classic
from sidecar.errors import SidecarError, UsageError, foreign_reason, refuse_text
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.iceberg.refs import check_table, one_version, with_schema
from sidecar.iceberg.resolve import resolve_columns
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.planning.keys.key_sets import Keys, key_array, key_set
from sidecar.planning.planner import Planning
from sidecar.results.choices import NameList
from sidecar.spark.columns import KEY, key_frame, quoted_name, spark_column
from sidecar.spark.iceberg_scan import IcebergScan
from sidecar.spark.session import checked_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)


@contextmanager
def spark_read(
    session: Any,
    name: str,
    table: Table,
    predicate: str | BooleanExpression = "TRUE",
    columns: NameList | None = None,
    *,
    case_sensitive: bool = True,
    keys: Mapping[str, Keys] | None = None,
) -> Iterator[DataFrame]:
    """Yield the rows of a table that match ``predicate``, as a DataFrame over the files that can hold them.

        with sidecar.spark_read(spark, "cat.db.orders", table, "o_comment = 'x'") as frame:
            frame.groupBy("o_status").count().show()

    ``name``: the table's name in ``session``, also with the suffix of a branch, tag or snapshot (``t.branch_dev``).
    ``table``: the same table, loaded by pyiceberg; refreshed if it is older.
    ``predicate``, ``columns``, ``keys``: as for :func:`sidecar.plan`, by the names of Spark's schema.
    ``case_sensitive``: whether names are.

    Use the frame inside the block only: the staged tasks are removed at its end. If Spark cannot take the files, the
    frame is the normal read and a warning is logged. Raises :class:`UsageError` for a predicate, column or keys that do
    not fit, if ``name`` and ``table`` are different tables, and for a version of PySpark that does not work.
    """
    check_table(table)
    refuse_text(columns=columns)
    with ExitStack() as stack:
        frame = checked_session(session).table(name)
        scan = _scan_of(session, name, frame)
        if scan is not None and scan.uuid != str(table.metadata.table_uuid):
            raise UsageError(
                "the name in Spark and the table of pyiceberg are different tables",
                expected=f"{name} of Spark: {scan.uuid}",
                found=str(table.metadata.table_uuid),
            )
        schema = table.schema() if scan is None else scan.schema
        expression = as_expression(predicate, schema, case_sensitive)
        condition = spark_column(bound_to(schema, expression), schema)
        key_rows = None if keys is None else key_frame(session, *key_array(keys, schema, case_sensitive))
        if scan is not None and (keys is not None or not isinstance(expression, AlwaysTrue)):
            frame = _pruned(scan, name, table, expression, keys, stack) or frame
        frame = frame.where(condition)
        if key_rows is not None and keys is not None:
            (column,) = resolve_columns(schema, list(keys), case_sensitive)
            from pyspark.sql import functions as f

            equal = f.col(quoted_name(schema, column.field_id)) == key_rows[KEY]
            frame = frame.join(key_rows, equal, "left_semi")
        if columns is not None:
            frame = frame.select(*_selected(schema, columns, case_sensitive))
        yield frame


def _selected(schema: Schema, columns: Sequence[str], case_sensitive: bool) -> list[Column]:
    from pyspark.sql import functions as f

    found = resolve_columns(schema, columns, case_sensitive)
    return [f.col(quoted_name(schema, column.field_id)) for column in found]


def _scan_of(session: Any, name: str, frame: DataFrame) -> IcebergScan | None:
    """Return what Spark's own scan reads; log a warning and return ``None`` if that cannot be found out."""
    if not is_classic(session):
        log.warning("Spark Connect cannot take a list of files: %s is read in full", name)
        return None
    try:
        return IcebergScan(session, frame)
    except Exception as error:  # Iceberg's runtime is missing or unknown; py4j raises errors of many types
        reason = error if isinstance(error, SidecarError) else foreign_reason(error)
        log.warning("%s is read in full: %s", name, reason)
        return None


def _pruned(
    scan: IcebergScan,
    name: str,
    table: Table,
    expression: BooleanExpression,
    keys: Mapping[str, Keys] | None,
    stack: ExitStack,
) -> DataFrame | None:
    """Return the scan over the kept files, or log a warning and return ``None``; ``stack`` removes the staged tasks."""
    if scan.snapshot_id is None:
        return None
    try:
        seen = _as_spark_sees_it(table, scan)
        join_keys = None if keys is None else key_set(keys, seen.schema())
        row_filter = as_expression(expression, seen.schema())
        planning = Planning(seen, row_filter, scan.snapshot_id, Access(seen.io), keys=join_keys)
        with closing(planning):
            planned = planning.plan(planning.choose(), allow_equality_deletes=True)
        return scan.over(planned.kept_files, stack)
    except SidecarError as error:
        log.warning("%s is read in full: %s", name, error)
    except Exception as error:
        log.warning("%s is read in full: Iceberg's runtime did not take the files: %s", name, foreign_reason(error))
    return None


def _as_spark_sees_it(table: Table, scan: IcebergScan) -> Table:
    """Return the table with the scan's schema as its current schema; refresh it if it lacks the snapshot or schema.

    Raises :class:`UsageError` if it still lacks them after the refresh.
    """
    found = _with_schema_of(scan, one_version(table))
    if found is None:
        table.refresh()
        found = _with_schema_of(scan, one_version(table))
    if found is None:
        raise UsageError("snapshot, schema or name mapping of the table differ between Spark and catalog")
    return found


def _with_schema_of(scan: IcebergScan, table: Table) -> Table | None:
    metadata = table.metadata
    known = scan.snapshot_id is not None and metadata.snapshot_by_id(scan.snapshot_id) is not None
    if not known or metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != scan.name_mapping:
        return None
    columns = _columns_by_id(scan.schema)
    for schema in [table.schema(), *metadata.schemas]:
        if _columns_by_id(schema) == columns:
            return with_schema(table, schema.schema_id)
    return None


def _columns_by_id(schema: Schema) -> dict[int, tuple[str | None, str]]:
    return {i: (schema.find_column_name(i), str(schema.find_type(i))) for i in schema.field_ids}
