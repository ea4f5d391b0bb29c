"""Which rows truly match a predicate, said of each row by itself, without an index, bounds or an engine.

Engines lose rows of their own (pyiceberg by its bounds of floats, DuckDB with some NaN), and do not agree on all of
SQL. So the truth of a row has three values (``tests.life.conditions``), and what an engine says counts only for those
rows of which engines say different things.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundStartsWith,
    Not,
    Or,
)
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType, TimeType

from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.refs import schema_at, table_at
from sidecar.iceberg.struct_nulls import bound_to
from tests.life.conditions import Combined, Compared, LifeCondition, Negated, Truth
from tests.life.table_life import Life
from tests.life.values import Row, by_field_id, comparable, field_ids

_OPERATIONS: dict[Any, str] = {
    BoundEqualTo: "=", BoundNotEqualTo: "!=", BoundIn: "in", BoundNotIn: "not in", BoundStartsWith: "like",
    BoundLessThan: "<", BoundLessThanOrEqual: "<=", BoundGreaterThan: ">", BoundGreaterThanOrEqual: ">=",
    BoundIsNull: "is null", BoundNotNull: "is not null", BoundIsNaN: "is nan", BoundNotNaN: "is not nan",
}  # fmt: skip
ALWAYS_TRUE = AlwaysTrue()


def condition_of(bound: BooleanExpression) -> LifeCondition:
    """A bound predicate as a condition that can be asked of one row."""
    if isinstance(bound, AlwaysTrue | AlwaysFalse):
        return Combined("and" if isinstance(bound, AlwaysTrue) else "or", ())
    if isinstance(bound, And | Or):
        return Combined(
            "and" if isinstance(bound, And) else "or", (condition_of(bound.left), condition_of(bound.right))
        )
    if isinstance(bound, Not):
        return Negated(condition_of(bound.child))
    if isinstance(bound, BoundNotStartsWith):
        return Negated(condition_of(BoundStartsWith(bound.term, bound.literal)))
    leaf: Any = bound
    field = leaf.term.ref().field
    literals = leaf.literals if hasattr(leaf, "literals") else [leaf.literal] if hasattr(leaf, "literal") else []
    values = tuple(_in_a_row(one.value, field.field_type) for one in literals)
    return Compared(field.name, field.field_id, field.field_type, _OPERATIONS[type(leaf)], values)


def _in_a_row(value: Any, kind: IcebergType) -> Any:
    """The value of a literal as pyarrow gives those of rows."""
    if isinstance(kind, DateType | TimeType | TimestampType | TimestamptzType):
        return pa.scalar(value, schema_to_pyarrow(kind)).as_py()
    return value.bytes if isinstance(value, uuid.UUID) else value


def truth_of(text: str, schema: Schema, rows: Mapping[int, Row]) -> dict[int, Truth]:
    """What a predicate says of each row, by its id."""
    condition = condition_of(bound_to(schema, parse_predicate(text, schema)))
    return {key: condition.truth(row) for key, row in rows.items()}


def truth_at(life: Life, text: str, snapshot_id: int | None = None) -> dict[int, Truth]:
    """The same of the rows of a snapshot."""
    return truth_of(text, schema_at(life.table, snapshot_id), life.holds(snapshot_id).rows)


def shown(life: Life, found: pa.Table, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """Rows for :class:`tests.life.tally.Tally`, in the columns that were read."""
    schema = _only(schema_at(life.table, snapshot_id), found.column_names)
    return [_shown(by_field_id(schema, record), schema) for record in found.to_pylist()]


def shown_rows(
    life: Life, ids: Iterable[int], columns: Collection[str] | None, snapshot_id: int | None = None
) -> list[dict[str, Any]]:
    """The rows of the model with these ids, likewise."""
    schema, rows = _only(schema_at(life.table, snapshot_id), columns), life.holds(snapshot_id).rows
    return [_shown(rows[key], schema) for key in ids]


def _only(schema: Schema, columns: Collection[str] | None) -> Schema:
    return schema if columns is None else Schema(*(f for f in schema.fields if f.name in columns))


def _shown(row: Row, schema: Schema) -> dict[str, Any]:
    return {"id": row[1], "row": comparable(row, field_ids(schema))}


def live_rows(
    life: Life, fields: tuple[str, ...], snapshot_id: int | None = None, row_filter: BooleanExpression = ALWAYS_TRUE
) -> pa.Table:
    """The rows of all files that pyiceberg's comparison of values leaves, and deleted ones among them.

    No file is left out: pyiceberg's bounds of floats leave out some that match. It looks names up in the table's
    current schema, which is made that of the snapshot for it.
    """
    table, chosen = table_at(life.table, snapshot_id)
    snapshot = table.current_snapshot() if chosen is None else table.snapshot_by_id(chosen)
    assert snapshot is not None
    projection = table.scan(row_filter, selected_fields=fields, snapshot_id=snapshot_id).projection()
    reader = ArrowScan(table.metadata, table.io, projection, row_filter)
    return reader.to_table([FileScanTask(file) for file in life.data_files(snapshot)])


def right_ids(
    truth: Mapping[int, Truth],
    found: Collection[int],
    by_engine: Collection[int],
    without: Callable[[], Collection[int]],
    reads: bool = False,
) -> set[int]:
    """The rows that a door must give: all that match, and of those that engines dispute the usual ones.

    Args:
        found: what it gave.
        by_engine: what the engine finds in all files.
        without: what the door gives without a sidecar, which decides about what engines dispute.
        reads: whether the engine reads the rows that are found, so that it may lose some that match by itself.
    """
    here, there = {*found}, {*by_engine}
    right = {key for key, one in truth.items() if one.must and (not reads or key in here | there)}
    unsaid = {key for key, one in truth.items() if one.may and not one.must}
    disputed = unsaid & (here ^ there)
    return right | (unsaid & here & there) | (disputed & {*without()} if disputed else set())
