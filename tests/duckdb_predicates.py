"""Predicates of Iceberg in the SQL of DuckDB and Spark, with literals in the types of their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

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
from pyiceberg.schema import Schema

_SIGNS: dict[Any, str] = {
    BoundEqualTo: "=",
    BoundNotEqualTo: "<>",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}
_FORMS: dict[Any, str] = {
    BoundIsNull: "{0} is null",
    BoundNotNull: "{0} is not null",
    BoundIsNaN: "isnan({0})",
    BoundNotNaN: "not isnan({0})",
}


class _Words(NamedTuple):
    """What the two engines say differently."""

    quote: str
    starts_with: str
    literal: Callable[[Any, str], str]


def duckdb_condition(bound: BooleanExpression, schema: Schema) -> str:
    """``bound``, a predicate bound to ``schema``; time zones are UTC."""
    return _condition(bound, schema, _Words('"', "starts_with", _literal))


def spark_condition(bound: BooleanExpression, schema: Schema) -> str:
    """The same for Spark, without the code that it is to check."""
    return _condition(bound, schema, _Words("`", "startswith", _spark_literal))


def _condition(bound: BooleanExpression, schema: Schema, words: _Words) -> str:
    if isinstance(bound, AlwaysTrue | AlwaysFalse):
        return str(isinstance(bound, AlwaysTrue)).lower()
    if isinstance(bound, And | Or):
        word = "and" if isinstance(bound, And) else "or"
        return f"({_condition(bound.left, schema, words)} {word} {_condition(bound.right, schema, words)})"
    if isinstance(bound, Not):
        return f"(not {_condition(bound.child, schema, words)})"
    leaf: Any = bound
    field = leaf.term.ref().field
    path = schema.find_column_name(field.field_id) or ""
    column = ".".join(f"{words.quote}{part}{words.quote}" for part in path.split("."))
    if type(leaf) in _FORMS:
        return _FORMS[type(leaf)].format(column)
    kind = str(field.field_type)
    if isinstance(leaf, BoundIn | BoundNotIn):
        listed = ", ".join(words.literal(one.value, kind) for one in leaf.literals)
        return f"{column} {'not in' if isinstance(leaf, BoundNotIn) else 'in'} ({listed})"
    value = words.literal(leaf.literal.value, kind)
    if isinstance(leaf, BoundStartsWith | BoundNotStartsWith):
        return f"{'not ' if isinstance(leaf, BoundNotStartsWith) else ''}{words.starts_with}({column}, {value})"
    return f"{column} {_SIGNS[type(leaf)]} {value}"


def _literal(value: Any, kind: str) -> str:
    if kind in ("int", "long"):
        return f"'{value}'::BIGINT"
    if kind == "boolean":
        return str(value).lower()
    if kind == "date":
        return f"(DATE '1970-01-01' + '{value}'::INTEGER)"
    if kind == "time":
        seconds, micros = divmod(value, 1_000_000)
        return f"TIME '{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}'"
    if kind in ("timestamp", "timestamptz"):
        return f"make_timestamp('{value}'::BIGINT)" + ("::TIMESTAMPTZ" if kind.endswith("tz") else "")
    if kind == "binary" or kind.startswith("fixed"):
        return f"from_hex('{value.hex()}')"
    if kind.startswith("decimal"):
        return f"'{value:f}'::{kind}"
    text = str(value).replace("'", "''")
    # a literal of a FLOAT column is a double first: half-way between two floats, the text itself may round to the other
    return f"'{text}'" + {"float": "::DOUBLE::FLOAT", "double": "::DOUBLE", "uuid": "::UUID"}.get(kind, "")


def _spark_literal(value: Any, kind: str) -> str:
    if kind == "boolean":
        return str(value).lower()
    if kind == "date":
        return f"date_add(DATE'1970-01-01', {value})"
    if kind in ("timestamp", "timestamptz"):
        instant = f"timestamp_micros({value})"
        return instant if kind.endswith("tz") else f"CAST({instant} AS TIMESTAMP_NTZ)"
    if kind == "binary" or kind.startswith("fixed"):
        return f"X'{value.hex()}'"
    if kind == "uuid":
        return f"'{UUID(bytes=value)}'"
    text = f"{value:f}" if kind.startswith("decimal") else str(value)
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if kind == "float":
        return f"CAST(CAST({quoted} AS DOUBLE) AS FLOAT)"
    names = {"int": "INT", "long": "BIGINT", "double": "DOUBLE"}
    return quoted if kind == "string" else f"CAST({quoted} AS {names.get(kind, kind)})"
