"""Checksums that bind the bytes of a piece to its place in the table.

A *piece* is the smallest unit that is read and verified. The 8 bytes after every piece of a sidecar blob are the
little-endian XXH64 (seed 0) of a 40-byte context followed by the piece's bytes. The context, little-endian:

    offset  size  content
    0       4     u32  kind of piece (the numbers of :class:`PieceKind`)
    4       4     i32  field id, 0 if the piece belongs to no field
    8       16         segment id
    24      4     u32  group ordinal in its blob, 0 outside groups
    28      4     u32  row in its region, 0 if the piece is not a row
    32      8     u64  position: region, page, or ordinal of the piece in its section

A piece that was moved to another place, field, segment or table therefore fails, even if its bytes are intact.

In encrypted blobs (:mod:`sidecar.bundle.envelopes.encryption`) a piece is an AES-GCM module: nonce (12 bytes),
ciphertext, tag (16 bytes), with the same context in its AAD.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

if TYPE_CHECKING:
    from sidecar.bundle.envelopes.encryption import Cipher

SEAL_BYTES = 8
"""Length of the checksum after every piece."""

CONTEXT = struct.Struct("<Ii16sIIQ")
CONTEXT_TYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("field", "<i4"),
        ("segment", "V16"),
        ("group", "<u4"),
        ("row", "<u4"),
        ("position", "<u8"),
    ]
)
"""The layout of ``CONTEXT`` as a dtype, for arrays of contexts."""
_SEAL = struct.Struct("<Q")


class PieceKind(IntEnum):
    """The kinds of pieces. The numbers are part of the format."""

    ROW = 1
    REGION = 2
    PAGE = 3
    TAIL = 4
    OWN_BLOCKS = 5
    PAGE_INDEX = 6
    PAGE_INDEX_TABLE = 7
    ORC_ROW = 8
    ORC_REGION = 9
    ORC_PAGE = 10
    ROW_INDEX = 11
    ROW_INDEX_TABLE = 12
    GROUP_SKETCH = 13
    GROUP_TABLE = 14
    FILES = 16
    BOUNDS = 17
    PARTITIONS = 18
    FINGERPRINTS = 19
    UNIT_COUNTS = 20
    SCHEMAS = 21
    MANIFESTS = 22
    COVERAGE = 23
    LENGTHS = 24
    DIRECTORY = 32


class PieceOverhead(NamedTuple):
    """Bytes before and after the data of a piece."""

    before: int
    after: int

    @property
    def overhead(self) -> int:
        """Bytes before and after together."""
        return self.before + self.after


CHECKED = PieceOverhead(0, SEAL_BYTES)
"""Plain pieces, followed by a checksum."""
ENCRYPTED = PieceOverhead(12, 16)
"""Encrypted pieces: AES-GCM modules."""
BARE = PieceOverhead(0, 0)
"""Opened pieces: data alone, without a checksum."""


@dataclass(frozen=True)
class BlobContext:
    """The segment (16 bytes) and field id (0: none) that a blob's pieces are bound to; ``cipher`` if encrypted."""

    segment: bytes
    field_id: int = 0
    cipher: Cipher | None = field(default=None, repr=False, compare=False)

    @property
    def sealing(self) -> PieceOverhead:
        """The bytes around the data of each piece."""
        return CHECKED if self.cipher is None else ENCRYPTED

    def context(self, kind: PieceKind, position: int = 0, group: int = 0, row: int = 0) -> bytes:
        """Return the 40-byte context of a piece."""
        return CONTEXT.pack(kind, self.field_id, self.segment, group, row, position)

    def seal(self, context: bytes, data: bytes | memoryview) -> bytes:
        """Return ``data`` as a piece, with its checksum or encrypted."""
        if self.cipher is None:
            return b"".join((data, seal(context, data)))
        return self.cipher.encrypt(context, data)

    def open(self, context: bytes, piece: bytes | memoryview) -> bytes | memoryview | None:
        """Return the data of a piece, ``None`` if the piece is damaged or belongs to another place."""
        if self.cipher is None:
            return memoryview(piece)[:-SEAL_BYTES] if is_sealed(context, piece) else None
        return self.cipher.decrypt(context, piece)


def digest(context: bytes, data: bytes | memoryview) -> int:
    """Return the XXH64 (seed 0) of the context followed by the piece."""
    state = xxhash.xxh64(context)
    state.update(data)
    return int(state.intdigest())


def seal(context: bytes, data: bytes | memoryview) -> bytes:
    """Return the 8 checksum bytes that follow a piece."""
    return _SEAL.pack(digest(context, data))


def is_sealed(context: bytes, piece: bytes | memoryview) -> bool:
    """Return whether the last 8 bytes of ``piece`` are the checksum of the bytes before them in this context."""
    if len(piece) < SEAL_BYTES:
        return False
    data = memoryview(piece)
    (stored,) = _SEAL.unpack(data[-SEAL_BYTES:])
    return bool(stored == digest(context, data[:-SEAL_BYTES]))
