"""The envelope of every sidecar blob: a header and a table of contents (TOC) with a checksum.

    offset  size  content (little-endian)
    0       4     magic: "SCUN" units, "SCBF" split-block filters, "SCOB" ORC filters, "SCPI" page indexes,
                  "SCRI" row indexes, "SCTG" sketches of groups, "SCTC" table of all TOCs
    4       2     u16 version: directory 1; units blobs 2; encrypted blobs (``encryption``) 3; other blobs 4
    6       2     u16 reserved, 0
    8       4     u32 length of the TOC
    12      4     u32 reserved, 0
    16      8     u64 offset of the TOC; the blob ends with the TOC
    24      8     u64 XXH64, seed 0, of the TOC
    32            the blob's pieces, then the TOC

All offsets count from the blob's start, so a blob can be copied as bytes. A TOC is JSON in ASCII with sorted
keys and no spaces. It repeats the blob's field id and length from the Puffin footer and names table and
segment. Readers ignore keys that they do not know.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

import xxhash

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

HEADER = struct.Struct("<4sHHIIQQ")
HEADER_BYTES = HEADER.size
VERSION = 1
UNITS_VERSION = 2
FIELD_VERSION = 4
VERSIONS = (1, 2, 3, 4)
"""Versions that sidecar reads: 1 (directories), 2 (units blobs), 3 (encrypted blobs) and 4 (other blobs of fields)."""
MAX_TOC_BYTES = 64 << 20
"""The longest TOC that is read. A million units need far less."""

UNITS_MAGIC = b"SCUN"
SBBF_MAGIC = b"SCBF"
ORC_BLOOM_MAGIC = b"SCOB"
PAGE_INDEX_MAGIC = b"SCPI"
ROW_INDEX_MAGIC = b"SCRI"
THETA_GROUPS_MAGIC = b"SCTG"
DIRECTORY_MAGIC = b"SCTC"

SEGMENT_BYTES = 16
MAX_INT64 = (1 << 63) - 1

KEPT, KEPT_BYTES = 16, 64 << 10
"""How many results of a decoder are kept for the next lookups, and the most bytes of each: some MB in all."""

_T = TypeVar("_T")


def kept(decode: Callable[[bytes], _T]) -> Callable[[bytes], _T]:
    """Keep the results of ``decode`` for the last short pieces: every lookup of a process decodes the same ones.

    Callers must not change a result.
    """
    keeping = lru_cache(KEPT)(decode)

    @wraps(decode)
    def decoded(data: bytes) -> _T:
        return keeping(data) if len(data) <= KEPT_BYTES else decode(data)

    return decoded


@dataclass(frozen=True)
class Header:
    """The first 32 bytes of a blob."""

    magic: bytes
    toc_offset: int
    toc_length: int
    toc_digest: int
    version: int = VERSION

    def encode(self) -> bytes:
        """Return the 32 header bytes."""
        return HEADER.pack(self.magic, self.version, 0, self.toc_length, 0, self.toc_offset, self.toc_digest)


def header_for(magic: bytes, toc: bytes, toc_offset: int, version: int = VERSION) -> Header:
    """Return the header of a blob whose TOC begins at ``toc_offset``."""
    return Header(magic, toc_offset, len(toc), toc_digest(toc), version)


def toc_digest(toc: bytes) -> int:
    """Return the XXH64 (seed 0) of a TOC."""
    return int(xxhash.xxh64_intdigest(toc))


def decode_header(data: bytes, magic: bytes, blob_length: int) -> Header:
    """Decode a header and check it against the blob's length in the file.

    Raises :class:`DamagedFileError`, or :class:`UnsupportedFeatureError` for an unknown version.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFileError("a blob is shorter than its header", expected=HEADER_BYTES, found=len(data))
    found_magic, version, reserved, length, reserved_too, offset, digest = HEADER.unpack_from(data)
    if found_magic != magic:
        raise DamagedFileError("a blob does not begin with its magic", expected=magic, found=found_magic)
    if version not in VERSIONS:
        raise UnsupportedFeatureError("the blob has an unknown version", expected="1 to 4", found=version)
    if reserved or reserved_too or offset < HEADER_BYTES or length > MAX_TOC_BYTES or offset + length != blob_length:
        raise DamagedFileError(
            "a blob's header contradicts its length",
            expected=f"{blob_length} bytes",
            found=f"a table of contents of {length} bytes at {offset}",
        )
    return Header(magic, offset, length, digest, version)


def encode_toc(content: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a TOC."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def decode_toc(toc: bytes) -> dict[str, Any]:
    """Return the JSON object of a verified TOC. Raises :class:`DamagedFileError` if it is not one."""
    try:
        content = json.loads(toc)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError("the table of contents is not JSON", found=repr(toc[:40])) from error
    if not isinstance(content, dict):
        raise DamagedFileError("the table of contents is not a JSON object", found=repr(toc[:40]))
    return content


def member(content: dict[str, Any], key: str, kind: type[_T]) -> _T:
    """Return ``content[key]``. Raises :class:`DamagedFileError` unless its type is exactly ``kind``."""
    value = content.get(key)
    if type(value) is not kind:
        raise DamagedFileError(
            f"{key!r} in the table of contents is missing or has the wrong type",
            expected=kind.__name__,
            found=repr(value)[:60],
        )
    return value


def integer(content: dict[str, Any], key: str, low: int = 0, high: int = MAX_INT64) -> int:
    """Return ``content[key]``, an integer from ``low`` to ``high``. Raises :class:`DamagedFileError`."""
    value = member(content, key, int)
    if not low <= value <= high:
        raise DamagedFileError(
            f"{key!r} in the table of contents is out of range", expected=f"{low} to {high}", found=value
        )
    return value


def segment_bytes(content: dict[str, Any]) -> bytes:
    """Return the 16 bytes of ``content["segment"]``. Raises :class:`DamagedFileError`."""
    text = member(content, "segment", str)
    try:
        segment = bytes.fromhex(text)
    except ValueError:
        segment = b""
    if len(segment) != SEGMENT_BYTES or segment.hex() != text:
        raise DamagedFileError("a segment id is not 32 lower-case hexadecimal digits", found=repr(text)[:60])
    return segment
