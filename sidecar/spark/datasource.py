"""``spark.read.format("sidecar")``: reads a table by its sidecar in any session, Spark Connect included.

The frame has the rows that match the option ``predicate``, in partitions of the row groups that may match
(:mod:`sidecar.spark.partitions`). Workers read them as :func:`sidecar.scan` does, as Arrow batches. So deletes,
renamed and promoted columns are handled as usual, and NULL and NaN in the predicate follow Iceberg's rules. Spark
applies all other operations of the query to these rows.

Spark can push filters down to Python data sources (``pushFilters``); this one does not accept them. PySpark 4.1
stores the result of a pushed filter, both partitions and read function, with the relation that all uses of a frame
share. A later query without the filter, or another branch of the same query, gets these partitions again and silently
lacks rows. Spark does not call Python a second time, so a reader cannot correct this. Spark asks a Python data source
for all columns of its schema; the option ``columns`` makes that schema smaller.
"""

from __future__ import annotations

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
from sidecar.iceberg.refs import schema_at
from sidecar.iceberg.resolve import listed_names, resolve_columns
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.spark.partitions import TARGET_BYTES, PartitionReading, RowGroupShare, shares

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CATALOG_PROPERTY = "catalog."


def register_spark(session: Any) -> None:
    """Register the format ``sidecar`` in a Spark ``session``, classic or Connect."""
    session.dataSource.register(SidecarDataSource)


class SidecarDataSource(DataSource):
    """The data source behind ``format("sidecar")``. Its options are:

    - ``table``: ``namespace.table``; ``load("namespace.table")`` sets it too.
    - ``catalog``: a name in pyiceberg's configuration; ``catalog.<key>``: properties of that catalog.
    - ``predicate``: a text, as ``sidecar scan`` takes it.
    - ``snapshot-id`` or ``ref``: a snapshot, or a branch or tag.
    - ``columns``: names, separated by commas.
    - ``target-bytes``: about how many bytes a partition reads, 128 MiB by default.
    - ``encryption-keys``: a JSON file or ``env:NAME``, as for ``--encryption-keys``. The driver and every worker read
      it themselves, so keys are neither in the options nor sent to workers.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sidecar"

    def schema(self) -> StructType:
        """Return the table's columns, or those of the option ``columns``, in the types that pyiceberg reads."""
        return _spark_schema(self._open()[1])

    def reader(self, schema: StructType) -> SidecarReader:
        """Plan the scan and return a reader with columns in the order of ``schema``, the result of :meth:`schema`.

        Raises :class:`UsageError` if the table no longer has exactly these columns: Spark takes columns by position.
        """
        options = self._options()
        target = options.get("target-bytes", str(TARGET_BYTES))
        if not target.isdecimal() or int(target) == 0:
            raise UsageError("the option target-bytes is not a positive whole number", found=target[:40])
        table, projected = self._open()
        _require_columns(schema, _spark_schema(projected))
        keys_place = options.get("encryption-keys")
        keys = None if keys_place is None else encryption_keys_from(keys_place)
        predicate = options.get("predicate") or AlwaysTrue()
        snapshot_id, ref = self._snapshot()
        planned = plan(table, predicate, snapshot_id=snapshot_id, ref=ref, encryption_keys=keys)
        return SidecarReader(planned, schema.names, int(target), keys_place)

    def _options(self) -> dict[str, str]:
        return {key.lower(): str(value) for key, value in self.options.items()}

    def _snapshot(self) -> tuple[int | None, str | None]:
        """Return the snapshot id, and the name of a branch or tag, as options give them."""
        options = self._options()
        text = options.get("snapshot-id")
        if text is not None and not text.lstrip("-").isdecimal():
            raise UsageError("the option snapshot-id is not a number", found=text[:40])
        return None if text is None else int(text), options.get("ref")

    def _open(self) -> tuple[Table, Schema]:
        options = self._options()
        name = options.get("table") or options.get("path")
        if not name:
            raise UsageError("the option table is missing", hint='Add .option("table", "namespace.table").')
        properties = {
            key.removeprefix(CATALOG_PROPERTY): value
            for key, value in options.items()
            if key.startswith(CATALOG_PROPERTY)
        }
        table = open_table(name, options.get("catalog"), **properties)
        schema = schema_at(table, *self._snapshot())
        if "columns" in options:
            names = listed_names(options["columns"])
            try:
                schema = schema.select(*names)
            except ValueError:
                resolve_columns(schema, names)  # raises a better error for an unknown name
                raise
        return table, schema


def _spark_schema(schema: Schema) -> StructType:
    found: StructType = from_arrow_schema(schema_to_pyarrow(schema, include_field_ids=False))
    return found


def _require_columns(wanted: StructType, present: StructType) -> None:
    expected, found = ({f.name: f.dataType.simpleString() for f in s.fields} for s in (wanted, present))
    if expected != found:
        raise UsageError(
            "the columns of the table have changed since the frame was made",
            expected=str(expected),
            found=str(found),
            hint="Load the frame again.",
        )


@dataclass(frozen=True)
class _Partition(InputPartition):
    share: RowGroupShare


class SidecarReader(DataSourceReader):
    """Reads the rows of a plan. The driver makes it from the plan, pickles it and sends it to the workers."""

    def __init__(
        self,
        planned: Plan,
        columns: Sequence[str],
        target: int = TARGET_BYTES,
        keys_place: str | None = None,
    ) -> None:
        self._columns = list(columns)
        self._reading = PartitionReading.of(planned, columns, keys_place)
        self._shares = shares(planned, target)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions: kept row groups, about ``target`` bytes in each."""
        return [_Partition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a partition, without deleted rows."""
        assert isinstance(partition, _Partition)
        rows = self._reading.read(partition.share)
        # Spark takes columns by position. It rejects large lists, the type that pyiceberg gives to all lists.
        wanted = to_arrow_schema(from_arrow_schema(pa.schema(map(rows.schema.field, self._columns))))
        for batch in rows:
            yield batch.select(self._columns).cast(wanted)
