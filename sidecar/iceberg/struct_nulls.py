"""Binds predicates to schemas, so that a required field of an optional struct is NULL where the struct is.

A field is required only if all structs around it are. pyiceberg looks at the field alone: ``IS NULL`` of a required
field binds to "never" and ``IS NOT NULL`` to "always", also if a struct around it is optional. Then files and rows are
lost, and rows of NULL structs come in addition. Spark and DuckDB find the right rows. So everything binds to the schema
of :func:`with_struct_nulls`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, IsNull, Or, Reference
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, StructType


def bound_to(schema: Schema, expression: BooleanExpression) -> BooleanExpression:
    """Bind an expression with the names of ``schema``. Raises the errors of pyiceberg."""
    return bind(with_struct_nulls(schema), expression, case_sensitive=True)


def with_struct_nulls(schema: Schema) -> Schema:
    """Return the schema with the required fields of optional structs as optional fields; itself if it has none."""
    if not any(isinstance(field.field_type, StructType) for field in schema.fields):
        return schema
    fields = [_with_struct_nulls(field, False) for field in schema.fields]
    if all(new is old for new, old in zip(fields, schema.fields, strict=True)):
        return schema
    return Schema(*fields, schema_id=schema.schema_id)


def _with_struct_nulls(field: NestedField, is_optional: bool) -> NestedField:
    """Return a field of a struct, or the field itself. ``is_optional``: whether a struct around it is optional.

    Predicates cannot name fields inside lists and maps, so these stay as they are.
    """
    is_optional = is_optional or not field.required
    kind = field.field_type
    changes: dict[str, object] = {"required": False} if field.required and is_optional else {}
    if isinstance(kind, StructType):
        inner = [_with_struct_nulls(part, is_optional) for part in kind.fields]
        if any(new is not old for new, old in zip(inner, kind.fields, strict=True)):
            changes["field_type"] = StructType(*inner)
    return field.model_copy(update=changes) if changes else field


def metadata_with_struct_nulls(metadata: TableMetadata) -> TableMetadata:
    """Return a table's metadata for pyiceberg's evaluators, which bind to its current schema."""
    schema = metadata.schema()
    nulls = with_struct_nulls(schema)
    if nulls is schema:
        return metadata
    schemas = [nulls if one.schema_id == schema.schema_id else one for one in metadata.schemas]
    return metadata.model_copy(update={"schemas": schemas})


def keeping_struct_nulls(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Return a filter for counts in manifests. It is wider than ``expression``, which is not bound.

    It is TRUE for IS NULL of a field in an optional struct, because these counts may leave out the rows whose struct
    is NULL: for ORC files, Iceberg's own writer in Java does. Names are those of ``schema``.
    """
    names = {name for field in schema.fields for name in _in_optional_structs(field, field.name, False)}
    return _without_null_tests(rewrite_not(expression), names) if names else expression


def _in_optional_structs(field: NestedField, name: str, is_optional: bool) -> Iterator[str]:
    """Yield the names of a field and of those below it that are in a struct that may be NULL."""
    if is_optional:
        yield name
    if isinstance(field.field_type, StructType):
        for part in field.field_type.fields:
            yield from _in_optional_structs(part, f"{name}.{part.name}", is_optional or not field.required)


def _without_null_tests(node: BooleanExpression, names: set[str]) -> BooleanExpression:
    if isinstance(node, And | Or):
        return type(node)(_without_null_tests(node.left, names), _without_null_tests(node.right, names))
    is_one = isinstance(node, IsNull) and isinstance(node.term, Reference) and node.term.name in names
    return AlwaysTrue() if is_one else node
