"""``spark.read.format("sidecar")``: a table through its sidecar in any session, Spark Connect included.

The rows that match the option ``predicate``, in partitions of the row groups that may hold some
(:mod:`sidecar.spark.partitions`). They are read as :func:`sidecar.scan` reads them, as Arrow batches, so deletes,
renamed and promoted columns are as ever, and so is what NULL and NaN mean in the predicate. What else is asked of the
frame is up to Spark, on these rows.

Spark can push filters down to Python data sources (``pushFilters``), and this one does not take them. PySpark 4.1 keeps
what a pushed filter left, partitions and read function both, with the relation that all uses of a frame share: a
later query without a filter, or another branch of the same query, gets them again and lacks rows, without an error.
Python is not asked a second time, so nothing that a reader does can mend it. Spark asks a Python data source for all
columns of its schema; the option ``columns`` makes that schema smaller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from sidecar.crypto.keys import encryption_keys_from
from sidecar.errors import UsageError
from sidecar.iceberg.catalog import open_table
from sidecar.iceberg.refs import snapshot_id_of
from sidecar.iceberg.resolve import resolve_columns
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.spark.partitions import TARGET_BYTES, PartitionReading, RowGroupShare, shares

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

CATALOG_PROPERTY = "catalog."


def register_spark(session: Any) -> None:
    """Make ``session.read.format("sidecar")`` known to a session, classic or Connect."""
    session.dataSource.register(SidecarDataSource)


class SidecarDataSource(DataSource):
    """Options: ``table`` (``namespace.table``, or ``load("namespace.table")``), ``catalog`` (a name in pyiceberg's
    configuration), ``catalog.<key>`` (properties of that catalog), ``predicate`` (as ``sidecar scan`` takes it),
    ``snapshot-id`` or ``ref`` (a branch or tag), ``columns`` (comma-separated), ``target-bytes`` (what a partition
    reads, about; 128 MiB by default), ``encryption-keys`` (a JSON file or ``env:NAME``, as ``--encryption-keys`` takes
    it; read by the driver and by every worker, so that no key is among the options or in what is sent).
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "sidecar"

    def schema(self) -> StructType:
        """The table's columns, or those of the option ``columns``, in the types that pyiceberg reads them as."""
        return _spark_schema(self._open()[1])

    def reader(self, schema: StructType) -> SidecarReader:
        """A reader of the table, whose columns come in the order of ``schema``, which is what :meth:`schema` said.

        Raises :class:`UsageError` where the table no longer has these columns: Spark takes them by their position.
        """
        options = self._options()
        target = options.get("target-bytes", str(TARGET_BYTES))
        if not target.isdecimal() or int(target) == 0:
            raise UsageError("the option target-bytes is no number of bytes", found=target[:40])
        table, projected, snapshot_id = self._open()
        _require_columns(schema, _spark_schema(projected))
        place = options.get("encryption-keys")
        keys = None if place is None else encryption_keys_from(place)
        predicate = options.get("predicate") or AlwaysTrue()
        found = plan(table, predicate, snapshot_id=snapshot_id, encryption_keys=keys)
        return SidecarReader(found, schema.names, int(target), place)

    def _options(self) -> dict[str, str]:
        return {key.lower(): str(value) for key, value in self.options.items()}

    def _open(self) -> tuple[Table, Schema, int | None]:
        options = self._options()
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
        snapshot_id = snapshot_id_of(table, None if text is None else int(text), options.get("ref"))
        schema = table.scan(snapshot_id=snapshot_id).projection()
        if "columns" in options:
            names = [part.strip() for part in options["columns"].split(",") if part.strip()]
            try:
                schema = schema.select(*names)
            except ValueError:
                resolve_columns(schema, names)  # says which one, and what there is instead
                raise
        return table, schema, snapshot_id


def _spark_schema(schema: Schema) -> StructType:
    found: StructType = from_arrow_schema(schema_to_pyarrow(schema, include_field_ids=False))
    return found


def _require_columns(wanted: StructType, present: StructType) -> None:
    expected, found = ({f.name: f.dataType.simpleString() for f in s.fields} for s in (wanted, present))
    if expected != found:
        raise UsageError(
            "the table's columns are not those that the frame was made with",
            expected=str(expected),
            found=str(found),
            hint="Load the frame again.",
        )


@dataclass(frozen=True)
class _Partition(InputPartition):
    share: RowGroupShare


class SidecarReader(DataSourceReader):
    """Made of a plan on the driver, reads on the workers; pickled in between."""

    def __init__(
        self,
        planned: Plan,
        columns: Sequence[str],
        target: int = TARGET_BYTES,
        keys_place: str | None = None,
    ) -> None:
        for warning in planned.warnings:
            log.warning("%s", warning)
        self._columns = list(columns)
        self._reading = PartitionReading.of(planned, columns, keys_place)
        self._shares = shares(planned, target)

    def partitions(self) -> Sequence[InputPartition]:
        """Surviving row groups, about ``target`` bytes in each."""
        return [_Partition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The matching rows of a partition, deletes applied."""
        assert isinstance(partition, _Partition)
        rows = self._reading.read(partition.share)
        # Spark takes columns by position, and knows no large lists, as which pyiceberg reads every list
        wanted = to_arrow_schema(from_arrow_schema(pa.schema(map(rows.schema.field, self._columns))))
        for batch in rows:
            yield batch.select(self._columns).cast(wanted)
