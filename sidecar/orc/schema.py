"""Decodes the columns of an ORC file from the footer's list of types, with a path for each.

The footer lists types in pre-order. A column's id is its place in the list; 0 is the root, a struct in every table.
Paths join the names of fields by dots, as in Iceberg: the element of a list is ``element``, a map has ``key`` and
``value``. The members of a union, which Iceberg does not have, are ``tag_0``, ``tag_1``, ....

Iceberg's writers store a field's id and whether it is required as attributes: ``iceberg.id``, ``iceberg.required``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, located
from sidecar.orc.protobuf import Message

# fmt: off
KINDS = (
    "BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "BINARY", "TIMESTAMP", "LIST", "MAP",
    "STRUCT", "UNION", "DECIMAL", "DATE", "VARCHAR", "CHAR", "TIMESTAMP_INSTANT", "GEOMETRY", "GEOGRAPHY",
)
# fmt: on
"""Type.Kind, by number."""

ARROW_KINDS = frozenset(KINDS) - {"GEOMETRY", "GEOGRAPHY"}
"""Kinds for which Arrow has a type."""

MAX_DIGITS = 38
"""Most digits of a decimal."""

MAX_DEPTH = 100
"""Most names in a path."""

MAX_PATHS = 16 << 20
"""Most characters of all paths of a file together."""

COMPOUND = frozenset({"LIST", "MAP", "STRUCT", "UNION"})

_ICEBERG = {
    "BOOLEAN": "boolean",
    "BYTE": "int",
    "SHORT": "int",
    "INT": "int",
    "LONG": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_INSTANT": "timestamptz",
}
_BINARY_TYPES = {"UUID": "uuid", "FIXED": "fixed"}


@dataclass(frozen=True)
class OrcColumn:
    """A column: one entry of the footer's types. Absent fields are ``None``."""

    id: int
    path: str
    """Names joined by dots; empty for the root."""
    kind: str
    """A name of :data:`KINDS`, or the number of an unknown kind."""
    field_id: int | None
    precision: int | None
    scale: int | None
    max_length: int | None
    parent: int | None
    children: tuple[int, ...]
    nested_in_repeated: bool
    """Whether a parent is a list, map or union, so that a row may have no value or many."""
    nullable_parent: bool
    """Whether it has a parent other than the root: if the parent is null, this column has no entry."""
    encrypted: bool
    attributes: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """The names of the path, the outermost first."""

    @property
    def is_compound(self) -> bool:
        """Whether the column is a list, map, struct or union, which have no values of their own."""
        return self.kind in COMPOUND

    @property
    def iceberg_type(self) -> str | None:
        """The Iceberg type of the column by its kind and attributes; ``None`` if there is none."""
        if self.kind == "DECIMAL":
            return f"decimal({self.precision}, {self.scale or 0})" if self.precision is not None else None
        if self.kind == "BINARY" and (name := self.attributes.get("iceberg.binary-type")) in _BINARY_TYPES:
            length = self.attributes.get("iceberg.length", "")
            return "uuid" if name == "UUID" else f"fixed[{length}]" if length.isdecimal() else None
        if self.kind == "LONG" and self.attributes.get("iceberg.long-type") == "TIME":
            return "time"
        return _ICEBERG.get(self.kind)


def decode_columns(types: Sequence[Message], encrypted_roots: frozenset[int]) -> list[OrcColumn]:
    """Decode the columns in the order of their ids; ``encrypted_roots`` has the root columns of encryption variants.

    Raises :class:`DamagedFileError` unless the types form one tree in pre-order.
    """
    if not types:
        raise DamagedFileError("the footer has no types")
    children = [tuple(message.repeated_varints(2)) for message in types]
    parents = _parents(children)
    columns: list[OrcColumn] = []
    names: dict[int, str] = {}
    total = 0
    for number, message in enumerate(types):
        parent = parents[number]
        above = None if parent is None else columns[parent]
        column = _column(number, message, above, names.get(number, ""), children[number], encrypted_roots)
        total += len(column.path)
        if column.path.count(".") > MAX_DEPTH or total > MAX_PATHS:
            raise UnsupportedFeatureError("the footer's types are nested too deeply, or their names are too long")
        names.update(zip(children[number], _child_names(column, message), strict=True))
        columns.append(column)
    return columns


def check_known_types(columns: Sequence[OrcColumn], file: str) -> None:
    """Raise :class:`UnsupportedFeatureError` for types that Arrow does not have.

    These are a root that is not a struct, kinds unknown to Arrow, and decimals with a precision outside 1 to 38 (0, in
    Hive's oldest files, means 38) or less than their scale. On some of them, Arrow's C++ code would end the process.
    """
    if columns[0].kind != "STRUCT":
        raise UnsupportedFeatureError(
            "the root of the file is not a struct, so its rows cannot be read",
            file=file,
            expected="STRUCT",
            found=columns[0].kind,
        )
    for column in columns:
        if column.kind not in ARROW_KINDS:
            raise UnsupportedFeatureError(
                "values of this kind cannot be read", file=file, column=column.path, found=column.kind
            )
        if column.kind == "DECIMAL":
            with located(file, column.path):
                decimal_digits(column)


def decimal_digits(column: OrcColumn) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL; the oldest writers leave them out, which means 38 and 0.

    Raises :class:`UnsupportedFeatureError` for a precision beyond 38 and a scale above the precision, which Arrow's
    decimals do not have.
    """
    precision, scale = column.precision or MAX_DIGITS, column.scale or 0
    if precision > MAX_DIGITS or scale > precision:
        raise UnsupportedFeatureError(
            "a DECIMAL of this precision and scale cannot be read",
            column=column.path,
            expected=f"a precision of 1 to {MAX_DIGITS}, and a scale of at most that",
            found=f"{precision}, {scale}",
        )
    return precision, scale


def _parents(children: Sequence[tuple[int, ...]]) -> list[int | None]:
    parents: list[int | None] = [None] * len(children)
    for number, subtypes in enumerate(children):
        for child in subtypes:
            if not number < child < len(children) or parents[child] is not None:
                raise DamagedFileError(
                    "the footer's types do not form a tree",
                    found=f"type {number} has the child {child}",
                )
            parents[child] = number
    if (orphan := next((i for i, parent in enumerate(parents) if i and parent is None), None)) is not None:
        raise DamagedFileError("the footer's types do not form a tree", found=f"type {orphan} has no parent")
    return parents


def _child_names(column: OrcColumn, message: Message) -> list[str]:
    """Return the last part of each child's path."""
    children = len(column.children)
    if column.kind == "STRUCT":
        names = message.texts(3)
    elif column.kind == "UNION":
        names = [f"tag_{i}" for i in range(children)]
    else:
        names = {"LIST": ["element"], "MAP": ["key", "value"]}.get(column.kind, [])
    if len(names) != children:
        raise DamagedFileError(
            f"the number of children of a {column.kind} type differs from the number of their names",
            column=column.path,
            expected=len(names),
            found=children,
        )
    return names


def _column(
    number: int,
    message: Message,
    above: OrcColumn | None,
    name: str,
    children: tuple[int, ...],
    encrypted_roots: frozenset[int],
) -> OrcColumn:
    kind = message.varint(1)
    attributes = {pair.text(1) or "": pair.text(2) or "" for pair in message.messages(7)}
    field_id = attributes.get("iceberg.id", "")
    return OrcColumn(
        id=number,
        path=f"{above.path}.{name}" if above is not None and above.id else name,
        kind=KINDS[kind] if kind < len(KINDS) else str(kind),
        field_id=int(field_id) if field_id.isascii() and field_id.isdecimal() and len(field_id) < 11 else None,
        precision=message.varint(5) if message.has(5) else None,
        scale=message.varint(6) if message.has(6) else None,
        max_length=message.varint(4) if message.has(4) else None,
        parent=None if above is None else above.id,
        children=children,
        nested_in_repeated=above is not None and (above.nested_in_repeated or above.kind in ("LIST", "MAP", "UNION")),
        nullable_parent=above is not None and above.id != 0,
        encrypted=number in encrypted_roots or (above is not None and above.encrypted),
        attributes=attributes,
        names=() if above is None else (*above.names, name),
    )
