"""Predicates of Iceberg in DuckDB's words, with literals in the types of their columns."""

from __future__ import annotations

from typing import Any

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


def duckdb_condition(bound: BooleanExpression, schema: Schema) -> str:
    """``bound``, a predicate bound to ``schema``; time zones are UTC."""
    if isinstance(bound, AlwaysTrue | AlwaysFalse):
        return str(isinstance(bound, AlwaysTrue)).lower()
    if isinstance(bound, And | Or):
        word = "and" if isinstance(bound, And) else "or"
        return f"({duckdb_condition(bound.left, schema)} {word} {duckdb_condition(bound.right, schema)})"
    if isinstance(bound, Not):
        return f"(not {duckdb_condition(bound.child, schema)})"
    leaf: Any = bound
    field = leaf.term.ref().field
    path = schema.find_column_name(field.field_id) or ""
    column = ".".join(f'"{part}"' for part in path.split("."))
    if type(leaf) in _FORMS:
        return _FORMS[type(leaf)].format(column)
    kind = str(field.field_type)
    if isinstance(leaf, BoundIn | BoundNotIn):
        listed = ", ".join(_literal(one.value, kind) for one in leaf.literals)
        return f"{column} {'not in' if isinstance(leaf, BoundNotIn) else 'in'} ({listed})"
    value = _literal(leaf.literal.value, kind)
    if isinstance(leaf, BoundStartsWith | BoundNotStartsWith):
        return f"{'not ' if isinstance(leaf, BoundNotStartsWith) else ''}starts_with({column}, {value})"
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
    return f"'{text}'" + {"float": "::FLOAT", "double": "::DOUBLE", "uuid": "::UUID"}.get(kind, "")
