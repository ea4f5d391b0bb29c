"""``spark.read.format("sidecar")``: a table through its sidecar in any session, Spark Connect included.

The rows that match the option ``predicate``, one partition for each file that may hold some. They come from
pyiceberg's reader as Arrow batches, so deletes, renamed and promoted columns are as ever, and so is what NULL and NaN
mean in the predicate. What else is asked of the frame is up to Spark, on these rows.

Spark can push filters down to Python data sources (``pushFilters``), and this one does not take them: PySpark 4.1
remembers the partitions that a filter left with the frame, and a later query of the same frame without a filter gets
those partitions again: rows are lost without an error. Spark asks a Python data source for all columns of its schema;
the option ``columns`` makes that schema smaller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from sidecar.errors import UsageError
from sidecar.iceberg.catalog import open_table
from sidecar.iceberg.planning import plan
from sidecar.iceberg.resolve import resolve_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

CATALOG_PROPERTY = "catalog."


def register_spark(session: Any) -> None:
    """Make ``session.read.format("sidecar")`` known to a session, classic or Connect."""
    session.dataSource.register(SidecarDataSource)


class SidecarDataSource(DataSource):
    """Options: ``table`` (``namespace.table``, or ``load("namespace.table")``), ``catalog`` (a name in pyiceberg's
    configuration), ``catalog.<key>`` (properties of that catalog), ``predicate`` (as ``sidecar scan`` takes it),
    ``snapshot-id``, ``columns`` (comma-separated).
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "sidecar"

    def schema(self) -> StructType:
        """The table's columns, or those of the option ``columns``, in the types that pyiceberg reads them as."""
        found: StructType = from_arrow_schema(schema_to_pyarrow(self._open()[1], include_field_ids=False))
        return found

    def reader(self, schema: StructType) -> SidecarReader:
        """A reader of the table; ``schema`` is what :meth:`schema` said."""
        table, projected, snapshot_id = self._open()
        predicate = {key.lower(): str(value) for key, value in self.options.items()}.get("predicate", "")
        return SidecarReader(table, projected, predicate or AlwaysTrue(), snapshot_id)

    def _open(self) -> tuple[Table, Schema, int | None]:
        options = {key.lower(): str(value) for key, value in self.options.items()}
        name = options.get("table") or options.get("path")
        if not name:
            raise UsageError("no table is named", hint='Say .option("table", "namespace.table").')
        properties = {
            key.removeprefix(CATALOG_PROPERTY): value
            for key, value in options.items()
            if key.startswith(CATALOG_PROPERTY)
        }
        table = open_table(name, options.get("catalog"), **properties)
        text = options.get("snapshot-id")
        if text is not None and not text.lstrip("-").isdecimal():
            raise UsageError("the option snapshot-id is no number", found=text[:40])
        snapshot_id = None if text is None else int(text)
        schema = table.scan(snapshot_id=snapshot_id).projection()
        if "columns" in options:
            names = [part.strip() for part in options["columns"].split(",") if part.strip()]
            try:
                schema = schema.select(*names)
            except ValueError:
                resolve_columns(schema, names)  # says which one, and what there is instead
                raise
        return table, schema, snapshot_id


@dataclass(frozen=True)
class _Files(InputPartition):
    """One partition: what a worker needs to read one task, without a catalog."""

    task: FileScanTask


class SidecarReader(DataSourceReader):
    """Plans on the driver, reads on the workers; pickled in between, without the catalog."""

    def __init__(
        self,
        table: Table,
        projected: Schema,
        predicate: str | BooleanExpression,
        snapshot_id: int | None = None,
    ) -> None:
        found = plan(table, predicate, snapshot_id=snapshot_id)
        for warning in found.warnings:
            log.warning("%s", warning)
        self._metadata: TableMetadata = table.metadata
        self._io_properties: dict[str, str] = dict(table.io.properties)
        self._projected = projected
        self._row_filter = found.row_filter
        self._tasks = found.tasks

    def partitions(self) -> Sequence[InputPartition]:
        """One for each surviving file."""
        return [_Files(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The matching rows of the file, deletes applied."""
        assert isinstance(partition, _Files)
        io = load_file_io(self._io_properties, self._metadata.location)
        scan = ArrowScan(self._metadata, io, self._projected, self._row_filter)
        # Spark knows no large lists, as which pyiceberg reads every list
        wanted = to_arrow_schema(
            from_arrow_schema(schema_to_pyarrow(self._projected, include_field_ids=False))
        )
        for batch in scan.to_record_batches([partition.task]):
            yield batch.cast(wanted)
