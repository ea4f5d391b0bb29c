"""Decompresses page bodies to exactly the size that the page header states, or raises an error.

GZIP data may have several members. LZ4 is the deprecated codec number 5: Hadoop frames (two big-endian lengths before
the first block, one before each further block), or a single block without a frame from some writers.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator

import lz4.block
import pyarrow as pa
import zstandard

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

MAX_PAGE = 32 << 20
"""Bytes of a decompressed page body that are always allowed."""

_threads = threading.local()

MAX_RATIO = 8
"""A page larger than :data:`MAX_PAGE` may be this many times as large as its compressed bytes."""


def check_page_size(compressed: int, size: int) -> None:
    """Raise :class:`UnsupportedFeatureError` for a page that is too large to decompress; both sizes are in bytes.

    So the memory for a page is at most :data:`MAX_PAGE`, or a constant times the size of the file.
    """
    most = max(MAX_PAGE, MAX_RATIO * compressed)
    if not 0 <= size <= most:
        raise UnsupportedFeatureError("a page is too large", expected=f"at most {most} bytes", found=size)


def check_codec(codec: str) -> None:
    """Raise :class:`UnsupportedFeatureError` for a codec that is not read: LZO, and unknown ones."""
    if codec not in _FUNCTIONS:
        raise UnsupportedFeatureError("pages of this compression codec are not supported", found=codec)


def decompress(codec: str, data: bytes | memoryview, size: int) -> bytes:
    """Decompress ``data`` to exactly ``size`` bytes.

    Raises :class:`DamagedFileError` if it cannot be decompressed or has a different size, and
    :class:`UnsupportedFeatureError` for an unknown codec and for a page that is too large.
    """
    check_page_size(len(data), size)
    check_codec(codec)
    if size == 0:
        return b""  # writers differ in how they store an empty body
    try:
        out = _FUNCTIONS[codec](data, size)
    except (pa.ArrowException, OSError, zlib.error, lz4.block.LZ4BlockError, ValueError) as error:
        raise DamagedFileError(f"a page cannot be decompressed ({codec})") from error
    if len(out) != size:
        raise DamagedFileError(f"a page has the wrong size ({codec})", expected=size, found=len(out))
    return out


def _plain(data: bytes | memoryview, size: int) -> bytes:
    return bytes(data)


def _snappy(data: bytes | memoryview, size: int) -> bytes:
    """Decompress a Snappy block, which begins with its size as a varint.

    The size is checked here, because Arrow accepts a block that is smaller than the buffer.
    """
    stated = shift = 0
    for byte in data[:5]:
        stated |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if stated != size:
        raise ValueError("the stated size is wrong")
    return pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)


def _zstd(data: bytes | memoryview, size: int) -> bytes:
    """Decompress Zstandard data: one frame that states its size with a context that the thread keeps.

    Making a context takes longer than decompressing a page of dictionary indices. Arrow decides about all other data.
    """
    if getattr(_threads, "zstd", None) is None:
        _threads.zstd = zstandard.ZstdDecompressor()
    try:
        if zstandard.frame_content_size(data) == size:
            out: bytes = _threads.zstd.decompress(data, allow_extra_data=False)
            return out
    except zstandard.ZstdError:  # several frames, or damage
        pass
    return pa.Codec("zstd").decompress(data, decompressed_size=size, asbytes=True)


def _gzip(data: bytes | memoryview, size: int) -> bytes:
    parts: list[bytes] = []
    left = size
    while data and left > 0:
        member = zlib.decompressobj(wbits=47)
        part = member.decompress(data, left + 1)
        if not member.eof:  # cut off, or larger than the page; zlib verifies the checksum of a whole member
            raise ValueError("a member ends early")
        parts.append(part)
        left -= len(part)
        data = member.unused_data
    return b"".join(parts)


def _brotli(data: bytes | memoryview, size: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "brotli") as stream:
        return stream.read(size + 1)


def _lz4_block(data: bytes | memoryview, size: int) -> bytes:
    return bytes(lz4.block.decompress(data, uncompressed_size=size))


def _lz4_hadoop(data: bytes | memoryview, size: int) -> bytes:
    try:
        return _lz4_frames(data, size)
    except (lz4.block.LZ4BlockError, ValueError):
        return _lz4_block(data, size)


def _lz4_frames(data: bytes | memoryview, size: int) -> bytes:
    return b"".join(block for block, _ in _lz4_blocks(data, size))


def _lz4_blocks(data: bytes | memoryview, size: int) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Yield the blocks of Hadoop frames, decompressed and as stored.

    A frame has the size of its content, then blocks, each after its compressed length. Together they have ``size``
    bytes, at most.
    """
    at = done = 0
    while at < len(data):
        end = done + _big_endian(data, at)
        at += 4
        if end > size:
            raise ValueError("more than the page has")
        while done < end:
            length = _big_endian(data, at)
            at += 4 + length
            if at > len(data):
                raise ValueError("a block ends early")
            stored = data[at - length : at]
            block = _lz4_block(stored, end - done)
            if not block:
                raise ValueError("an empty block")
            done += len(block)
            yield block, stored


def one_block_a_frame(data: bytes | memoryview, size: int) -> bytes | None:
    """Return Hadoop frames of LZ4 as frames of one block each; ``None`` if they are so, or are no frames of ``size``.

    ``size`` is that of the content in bytes. Raises :class:`UnsupportedFeatureError` for a page that is too large.
    """
    check_page_size(len(data), size)
    if _has_single_blocks(data, size):
        return None
    frames: list[bytes | memoryview] = []
    done = 0
    try:
        for block, stored in _lz4_blocks(data, size):
            frames += [len(block).to_bytes(4, "big"), len(stored).to_bytes(4, "big"), stored]
            done += len(block)
    except (lz4.block.LZ4BlockError, ValueError):
        return None
    return b"".join(frames) if done == size else None


def _has_single_blocks(data: bytes | memoryview, size: int) -> bool:
    """Return whether the lengths in ``data`` are those of frames of one block each."""
    at = done = 0
    while at + 8 <= len(data):
        done += _big_endian(data, at)
        at += 8 + _big_endian(data, at + 4)
    return (at, done) == (len(data), size)


def _big_endian(data: bytes | memoryview, at: int) -> int:
    if at + 4 > len(data):
        raise ValueError("a length ends early")
    return int.from_bytes(data[at : at + 4], "big")


_FUNCTIONS = {
    "UNCOMPRESSED": _plain,
    "SNAPPY": _snappy,
    "GZIP": _gzip,
    "BROTLI": _brotli,
    "ZSTD": _zstd,
    "LZ4": _lz4_hadoop,
    "LZ4_RAW": _lz4_block,
}
