"""Splits a Parquet schema into parts that can be decoded alone, and puts decoded parts together into columns.

A *part* is a leaf whose parents are plain structs, or a whole list or map: the leaves of a list must be decoded
together, because their repetition levels must agree row by row. Each part has its own schema, cut out of the file's:
the root, the structs above the part with one child each, and everything below. A struct is put together from the
parts of its fields. Each of these parts says where the struct itself is null.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.errors import UnsupportedFeatureError, UsageError, first_line
from sidecar.filters.leaf import Leaf
from sidecar.parquet.footer import MAGIC, Footer
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, encode_struct

ARROW_SCHEMA = "ARROW:schema"
"""Key in the footer under which Arrow's writers keep the Arrow schema."""

OPTIONS: dict[str, Any] = {"pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
"""Options for pyarrow. INT96 is read as microseconds: in nanoseconds, years before 1677 overflow to wrong dates."""

_TYPE, _REPETITION, _CHILDREN, _CONVERTED, _LOGICAL = 1, 3, 5, 6, 10
_REPEATED = 2


@dataclass(frozen=True, eq=False)
class SchemaPart:
    """Leaves that are decoded together. ``depth`` counts the structs above; ``field`` is the top-level Arrow field."""

    leaves: tuple[Leaf, ...]
    elements: tuple[Struct, ...]
    """The Parquet schema elements of the part; the root is first."""
    field: Any
    depth: int

    @property
    def path(self) -> str:
        """The dotted path of the part's first leaf, for messages."""
        return self.leaves[0].path


@dataclass(frozen=True, eq=False)
class Node:
    """A field: a part, or a struct whose fields are nodes."""

    field: Any
    children: tuple[Node, ...]
    part: SchemaPart | None

    def parts(self) -> Iterator[SchemaPart]:
        """Yield all parts of the node, in the order of the schema."""
        if self.part is not None:
            yield self.part
        for child in self.children:
            yield from child.parts()

    def first_path(self) -> tuple[str, ...]:
        """Return the names from this field down to its first part, which says where the field is null."""
        return (self.field.name, *(self.children[0].first_path() if self.children else ()))

    def select(self, paths: Sequence[Sequence[str]]) -> Node:
        """Return the node with only the fields at ``paths``, which begin below it. An empty path selects everything.

        Raises :class:`KeyError` with the name of a field that does not exist.
        """
        if not all(paths):
            return self
        if self.part is not None:
            raise KeyError(paths[0][0])
        names = [child.field.name for child in self.children]
        for path in paths:
            if path[0] not in names:
                raise KeyError(path[0])
        chosen = tuple(
            child.select(below)
            for child in self.children
            if (below := [path[1:] for path in paths if path[0] == child.field.name])
        )
        return Node(self.field.with_type(pa.struct([c.field for c in chosen])), chosen, None)


@dataclass(frozen=True, eq=False)
class FileShape:
    """The columns of a file: its Arrow schema, and one node for each top-level field."""

    schema: Any
    nodes: tuple[Node, ...]
    created_by: str | None
    has_arrow_schema: bool

    def select(self, columns: Iterable[str] | None) -> FileShape:
        """Return the shape of some columns, in the order of the file. A dot leads into a struct.

        Raises :class:`UsageError` for a column that the file does not have.
        """
        return self if columns is None else self.select_paths([self._path(column) for column in columns])

    def parts(self) -> Iterator[SchemaPart]:
        """Yield all parts of the file, in the order of the schema."""
        for node in self.nodes:
            yield from node.parts()

    def select_paths(self, paths: Sequence[Sequence[str]]) -> FileShape:
        """Return the shape of the columns at ``paths``: one name a level. A path to a struct selects all of it.

        Raises :class:`UsageError` for a column that the file does not have.
        """
        nodes = []
        for node in self.nodes:
            below = [path[1:] for path in paths if path[0] == node.field.name]
            if below:
                try:
                    nodes.append(node.select(below))
                except KeyError as error:
                    raise self._unknown(f"{node.field.name}.{error.args[0]}") from None
        schema = pa.schema([node.field for node in nodes], self.schema.metadata)
        return FileShape(schema, tuple(nodes), self.created_by, self.has_arrow_schema)

    def enough(self, path: Sequence[str]) -> tuple[str, ...]:
        """Return the path of the one part to read to know whether a column is null; for a leaf, its own path."""
        node = next(node for node in self.nodes if node.field.name == path[0])
        for name in path[1:]:
            node = next((child for child in node.children if child.field.name == name), node)
        return (*path[:-1], *node.first_path())

    def _path(self, column: str) -> tuple[str, ...]:
        names = self.schema.names
        paths = {(column,), tuple(column.split("."))}
        if sum(_count(self.nodes, path) for path in paths) > 1:
            raise UsageError(f"the file has more than one column '{column}'")
        if column in names:
            return (column,)
        path = tuple(column.split("."))
        if path[0] not in names:
            raise self._unknown(column)
        return path

    def _unknown(self, column: str) -> UsageError:
        hint = f"It has: {', '.join(self.schema.names[:20])}."
        return UsageError(f"the file has no column '{column}'", hint=hint)


def _count(nodes: Iterable[Node], path: Sequence[str]) -> int:
    """Return how many fields have this path."""
    found = [node for node in nodes if node.field.name == path[0]]
    return len(found) if len(path) == 1 else sum(_count(node.children, path[1:]) for node in found)


def read_shape(footer: Footer) -> FileShape:
    """Return the shape of a file from its footer alone.

    Raises :class:`UnsupportedFeatureError` for a schema that pyarrow does not read: the footer's tree is sound.
    """
    elements = footer.metadata.structs(2) or []
    schema = _arrow_schema(footer)
    tree = _Tree(footer.columns, elements)
    nodes = tuple(tree.node(field, (elements[0],)) for field in schema)
    return FileShape(schema, nodes, footer.created_by, ARROW_SCHEMA in footer.key_value)


def _arrow_schema(footer: Footer) -> Any:
    """Return the Arrow schema that pyarrow reads from the footer. Row groups are left out, to save time."""
    kept = {k: v for k, v in footer.metadata.fields.items() if k in (1, 2, 5, 6)}
    kept |= {3: (I64, 0), 4: (LIST, Items(STRUCT, []))}
    kept.setdefault(1, (I32, 1))
    try:
        with pq.ParquetFile(pa.BufferReader(finish_file(b"", Struct(dict(sorted(kept.items()))))), **OPTIONS) as file:
            schema: Any = file.schema_arrow
            return pa.schema(map(without_views, schema), schema.metadata)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnsupportedFeatureError(
            f"pyarrow does not read the schema: {first_line(error)}", file=footer.name
        ) from error


def without_views(field: Any) -> Any:
    """Return the field with strings, binaries and lists instead of their views, which few Arrow functions support."""
    return field.with_type(_usual_layout(field.type))


def has_views(kind: Any) -> bool:
    """Return whether an Arrow type is or contains a view of strings, binaries or lists."""
    return bool(_usual_layout(kind) != kind)


def _usual_layout(kind: Any) -> Any:
    t = pa.types
    if t.is_string_view(kind):
        return pa.string()
    if t.is_binary_view(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct(map(without_views, kind))
    if t.is_map(kind):
        return pa.map_(without_views(kind.key_field), without_views(kind.item_field), kind.keys_sorted)
    if t.is_fixed_size_list(kind):
        return pa.list_(without_views(kind.value_field), kind.list_size)
    if t.is_list_view(kind) or t.is_large_list_view(kind):
        return (pa.list_ if t.is_list_view(kind) else pa.large_list)(without_views(kind.value_field))
    if t.is_list(kind) or t.is_large_list(kind):
        return (pa.list_ if t.is_list(kind) else pa.large_list)(without_views(kind.value_field))
    return kind


def finish_file(pages: bytes, footer: Struct | bytes) -> bytes:
    """Return the bytes of a Parquet file: magic, ``pages``, footer, footer length, magic."""
    end = footer if isinstance(footer, bytes) else encode_struct(footer)
    return b"".join((MAGIC, pages, end, len(end).to_bytes(4, "little"), MAGIC))


class _Tree:
    """Walks Parquet schema elements and Arrow fields side by side, and keeps the next element and the next leaf."""

    def __init__(self, leaves: Sequence[Leaf], elements: Sequence[Struct]) -> None:
        self._leaves = leaves
        self._elements = elements
        self._at = 1
        self._leaf = 0

    def node(self, field: Any, above: tuple[Struct, ...], names: tuple[Any, ...] = ()) -> Node:
        """Return the node of the next element. ``above`` are its parents' elements, ``names`` their Arrow fields."""
        element = self._elements[self._at]
        if self._splits(element, field):
            self._at += 1
            inside = tuple(self.node(child, (*above, element), (*names, field)) for child in field.type)
            return Node(field, inside, None)
        start, end = self._at, self._end(self._at)
        leaves = sum(1 for e in self._elements[start:end] if _TYPE in e.fields)
        if not leaves:
            raise UnsupportedFeatureError("a group without columns cannot be read", column=field.name)
        taken = tuple(self._leaves[self._leaf : self._leaf + leaves])
        self._at, self._leaf = end, self._leaf + leaves
        elements = (*map(_with_one_child, above), *self._elements[start:end])
        part_field = field
        for struct in reversed(names):
            part_field = struct.with_type(pa.struct([part_field]))
        return Node(field, (), SchemaPart(taken, elements, part_field, len(names)))

    def _splits(self, element: Struct, field: Any) -> bool:
        """Return whether the next element is a plain struct, whose children can be decoded one by one."""
        count = element.integer(_CHILDREN) or 0
        if _TYPE in element.fields or not count or not pa.types.is_struct(field.type):
            return False
        if _CONVERTED in element.fields or _LOGICAL in element.fields:
            return False
        if element.integer(_REPETITION) == _REPEATED or field.type.num_fields != count:
            return False
        at = self._at + 1
        for _ in range(count):
            end = self._end(at)
            if all(_TYPE not in e.fields for e in self._elements[at:end]):
                return False
            at = end
        return True

    def _end(self, at: int) -> int:
        """Return the index of the element after the subtree that begins at ``at``."""
        left = 1
        while left:
            element = self._elements[at]
            left += (0 if _TYPE in element.fields else element.integer(_CHILDREN) or 0) - 1
            at += 1
        return at


def _with_one_child(element: Struct) -> Struct:
    return Struct({k: (I32, 1) if k == _CHILDREN else v for k, v in element.fields.items()})


def part_footer(parts: Sequence[SchemaPart], shape: FileShape, chunks: Sequence[Struct], num_rows: int) -> Struct:
    """Return the footer of a file that has one row group with some parts; ``chunks`` are their column chunks."""
    root = Struct(parts[0].elements[0].fields | {_CHILDREN: (I32, len(parts))})
    metas = [meta for chunk in chunks if (meta := chunk.struct(3)) is not None]
    size = sum(meta.integer(7) or 0 for meta in metas)
    group = Struct({1: (LIST, Items(STRUCT, list(chunks))), 2: (I64, size), 3: (I64, num_rows)})
    footer = Struct(
        {
            1: (I32, 1),
            2: (LIST, Items(STRUCT, [root, *(element for part in parts for element in part.elements[1:])])),
            3: (I64, num_rows),
            4: (LIST, Items(STRUCT, [group])),
        }
    )
    if shape.has_arrow_schema:
        value = base64.b64encode(pa.schema([part.field for part in parts]).serialize().to_pybytes())
        entry = Struct({1: (BINARY, ARROW_SCHEMA.encode()), 2: (BINARY, value)})
        footer.fields[5] = (LIST, Items(STRUCT, [entry]))
    if shape.created_by is not None:
        footer.fields[6] = (BINARY, shape.created_by.encode())
    return footer


def assemble(node: Node, arrays: dict[SchemaPart, Any]) -> Any:
    """Return the column of a top-level node, put together from its decoded parts, which all have the same rows."""
    if node.part is not None:
        return arrays[node.part]
    single = {part: _one_array(arrays[part]) for part in node.parts()}
    return pa.chunked_array([_struct(node, single)], node.field.type)


def _struct(node: Node, arrays: dict[SchemaPart, Any]) -> Any:
    """Return the array of a node. Each array in ``arrays`` is the part's ancestor at the depth of this node."""
    first = next(node.parts())
    if node.part is not None:
        return arrays[first]
    children = [_struct(child, {part: arrays[part].field(0) for part in child.parts()}) for child in node.children]
    mask = arrays[first].is_null() if arrays[first].null_count else None
    return pa.StructArray.from_arrays(children, fields=list(node.field.type), mask=mask)


def _one_array(chunked: Any) -> Any:
    return (
        chunked.chunk(0)
        if chunked.num_chunks == 1
        else pa.concat_arrays(chunked.chunks or [pa.array([], chunked.type)])
    )
