"""Decides predicates on columns that a file lacks: a constant has their place in all of its rows.

The constant is the value of the file's partition, or else the column's initial default, or NULL. A field of a struct
that is NULL is NULL, too, whatever its default. pyiceberg compares these values as they are in metadata with literals:
dates, times and UUIDs with numbers and bytes, floats with doubles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from functools import reduce
from typing import Any
from uuid import UUID

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundIn,
    BoundIsNull,
    BoundLiteralPredicate,
    BoundNotIn,
    BoundNotNull,
    BoundPredicate,
    BoundSetPredicate,
    Or,
)
from pyiceberg.expressions.literals import FloatLiteral, Literal
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import FloatType, IcebergType, NestedField, StructType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from sidecar.filters.float32 import nearest_float32
from sidecar.iceberg.predicates.unbound import is_null, not_null

_OF_NULL: dict[type[BoundPredicate], bool] = {BoundIsNull: True, BoundNotNull: False, BoundIn: False, BoundNotIn: True}
"""Predicates that are true or false for NULL, as pyiceberg has it in rows."""


class AbsentColumns:
    """The columns of a table that one of its files lacks.

    ``file_schema`` has the field ids of the table. ``partition`` has values of the file's partition, by field id.
    """

    def __init__(self, table_schema: Schema, file_schema: Schema, partition: Mapping[int, Any]) -> None:
        self._file_schema = file_schema
        self._partition = partition
        self._above = dict(_structs_above(table_schema.fields))

    def structs_asked(self, field_ids: set[int]) -> set[int]:
        """Return the structs in the file whose NULLs decide predicates on these columns."""
        fields = (struct for field_id in field_ids if self._has_default(field_id) for struct in self._above[field_id])
        return {struct.field_id for struct in fields}

    def _has_default(self, field_id: int) -> bool:
        is_absent = field_id in self._above and self._file_schema.find_column_name(field_id) is None
        return is_absent and field_id not in self._partition and self._are_there(field_id)

    def _are_there(self, field_id: int) -> bool:
        """Whether the file has all structs in which a column is."""
        return all(self._file_schema.find_column_name(struct.field_id) for struct in self._above[field_id])

    def decide(self, leaf: BoundPredicate, negated: bool) -> BooleanExpression:
        """Return the predicate of a file's rows that a predicate on an absent column becomes.

        ``negated`` says that it is below an odd number of NOT. A comparison with a field of a NULL
        struct matches no row, negated or not.
        """
        field = leaf.term.ref().field
        if field.field_id in self._partition:
            return _constant(_holds(leaf, field, self._partition[field.field_id]))
        structs = self._above.get(field.field_id, ())
        if field.initial_default is None or not self._are_there(field.field_id):
            return _constant(_holds(leaf, field, None))
        holds, of_null = _holds(leaf, field, field.initial_default), _OF_NULL.get(type(leaf), negated)
        names = [self._file_schema.find_column_name(struct.field_id) for struct in structs]
        if holds == of_null or not names:
            return _constant(holds)
        return reduce(And, map(not_null, names)) if holds else reduce(Or, map(is_null, names))


def _structs_above(
    fields: tuple[NestedField, ...], above: tuple[NestedField, ...] = ()
) -> Iterator[tuple[int, tuple[NestedField, ...]]]:
    """Yield the id of each column outside of lists and maps, with the structs in which it is."""
    for field in fields:
        yield field.field_id, above
        if isinstance(field.field_type, StructType):
            yield from _structs_above(field.field_type.fields, (*above, field))


def _constant(holds: bool) -> BooleanExpression:
    return AlwaysTrue() if holds else AlwaysFalse()


def _holds(leaf: BoundPredicate, field: NestedField, value: Any) -> bool:
    """Return whether a predicate holds for a value, as pyiceberg decides it."""
    make: Any = leaf
    if isinstance(leaf, BoundLiteralPredicate):
        unbound = make.as_unbound(field.name, _of_file(leaf.literal, field.field_type))
    elif isinstance(leaf, BoundSetPredicate):
        unbound = make.as_unbound(field.name, {_of_file(one, field.field_type) for one in leaf.literals})
    else:
        unbound = make.as_unbound(field.name)
    as_optional = NestedField(field.field_id, field.name, field.field_type, required=False)
    return expression_evaluator(Schema(as_optional), unbound, True)(Record(_as_literal(value, field.field_type)))


def _of_file(literal: Literal[Any], kind: IcebergType) -> Literal[Any]:
    return FloatLiteral(nearest_float32(literal.value)) if isinstance(kind, FloatType) else literal


def _as_literal(value: Any, kind: IcebergType) -> Any:
    """Return a value of metadata as the values of literals are: days and microseconds as integers, UUIDs as bytes."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, date):
        return date_to_days(value)
    if isinstance(value, time):
        return time_to_micros(value)
    return nearest_float32(value) if isinstance(kind, FloatType) and value is not None else value
