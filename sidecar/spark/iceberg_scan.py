"""Finds out what Spark's own scan of a name reads, and makes the same scan over fewer files.

Spark resolves the name. Many things decide what it reads: a suffix (``t.branch_dev``, ``t.tag_old``,
``t.snapshot_id_1``, ``t.at_timestamp_1``), ``spark.wap.branch``, the current catalog, a temporary view of the same
name. So snapshot and schema are always taken from the relation in Spark's analysed plan, never from the table.

A predicate made of method handles chooses the tasks inside the JVM, because a call from Python for each task would
cost a round trip for every file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties

from sidecar.dependencies.pyspark import analyzed_plan, gateway_of, jvm_of
from sidecar.errors import UnsupportedFeatureError
from sidecar.spark.jvm import ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = f"{ICEBERG}.spark.source"


class IcebergScan:
    """A frame that is one scan of an Iceberg table, as Iceberg's runtime in the session's JVM sees it.

    ``snapshot_id`` is the snapshot that the scan reads (``None`` if the table has no snapshot), ``schema`` the schema
    of its rows, ``uuid`` the table's UUID, ``name_mapping`` the table's name mapping as JSON, if it has one.

    Raises :class:`UnsupportedFeatureError` for any other frame, and errors of py4j for an unknown version of
    Iceberg's runtime.
    """

    def __init__(self, session: Any, frame: DataFrame) -> None:
        self._session = session
        self._frame = frame
        self._jvm = jvm_of(session)
        self._gateway = gateway_of(session)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        relation = _relation(frame)
        scanned = relation.table()
        _require_class(scanned, f"{_SOURCE}.SparkTable", "the name is not an Iceberg table")
        scan = _built_scan(relation)
        _require_class(scan, f"{_SOURCE}.SparkBatchQueryScan", "the scan does not read one snapshot")
        self._table = scanned.table()
        self._schema, snapshot_id = self._what_is_read(scanned, scan)
        self.snapshot_id = None if snapshot_id is None else int(snapshot_id)
        self.schema = Schema.model_validate_json(self._jvm.org.apache.iceberg.SchemaParser.toJson(self._schema))
        self.uuid = str(self._table.uuid())
        self.name_mapping: str | None = self._table.properties().get(TableProperties.DEFAULT_NAME_MAPPING)

    def _what_is_read(self, scanned: Any, scan: Any) -> tuple[Any, Any]:
        """Return the schema that Spark reads with (the snapshot's for time travel, else the table's), and the id."""
        table = f"{_SOURCE}.SparkTable"
        for field in self._class(table).getDeclaredFields():
            if field.getName() == "schema":
                field.setAccessible(True)
                return field.get(scanned), scanned.snapshotId()
        # Iceberg's runtime for Spark 4.0 has no such field, and knows the snapshot's id for time travel alone.
        planned = self._call(f"{_SOURCE}.SparkPartitioningAwareScan", "scan", scan)
        snapshot = None if planned is None else planned.snapshot()
        return self._call(table, "snapshotSchema", scanned), None if snapshot is None else snapshot.snapshotId()

    def over(self, paths: Iterable[str], stack: ExitStack) -> DataFrame:
        """Return the scan over the tasks of these data files only; the tasks are staged until ``stack`` closes.

        Raises :class:`UnsupportedFeatureError` if Spark would read the staged tasks with a different schema.
        """
        from pyspark.sql import functions as f

        tasks = self._tasks(paths)
        if tasks.isEmpty():
            return self._frame.where(f.lit(False))
        task_set = f"sidecar-{uuid.uuid4()}"
        manager = self._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        cache = self._call(f"{ICEBERG}.spark.SparkTableCache", "get", None)  # another method has its name
        stack.callback(manager.removeTasks, self._table, task_set)
        manager.stageTasks(self._table, task_set, tasks)
        stack.callback(cache.remove, task_set)
        cache.add(task_set, self._table)
        # Iceberg's runtime for Spark 4.0 takes staged tasks by this option alone, and reads the present table without.
        frame: DataFrame = self._session.read.format("iceberg").option("scan-task-set-id", task_set).load(task_set)
        staged = _built_scan(_relation(frame))
        _require_class(staged, f"{_SOURCE}.SparkStagedScan", "Spark does not read the staged files")
        # Iceberg reads staged tasks with the table's present schema.
        if not self._table.schema().sameSchema(self._schema):
            raise UnsupportedFeatureError("the snapshot has an older schema than the table")
        # For format version 3, staged tasks also have _row_id and _last_updated_sequence_number, as rewrites need them.
        extra = [name for name in frame.columns if name not in self._frame.columns]
        return frame.drop(*extra) if extra else frame

    def _tasks(self, paths: Iterable[str]) -> Any:
        """Return Iceberg's scan tasks of these files, a Java list; they are chosen inside the JVM."""
        planned = self._table.newScan().useSnapshot(self.snapshot_id).planFiles()
        try:
            chosen = self._jvm.org.apache.iceberg.io.CloseableIterable.filter(planned, self._reads_one_of(paths))
            lists = self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
            return lists.newArrayList(chosen)
        finally:
            planned.close()

    def _reads_one_of(self, paths: Iterable[str]) -> Any:
        """Build the java.util.function.Predicate ``task -> paths.contains(task.file().location())``."""
        jvm = self._jvm
        wanted = jvm.java.util.HashSet()
        for path in paths:
            wanted.add(path)
        handles, types = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
        lookup, boolean = handles.publicLookup(), jvm.java.lang.Boolean.TYPE
        any_, text, file = map(self._class, ("java.lang.Object", "java.lang.String", f"{ICEBERG}.ContentFile"))
        contains = lookup.findVirtual(self._class("java.util.Set"), "contains", types.methodType(boolean, any_))
        file_of = lookup.findVirtual(self._class(f"{ICEBERG}.ContentScanTask"), "file", types.methodType(file))
        location_of = lookup.findVirtual(file, "location", types.methodType(text))
        is_wanted = contains.bindTo(wanted).asType(types.methodType(boolean, text))
        test = handles.filterReturnValue(handles.filterReturnValue(file_of, location_of), is_wanted)
        predicate = self._class("java.util.function.Predicate")
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            predicate, test.asType(types.methodType(boolean, any_))
        )

    def _call(self, name: str, method: str, instance: Any) -> Any:
        """Call a method without arguments by reflection: one of no public class, or one that py4j confuses."""
        found = self._class(name).getDeclaredMethod(method, self._gateway.new_array(self._jvm.java.lang.Class, 0))
        found.setAccessible(True)
        return found.invoke(instance, self._gateway.new_array(self._jvm.java.lang.Object, 0))

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(name)


def _relation(frame: DataFrame) -> Any:
    """Return the relation that the frame consists of.

    Raises :class:`UnsupportedFeatureError` for anything else: a view, for example, may read an older snapshot.
    """
    node = analyzed_plan(frame)
    while node.nodeName() == "SubqueryAlias":
        node = node.child()
    if not node.getClass().getName().endswith(".DataSourceV2Relation"):
        raise UnsupportedFeatureError("the name is not a table in Spark", found=node.nodeName())
    return node


def _built_scan(relation: Any) -> Any:
    """Return Spark's scan of a relation."""
    return relation.table().newScanBuilder(relation.options()).build()


def _require_class(found: Any, name: str, message: str) -> None:
    if found.getClass().getName() != name:
        raise UnsupportedFeatureError(message, found=found.getClass().getSimpleName())
