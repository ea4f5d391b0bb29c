"""Which rows truly match a predicate, said of each row by itself, without an index, bounds or an engine.

Engines lose rows of their own (pyiceberg by its bounds of floats, DuckDB with some NaN), and do not agree on all of
SQL. So the truth of a row has three values (``tests.life.conditions``), and what an engine says counts only for those
rows of which engines say different things.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Mapping
from functools import cache
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
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType, TimeType

from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.refs import table_at
from sidecar.iceberg.struct_nulls import bound_to
from tests.equivalence_files import rows_of_all_files
from tests.equivalence_history import History
from tests.life.conditions import Combined, Compared, LifeCondition, Negated, Truth
from tests.life.values import by_field_id

_OPERATIONS: dict[Any, str] = {
    BoundEqualTo: "=", BoundNotEqualTo: "!=", BoundIn: "in", BoundNotIn: "not in", BoundStartsWith: "like",
    BoundLessThan: "<", BoundLessThanOrEqual: "<=", BoundGreaterThan: ">", BoundGreaterThanOrEqual: ">=",
    BoundIsNull: "is null", BoundNotNull: "is not null", BoundIsNaN: "is nan", BoundNotNaN: "is not nan",
}  # fmt: skip
ALWAYS_TRUE = AlwaysTrue()
_EPOCH = dt.datetime(1970, 1, 1)


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
    if isinstance(kind, DateType):
        return (_EPOCH + dt.timedelta(days=value)).date()
    if isinstance(kind, TimeType):
        return (_EPOCH + dt.timedelta(microseconds=value)).time()
    if isinstance(kind, TimestampType):
        return _EPOCH + dt.timedelta(microseconds=value)
    if isinstance(kind, TimestamptzType):
        return (_EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=dt.timezone.utc)
    return value.bytes if isinstance(value, uuid.UUID) else value


def live_rows(
    history: History, fields: tuple[str, ...], snapshot_id: int | None, row_filter: BooleanExpression = ALWAYS_TRUE
) -> pa.Table:
    """The rows of all files, or those that pyiceberg's comparison of values leaves, without those that are deleted.

    pyiceberg looks names up in the table's current schema, which is made that of the snapshot for it. It does not
    apply deletes by equality.
    """
    before = history.before_equality if snapshot_id is None else None
    table = history.table if before else table_at(history.table, snapshot_id)[0]
    rows = rows_of_all_files(table, row_filter, fields, snapshot_id, before)
    if before is None:
        return rows
    return rows.filter(pa.array([key not in history.gone for key in rows["id"].to_pylist()], pa.bool_()))


class Truths:
    """What is true of the rows of a table at one of its snapshots."""

    def __init__(self, history: History, snapshot_id: int | None = None) -> None:
        self._schema = table_at(history.table, snapshot_id)[0].schema()
        self.rows = live_rows(history, ("*",), snapshot_id)
        """All of them."""
        self.ids: list[int] = self.rows["id"].to_pylist()
        """Theirs, in this order."""
        rows = self.rows.to_pylist()
        self._values = {key: by_field_id(self._schema, row) for key, row in zip(self.ids, rows, strict=True)}

    def of(self, text: str) -> dict[int, Truth]:
        """What a predicate says of each row, by its id."""
        condition = condition_of(bound_to(self._schema, parse_predicate(text, self._schema)))
        return {key: condition.truth(row) for key, row in self._values.items()}

    def rows_of(self, ids: Collection[int], columns: list[str] | None = None) -> pa.Table:
        """The rows with these ids, in all columns or in some."""
        rows = self.rows.filter(pa.array([key in ids for key in self.ids], pa.bool_()))
        return rows if columns is None else rows.select(columns)


def truths_at(history: History, snapshot_id: int | None = None) -> Truths:
    """The truths of a snapshot, read once for each schema that it is read in."""
    metadata = history.table.metadata
    key = snapshot_id, metadata.current_snapshot_id, metadata.current_schema_id
    if key not in history.truths:
        history.truths[key] = Truths(history, snapshot_id)
    known: Truths = history.truths[key]
    return known


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
    usual, wanted = cache(without), set()
    for key, one in truth.items():
        here, there = key in found, key in by_engine
        if one.must:
            right = not reads or here or there
        elif one.may:
            right = there if here == there else key in usual()
        else:
            right = False
        if right:
            wanted.add(key)
    return wanted
