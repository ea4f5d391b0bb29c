"""Says whether a client may write the files of a plan anew, by the columns that it reads.

Spark's copy-on-write DELETE, UPDATE and MERGE and ``rewrite_data_files(where)`` read the files of a plan and replace
them by what they have read. What they do not read is lost. Iceberg plans such scans with ``ignoreResiduals()``, but
its REST client does not tell the server, and applies the residuals that come back. Nothing in a request says that files
will be replaced. What is certain is that such a client reads all columns of its schema.

Which schema that is, is not certain: the snapshot's, the table's, or one in between if the client has kept the table.
So all schemas of the table count. A client whose schema is not among them any more is known by a name that no schema
has, and Spark's statements by the column ``_file``, which they need to know which files they replace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType, UnknownType

_FILE = "_file"
_METADATA = {_FILE, "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
"""Columns of every table in Spark. They are no columns of a schema."""


def may_replace_files(select: Sequence[str] | None, schemas: Iterable[Schema]) -> bool:
    """Return whether a client that reads the columns ``select`` may replace the files that it reads.

    ``schemas`` are all that the table has.
    """
    if not select or _FILE in (named := _lowered(select)):
        return True
    data = {name for name in named if name.partition(".")[0] not in _METADATA}
    every = list(schemas)
    is_known = any(data <= _lowered(schema.column_names) for schema in every)
    return not is_known or any(reads_all_columns(select, schema) for schema in every)


def reads_all_columns(select: Sequence[str] | None, schema: Schema) -> bool:
    """Return whether ``select`` leaves out no column of a schema.

    Java names the leaves of a nested column, pyiceberg the column. A part of a nested column counts as all of it.
    """
    if not select:
        return True
    named = _lowered(select)
    outer = {name[:end] for name in named for end, mark in enumerate(f"{name}.") if mark == "."}
    return all(field.name.lower() in outer for field in schema.fields if _has_leaves(field.field_type))


def _lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _has_leaves(kind: IcebergType) -> bool:
    """Return whether a client that reads a column of such a type names it. Java names leaves, if there are any."""
    if isinstance(kind, StructType):
        return any(_has_leaves(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _has_leaves(kind.element_type)
    if isinstance(kind, MapType):
        return _has_leaves(kind.value_type)
    return isinstance(kind, PrimitiveType) and not isinstance(kind, UnknownType)
