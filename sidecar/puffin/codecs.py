"""Puffin's two codecs: exactly one zstd or LZ4 frame, with its content size (spec, "Compression codecs").

Decompression trusts nothing: the content size in the frame's header is checked against a limit before memory is
allocated, and a single byte after the frame is damage. This also refuses a second frame, which other readers drop
silently. Frames written here have a checksum of their content.
"""

from __future__ import annotations

import lz4.frame
import zstandard

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.puffin.metadata import shorten

LZ4 = "lz4"
ZSTD = "zstd"

_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_MAX_RATIO = 255


def compress(codec: str, data: memoryview) -> bytes:
    """Return ``data`` as one frame that states its content size.

    Raises :class:`UsageError` for another codec than ``zstd``: no current engine reads LZ4.
    """
    if codec != ZSTD:
        raise UsageError("unknown compression codec", expected=ZSTD, found=codec)
    frame = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compressobj(size=data.nbytes)
    return frame.compress(data) + frame.flush()


def decompress(codec: str | None, data: bytes, limit: int) -> bytes:
    """Return the content of ``data``.

    Raises :class:`UnsupportedFeatureError` for an unknown codec or a content of more than ``limit`` bytes,
    and :class:`DamagedFileError` for anything but exactly one frame with its content size.
    """
    if codec is None:
        return data
    if codec not in (ZSTD, LZ4):
        raise UnsupportedFeatureError("unknown compression codec", expected=f"{ZSTD} or {LZ4}", found=shorten(codec))
    try:
        size = _zstd_content_size(data) if codec == ZSTD else _lz4_content_size(data)
        if size > limit:
            raise UnsupportedFeatureError(
                "the content is larger than the limit", expected=f"at most {limit} bytes", found=size
            )
        content = _zstd_content(data, size) if codec == ZSTD else _lz4_content(data, size)
    except _FrameError as error:
        found: object = str(error)
    else:
        if len(content) == size:
            return content
        found = f"{len(content)} bytes instead of the stated {size}"
    what = f"not one {codec} frame with its content size"
    raise DamagedFileError(what, expected="exactly one whole frame", found=found)


class _FrameError(ValueError):
    """The reason why the bytes are not exactly one frame."""


def _zstd_content_size(data: bytes) -> int:
    """Return the content size of a frame, after a check that the frame ends with ``data``."""
    # Skippable and legacy frames have other magics. The library would report their content size as 0 or unknown.
    if data[:4] != _ZSTD_MAGIC:
        raise _FrameError(f"magic {data[:4].hex(' ')}")
    try:
        header = zstandard.get_frame_parameters(data)
        at = zstandard.frame_header_size(data)
    except zstandard.ZstdError as error:
        raise _FrameError(str(error)) from error
    if header.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise _FrameError("no content size")
    last = False
    while not last:
        # RFC 8878, 3.1.1.2: 1 bit last block, 2 bits type, 21 bits size; a run (type 1) takes one byte.
        block = int.from_bytes(data[at : at + 3], "little")
        last = bool(block & 1)
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if at > len(data):
            raise _FrameError("the frame is cut short")
    at += 4 if header.has_checksum else 0
    if at != len(data):
        raise _FrameError(f"the frame has {at} bytes, but the data has {len(data)}")
    return int(header.content_size)


def _zstd_content(data: bytes, size: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor()
    try:
        if size == 0:
            # The one-shot call would return b"" without checking the frame.
            return decompressor.stream_reader(data).read(1)
        return decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _FrameError(str(error)) from error


def _lz4_content_size(data: bytes) -> int:
    # LZ4 frame format: magic, FLG (bits 7-6 version 01, bit 3 content size, bit 0 dictionary), BD, content size.
    if data[:4] != _LZ4_MAGIC:
        raise _FrameError(f"magic {data[:4].hex(' ')}")
    if len(data) < 15:
        raise _FrameError("the frame is cut short")
    if not data[4] & 0x08:
        raise _FrameError("no content size")
    size = int.from_bytes(data[6:14], "little")
    # LZ4 yields at most 255 bytes for each byte of input, so a larger size can be refused without allocating it.
    if size > _LZ4_MAX_RATIO * len(data):
        raise _FrameError(f"the content size {size} is impossible for {len(data)} bytes")
    return size


def _lz4_content(data: bytes, size: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        # Room for one byte more than the content: the library reads the end mark only while there is room.
        content: bytes = frame.decompress(data, max_length=size + 1)
    except (RuntimeError, EOFError, MemoryError) as error:
        raise _FrameError(str(error)) from error
    if not frame.eof:
        raise _FrameError("the frame is cut short")
    if frame.unused_data:
        raise _FrameError(f"{len(frame.unused_data)} bytes after the frame")
    return content
