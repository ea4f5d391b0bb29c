"""Changes of fields: of Thrift structures, protobuf messages and JSON documents."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from scripts.fuzzing.mutation import bytes_like, number_like, text_like
from sidecar.errors import SidecarError
from sidecar.orc import protobuf
from sidecar.parquet import thrift

MANY = (0, 1, 2, 100)
"""How often an element is repeated in a changed list."""
DEEP = 3000
"""How deep nested values are that are put into a document: deeper than Python's stack."""
UNKNOWN = "what a later version may write"

Slot = tuple[Any, Callable[[Any], None], Callable[[], None] | None]
"""A value in a tree, how it is replaced, and how it is removed."""


def thrift_changed(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes of a Thrift structure with some fields changed; what follows it is kept."""
    tree, end = thrift.decode_struct(data)
    return struct_changed(rng, tree) + data[end:]


def struct_changed(rng: random.Random, tree: thrift.Struct) -> bytes:
    """Return the bytes of a Thrift structure after :func:`change_struct`, now and then with very deep structures."""
    change_struct(rng, tree)
    data = thrift.encode_struct(tree)
    if rng.random() > 0.02:
        return data
    nested = rng.choice((b"\x1c", b"\x19\x1c"))  # a struct in field 1; a list of one struct in field 1
    return data[:-1] + _DEEP_FIELD + nested * DEEP + bytes(DEEP + 2)


_DEEP_FIELD = bytes((thrift.STRUCT, 0xFE, 0xFF, 0x03))  # an id that no reader knows, as zigzag varint


def change_struct(rng: random.Random, tree: thrift.Struct) -> None:
    """Change one to three fields of a Thrift structure, at any depth."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        structs = list(_structs(tree))
        siblings = _siblings(structs)
        if siblings and rng.random() < 0.2:
            _take_field(rng, rng.choice(siblings[rng.choice(list(siblings))]))
        else:
            _change_field(rng, rng.choice(structs), structs)


def _siblings(structs: list[thrift.Struct]) -> dict[int, list[list[thrift.Struct]]]:
    """The lists of several structures, by their field ids: what one has may have another meaning in its neighbour."""
    found: dict[int, list[list[thrift.Struct]]] = {}
    for struct in structs:
        for field_id, (kind, value) in struct.fields.items():
            if kind == thrift.LIST and value.element_type == thrift.STRUCT and len(value.values) > 1:
                found.setdefault(field_id, []).append(value.values)
    return found


def _take_field(rng: random.Random, siblings: list[thrift.Struct]) -> None:
    """Give one structure of a list a field of another one, mostly one that it does not have, often changed."""
    target, donor = rng.sample(siblings, 2)
    missing = [field_id for field_id in donor.fields if field_id not in target.fields]
    choices = missing if missing and rng.random() < 0.8 else list(donor.fields)
    if choices:
        field_id = rng.choice(choices)
        kind, value = copy.deepcopy(donor.fields[field_id])
        target.fields[field_id] = (kind, _other_value(rng, kind, value) if rng.random() < 0.5 else value)


def extend_struct(rng: random.Random, tree: thrift.Struct) -> None:
    """Add a field that no reader knows to a Thrift structure at any depth; unions have one field and get none."""
    target = rng.choice([one for one in _structs(tree) if len(one.fields) > 1] or [tree])
    value = rng.choice(
        ((thrift.I64, 5), (thrift.BINARY, b"later"), (thrift.STRUCT, thrift.Struct({1: (thrift.I32, 1)})))
    )
    target.fields[0x7000 + rng.randrange(9)] = value


def _structs(tree: thrift.Struct) -> Iterator[thrift.Struct]:
    yield tree
    for kind, value in tree.fields.values():
        if kind == thrift.STRUCT:
            yield from _structs(value)
        elif kind in (thrift.LIST, thrift.SET) and value.element_type == thrift.STRUCT:
            for element in value.values:
                yield from _structs(element)


def _change_field(rng: random.Random, target: thrift.Struct, structs: list[thrift.Struct]) -> None:
    if not target.fields or rng.random() < 0.05:
        target.fields[rng.randrange(1, 20)] = (thrift.I32, number_like(rng, 0))
        return
    field_id = rng.choice(list(target.fields))
    kind, value = target.fields[field_id]
    way = rng.randrange(12)
    if way == 0:
        del target.fields[field_id]
    elif way == 1:
        target.fields[field_id] = rng.choice(
            ((thrift.I64, 1), (thrift.BINARY, b"x"), (thrift.STRUCT, thrift.Struct()), (thrift.BOOL, True))
        )
    elif way == 2:
        donor = rng.choice(structs)
        if donor.fields:
            target.fields[field_id] = copy.deepcopy(rng.choice(list(donor.fields.values())))
    elif way == 3:
        target.fields[field_id] = (thrift.STRUCT, _nested(rng.choice((5, 40, 60))))
    else:
        target.fields[field_id] = (kind, _other_value(rng, kind, value))


def _nested(depth: int) -> thrift.Struct:
    tree = thrift.Struct()
    for _ in range(depth):
        tree = thrift.Struct({1: (thrift.STRUCT, tree)})
    return tree


def _other_value(rng: random.Random, kind: int, value: Any) -> Any:
    if kind == thrift.BOOL:
        return not value
    if kind in (thrift.BYTE, thrift.I16, thrift.I32, thrift.I64):
        return number_like(rng, value)
    if kind == thrift.BINARY:
        return bytes_like(rng, value)
    if kind in (thrift.DOUBLE, thrift.UUID):
        return rng.randbytes(len(value))
    if kind in (thrift.LIST, thrift.SET):
        return _other_items(rng, value)
    return value


def _other_items(rng: random.Random, items: thrift.Items) -> thrift.Items:
    values = list(items.values)
    if not values:
        return thrift.Items(thrift.I32, [number_like(rng, 0)] * rng.choice(MANY))
    at, way = rng.randrange(len(values)), rng.randrange(5)
    if way == 0:
        del values[at]
    elif way == 1:
        values[at:at] = [values[at]] * rng.choice(MANY)
    elif way == 2:
        return thrift.Items(thrift.I64, [number_like(rng, 0)] * len(values))
    elif items.element_type in (thrift.BOOL, thrift.BOOL_FALSE):
        values[at] = rng.randrange(4)
    elif items.element_type != thrift.STRUCT:
        values[at] = _other_value(rng, items.element_type, values[at])
    else:
        change_struct(rng, values[at])
    return thrift.Items(items.element_type, values)


def protobuf_changed(rng: random.Random, data: bytes, depth: int = 0) -> bytes:
    """Return the bytes of a protobuf message with a field changed, in it or in a message inside it."""
    fields = list(protobuf.fields_of(data))
    if not fields or rng.random() < 0.05:
        fields.append((rng.randrange(1, 20), protobuf.VARINT, number_like(rng, 0) & _U64))
        return protobuf.encode(protobuf.Message(fields))
    at = rng.randrange(len(fields))
    if rng.random() < 0.5:  # a footer has one list of stripes, and many types
        chosen = rng.choice(sorted({number for number, _, _ in fields}))
        at = rng.choice([place for place, (number, _, _) in enumerate(fields) if number == chosen])
    number, kind, value = fields[at]
    way = rng.randrange(10)
    if way == 0:
        del fields[at]
    elif way == 1:
        fields[at:at] = [fields[at]] * rng.choice((1, 2, 100, 5000))
    elif way == 2:
        fields[at] = rng.choice(((number, protobuf.VARINT, 7), (number, protobuf.BYTES, b"x"), (number, 1, 9)))
    elif way == 3:
        other = rng.choice(fields)
        fields[at] = (number, other[1], other[2])
    elif isinstance(value, bytes):
        fields[at] = (number, kind, _inner_changed(rng, value, depth))
    else:
        width = {protobuf.FIXED32: (1 << 32) - 1}.get(kind, _U64)
        fields[at] = (number, kind, number_like(rng, value) & width)
    return protobuf.encode(protobuf.Message(fields))


_U64 = (1 << 64) - 1


def _inner_changed(rng: random.Random, value: bytes, depth: int) -> bytes:
    if depth < 8 and value and rng.random() < 0.8:
        try:
            return protobuf_changed(rng, value, depth + 1)
        except SidecarError:
            pass
    return bytes_like(rng, value)


def json_changed(rng: random.Random, document: Any) -> Any:
    """Return a JSON document with one to three values changed, at any depth."""
    holder = {"": copy.deepcopy(document)}
    for _ in range(rng.choice((1, 1, 2, 3))):
        slots = list(_slots(holder))
        value, replace, remove = rng.choice(slots)
        if remove is not None and rng.random() < 0.1:
            remove()
        else:
            replace(_other_json(rng, value, slots))
    return holder[""]


def _slots(holder: Any) -> Iterator[Slot]:
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    for key in keys:
        remove = None if isinstance(holder, dict) and key == "" else _remover(holder, key)
        yield holder[key], _setter(holder, key), remove
        if isinstance(holder[key], dict | list):
            yield from _slots(holder[key])


def _setter(holder: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        if isinstance(holder, dict) or key < len(holder):
            holder[key] = value

    return put


def _remover(holder: Any, key: Any) -> Callable[[], None]:
    def remove() -> None:
        if key in holder if isinstance(holder, dict) else key < len(holder):
            del holder[key]

    return remove


def _other_json(rng: random.Random, value: Any, slots: list[Slot]) -> Any:
    way = rng.randrange(12)
    if way == 0:
        return rng.choice((None, True, False, 0, -1, 1.5, "", [], {}, [[]], {"a": 1}, 1e400, 10**30, "\ud800"))
    if way == 1:
        return copy.deepcopy(rng.choice(slots)[0])
    if way == 2 and rng.random() < 0.3:
        return deep_list(rng.choice((20, 40)))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return number_like(rng, value)
    if isinstance(value, str):
        return text_like(rng, value)
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        return [*value[:at], *[copy.deepcopy(value[at])] * rng.choice(MANY), *value[at + 1 :]]
    if isinstance(value, dict):
        return value | {UNKNOWN: number_like(rng, 0)}
    return number_like(rng, 0)


def deep_list(depth: int) -> Any:
    """Return a list in a list in a list."""
    out: list[Any] = []
    for _ in range(depth):
        out = [out]
    return out


def json_extended(rng: random.Random, document: Any) -> Any:
    """Return a JSON document of the same meaning: a key that no reader knows in one of its objects."""
    out = copy.deepcopy(document)
    objects = [out, *(value for value, _, _ in _slots(out) if isinstance(value, dict))]
    rng.choice(objects)[UNKNOWN] = rng.choice((1, "text", [1, {"a": None}], {"b": 2}))
    return out


def json_bytes(document: Any) -> bytes:
    """Return the bytes of a JSON document, as sidecar writes its tables of contents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
