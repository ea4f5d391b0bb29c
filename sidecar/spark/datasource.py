"""``spark.read.format("sidecar")``: a table through its sidecar in any session, Spark Connect included.

Spark asks this Python data source for a schema, hands over the conjuncts of its filter, and reads one partition for
each file that may match. All filters are handed back, so Spark evaluates them on the rows by its own rules; here they
only choose files. What is not understood chooses nothing.

Rows come from pyiceberg's reader as Arrow batches: deletes, renamed and promoted columns as ever. Spark asks a Python
data source for all columns of its schema; the option ``columns`` makes that schema smaller.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType, TimestamptzType
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.catalog import open_table
from sidecar.iceberg.planning import plan
from sidecar.iceberg.resolve import resolve_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

CATALOG_PROPERTY = "catalog."
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register_spark(session: Any) -> None:
    """Make ``session.read.format("sidecar")`` known to a session, classic or Connect, and let it push filters down.

    Without that setting Spark refuses every Python data source that takes filters.
    """
    session.conf.set(PUSHDOWN, "true")
    session.dataSource.register(SidecarDataSource)


class SidecarDataSource(DataSource):
    """Options: ``table`` (``namespace.table``, or ``load("namespace.table")``), ``catalog`` (a name in pyiceberg's
    configuration), ``catalog.<key>`` (properties of that catalog), ``snapshot-id``, ``columns`` (comma-separated).
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
        return SidecarReader(table, projected, snapshot_id)

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

    def __init__(self, table: Table, projected: Schema, snapshot_id: int | None) -> None:
        self._table: Table | None = table
        self._metadata: TableMetadata = table.metadata
        self._io_properties: dict[str, str] = dict(table.io.properties)
        self._projected = projected
        self._snapshot_id = snapshot_id
        self._tasks = self._planned(AlwaysTrue())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_table": None}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Choose files by the filters that are understood; all are handed back for Spark to evaluate."""
        understood = [found for found in (as_iceberg(one, self._projected) for one in filters) if found]
        if understood:
            self._tasks = self._planned(reduce(And, understood))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """One for each surviving file."""
        return [_Files(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The file's rows, deletes applied; no filter is."""
        assert isinstance(partition, _Files)
        io = load_file_io(self._io_properties, self._metadata.location)
        scan = ArrowScan(self._metadata, io, self._projected, AlwaysTrue())
        # Spark knows no large lists, as which pyiceberg reads every list
        wanted = to_arrow_schema(
            from_arrow_schema(schema_to_pyarrow(self._projected, include_field_ids=False))
        )
        for batch in scan.to_record_batches([partition.task]):
            yield batch.cast(wanted)

    def _planned(self, expression: BooleanExpression) -> list[FileScanTask]:
        assert self._table is not None
        try:
            found = plan(self._table, expression, snapshot_id=self._snapshot_id)
        except SidecarError:
            if isinstance(expression, AlwaysTrue):
                raise
            return self._planned(AlwaysTrue())
        for warning in found.warnings:
            log.warning("%s", warning)
        return found.tasks


def as_iceberg(pushed: Filter, schema: Schema) -> BooleanExpression | None:
    """A filter of Spark as an expression that holds wherever it does, for choosing files; ``None`` for none such.

    NaN is Spark's largest number, where Iceberg's bounds do not speak of it: what compares upwards may match NaN too.
    """
    try:
        return _with_nan(rewrite_not(_translated(pushed, schema)), schema)
    except (_Unknown, ValueError, TypeError):
        return None


class _Unknown(Exception):
    """A filter that chooses no files."""


_Maker = Callable[..., BooleanExpression]
_in: _Maker = In
_is_null: _Maker = IsNull
_not_null: _Maker = NotNull
_is_nan: _Maker = IsNaN
_COMPARISONS: dict[str, _Maker] = {
    "EqualTo": EqualTo,
    "EqualNullSafe": EqualTo,
    "GreaterThan": GreaterThan,
    "GreaterThanOrEqual": GreaterThanOrEqual,
    "LessThan": LessThan,
    "LessThanOrEqual": LessThanOrEqual,
    "StringStartsWith": StartsWith,
}


def _translated(pushed: Any, schema: Schema) -> BooleanExpression:
    kind = type(pushed).__name__
    if kind == "Not":
        inner = pushed.child
        if type(inner).__name__ == "EqualNullSafe":
            raise _Unknown  # NULL differs from every value there
        return Not(_translated(inner, schema))
    name = ".".join(pushed.attribute)
    field = schema.find_field(name)  # ValueError for a name that is not there
    if kind in ("IsNull", "IsNotNull"):
        return _is_null(name) if kind == "IsNull" else _not_null(name)
    if isinstance(field.field_type, TimestamptzType):
        raise _Unknown  # Python has such values in the local time of who knows which process
    if kind == "In":
        values = [_value(value) for value in pushed.value if value is not None]
        expression = _in(name, values)
    elif kind in _COMPARISONS:
        expression = _COMPARISONS[kind](name, _value(pushed.value))
    else:
        raise _Unknown
    bind(schema, expression, case_sensitive=True)  # what does not fit the column's type chooses nothing
    return expression


def _value(value: Any) -> Any:
    """A literal as pyiceberg takes it."""
    if isinstance(value, float) and math.isnan(value):
        raise _Unknown
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, bool | int | float | str | bytes | Decimal):
        return value
    raise _Unknown


def _with_nan(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    if isinstance(expression, And | Or):
        parts = (_with_nan(expression.left, schema), _with_nan(expression.right, schema))
        return And(*parts) if isinstance(expression, And) else Or(*parts)
    if isinstance(expression, GreaterThan | GreaterThanOrEqual):
        name = expression.term
        assert isinstance(name, Reference)
        if isinstance(schema.find_field(name.name).field_type, FloatType | DoubleType):
            return Or(expression, _is_nan(name))
    return expression
