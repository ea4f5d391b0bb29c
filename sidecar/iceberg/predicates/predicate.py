"""Turns predicates (text or pyiceberg expressions) into canonical pyiceberg expressions.

The result is an unbound expression. Columns are named as in the schema, and literals bind to themselves, so every part
of pyiceberg gives it the same meaning (:mod:`sidecar.iceberg.predicates.literals` says what binding does otherwise).
The grammar of texts is in :mod:`sidecar.iceberg.predicates.predicate_text`.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    LiteralPredicate,
    Not,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnaryPredicate,
    UnboundPredicate,
)
from pyiceberg.schema import Schema

from sidecar.errors import UsageError
from sidecar.iceberg.predicates.comparisons import comparison, membership
from sidecar.iceberg.predicates.literals import exact_literal, find_column, prefix_literal
from sidecar.iceberg.predicates.predicate_text import Parser


def parse_predicate(text: str, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Parse ``text`` to a pyiceberg expression on ``schema`` with literals that are exact in their column's type.

    Raises :class:`UsageError` for a syntax error (with the position), for an unknown column (with close matches) and
    for a literal that does not fit its column, and :class:`sidecar.errors.UnsupportedFeatureError` for a column type
    that pyiceberg cannot compare.
    """
    return Parser(text, schema, case_sensitive).parse()


def normalise(expression: BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return ``expression`` with canonical column names and exact literals.

    A number means its shortest decimal text, a string is read as in the text of a predicate. An integer that is
    compared with a date, time or timestamp counts in the column's unit, as in pyiceberg. Raises the errors of
    :func:`parse_predicate`, and :class:`UsageError` for a bound or too deeply nested expression.
    """
    try:
        return _normalise(expression, schema, case_sensitive)
    except RecursionError as error:
        raise UsageError("the predicate is nested too deeply", hint="Combine long lists with In.") from error


def as_expression(predicate: str | BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Turn a text or an expression into a canonical expression. Raises the errors of :func:`parse_predicate`."""
    if isinstance(predicate, str):
        return parse_predicate(predicate, schema, case_sensitive)
    if isinstance(predicate, BooleanExpression):
        return normalise(predicate, schema, case_sensitive)
    raise UsageError("a predicate must be a text or a pyiceberg expression", found=type(predicate).__name__)


def _normalise(expression: BooleanExpression, schema: Schema, case_sensitive: bool) -> BooleanExpression:
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return expression
    if isinstance(expression, And | Or):
        left = _normalise(expression.left, schema, case_sensitive)
        return type(expression)(left, _normalise(expression.right, schema, case_sensitive))
    if isinstance(expression, Not):
        return Not(_normalise(expression.child, schema, case_sensitive))
    if isinstance(expression, BoundPredicate):
        raise UsageError("the predicate is already bound to a schema", hint="Pass it unbound.")
    if isinstance(expression, UnboundPredicate) and isinstance(expression.term, Reference):
        return _normalise_predicate(expression, expression.term.name, schema, case_sensitive)
    raise UsageError("this kind of predicate is not known", found=type(expression).__name__)


def _normalise_predicate(
    predicate: UnboundPredicate, name: str, schema: Schema, case_sensitive: bool
) -> BooleanExpression:
    column = find_column(schema, name, case_sensitive)
    kind: Any = type(predicate)
    expression: BooleanExpression
    if isinstance(predicate, StartsWith | NotStartsWith):
        expression = kind(column.name, prefix_literal(predicate.literal.value, column))
    elif isinstance(predicate, SetPredicate):
        literals = [exact_literal(literal, column) for literal in predicate.literals]
        expression = membership(kind, column, literals)
    elif isinstance(predicate, LiteralPredicate):
        expression = comparison(kind, column, exact_literal(predicate.literal, column))
    elif isinstance(predicate, UnaryPredicate):
        expression = kind(column.name)
    else:
        raise UsageError("this kind of predicate is not known", found=kind.__name__)
    return expression
