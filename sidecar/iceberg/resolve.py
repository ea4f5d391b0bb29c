"""Which column is meant: names in the table's schema, and leaves of a Parquet file.

A table's column is its field id. A file column is found by that id where the file carries ids, else through
the table's name mapping; nothing is ever found by the schema's present names. How a column was found is kept
as its *resolution*:

- ``id``: the file's leaf has the field id;
- ``name:<leaf path>``: the name mapping names the leaf. Other names that the mapping had for the field then
  follow, each after ``|``: a name that is added later may fit another column of the same file.

An entry of an index counts only while its resolution holds (:func:`resolution_holds`): dropping a column and
adding one of the same name gives an old file's data to another field id.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Generic, Protocol, TypeVar

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

from sidecar.bundle.model import UnitState
from sidecar.errors import UsageError

BY_ID = "id"
BY_NAME = "name:"
_LIST_GROUPS = {("list", "element"), ("list", "item"), ("bag", "array_element"), ("bag", "element")}
_MAP_GROUPS = (["key_value"], ["map"])
MAX_NAMES = 64
"""Names of one field in a name mapping beyond which it is not resolved."""
_RESERVED = (".", "|")  # no resolution can be written down for such names

NO_IDS_NO_MAPPING = "file has no field ids and the table no name mapping"
IDENTITY_NOT_STORED = "identity partition column not stored in the file"
IDENTITY_UNPROVEN = "identity partition column whose stored values are not proven to be the partition's"


class FileLeaf(Protocol):
    """A leaf column of a Parquet file, as :class:`sidecar.parquet.footer.Leaf` describes it."""

    @property
    def path(self) -> str:
        """Dotted path in the file, ``a.list.element``."""

    @property
    def field_id(self) -> int | None:
        """Field id in the file, if it has one."""


LeafT = TypeVar("LeafT", bound=FileLeaf)


@dataclass(frozen=True)
class TableColumn:
    """A primitive column of a table: field id, Iceberg type (``decimal(9, 2)``), dotted path."""

    field_id: int
    type: str
    path: str


def resolve_columns(schema: Schema, names: Iterable[str], case_sensitive: bool = True) -> list[TableColumn]:
    """The primitive columns that ``names`` name (``a``, ``struct.field``, ``list.element``), each once.

    Raises :class:`UsageError` for an unknown name (with close matches) and for a struct, list or map (with
    its primitive leaves).
    """
    columns: dict[int, TableColumn] = {}
    for name in names:
        column = _resolve_column(schema, name, case_sensitive)
        columns.setdefault(column.field_id, column)
    if not columns:
        raise UsageError("no column is named")
    return list(columns.values())


def primitive_columns(schema: Schema) -> list[TableColumn]:
    """Every primitive column of a schema, in the order of its field ids."""
    fields = ((i, schema.find_field(i), schema.find_column_name(i)) for i in sorted(schema.field_ids))
    return [
        TableColumn(i, str(f.field_type), name)
        for i, f, name in fields
        if isinstance(f.field_type, PrimitiveType) and name
    ]


def _resolve_column(schema: Schema, name: str, case_sensitive: bool) -> TableColumn:
    try:
        found = schema.find_field(name, case_sensitive)
    except ValueError as error:
        raise _unknown(schema, name) from error
    path = schema.find_column_name(found.field_id) or name
    if not isinstance(found.field_type, PrimitiveType):
        leaves = [c.path for c in primitive_columns(schema) if c.path.startswith(f"{path}.")]
        kind = type(found.field_type).__name__.removesuffix("Type").lower()
        raise UsageError(f"the column '{path}' is a {kind}", hint=f"Name a part of it: {', '.join(leaves)}.")
    return TableColumn(found.field_id, str(found.field_type), path)


def fields_of_keys(schemas: Iterable[Schema], keys: Mapping[str, bytes]) -> dict[int, bytes]:
    """``keys``, by path of a column, by field id, whichever of a table's schemas has a column of that path."""
    found = {}
    for schema in schemas:
        for path, key in keys.items():
            with suppress(ValueError):
                found[schema.find_field(path).field_id] = key
    return found


def _unknown(schema: Schema, name: str) -> UsageError:
    known = [c.path for c in primitive_columns(schema)]
    near = [path for path in known if path.casefold() == name.casefold()]
    near = near or difflib.get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"It has: {', '.join(known[:20])}."
    return UsageError(f"the table has no column '{name}'", hint=hint)


@dataclass(frozen=True)
class FoundColumn(Generic[LeafT]):
    """The leaf of a file that holds a column, and its resolution."""

    leaf: LeafT
    resolution: str


@dataclass(frozen=True)
class MissingColumn:
    """A file has no leaf that certainly holds the column; never to be read as "holds nothing"."""

    reason: str


def resolve_in_file(
    leaves: Sequence[LeafT],
    field_id: int,
    schema: Schema,
    name_mapping: NameMapping | None,
    identity: Mapping[int, bool],
) -> FoundColumn[LeafT] | MissingColumn:
    """The one leaf of a file that holds the table's column ``field_id``, or why there is none.

    ``leaves`` are all leaves of the file; ``identity`` is :attr:`sidecar.iceberg.listing.ListedFile.identity`
    of that file. Anything that engines read differently is not found: ids on some columns only, an id or a
    mapped name twice, nesting that the mapping does not describe.
    """
    ids = [leaf.field_id for leaf in leaves if leaf.field_id is not None and leaf.field_id >= 0]
    if not ids:
        found = _resolve_by_name(leaves, field_id, schema, name_mapping)
    elif len(ids) < len(leaves):
        found = MissingColumn("only some columns of the file have field ids")
    else:
        found = _only([leaf for leaf in leaves if leaf.field_id == field_id], BY_ID, "field id")
    if field_id in identity:
        if isinstance(found, FoundColumn) and not identity[field_id]:
            return MissingColumn(IDENTITY_UNPROVEN)
        if isinstance(found, MissingColumn) and found.reason == UnitState.ABSENT:
            return MissingColumn(IDENTITY_NOT_STORED)
    return found


def resolution_holds(
    resolution: str, field_id: int, name_mapping: NameMapping | None, schema: Schema
) -> bool:
    """Whether a column that was found as ``resolution`` would be found the same way today.

    ``schema`` is the one that the reader uses. ``False`` also for any resolution that is not understood.
    """
    if field_id not in schema.field_ids:
        return False
    if resolution == BY_ID:
        return True
    if not resolution.startswith(BY_NAME) or name_mapping is None:
        return False
    path, *others = resolution.removeprefix(BY_NAME).split("|")
    walked = _walk(path, name_mapping, schema)
    names = _names(field_id, name_mapping)
    return walked.field_id == field_id and names is not None and names <= {walked.names, *others}


def _resolve_by_name(
    leaves: Sequence[LeafT], field_id: int, schema: Schema, name_mapping: NameMapping | None
) -> FoundColumn[LeafT] | MissingColumn:
    if name_mapping is None:
        return MissingColumn(NO_IDS_NO_MAPPING)
    names = _names(field_id, name_mapping)
    if names is None:
        return MissingColumn("name mapping does not name the column, or not in a way that is certain")
    walks = [(leaf, _walk(leaf.path, name_mapping, schema)) for leaf in leaves]
    if any(walk.doubtful and _chain_holds(name_mapping, field_id, walk.last_id) for _, walk in walks):
        return MissingColumn("nesting of the column in the file is not what the name mapping describes")
    matches = [(leaf, walk) for leaf, walk in walks if walk.field_id == field_id]
    if len(matches) != 1:
        return _only([leaf for leaf, _ in matches], BY_NAME, "mapped name")
    leaf, walk = matches[0]
    return FoundColumn(leaf, "|".join([f"{BY_NAME}{leaf.path}", *sorted(names - {walk.names})]))


def _only(matches: list[LeafT], resolution: str, what: str) -> FoundColumn[LeafT] | MissingColumn:
    if not matches:
        return MissingColumn(UnitState.ABSENT)
    if len(matches) > 1:
        return MissingColumn(f"several columns of the file have this {what}")
    return FoundColumn(matches[0], resolution)


@dataclass(frozen=True)
class _Walk:
    """Where a leaf path leads in a name mapping: ``field_id`` if to a leaf of the schema; ``doubtful`` if it
    enters the field ``last_id`` and then leaves what the schema and the mapping describe."""

    field_id: int | None = None
    names: str = ""
    last_id: int | None = None
    doubtful: bool = False


def _walk(path: str, name_mapping: NameMapping, schema: Schema) -> _Walk:
    parts, level, used = path.split("."), name_mapping.root, []
    while True:
        mapped = next((m for m in level if parts[0] in m.names), None)
        if mapped is None or mapped.field_id is None or mapped.field_id not in schema.field_ids:
            return _Walk()
        used.append(parts[0])
        kind = schema.find_type(mapped.field_id)
        if isinstance(kind, PrimitiveType):
            done = len(parts) == 1
            return _Walk(mapped.field_id if done else None, ".".join(used), mapped.field_id, not done)
        step = _step_into(kind, parts[1:])
        if step is None:
            return _Walk(last_id=mapped.field_id, doubtful=True)
        parts, level = step, mapped.fields


def _step_into(kind: IcebergType, parts: list[str]) -> list[str] | None:
    """The path below a nested field, the groups that Parquet adds to lists and maps taken out."""
    if isinstance(kind, StructType):
        return parts or None
    if isinstance(kind, ListType):
        return ["element", *parts[2:]] if tuple(parts[:2]) in _LIST_GROUPS else None
    if isinstance(kind, MapType) and parts[:1] in _MAP_GROUPS and parts[1:2] in (["key"], ["value"]):
        return parts[1:]
    return None


def _chains(level: Sequence[MappedField], field_id: int) -> list[list[MappedField]]:
    """Every way from the top of a name mapping to a field id."""
    chains = [[mapped] for mapped in level if mapped.field_id == field_id]
    return chains + [[m, *below] for m in level for below in _chains(m.fields, field_id)]


def _chain_holds(name_mapping: NameMapping, field_id: int, ancestor: int | None) -> bool:
    return any(m.field_id == ancestor for chain in _chains(name_mapping.root, field_id) for m in chain)


def _names(field_id: int, name_mapping: NameMapping) -> set[str] | None:
    """All dotted names that a mapping has for a field; ``None`` if none, too many, or unfit ones."""
    chains = _chains(name_mapping.root, field_id)
    if len(chains) != 1 or any(c in name for m in chains[0] for name in m.names for c in _RESERVED):
        return None
    if prod(len(mapped.names) for mapped in chains[0]) not in range(1, MAX_NAMES + 1):
        return None
    return {".".join(names) for names in product(*(mapped.names for mapped in chains[0]))}
