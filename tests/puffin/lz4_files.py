"""Blobs and footers that are compressed by LZ4, which we read and do not write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import lz4.frame

from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.writer import PuffinWriter

# The library reads a content size of 0 as "not stated", so this is a complete frame without content: header with
# content size 0 and content checksum, end mark, XXH32 of nothing.
EMPTY = bytes.fromhex("04224d18 4c40 0000000000000000 f3 00000000 055dcc02")


def lz4_frame(data: bytes) -> bytes:
    """One frame with its content size."""
    return lz4.frame.compress(data, content_checksum=True, store_size=True) if data else EMPTY


def add_lz4(
    writer: PuffinWriter,
    blob_type: str,
    fields: Sequence[int],
    snapshot_id: int,
    sequence_number: int,
    data: bytes,
    properties: Mapping[str, str] | None = None,
) -> BlobMetadata:
    """Write a blob that is compressed by LZ4."""
    frame = lz4_frame(data)
    place = tuple(fields), snapshot_id, sequence_number, 0, len(frame)
    return writer.copy_blob(BlobMetadata(blob_type, *place, "lz4", dict(properties or {})), frame)


def with_lz4_footer(data: bytes) -> bytes:
    """The same file with a compressed footer."""
    start = len(data) - 12 - int.from_bytes(data[-12:-8], "little")
    payload = lz4_frame(data[start:-12])
    return data[:start] + payload + len(payload).to_bytes(4, "little") + b"\x01\0\0\0PFA1"
