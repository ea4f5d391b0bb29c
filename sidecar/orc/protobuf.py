"""Decodes and encodes Protocol Buffers as generic lists of fields, without loss and without a schema.

A message is a sequence of fields, each a tag (varint: field number << 3 | wire type) and a value:

| wire type | name | bytes after the tag |
| --- | --- | --- |
| 0 | VARINT | 7 bits a byte, lowest first, the top bit says that another byte follows; 64 bits at most |
| 1 | FIXED64 | 8 bytes, little-endian |
| 2 | BYTES | length as varint, then that many bytes: a string, a message, or packed numbers |
| 5 | FIXED32 | 4 bytes, little-endian |

Groups (3, 4) are deprecated and ORC does not use them, so they are refused. Signed numbers (``sint64``) are zigzag
varints: n is stored as 2n, -n as 2n - 1. If a field that is not repeated occurs more than once, the last one counts.

A message inside another stays bytes until a getter decodes it. So decoding does not recurse, unknown fields stay as
they are, and :func:`encode` returns the original bytes of every writer that uses the shortest form of varints.

Any bytes give a message or :class:`DamagedFileError`. A length is used only if as many bytes follow, and a message has
at most :data:`MAX_FIELDS` fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TypeVar

from sidecar.errors import DamagedFileError

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

MAX_FIELDS = 1 << 18
"""Most fields of one message: about 30 MB of memory. Footers (stripes) and row indexes (entries) have the most."""

_NAMES = ("varint", "fixed64", "bytes", "group", "end of a group", "fixed32", "type 6", "type 7")
_U64 = (1 << 64) - 1

Field = tuple[int, int, "int | bytes"]
"""Field number, wire type, and value: an unsigned integer, or bytes for wire type 2."""


DataT = TypeVar("DataT", bytes, memoryview)


class Message:
    """A message: its fields in the order in which they are stored.

    A getter of one value returns the last field with ``number``, or the default if there is none. It raises
    :class:`DamagedFileError` if the field has another wire type.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: list[Field] | None = None) -> None:
        self.fields: list[Field] = [] if fields is None else fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]

    def has(self, number: int) -> bool:
        """Return whether the message has field ``number``."""
        return number in [field[0] for field in self.fields]

    def varint(self, number: int, default: int = 0) -> int:
        """Return a field as an unsigned integer."""
        value = self._last(number, VARINT)
        return default if value is None else int(value)

    def signed(self, number: int) -> int | None:
        """Return a ``sint32`` or ``sint64`` field (zigzag)."""
        value = self._last(number, VARINT)
        return None if value is None else unzigzag(int(value))

    def double(self, number: int) -> float | None:
        """Return a ``double`` field."""
        value = self._last(number, FIXED64)
        return None if value is None else float(struct.unpack("<d", int(value).to_bytes(8, "little"))[0])

    def bytes_(self, number: int) -> bytes | None:
        """Return a field as bytes."""
        value = self._last(number, BYTES)
        return value if isinstance(value, bytes) else None

    def text(self, number: int) -> str | None:
        """Return a field as text. Raises :class:`DamagedFileError` if it is not UTF-8."""
        value = self.bytes_(number)
        return None if value is None else _text(value, number)

    def message(self, number: int) -> Message | None:
        """Return a field decoded as a message."""
        value = self.bytes_(number)
        return None if value is None else decode(value)

    def messages(self, number: int) -> list[Message]:
        """Return every field with ``number``, decoded as messages."""
        return [decode(value) for value in self.all_bytes(number)]

    def texts(self, number: int) -> list[str]:
        """Return every field with ``number`` as text."""
        return [_text(value, number) for value in self.all_bytes(number)]

    def all_bytes(self, number: int) -> list[bytes]:
        """Return every field with ``number`` as bytes."""
        out: list[bytes] = []
        for field, kind, value in self.fields:
            if field == number:
                if not isinstance(value, bytes):
                    raise wrong_type(number, BYTES, kind)
                out.append(value)
        return out

    def repeated_varints(self, number: int) -> list[int]:
        """Return the unsigned integers of a repeated field, packed or one for each field; both may be mixed."""
        out: list[int] = []
        for field, kind, value in self.fields:
            if field == number:
                if isinstance(value, bytes):
                    out += unpack(value)
                elif kind == VARINT:
                    out.append(value)
                else:
                    raise wrong_type(number, VARINT, kind)
        return out

    def set(self, number: int, value: int | bytes | Message | None) -> None:
        """Set field ``number`` to one value, in the place of the first one, else at the end; ``None`` removes it."""
        self.set_all(number, [] if value is None else [value])

    def set_all(self, number: int, values: Iterable[int | bytes | Message]) -> None:
        """Replace all fields with ``number`` by ``values``, in the place of the first one, else at the end."""
        fields = [_field(number, value) for value in values]
        at = next((i for i, field in enumerate(self.fields) if field[0] == number), len(self.fields))
        rest = [field for field in self.fields[at:] if field[0] != number]
        self.fields = [*self.fields[:at], *fields, *rest]

    def _last(self, number: int, kind: int) -> int | bytes | None:
        for field, found, value in reversed(self.fields):
            if field == number:
                if found != kind:
                    raise wrong_type(number, kind, found)
                return value
        return None


def _field(number: int, value: int | bytes | Message) -> Field:
    if isinstance(value, int):
        return number, VARINT, value & _U64
    return number, BYTES, encode(value) if isinstance(value, Message) else value


def wrong_type(number: int, expected: int, found: int) -> DamagedFileError:
    """Return the error for a field of another wire type than its number has."""
    return DamagedFileError(
        f"protobuf field {number} has the wrong wire type", expected=_NAMES[expected], found=_NAMES[found]
    )


def _text(value: bytes, number: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"protobuf field {number} is not UTF-8") from error


def unzigzag(value: int) -> int:
    """Return the signed number of a zigzag varint."""
    return (value >> 1) ^ -(value & 1)


def decode(data: bytes) -> Message:
    """Decode all of ``data`` as one message. Raises :class:`DamagedFileError`."""
    return Message(list(fields_of(data)))


def fields_of(data: DataT) -> Iterator[tuple[int, int, int | DataT]]:
    """Yield the fields of a message one by one, bytes as parts of ``data``. Raises :class:`DamagedFileError`."""
    at, end, count = 0, len(data), 0
    try:
        while at < end:
            # Nearly all tags and lengths have one byte, which is read without a call.
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint_at(data, at - 1)
            number, kind = tag >> 3, tag & 7
            count += 1
            if not 0 < number < 1 << 29 or count > MAX_FIELDS:
                raise DamagedFileError(
                    "a protobuf message has a field number out of range, or too many fields",
                    expected=f"at most {MAX_FIELDS} fields",
                    found=f"field number {number}",
                )
            if kind == VARINT:
                value, at = varint_at(data, at)
                yield number, kind, value
                continue
            if kind == BYTES:
                length = data[at]
                at += 1
                if length >= 0x80:
                    length, at = varint_at(data, at - 1)
            elif kind in (FIXED64, FIXED32):
                length = 8 if kind == FIXED64 else 4
            else:
                raise DamagedFileError("a protobuf field has an unknown wire type", found=_NAMES[kind])
            if length > end - at:
                raise IndexError
            content = data[at : at + length]
            at += length
            yield number, kind, content if kind == BYTES else int.from_bytes(content, "little")
    except IndexError:
        raise DamagedFileError("a protobuf message ends early", found=f"{end} bytes") from None


def unpack(data: bytes) -> list[int]:
    """Return the varints of a packed field."""
    out: list[int] = []
    at = 0
    try:
        while at < len(data):
            value, at = varint_at(data, at)
            out.append(value)
    except IndexError:
        raise DamagedFileError("a packed protobuf field ends early") from None
    return out


def varint_at(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the varint at ``data[at]`` and the offset after it. Raises IndexError if the bytes end first."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise DamagedFileError("a protobuf varint is longer than 10 bytes")
    if value > _U64:
        raise DamagedFileError("a protobuf varint has more than 64 bits", found=value)
    return value, at


def encode(message: Message) -> bytes:
    """Return the bytes of a message, every varint in its shortest form."""
    out = bytearray()
    for number, kind, value in message.fields:
        _put_varint(out, number << 3 | kind)
        if isinstance(value, bytes):
            _put_varint(out, len(value))
            out += value
        elif kind == VARINT:
            _put_varint(out, value)
        else:
            out += value.to_bytes(8 if kind == FIXED64 else 4, "little")
    return bytes(out)


def bytes_header(number: int, length: int) -> bytes:
    """Return what is before the ``length`` bytes of field ``number``: its tag and the length."""
    out = bytearray()
    _put_varint(out, number << 3 | BYTES)
    _put_varint(out, length)
    return bytes(out)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
