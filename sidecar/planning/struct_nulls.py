"""Keeps files for IS NULL on a required field in an optional struct, which is NULL where the struct is.

pyiceberg takes a required field for never NULL, and binds ``a.b IS NULL`` as false even if ``a`` is optional. Then
bounds, partitions and filters drop every file. Spark and DuckDB find the rows whose struct is NULL.
"""

from __future__ import annotations

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, IsNull, Or, Reference
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.schema import Schema


def keeping_struct_nulls(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Return a filter for inclusive evaluators: more rows meet it than ``expression``, which is not bound.

    Names are those of ``schema``. Files that hold no NULL of the struct are kept too: manifests do not count these.
    """
    late = _null_with_a_struct(schema)
    return _without_null_tests(rewrite_not(expression), late) if late else expression


def _null_with_a_struct(schema: Schema) -> set[str]:
    """Return the names of required fields in structs of which one is optional."""
    names = set(schema.column_names)
    optional = {name for name in names if not schema.find_field(name).required}
    return {name for name in names - optional if any(name.startswith(f"{struct}.") for struct in optional)}


def _without_null_tests(node: BooleanExpression, names: set[str]) -> BooleanExpression:
    if isinstance(node, And | Or):
        return type(node)(_without_null_tests(node.left, names), _without_null_tests(node.right, names))
    is_one = isinstance(node, IsNull) and isinstance(node.term, Reference) and node.term.name in names
    return AlwaysTrue() if is_one else node
