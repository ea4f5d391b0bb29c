"""The mark of embedded filters: user metadata of an ORC file that names the columns whose filters sidecar made.

A file's footer names its first writer. Some writers hash other keys than readers look up (:mod:`sidecar.orc.trust`),
but filters that were embedded since are not theirs. The mark is the item ``sidecar.filters`` of Footer field 5, as text
``IDS;PLACES``: the column ids with commas between them, then the XXH64 of the stripes' places in hexadecimal.

Java's merge of files copies stripes and user metadata. The places then differ, so the mark is not believed, and neither
is that of a file that another program wrote anew.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection

import xxhash

from sidecar.errors import DamagedFileError
from sidecar.orc.protobuf import BYTES, Message, decode

_NAME = b"sidecar.filters"
_STRIPES, _USER_METADATA = 3, 5
_TEXT = re.compile(rb"(\d{1,9}(?:,\d{1,9})*);([0-9a-f]{16})")


def marked_columns(footer: Message) -> frozenset[int]:
    """Return the ids of the columns whose filters sidecar made; none if the stripes are not those that it wrote."""
    for item in _items(footer):
        found = _TEXT.fullmatch(_text_of(item))
        if found is not None and found[2].decode() == _places(footer):
            return frozenset(map(int, found[1].split(b",")))
    return frozenset()


def mark(footer: Message, columns: Collection[int]) -> None:
    """Name ``columns``, and no others, in a footer whose stripes have their final places."""
    items: list[bytes | Message] = [item for item in _items(footer) if not _text_of(item)]
    if columns:
        text = f"{','.join(map(str, sorted(columns)))};{_places(footer)}"
        items.append(Message([(1, BYTES, _NAME), (2, BYTES, text.encode())]))
    if columns or len(items) < len(_items(footer)):
        footer.set_all(_USER_METADATA, items)


def _items(footer: Message) -> list[bytes]:
    return [value for number, _, value in footer.fields if number == _USER_METADATA and isinstance(value, bytes)]


def _text_of(item: bytes) -> bytes:
    """Return the text of a mark; empty for other items and broken ones."""
    try:
        message = decode(item) if _NAME in item else Message()
        return (message.bytes_(2) or b"") if message.bytes_(1) == _NAME else b""
    except DamagedFileError:
        return b""


def _places(footer: Message) -> str:
    """Return a hash of the offsets, lengths and rows of the stripes."""
    numbers = [stripe.varint(field) for stripe in footer.messages(_STRIPES) for field in range(1, 6)]
    return f"{xxhash.xxh64_intdigest(struct.pack(f'<{len(numbers)}Q', *numbers)):016x}"
