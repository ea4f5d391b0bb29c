"""Reads by Iceberg's own Spark reader, of the files that a sidecar leaves over.

Iceberg's runtime can be handed scan tasks instead of planning them: a list of tasks is staged under an id
(``ScanTaskSetManager``), the table is known under the same id (``SparkTableCache``), and loading that id reads those
tasks with the vectorised reader, deletes, projections and filters as ever. The tasks are those of Iceberg's own
planning, so deletes of every kind come with them; ours only says which of them to keep
(:mod:`sidecar.spark.iceberg_scan`).

Spark says which snapshot is read and in which schema, because a name can mean a branch, a tag, an older snapshot or,
with ``spark.wap.branch`` set, a branch that the name does not show. pyiceberg's table is brought to that
snapshot and that schema before anything is planned with it.

It needs a classic session (Spark Connect has no JVM to talk to) with Iceberg's runtime. Everything else reads as always
and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties

from sidecar.errors import SidecarError, UsageError, foreign_reason
from sidecar.iceberg.predicate import as_expression
from sidecar.iceberg.resolve import resolve_columns
from sidecar.planning.key_sets import Keys, key_array
from sidecar.planning.planner import plan
from sidecar.spark.columns import KEY, key_frame, quoted_name, spark_column
from sidecar.spark.iceberg_scan import IcebergScan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)


@contextmanager
def spark_read(
    session: Any,
    name: str,
    table: Table,
    predicate: str | BooleanExpression,
    columns: Sequence[str] | None = None,
    *,
    case_sensitive: bool = True,
    keys: Mapping[str, Keys] | None = None,
) -> Iterator[DataFrame]:
    """The rows of a table that match ``predicate``, as a DataFrame over the files that can hold them.

        with sidecar.spark_read(spark, "cat.db.orders", table, "o_comment = 'x'") as frame:
            frame.groupBy("o_status").count().show()

    ``name`` is what the session calls the table, ``table`` the same table as pyiceberg loads it. ``name`` may name a
    branch, a tag or a snapshot too (``t.branch_dev``, ``t.tag_old``, ``t.snapshot_id_1``, ``t.at_timestamp_1``). The
    rows are those of the snapshot that Spark reads under that name, ``spark.wap.branch`` included, and
    ``predicate``, ``columns`` and ``keys`` name columns as Spark's schema of it does. ``table`` is refreshed where it
    is older. Run what needs the frame inside the block: at its end the staged tasks are gone. Where the files cannot
    be handed over (a view, a snapshot with an older schema than the table), the frame is the normal read and a
    warning is logged. ``keys`` are as in :func:`sidecar.planning.planner.plan`: Spark joins the rows with them (a
    semi-join). Iceberg applies deletes of every kind, equality deletes among them.

    Raises :class:`UsageError` for a predicate, column or keys that do not fit, and for two different tables.
    """
    with ExitStack() as stack:
        frame = session.table(name)
        scan = _scan_of(session, name, frame)
        if scan is not None and scan.uuid != str(table.metadata.table_uuid):
            raise UsageError(
                "the two are not the same table",
                expected=f"{name} of Spark: {scan.uuid}",
                found=str(table.metadata.table_uuid),
            )
        schema = table.schema() if scan is None else scan.schema
        expression = as_expression(predicate, schema, case_sensitive)
        condition = spark_column(bind(schema, expression, case_sensitive=True), schema)
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
    """What Spark's own scan reads, ``None`` with a warning where that is not known."""
    if not hasattr(session, "_jsparkSession"):
        log.warning("Spark Connect cannot be handed files: %s is read as a whole", name)
        return None
    try:
        return IcebergScan(session, frame)
    except Exception as error:  # no runtime of Iceberg, or none that is known: whatever py4j says of it
        reason = error if isinstance(error, SidecarError) else foreign_reason(error)
        log.warning("%s is read as a whole: %s", name, reason)
        return None


def _pruned(
    scan: IcebergScan,
    name: str,
    table: Table,
    expression: BooleanExpression,
    keys: Mapping[str, Keys] | None,
    stack: ExitStack,
) -> DataFrame | None:
    """The scan over the surviving files, ``None`` where it cannot be had; what it stages is undone by ``stack``."""
    if scan.snapshot_id is None:
        return None
    try:
        seen = _as_spark_sees_it(table, scan)
        planned = plan(seen, expression, snapshot_id=scan.snapshot_id, keys=keys, allow_equality_deletes=True)
        for warning in planned.warnings:
            log.warning("%s", warning)
        return scan.over(planned.kept_files, stack)
    except SidecarError as error:
        log.warning("%s is read as a whole: %s", name, error)
    except Exception as error:
        log.warning(
            "%s is read as a whole: Iceberg's runtime did not take the files: %s", name, foreign_reason(error)
        )
    return None


def _as_spark_sees_it(table: Table, scan: IcebergScan) -> Table:
    """The table with the scan's schema as its present one; refreshed where it does not have what Spark has.

    Raises :class:`UsageError` where it does not have that after a refresh either.
    """
    found = _with_schema_of(scan, table)
    if found is None:
        table.refresh()
        found = _with_schema_of(scan, table)
    if found is None:
        raise UsageError("Spark has another snapshot, schema or name mapping of the table than its catalog")
    return found


def _with_schema_of(scan: IcebergScan, table: Table) -> Table | None:
    metadata = table.metadata
    known = scan.snapshot_id is not None and metadata.snapshot_by_id(scan.snapshot_id) is not None
    if not known or metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != scan.name_mapping:
        return None
    columns = _columns_by_id(scan.schema)
    for schema in [table.schema(), *metadata.schemas]:
        if _columns_by_id(schema) == columns:
            found = copy(table)
            found.metadata = metadata.model_copy(update={"current_schema_id": schema.schema_id})
            return found
    return None


def _columns_by_id(schema: Schema) -> dict[int, tuple[str | None, str]]:
    return {i: (schema.find_column_name(i), str(schema.find_type(i))) for i in schema.field_ids}
