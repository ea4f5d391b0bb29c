"""Resolves column names in a table's schema, and the table's columns to the leaves of a Parquet file.

A table's column is identified by its field id. In a file it is found by that id if the file has ids, else through the
table's name mapping, but never by its current name in the schema. How a column was found is stored as its
*resolution*:

- ``id``: the file's leaf has the field id;
- ``name:<leaf path>``: the name mapping names the leaf. If the mapping has other names for the field, they follow,
  each after ``|``. They matter because a name that is added to the mapping later may fit another column of the same
  file.

An index entry is valid only while its resolution holds (:func:`resolution_holds`). If a column is dropped and another
is added with the same name, the name mapping gives the data of old files to a different field id.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Generic, TypeVar

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from sidecar.bundle.model import BY_ID, BY_NAME, UnitState
from sidecar.crypto.keys import EncryptionKeys
from sidecar.data_files.open_file import DataLeaf
from sidecar.errors import UsageError
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.questions.bounds import Unknown

_LIST_GROUPS = {("list", "element"), ("list", "item"), ("bag", "array_element"), ("bag", "element")}
_MAP_GROUPS = (["key_value"], ["map"])
MAX_NAMES = 64
"""A field with more names than this in the name mapping is not resolved."""
_ENCODED = re.compile("%(25|2C|3A)", re.IGNORECASE)
_RESERVED = (".", "|")  # separators of resolutions, so names with them cannot be resolved

NO_IDS_NO_MAPPING = "file has no field ids and the table no name mapping"
IDENTITY_NOT_STORED = "identity partition column not stored in the file"
IDENTITY_UNPROVEN = "identity partition column whose stored values are not proven to be the partition's"


LeafT = TypeVar("LeafT", bound=DataLeaf)


@dataclass(frozen=True)
class TableColumn:
    """A primitive column of a table: ``type`` is the Iceberg type (``decimal(9, 2)``), ``path`` the dotted path."""

    field_id: int
    type: str
    path: str


def encoded_name(name: str) -> str:
    """Return a column's name as lists of names have it: with ``%25``, ``%2C`` and ``%3A``."""
    return name.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")


def decoded_name(text: str) -> str:
    """Return the name that :func:`encoded_name` has written. Other signs after ``%`` stay as they are."""
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), text)


def listed_names(text: str) -> list[str]:
    """Return the names in a list with commas, in order; a comma in a name is written as ``%2C``."""
    return [decoded_name(part) for part in map(str.strip, text.split(",")) if part]


def resolve_columns(schema: Schema, names: Iterable[str], case_sensitive: bool = True) -> list[TableColumn]:
    """Return the primitive columns with these names (``a``, ``struct.field``, ``list.element``), each once.

    Raises :class:`UsageError` for an unknown name (with close matches), for a struct, list or map (with its primitive
    columns) and if ``names`` is empty.
    """
    columns: dict[int, TableColumn] = {}
    for name in names:
        column = _resolve_column(schema, name, case_sensitive)
        columns.setdefault(column.field_id, column)
    if not columns:
        raise UsageError("no column was given")
    return list(columns.values())


def primitive_columns(schema: Schema) -> list[TableColumn]:
    """Return all primitive columns of a schema, in the order of their field ids."""
    fields = ((i, schema.find_field(i), schema.find_column_name(i)) for i in sorted(schema.field_ids))
    return [
        TableColumn(i, str(f.field_type), name)
        for i, f, name in fields
        if isinstance(f.field_type, PrimitiveType) and name
    ]


def names_of_columns(schema: Schema) -> dict[int, tuple[str, ...]]:
    """Return the path of each column of a schema by field id, as its names from the outermost on."""

    def walk(fields: Iterable[NestedField], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        for one in fields:
            path = (*above, one.name)
            yield one.field_id, path
            yield from walk(getattr(one.field_type, "fields", ()), path)

    return dict(walk(schema.fields, ()))


def find_field(schema: Schema, name: str, case_sensitive: bool = True) -> NestedField:
    """Return the field ``name``: a column, a struct, a list or map, or what is in one.

    Raises :class:`UsageError` for an unknown name (with close matches), and for one that two columns have if case does
    not matter.
    """
    try:
        found = schema.find_field(name, case_sensitive)
    except ValueError as error:
        raise _unknown(schema, name) from error
    if not case_sensitive:
        path = (schema.find_column_name(found.field_id) or name).lower()
        alike = sorted(other for other in schema.column_names if other.lower() == path)
        if len(alike) > 1:
            raise UsageError(
                f"'{name}' is the name of more than one column if case does not matter",
                found=" and ".join(f"'{other}'" for other in alike),
                hint="Name one of them exactly, with case_sensitive=True.",
            )
    return found


def _resolve_column(schema: Schema, name: str, case_sensitive: bool) -> TableColumn:
    found = find_field(schema, name, case_sensitive)
    path = schema.find_column_name(found.field_id) or name
    if not isinstance(found.field_type, PrimitiveType):
        leaves = [c.path for c in primitive_columns(schema) if c.path.startswith(f"{path}.")]
        kind = type(found.field_type).__name__.removesuffix("Type").lower()
        hint = f"Name one of its columns: {', '.join(leaves)}."
        raise UsageError(f"the column '{path}' is a {kind}", hint=hint)
    return TableColumn(found.field_id, str(found.field_type), path)


def fields_of_keys(table: Table, keys: EncryptionKeys | None) -> dict[int, bytes]:
    """Return ``bundle_keys`` by field id. They name columns of any schema of the table."""
    found: dict[int, bytes] = {}
    named = {} if keys is None else keys.bundle_keys
    for schema in table.schemas().values() if named else ():
        for path, key in named.items():
            with suppress(ValueError):
                found[schema.find_field(path).field_id] = key
    return found


class UnknownColumnError(UsageError):
    """Raised for a name that no column of a schema has: ``name``."""

    name = ""


def _unknown(schema: Schema, name: str) -> UsageError:
    known = [c.path for c in primitive_columns(schema)]
    near = [path for path in known if path.casefold() == name.casefold()]
    near = near or difflib.get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"It has: {', '.join(known[:20])}."
    error = UnknownColumnError(f"the table has no column '{name}'", hint=hint)
    error.name = name
    return error


@dataclass(frozen=True)
class FoundColumn(Generic[LeafT]):
    """The leaf of a file that stores a column, and how it was found."""

    leaf: LeafT
    resolution: str


class ColumnsInFile(Generic[LeafT]):
    """The table's columns in one file. Facts that all columns share are found once, so that wide files stay cheap.

    ``leaves`` are all leaves of the file; ``identity`` is the file's
    :attr:`sidecar.iceberg.listing.SnapshotFile.identity`.
    """

    def __init__(
        self,
        leaves: Sequence[LeafT],
        schema: Schema,
        name_mapping: NameMapping | None,
        identity: Mapping[int, bool],
    ) -> None:
        self._leaves, self._identity = leaves, identity
        self._by_id: dict[int, list[LeafT]] = {}
        for leaf in leaves:
            if leaf.field_id is not None and leaf.field_id >= 0:
                self._by_id.setdefault(leaf.field_id, []).append(leaf)
        self._with_ids = sum(map(len, self._by_id.values()))
        self._named = None if name_mapping is None or self._by_id else _NamedLeaves(leaves, name_mapping, schema)

    def find(self, field_id: int) -> FoundColumn[LeafT] | Unknown:
        """Find the leaf that stores the column ``field_id``, or the reason why none certainly does.

        The file may have values of a column that is missing, so it is not empty.

        Cases that engines read differently count as missing: only some columns have ids, an id or a mapped name
        occurs twice, the mapping does not describe the nesting.
        """
        found = self._find(field_id)
        if field_id in self._identity:
            if isinstance(found, FoundColumn) and not self._identity[field_id]:
                return Unknown(IDENTITY_UNPROVEN)
            if isinstance(found, Unknown) and found.reason == UnitState.ABSENT:
                return Unknown(IDENTITY_NOT_STORED)
        return found

    def _find(self, field_id: int) -> FoundColumn[LeafT] | Unknown:
        if self._with_ids and self._with_ids < len(self._leaves):
            return Unknown("only some columns of the file have field ids")
        if self._with_ids:
            return _single_match(self._by_id.get(field_id, []), BY_ID, "field id")
        return Unknown(NO_IDS_NO_MAPPING) if self._named is None else self._named.find(field_id)


def resolution_holds(resolution: str, field_id: int, name_mapping: NameMapping | None, schema: Schema) -> bool:
    """Return whether a column that was found by ``resolution`` would be found in the same way now.

    ``schema`` is that of the reader. Returns ``False`` for an unknown form of resolution.
    """
    if field_id not in schema.field_ids:
        return False
    if resolution == BY_ID:
        return True
    if not resolution.startswith(BY_NAME) or name_mapping is None:
        return False
    path, *others = resolution.removeprefix(BY_NAME).split("|")
    mapped = _MappedFields(name_mapping, schema)
    walked, names = mapped.walk(path), mapped.names(field_id)
    return walked.field_id == field_id and names is not None and names <= {walked.names, *others}


class TodaysResolutions(dict[tuple[int, str], bool]):
    """The resolutions that hold for a table's columns today, each looked up once: the name mapping is JSON."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __missing__(self, asked: tuple[int, str]) -> bool:
        field_id, resolution = asked
        mapping, schema = name_mapping_of(self._table), self._table.schema()
        return self.setdefault(asked, resolution_holds(resolution, field_id, mapping, schema))


def _single_match(matches: list[LeafT], resolution: str, what: str) -> FoundColumn[LeafT] | Unknown:
    if not matches:
        return Unknown(UnitState.ABSENT)
    if len(matches) > 1:
        return Unknown(f"several columns of the file have this {what}")
    return FoundColumn(matches[0], resolution)


@dataclass(frozen=True)
class _Walk:
    """The result of following a leaf path through a name mapping.

    ``field_id`` is set if the path ends at a leaf of the schema. ``doubtful`` is set if the path enters the field
    ``last_id`` but goes on in a way that schema and mapping do not describe.
    """

    field_id: int | None = None
    names: str = ""
    last_id: int | None = None
    doubtful: bool = False


def _step_into(kind: IcebergType, parts: list[str]) -> list[str] | None:
    """Return the path below a nested field, without the groups that Parquet adds to lists and maps."""
    if isinstance(kind, StructType):
        return parts or None
    if isinstance(kind, ListType):
        return ["element", *parts[2:]] if tuple(parts[:2]) in _LIST_GROUPS else None
    if isinstance(kind, MapType) and parts[:1] in _MAP_GROUPS and parts[1:2] in (["key"], ["value"]):
        return parts[1:]
    return None


class _MappedFields:
    """A name mapping, and the schema whose fields it names, with an index of both."""

    def __init__(self, name_mapping: NameMapping, schema: Schema) -> None:
        self._root, self._schema, self._field_ids = name_mapping.root, schema, frozenset(schema.field_ids)
        self._by_name: dict[int | None, dict[str, MappedField]] = {}
        self._chains: dict[int, list[tuple[MappedField, ...]]] = {}
        self._index(self._root, ())

    def _index(self, level: Sequence[MappedField], above: tuple[MappedField, ...]) -> None:
        for mapped in level:
            chain = (*above, mapped)
            if mapped.field_id is not None:
                self._chains.setdefault(mapped.field_id, []).append(chain)
            self._index(mapped.fields, chain)

    def chain_holds(self, field_id: int, ancestor: int | None) -> bool:
        """Return whether a path from the top to a field leads through another one."""
        return any(mapped.field_id == ancestor for chain in self._chains.get(field_id, []) for mapped in chain)

    def names(self, field_id: int) -> set[str] | None:
        """Return all dotted names of a field; ``None`` if none, too many, or some with separators."""
        chains = self._chains.get(field_id, [])
        if len(chains) != 1 or any(c in name for m in chains[0] for name in m.names for c in _RESERVED):
            return None
        if prod(len(mapped.names) for mapped in chains[0]) not in range(1, MAX_NAMES + 1):
            return None
        return {".".join(names) for names in product(*(mapped.names for mapped in chains[0]))}

    def walk(self, path: str) -> _Walk:
        """Follow the path of a leaf."""
        parts, used = path.split("."), list[str]()
        names = self._names_of(None, self._root)
        while True:
            mapped = names.get(parts[0])
            if mapped is None or mapped.field_id is None or mapped.field_id not in self._field_ids:
                return _Walk()
            used.append(parts[0])
            kind = self._schema.find_type(mapped.field_id)
            if isinstance(kind, PrimitiveType):
                done = len(parts) == 1
                return _Walk(mapped.field_id if done else None, ".".join(used), mapped.field_id, not done)
            step = _step_into(kind, parts[1:])
            if step is None:
                return _Walk(last_id=mapped.field_id, doubtful=True)
            parts, names = step, self._names_of(id(mapped), mapped.fields)

    def _names_of(self, parent: int | None, level: Sequence[MappedField]) -> dict[str, MappedField]:
        """Return the fields of a level by name; the first one of two with the same name."""
        if parent not in self._by_name:
            self._by_name[parent] = {name: mapped for mapped in reversed(level) for name in mapped.names}
        return self._by_name[parent]


class _NamedLeaves(Generic[LeafT]):
    """The leaves of a file without field ids, as a name mapping names them."""

    def __init__(self, leaves: Sequence[LeafT], name_mapping: NameMapping, schema: Schema) -> None:
        self._mapped = _MappedFields(name_mapping, schema)
        self._walks: dict[int, list[tuple[LeafT, _Walk]]] = {}
        self._doubtful: set[int | None] = set()
        for leaf in leaves:
            walk = self._mapped.walk(leaf.path)
            if walk.doubtful:
                self._doubtful.add(walk.last_id)
            if walk.field_id is not None:
                self._walks.setdefault(walk.field_id, []).append((leaf, walk))

    def find(self, field_id: int) -> FoundColumn[LeafT] | Unknown:
        names = self._mapped.names(field_id)
        if names is None:
            return Unknown("name mapping does not name the column, or is ambiguous")
        if any(self._mapped.chain_holds(field_id, doubtful) for doubtful in self._doubtful):
            return Unknown("nesting of the column in the file differs from the name mapping")
        walks = self._walks.get(field_id, [])
        if len(walks) != 1:
            return _single_match([leaf for leaf, _ in walks], BY_NAME, "mapped name")
        leaf, walk = walks[0]
        return FoundColumn(leaf, "|".join([f"{BY_NAME}{leaf.path}", *sorted(names - {walk.names})]))
