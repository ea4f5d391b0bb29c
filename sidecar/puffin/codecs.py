"""Puffin's two codecs: exactly one zstd or LZ4 frame, with its content size (spec, "Compression codecs").

Decompression trusts nothing: the content size in the frame's header is checked against a limit before memory is
allocated, and a single byte after the frame is damage. This also refuses a second frame, which other readers drop
silently. Frames written here have a checksum of their content.
"""

from __future__ import annotations

from typing import Any, Protocol

import lz4.frame
import zstandard

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.puffin.metadata import shorten

LZ4 = "lz4"
ZSTD = "zstd"

_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_MAX_RATIO = 255
# The library reads a content size of 0 as "not stated", so this is a complete frame without content: header with
# content size 0 and content checksum, end mark, XXH32 of nothing.
_EMPTY_LZ4_FRAME = bytes.fromhex("04224d18 4c40 0000000000000000 f3 00000000 055dcc02")


class Compressor(Protocol):
    """Compresses pieces into one frame."""

    def compress(self, data: memoryview) -> bytes:
        """Return the compressed bytes that are ready, possibly none."""

    def flush(self) -> bytes:
        """Return the end of the frame."""


def compressor(codec: str, length: int) -> Compressor:
    """Return a compressor of one frame that states ``length`` as content size, in bytes.

    Raises :class:`UsageError` for an unknown codec.
    """
    if codec == ZSTD:
        return _zstd_compressor(length)
    if codec == LZ4:
        return _Lz4Compressor(length)
    raise UsageError("unknown compression codec", expected=f"{ZSTD} or {LZ4}", found=codec)


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


def _zstd_compressor(length: int) -> Compressor:
    made = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True)
    stream: Compressor = made.compressobj(size=length)
    return stream


class _Lz4Compressor:
    def __init__(self, length: int) -> None:
        self._frame: Any = lz4.frame.LZ4FrameCompressor(content_checksum=True)
        self._header: bytes = self._frame.begin(length) if length else _EMPTY_LZ4_FRAME
        self._empty = length == 0

    def compress(self, data: memoryview) -> bytes:
        if self._empty or not data:
            return b""
        header, self._header = self._header, b""
        compressed: bytes = self._frame.compress(data)
        return header + compressed

    def flush(self) -> bytes:
        end: bytes = b"" if self._empty else self._frame.flush()
        return self._header + end


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
