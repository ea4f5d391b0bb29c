"""What every sidecar blob has in common: a header and a table of contents (TOC) under a checksum of its own.

    offset  size  content (little-endian)
    0       4     magic: "SCUN" units, "SCBF" split-block filters, "SCOB" ORC filters, "SCPI" page indexes,
                  "SCRI" row indexes, "SCTC" table of all TOCs
    4       2     u16 version: 1, of units 2, of encrypted blobs (``encryption``) 3
    6       2     u16 reserved, 0
    8       4     u32 length of the TOC
    12      4     u32 reserved, 0
    16      8     u64 offset of the TOC; the blob ends with the TOC
    24      8     u64 XXH64, seed 0, of the TOC
    32            the blob's pieces, then the TOC

All offsets count from the blob's start, so that a blob can be copied as bytes. A TOC is JSON in ASCII with sorted
keys and no spaces; it repeats what the Puffin footer says of the blob (field id, length) and names table and
segment. Readers ignore keys that they do not know.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import xxhash

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

HEADER = struct.Struct("<4sHHIIQQ")
HEADER_BYTES = HEADER.size
VERSION = 1
UNITS_VERSION = 2
VERSIONS = (1, 2, 3)
"""Versions that can be read: 1, 2 (units) and 3 (encrypted blobs)."""
MAX_TOC_BYTES = 64 << 20
"""No TOC may be longer: far above what a million units need."""

UNITS_MAGIC = b"SCUN"
SBBF_MAGIC = b"SCBF"
ORC_BLOOM_MAGIC = b"SCOB"
PAGE_INDEX_MAGIC = b"SCPI"
ROW_INDEX_MAGIC = b"SCRI"
DIRECTORY_MAGIC = b"SCTC"

SEGMENT_BYTES = 16
MAX_INT64 = (1 << 63) - 1

_T = TypeVar("_T")


@dataclass(frozen=True)
class Header:
    """The first 32 bytes of a blob."""

    magic: bytes
    toc_offset: int
    toc_length: int
    toc_digest: int
    version: int = VERSION

    def encode(self) -> bytes:
        """The 32 bytes."""
        return HEADER.pack(self.magic, self.version, 0, self.toc_length, 0, self.toc_offset, self.toc_digest)


def header_for(magic: bytes, toc: bytes, toc_offset: int, version: int = VERSION) -> Header:
    """The header of a blob whose TOC begins at ``toc_offset``."""
    return Header(magic, toc_offset, len(toc), toc_digest(toc), version)


def toc_digest(toc: bytes) -> int:
    """XXH64, seed 0, of a TOC."""
    return int(xxhash.xxh64_intdigest(toc))


def decode_header(data: bytes, magic: bytes, blob_length: int) -> Header:
    """Decode and check a header against the blob's length in the file.

    Raises :class:`DamagedFileError`, or :class:`UnsupportedFeatureError` for another version.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFileError("a blob is shorter than its header", expected=HEADER_BYTES, found=len(data))
    found, version, reserved, length, reserved_too, offset, digest = HEADER.unpack_from(data)
    if found != magic:
        raise DamagedFileError("a blob does not begin with its magic", expected=magic, found=found)
    if version not in VERSIONS:
        raise UnsupportedFeatureError("a blob of another version", expected="1 to 3", found=version)
    if (
        reserved
        or reserved_too
        or offset < HEADER_BYTES
        or length > MAX_TOC_BYTES
        or offset + length != blob_length
    ):
        raise DamagedFileError(
            "a blob's header contradicts its length",
            expected=f"{blob_length} bytes",
            found=f"a table of contents of {length} bytes at {offset}",
        )
    return Header(magic, offset, length, digest, version)


def encode_toc(content: dict[str, Any]) -> bytes:
    """The canonical bytes of a TOC."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def decode_toc(toc: bytes) -> dict[str, Any]:
    """The JSON object of a TOC that has been verified; :class:`DamagedFileError` if it is none."""
    try:
        content = json.loads(toc)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError("a table of contents is no JSON", found=repr(toc[:40])) from error
    if not isinstance(content, dict):
        raise DamagedFileError("a table of contents is no JSON object", found=repr(toc[:40]))
    return content


def member(content: dict[str, Any], key: str, kind: type[_T]) -> _T:
    """``content[key]``, which must be exactly of this type."""
    value = content.get(key)
    if type(value) is not kind:
        raise DamagedFileError(
            f"a table of contents has no proper {key!r}", expected=kind.__name__, found=repr(value)[:60]
        )
    return value


def integer(content: dict[str, Any], key: str, low: int = 0, high: int = MAX_INT64) -> int:
    """``content[key]`` as an integer in ``[low, high]``."""
    value = member(content, key, int)
    if not low <= value <= high:
        raise DamagedFileError(
            f"a table of contents has an impossible {key!r}", expected=f"{low} to {high}", found=value
        )
    return value


def segment_bytes(content: dict[str, Any]) -> bytes:
    """The 16 bytes of ``content["segment"]``."""
    text = member(content, "segment", str)
    try:
        segment = bytes.fromhex(text)
    except ValueError:
        segment = b""
    if len(segment) != SEGMENT_BYTES or segment.hex() != text:
        raise DamagedFileError("a segment id is not 32 lower-case hexadecimal digits", found=repr(text)[:60])
    return segment
