"""Decodes and encodes Thrift's compact protocol as a generic field tree, which keeps unknown fields.

A struct is a sequence of fields and a stop byte 0. A field header is one byte: the low nibble is the type, the high
nibble is the id's distance from the previous field's id (1 to 15). If the distance is 0, the id follows as a zigzag
varint.

| type | name | bytes after the header |
| --- | --- | --- |
| 1, 2 | BOOL | none: 1 is true, 2 is false |
| 3 | BYTE | one byte, signed |
| 4, 5, 6 | I16, I32, I64 | zigzag varint |
| 7 | DOUBLE | 8 bytes, little-endian |
| 8 | BINARY | length as varint, then that many bytes |
| 9, 10 | LIST, SET | size and element type in one byte (size 15: as varint after it), then the elements |
| 11 | MAP | size as varint; if it is not 0: key and value type in one byte, then keys and values in turn |
| 12 | STRUCT | its fields |
| 13 | UUID | 16 bytes |

Booleans in lists take a byte each: true is 1, false is 2 from most writers and 0 from others. The element type is 1 or
2. Both are kept, so :func:`encode_struct` returns the original bytes of every writer that uses the shortest form of
varints and field headers.

Any bytes give a tree or :class:`DamagedFileError`. A length is checked against the bytes that are left: an element of a
list takes at least one byte, so a tree is never larger than a constant times its bytes.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from sidecar.errors import DamagedFileError, SidecarError

STOP, BOOL, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)
# fmt: off
_NAMES = (
    "stop", "bool", "bool", "byte", "i16", "i32", "i64", "double", "binary", "list", "set", "map", "struct",
    "uuid", "type 14", "type 15",
)
# fmt: on
INTEGERS = (BYTE, I16, I32, I64)
_ABSENT: tuple[int, Any] = (STOP, None)
_BITS = {I16: 16, I32: 32, I64: 64}

PADDING = 0x7FFE
"""Id of a field that only takes up space; far from all ids of the format."""

_PADDING_HEADER = bytes((BINARY, 0xFC, 0xFF, 0x03))  # the id in full, as zigzag varint

MAX_DEPTH = 48
"""Structs and containers inside each other, at most. Parquet's own are about ten deep."""


class Items:
    """A list or set: its element type and its elements. A boolean element is its byte 0, 1 or 2."""

    __slots__ = ("element_type", "values")

    def __init__(self, element_type: int, values: list[Any]) -> None:
        self.element_type = element_type
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Items) and self.element_type == other.element_type and self.values == other.values

    __hash__ = None  # type: ignore[assignment]


class Entries:
    """A map: key type, value type and the pairs in the order of the bytes."""

    __slots__ = ("key_type", "pairs", "value_type")

    def __init__(self, key_type: int, value_type: int, pairs: list[tuple[Any, Any]]) -> None:
        self.key_type = key_type
        self.value_type = value_type
        self.pairs = pairs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and all(getattr(self, s) == getattr(other, s) for s in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


class Struct:
    """A struct: ``fields[id] = (type, value)``, in the order of the bytes.

    The getters return ``None`` for an absent field, and for a field of another type: generated readers skip it.
    ``need_integer`` and ``count`` raise :class:`DamagedFileError` then. So do lists whose elements have another type.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, tuple[int, Any]] | None = None) -> None:
        self.fields: dict[int, tuple[int, Any]] = {} if fields is None else fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and list(self.fields.items()) == list(other.fields.items())

    __hash__ = None  # type: ignore[assignment]

    def integer(self, field_id: int) -> int | None:
        """Return an integer of any width."""
        kind, value = self.fields.get(field_id, _ABSENT)
        return value if BYTE <= kind <= I64 else None

    def need_integer(self, field_id: int, what: str) -> int:
        """Return a required integer; ``what`` names it in the error."""
        value = self.integer(field_id)
        return _missing(what) if value is None else value

    def count(self, field_id: int, what: str) -> int:
        """Return a required integer that must not be negative; ``what`` names it in the error."""
        value = self.need_integer(field_id, what)
        if value < 0:
            raise DamagedFileError(f"{what} is negative", expected="0 or more", found=value)
        return value

    def boolean(self, field_id: int) -> bool | None:
        """Return a boolean."""
        value = self._get(field_id, BOOL)
        return None if value is None else bool(value)

    def binary(self, field_id: int) -> bytes | None:
        """Return a byte string."""
        value = self._get(field_id, BINARY)
        return None if value is None else bytes(value)

    def text(self, field_id: int) -> str | None:
        """Return a string. Raises :class:`DamagedFileError` if it is not UTF-8."""
        value = self.binary(field_id)
        return None if value is None else _text(value)

    def struct(self, field_id: int) -> Struct | None:
        """Return a struct or union."""
        value: Struct | None = self._get(field_id, STRUCT)
        return value

    def structs(self, field_id: int) -> list[Struct] | None:
        """Return a list of structs."""
        return self._items(field_id, (STRUCT,))

    def integers(self, field_id: int) -> list[int] | None:
        """Return a list of integers."""
        return self._items(field_id, INTEGERS)

    def texts(self, field_id: int) -> list[str] | None:
        """Return a list of strings. Raises :class:`DamagedFileError` if one is not UTF-8."""
        items = self._items(field_id, (BINARY,))
        return None if items is None else [_text(item) for item in items]

    def _get(self, field_id: int, kind: int) -> Any:
        found, value = self.fields.get(field_id, _ABSENT)
        return value if found == kind else None

    def _items(self, field_id: int, kinds: tuple[int, ...]) -> list[Any] | None:
        items: Items | None = self._get(field_id, LIST)
        if items is None:
            return None
        if items.values and items.element_type not in kinds:
            raise DamagedFileError(
                f"the list in Thrift field {field_id} has elements of the wrong type",
                expected=_NAMES[kinds[-1]],
                found=_NAMES[items.element_type],
            )
        return items.values


def _missing(what: str) -> NoReturn:
    raise DamagedFileError(f"{what} is missing")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError("a string is not UTF-8") from error


def decode_struct(data: bytes, offset: int = 0, *, base: int = 0) -> tuple[Struct, int]:
    """Decode the struct that starts at ``data[offset]``. Returns it and the offset after it.

    ``base`` is the offset of ``data`` in its file, for errors. Raises :class:`DamagedFileError`; it is a
    :class:`TruncatedError` if only bytes at the end are missing.
    """
    decoder = _Decoder(data, offset)
    try:
        value = decoder.struct(0)
    except (IndexError, struct.error):
        raise TruncatedError("a Thrift structure ends early", offset=base + offset) from None
    except SidecarError as error:
        error.offset = base + decoder.at if error.offset is None else error.offset
        raise
    return value, decoder.at


class TruncatedError(DamagedFileError):
    """Raised if a Thrift structure does not end within the given bytes."""


class _Decoder:
    """Decodes values at a position in bytes, and advances it. Running past the end raises IndexError."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def varint(self) -> int:
        data, at = self.data, self.at
        byte = data[at]
        if byte < 0x80:
            self.at = at + 1
            return byte
        value, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise DamagedFileError("a Thrift integer has more than 64 bits")
        self.at = at + 1
        return value

    def integer(self, kind: int) -> int:
        raw = self.varint()
        value = (raw >> 1) ^ -(raw & 1)
        if raw >> _BITS[kind]:
            raise DamagedFileError(f"a Thrift integer has more than {_BITS[kind]} bits")
        return value

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise IndexError
        value = self.data[self.at : end]
        self.at = end
        return value

    def struct(self, depth: int) -> Struct:
        if depth > MAX_DEPTH:
            raise DamagedFileError("Thrift structures are nested too deeply", expected=f"at most {MAX_DEPTH}")
        data, at = (
            self.data,
            self.at,
        )  # locals, and small integers and short strings inline, for speed: footers have many of them
        fields: dict[int, tuple[int, Any]] = {}
        field_id = 0
        while True:
            header = data[at]
            at += 1
            if header == 0:
                self.at = at
                return Struct(fields)
            kind = header & 15
            if header >> 4:
                field_id += header >> 4
            else:
                self.at = at
                field_id, at = self.integer(I16), self.at
            if field_id in fields or field_id > 0x7FFF:
                self.at = at
                raise DamagedFileError(f"a Thrift structure has field {field_id} twice, or its id is too large")
            if I16 <= kind <= I64 and (raw := data[at]) < 0x80:
                at += 1
                fields[field_id] = (kind, (raw >> 1) ^ -(raw & 1))
            elif kind == BINARY and (length := data[at]) < 0x80 and (end := at + 1 + length) <= len(data):
                fields[field_id] = (kind, data[at + 1 : end])
                at = end
            elif kind in (BOOL, BOOL_FALSE):
                fields[field_id] = (BOOL, kind == BOOL)
            else:
                self.at = at
                value: Any = self.struct(depth + 1) if kind == STRUCT else self.value(kind, depth)
                fields[field_id] = (kind, value)
                at = self.at

    def value(self, kind: int, depth: int) -> Any:
        if I16 <= kind <= I64:
            return self.integer(kind)
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self.items(depth + 1)
        if kind == BYTE:
            return ((self.take(1)[0]) ^ 0x80) - 0x80
        if kind == DOUBLE:
            return self.take(8)
        if kind == UUID:
            return self.take(16)
        if kind == MAP:
            return self.entries(depth + 1)
        raise DamagedFileError("an unknown Thrift type", found=kind)

    def element(self, kind: int, depth: int) -> Any:
        if kind in (BOOL, BOOL_FALSE):
            return self.take(1)[0]
        return self.value(kind, depth)

    def size(self, size: int) -> int:
        """Return a number of elements, after a check that the bytes left can hold them, one byte each at least."""
        if size > len(self.data) - self.at:
            raise IndexError
        return size

    def items(self, depth: int) -> Items:
        if depth > MAX_DEPTH:
            raise DamagedFileError("Thrift structures are nested too deeply", expected=f"at most {MAX_DEPTH}")
        header = self.data[self.at]
        self.at += 1
        size = self.size(self.varint() if header >> 4 == 15 else header >> 4)
        kind = header & 15
        if kind == STRUCT:
            return Items(kind, [self.struct(depth + 1) for _ in range(size)])
        if I16 <= kind <= I64 and (raw := self.data[self.at : self.at + size]).isascii():  # a byte each
            self.at += size
            return Items(kind, [(one >> 1) ^ -(one & 1) for one in raw])
        read = self.element if kind in (BOOL, BOOL_FALSE) else self.value
        return Items(kind, [read(kind, depth) for _ in range(size)])

    def entries(self, depth: int) -> Entries:
        if depth > MAX_DEPTH:
            raise DamagedFileError("Thrift structures are nested too deeply", expected=f"at most {MAX_DEPTH}")
        size = self.size(self.varint())
        if size == 0:
            return Entries(STOP, STOP, [])
        kinds = self.take(1)[0]
        key, value = kinds >> 4, kinds & 15
        return Entries(key, value, [(self.element(key, depth), self.element(value, depth)) for _ in range(size)])


def encode_struct(value: Struct) -> bytes:
    """Return the bytes of a struct, with every integer and field header in its shortest form."""
    out = bytearray()
    _put_struct(out, value)
    return bytes(out)


def encode_padded(value: Struct, length: int) -> bytes:
    """Return the bytes of a struct, padded to ``length`` bytes; see :func:`draw_out`."""
    return draw_out(encode_struct(value), length)


def draw_out(data: bytes, length: int) -> bytes:
    """Return the bytes of a struct padded to ``length`` bytes, by an unknown field :data:`PADDING` of zeros.

    Readers skip the field. Raises :class:`DamagedFileError` if ``length`` is too small for the struct or the field,
    which takes at least 5 bytes.
    """
    left = length - len(data)
    if left == 0:
        return data
    for width in range(1, 6):
        content = left - len(_PADDING_HEADER) - width
        if 0 <= content < 1 << 7 * width:  # some lengths need a varint that is longer than its shortest form
            size = bytes(content >> 7 * i & 0x7F | (0x80 if i + 1 < width else 0) for i in range(width))
            return data[:-1] + _PADDING_HEADER + size + bytes(content + 1)
    raise DamagedFileError(
        "there is no room for a padded Thrift structure", expected=f"{len(data)} bytes", found=length
    )


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _put_integer(out: bytearray, value: int) -> None:
    _put_varint(out, (value << 1) ^ (value >> 63))


def _put_struct(out: bytearray, value: Struct) -> None:
    last = 0
    for field_id, (kind, content) in value.fields.items():
        nibble = BOOL_FALSE if kind == BOOL and not content else kind
        if 0 < field_id - last <= 15:
            out.append((field_id - last) << 4 | nibble)
        else:
            out.append(nibble)
            _put_integer(out, field_id)
        last = field_id
        if I16 <= kind <= I64 and -64 <= content < 64:  # one byte, inline for speed: footers have many of them
            out.append((content << 1) ^ (content >> 63))
        elif kind != BOOL:
            _put_value(out, kind, content)
    out.append(STOP)


def _put_value(out: bytearray, kind: int, content: Any) -> None:
    if I16 <= kind <= I64:
        _put_integer(out, content)
    elif kind == BINARY:
        _put_varint(out, len(content))
        out += content
    elif kind == STRUCT:
        _put_struct(out, content)
    elif kind in (LIST, SET):
        _put_items(out, content)
    elif kind == MAP:
        _put_entries(out, content)
    elif kind in (DOUBLE, UUID):
        out += content
    else:  # a byte, or a boolean in a list
        out.append(content & 0xFF)


def _put_items(out: bytearray, items: Items) -> None:
    size = len(items.values)
    out.append(min(size, 15) << 4 | items.element_type)
    if size >= 15:
        _put_varint(out, size)
    for item in items.values:
        _put_value(out, items.element_type, item)


def _put_entries(out: bytearray, entries: Entries) -> None:
    _put_varint(out, len(entries.pairs))
    if entries.pairs:
        out.append(entries.key_type << 4 | entries.value_type)
    for key, value in entries.pairs:
        _put_value(out, entries.key_type, key)
        _put_value(out, entries.value_type, value)
