"""A predicate of a table in the names and types of one of its data files.

A file from before a promotion has columns of a narrower type: 32-bit floats where the table has doubles, ints where it
has longs, decimals of fewer digits. pyiceberg binds the literals of the table to the narrower type, and a literal
beyond it becomes "never" or "always": ``d = inf`` and ``d > 1e300`` lose the rows with infinity, ``d < 1e39`` finds
NULL, an IN list of longs finds the greatest int, and Arrow refuses a decimal with more digits. Here such a comparison
becomes one that means the same for the values of the file. A finite literal of a DOUBLE column is rounded to 32 bits,
as for a FLOAT column.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundIn,
    BoundIsNaN,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundPredicate,
    BoundSetPredicate,
    In,
    Not,
    NotIn,
    Or,
)
from pyiceberg.expressions.literals import DoubleLiteral, Literal
from pyiceberg.expressions.visitors import rewrite_not, translate_column_names
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)

from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.predicates.comparisons import comparison, membership
from sidecar.iceberg.predicates.conditions import predicates
from sidecar.iceberg.predicates.literals import PredicateColumn, exact_literal
from sidecar.iceberg.predicates.unbound import is_null, not_null
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.reading.absent_columns import AbsentColumns


def in_types_of_file(bound: BooleanExpression, file_schema: Schema, absent: AbsentColumns) -> BooleanExpression:
    """Return an expression that is bound to the table's schema as one that is bound to the schema of a file.

    ``file_schema`` has the field ids of the table. ``absent`` decides predicates on columns that the file lacks. Raises
    :class:`UnsupportedFeatureError` for a timestamp in a file of dates, which pyiceberg would truncate.
    """
    return bound_to(file_schema, _translated(bound, file_schema, absent))


def for_statistics(bound: BooleanExpression) -> BooleanExpression:
    """Return an expression in the types of a file without the parts that Arrow's statistics are wrong about.

    It is wider. Statistics leave out NaN, and minimum and maximum are equal for 0.0 and -0.0. Arrow takes a column with
    equal minimum and maximum as constant: it rules out NaN rows, and the other zero for an IN list, in which zeros
    differ. NaN also meets ``NOT (x > 5)`` in Arrow.
    """
    if isinstance(bound, And | Or):
        return type(bound)(for_statistics(bound.left), for_statistics(bound.right))
    if isinstance(bound, Not):
        return AlwaysTrue() if asks_floats(bound) else bound
    is_doubtful = isinstance(bound, BoundIsNaN | BoundNotEqualTo | BoundNotIn) or (
        isinstance(bound, BoundIn) and any(literal.value == 0 for literal in bound.literals)
    )
    return AlwaysTrue() if is_doubtful and asks_floats(bound) else bound


def asks_floats(bound: BooleanExpression) -> bool:
    """Return whether an expression asks for values of a FLOAT or DOUBLE column."""
    leaves = predicates(rewrite_not(bound))
    return any(isinstance(leaf.term.ref().field.field_type, FloatType | DoubleType) for leaf in leaves)


def may_not_fit(bound: BooleanExpression) -> bool:
    """Return whether a file of a narrower type may lack a value that a literal has, so that pyiceberg may be wrong."""
    return any(
        any(_may_not_fit(literal.value, leaf.term.ref().field.field_type) for literal in _literals(leaf))
        for leaf in predicates(rewrite_not(bound))
    )


def _may_not_fit(value: Any, kind: Any) -> bool:
    if isinstance(kind, DoubleType):
        return not FloatType.min <= value <= FloatType.max
    if isinstance(kind, LongType):
        return not IntegerType.min <= value <= IntegerType.max
    return isinstance(kind, DecimalType | TimestampType | TimestamptzType)


def _literals(leaf: BoundPredicate) -> list[Literal[Any]]:
    if isinstance(leaf, BoundSetPredicate):
        return [*leaf.literals]
    return [leaf.literal] if isinstance(leaf, BoundLiteralPredicate) else []


def _translated(
    bound: BooleanExpression, file_schema: Schema, absent: AbsentColumns, negated: bool = False
) -> BooleanExpression:
    """Translate a part of an expression; ``negated`` says that it is below an odd number of NOT."""
    if isinstance(bound, And | Or):
        left, right = (_translated(part, file_schema, absent, negated) for part in (bound.left, bound.right))
        return type(bound)(left, right)
    if isinstance(bound, Not):
        return Not(_translated(bound.child, file_schema, absent, not negated))
    if isinstance(bound, BoundPredicate) and file_schema.find_column_name(bound.term.ref().field.field_id) is None:
        return absent.decide(bound, negated)
    column = _narrower_column(bound, file_schema)
    if column is None:
        return translate_column_names(bound, file_schema)
    leaf: Any = bound
    literals = [_in_file(literal, column) for literal in _literals(leaf)]
    if isinstance(leaf, BoundLiteralPredicate):
        return comparison(leaf.as_unbound, column, literals[0])
    # pyiceberg's IN is false for NULL and its NOT IN true, in a list of any length.
    if isinstance(leaf, BoundIn):
        return And(membership(In, column, literals), not_null(column.name))
    return Or(membership(NotIn, column, literals), is_null(column.name))


def _narrower_column(leaf: BooleanExpression, file_schema: Schema) -> PredicateColumn | None:
    """Return the column of a file that a leaf compares, if its type has fewer numbers than that of the table."""
    if not isinstance(leaf, BoundLiteralPredicate | BoundSetPredicate):
        return None
    field = leaf.term.ref().field
    name = file_schema.find_column_name(field.field_id)
    if name is None:
        return None
    ours, kind = field.field_type, file_schema.find_field(field.field_id).field_type
    if isinstance(kind, DateType) and isinstance(ours, TimestampType | TimestamptzType):
        raise UnsupportedFeatureError(f"a column of type {ours} is in a file as {kind}", column=name)
    is_narrower = (
        (isinstance(ours, DoubleType) and isinstance(kind, FloatType))
        or (isinstance(ours, LongType) and isinstance(kind, IntegerType))
        or (isinstance(ours, DecimalType) and isinstance(kind, DecimalType) and kind.precision < ours.precision)
    )
    return PredicateColumn(name, field.field_id, kind) if is_narrower else None


def _in_file(literal: Literal[Any], column: PredicateColumn) -> Literal[Any]:
    """Return a literal for a column of a file: rounded to 32 bits for FLOAT, and unchanged if it is beyond the type."""
    return exact_literal(DoubleLiteral(literal.value), column) if isinstance(column.type, FloatType) else literal
