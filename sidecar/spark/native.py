"""Reads by Iceberg's own Spark reader, of the files that a sidecar leaves over.

Iceberg's runtime can be handed scan tasks instead of planning them: a list of tasks is staged under an id
(``ScanTaskSetManager``), the table is known under the same id (``SparkTableCache``), and loading that id reads those
tasks with the vectorised reader, deletes, projections and filters as ever. The tasks are those of Iceberg's own
planning, so deletes of every kind come with them; ours only says which of them to keep. That is done inside the
JVM, by a predicate made of method handles: asking each task from Python would take a round trip for every file.

It needs a classic session (Spark Connect has no JVM to talk to) with Iceberg's runtime. Everything else reads as always
and says so.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from sidecar.errors import SidecarError, UsageError, foreign_reason
from sidecar.iceberg.predicate import as_expression
from sidecar.iceberg.resolve import resolve_columns
from sidecar.planning.key_sets import Keys, key_array
from sidecar.planning.planner import plan
from sidecar.spark.columns import KEY, key_frame, quoted_name, spark_column

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

    ``name`` is what the session calls the table, ``table`` the same table as pyiceberg loads it. The snapshot is the
    one that is current in Spark. Run what needs the frame inside the block: at its end the staged tasks are gone.
    Where the files cannot be handed over, the frame is the normal read and a warning is logged. ``keys`` are as in
    :func:`sidecar.planning.planner.plan`: Spark joins the rows with them (a semi-join). Iceberg applies deletes of
    every kind, equality deletes among them.

    Raises :class:`UsageError` for a predicate, column or keys that do not fit, and for two different tables.
    """
    with ExitStack() as stack:
        schema = table.schema()
        expression = as_expression(predicate, schema, case_sensitive)
        condition = spark_column(bind(schema, expression, case_sensitive=True), schema)
        among = None if keys is None else key_frame(session, *key_array(keys, schema, case_sensitive))
        frame = _pruned(session, name, table, expression, keys, stack)
        if frame is None:
            frame = session.table(name)
        frame = frame.where(condition)
        if among is not None and keys is not None:
            (column,) = resolve_columns(schema, list(keys), case_sensitive)
            from pyspark.sql import functions as f

            equal = f.col(quoted_name(schema, column.field_id)) == among[KEY]
            frame = frame.join(among, equal, "left_semi")
        if columns is not None:
            frame = frame.select(*_selected(schema, columns, case_sensitive))
        yield frame


def _selected(schema: Schema, columns: Sequence[str], case_sensitive: bool) -> list[Column]:
    from pyspark.sql import functions as f

    found = resolve_columns(schema, columns, case_sensitive)
    return [f.col(quoted_name(schema, column.field_id)) for column in found]


def _pruned(
    session: Any,
    name: str,
    table: Table,
    expression: BooleanExpression,
    keys: Mapping[str, Keys] | None,
    stack: ExitStack,
) -> DataFrame | None:
    """The frame over the surviving files, ``None`` where it cannot be had; what it stages is undone by ``stack``."""
    if isinstance(expression, AlwaysTrue) and keys is None:
        return None
    if not hasattr(session, "_jsparkSession"):
        log.warning("Spark Connect cannot be handed files: %s is read as a whole", name)
        return None
    try:
        native = _NativeTable(session, name)
        snapshot = native.snapshot_id()
    except Exception as error:  # no runtime of Iceberg, or none that is known: whatever py4j says of it
        log.warning("%s is read as a whole: %s", name, foreign_reason(error))
        return None
    if native.uuid() != str(table.metadata.table_uuid):
        raise UsageError(
            "the two are not the same table",
            expected=f"{name} of Spark: {native.uuid()}",
            found=str(table.metadata.table_uuid),
        )
    try:
        if snapshot is None:
            return None
        if table.metadata.snapshot_by_id(snapshot) is None:
            table.refresh()
        planned = plan(table, expression, snapshot_id=snapshot, keys=keys, allow_equality_deletes=True)
        for warning in planned.warnings:
            log.warning("%s", warning)
        return native.staged(snapshot, planned.kept_files, stack)
    except SidecarError as error:
        log.warning("%s is read as a whole: %s", name, error)
    except Exception as error:
        log.warning(
            "%s is read as a whole: Iceberg's runtime did not take the files: %s", name, foreign_reason(error)
        )
    return None


class _NativeTable:
    """A table as Iceberg's runtime in the session's JVM has it."""

    def __init__(self, session: Any, name: str) -> None:
        self._session = session
        self._jvm = session._jvm
        self._gateway = session.sparkContext._gateway
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        spark3 = self._jvm.org.apache.iceberg.spark.Spark3Util
        self._table = spark3.loadIcebergTable(session._jsparkSession, name)

    def uuid(self) -> str:
        """The table's UUID."""
        return str(self._table.uuid())

    def snapshot_id(self) -> int | None:
        """The current snapshot."""
        current = self._table.currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def staged(self, snapshot_id: int, paths: Iterable[str], stack: ExitStack) -> DataFrame:
        """A frame over the tasks of these data files, staged until ``stack`` closes."""
        tasks = self._tasks(snapshot_id, paths)
        if tasks.isEmpty():
            from pyspark.sql import functions as f

            empty: DataFrame = (
                self._session.read.format("iceberg").load(self._table.name()).where(f.lit(False))
            )
            return empty
        task_set = f"sidecar-{uuid.uuid4()}"
        manager = self._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        cache = self._table_cache()
        stack.callback(manager.removeTasks, self._table, task_set)
        manager.stageTasks(self._table, task_set, tasks)
        stack.callback(cache.remove, task_set)
        cache.add(task_set, self._table)
        frame: DataFrame = self._session.read.format("iceberg").load(task_set)
        return frame

    def _tasks(self, snapshot_id: int, paths: Iterable[str]) -> Any:
        """Iceberg's scan tasks of these files, chosen without leaving the JVM."""
        planned = self._table.newScan().useSnapshot(snapshot_id).planFiles()
        try:
            chosen = self._jvm.org.apache.iceberg.io.CloseableIterable.filter(
                planned, self._reads_one_of(paths)
            )
            lists = self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
            return lists.newArrayList(chosen)
        finally:
            planned.close()

    def _reads_one_of(self, paths: Iterable[str]) -> Any:
        """``task -> paths.contains(task.file().location())`` as a java.util.function.Predicate."""
        jvm = self._jvm
        wanted = jvm.java.util.HashSet()
        for path in paths:
            wanted.add(path)
        handles, types = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
        lookup, boolean = handles.publicLookup(), jvm.java.lang.Boolean.TYPE
        any_, text, file = map(
            self._class, ("java.lang.Object", "java.lang.String", f"{_ICEBERG}.ContentFile")
        )
        contains = lookup.findVirtual(
            self._class("java.util.Set"), "contains", types.methodType(boolean, any_)
        )
        file_of = lookup.findVirtual(
            self._class(f"{_ICEBERG}.ContentScanTask"), "file", types.methodType(file)
        )
        location_of = lookup.findVirtual(file, "location", types.methodType(text))
        is_wanted = contains.bindTo(wanted).asType(types.methodType(boolean, text))
        test = handles.filterReturnValue(handles.filterReturnValue(file_of, location_of), is_wanted)
        predicate = self._class("java.util.function.Predicate")
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            predicate, test.asType(types.methodType(boolean, any_))
        )

    def _table_cache(self) -> Any:
        """``SparkTableCache.get()``, which py4j cannot call: an instance method has the same name."""
        java = self._jvm.java.lang
        no_types = self._gateway.new_array(java.Class, 0)
        no_values = self._gateway.new_array(java.Object, 0)
        return (
            self._class(f"{_ICEBERG}.spark.SparkTableCache")
            .getMethod("get", no_types)
            .invoke(None, no_values)
        )

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(name)


_ICEBERG = "org.apache.iceberg"
