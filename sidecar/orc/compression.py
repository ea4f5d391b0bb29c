"""Reads and writes compression chunks, in which ORC files store streams, stripe footers, footer and metadata.

With compression NONE the bytes are stored as they are. Otherwise they are a sequence of chunks: three bytes
``length << 1 | is_original`` in little-endian, then ``length`` bytes. An original chunk is not compressed, because
compression would not make it smaller; both kinds may be mixed. The content of a chunk has at most compressionBlockSize
bytes (a field of the postscript). A message may continue in the next chunk.

ZLIB is raw deflate, without zlib's header; SNAPPY and LZ4 are bare blocks, ZSTD is one frame or several. LZO is not
read.
The postscript itself is never compressed. Specification: orc-v1.md, "Compression".
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import lz4.block
import numpy as np
import pyarrow as pa
import zstandard

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

CODECS = ("NONE", "ZLIB", "SNAPPY", "LZO", "LZ4", "ZSTD", "BROTLI")
"""CompressionKind of the postscript, by number."""

MAX_BLOCK = 1 << 23
"""Largest compressionBlockSize in bytes: the length of a chunk has 23 bits."""

DEFAULT_BLOCK = 1 << 18
"""compressionBlockSize of files that do not say it, as old C++ writers made them."""

JAVA_ZSTD_LEVEL, CPP_ZSTD_LEVEL = 3, 1
"""Levels of ZSTD in ORC's own writers."""

MOST_CONTENT = 64 << 20
"""The most bytes of a stream's content, unless somebody says otherwise."""

CHUNK_HEADER = 3
"""Bytes of the header of a compression chunk."""
_EXPANSION = 512
_ZSTD_FLAGS = 4  # the offset of the flags of a frame
_ZSTD_RUN = 1  # the type of a block that is one byte, any number of times


def bound(compressed: int, most: int) -> int:
    """Return the limit, in bytes, for the content of a stream of ``compressed`` bytes: at most ``most``.

    No index or footer of a sound file exceeds it.
    """
    return min(most, MAX_BLOCK + _EXPANSION * compressed)


def decompress_stream(
    data: bytes | memoryview,
    codec: str,
    block_size: int,
    offset: int = 0,
    limit: int = MOST_CONTENT,
    before: memoryview | bytes = b"",
) -> bytes | memoryview:
    """Return ``before`` and the content of a whole stream, in the memory of ``data`` if that has it all in one piece.

    ``codec`` is a name of :data:`CODECS`. ``offset`` is the place of ``data`` in its file, for errors. ``limit`` is the
    largest content in bytes. Raises :class:`DamagedFileError`, and :class:`UnsupportedFeatureError` for LZO, an unknown
    codec, and content beyond ``limit``.
    """
    if codec == "NONE":
        _check_limit(len(data), limit, offset)
        return b"".join((before, data)) if before else data
    chunks = _chunks_of(data, block_size, offset)
    if codec == "ZSTD" and len(chunks) > 1:
        sizes = _stated_sizes(chunks, block_size)
        if min(sizes) >= 0:
            return _decompress_in_place(before, chunks, sizes, limit)
    parts: list[bytes | memoryview] = [before] if before else []
    total = 0
    for chunk in chunks:
        part = chunk.data if chunk.is_original else _decompressed(chunk, codec, block_size)
        total += len(part)
        _check_limit(total, limit, chunk.offset)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _PackedChunk(NamedTuple):
    """A chunk without its header; ``offset`` is the place of the header in the file."""

    offset: int
    data: memoryview
    is_original: bool


def _chunks_of(data: bytes | memoryview, block_size: int, offset: int) -> list[_PackedChunk]:
    view, chunks = memoryview(data), list[_PackedChunk]()
    at = 0
    while at < len(view):
        start = at + CHUNK_HEADER
        header = int.from_bytes(view[at:start], "little")
        end = start + (header >> 1)
        if end > len(data):
            raise DamagedFileError(
                "a compression chunk ends after its stream",
                offset=offset + at,
                expected=f"at most {max(len(data) - start, 0)} bytes",
                found=header >> 1,
            )
        if header >> 1 > block_size:
            raise DamagedFileError(
                "a compression chunk is longer than the block size",
                offset=offset + at,
                expected=f"at most {block_size} bytes",
                found=header >> 1,
            )
        chunks.append(_PackedChunk(offset + at, view[start:end], bool(header & 1)))
        at = end
    return chunks


def _stated_sizes(chunks: Sequence[_PackedChunk], block_size: int) -> list[int]:
    """Return the bytes of the content of ZSTD chunks, as their frames state; -1 for one that does not, or has more."""
    sizes: list[int] = []
    for chunk in chunks:
        try:
            size = len(chunk.data) if chunk.is_original else _stated_size(chunk.data)
        except _CODEC_ERRORS as error:
            raise _broken("ZSTD", chunk.offset) from error
        if size > block_size:
            raise _too_large(block_size, chunk.offset)
        sizes.append(size)
    return sizes


def _decompress_in_place(
    before: memoryview | bytes, chunks: Sequence[_PackedChunk], sizes: Sequence[int], limit: int
) -> memoryview:
    """Decompress ZSTD chunks to their places after ``before`` in one piece of memory: they need not be joined."""
    total = sum(sizes)
    _check_limit(total, limit, chunks[0].offset)
    at = len(before)
    out = np.empty(at + total, np.uint8).data
    out[:at] = before
    for chunk, size in zip(chunks, sizes, strict=True):
        if chunk.is_original:
            out[at : at + size] = chunk.data
        else:
            try:
                _zstd_into(chunk.data, out[at : at + size])
            except _CODEC_ERRORS as error:
                raise _broken("ZSTD", chunk.offset) from error
        at += size
    return out


def _check_limit(size: int, limit: int, offset: int) -> None:
    if size > limit:
        raise UnsupportedFeatureError(
            "the content of a stream is too large",
            offset=offset,
            expected=f"at most {limit} bytes",
            found=size,
        )


def _decompressed(chunk: _PackedChunk, codec: str, block_size: int) -> bytes:
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise UnsupportedFeatureError("this compression cannot be read", offset=chunk.offset, found=codec)
    try:
        out = function(chunk.data, block_size)
    except _CODEC_ERRORS as error:
        raise _broken(codec, chunk.offset) from error
    if len(out) > block_size:
        raise _too_large(block_size, chunk.offset)
    return out


def _too_large(block_size: int, offset: int) -> DamagedFileError:
    return DamagedFileError(
        "the content of a compression chunk is larger than the block size",
        offset=offset,
        expected=f"at most {block_size} bytes",
    )


_CODEC_ERRORS = (
    pa.ArrowException,
    OSError,
    zlib.error,
    lz4.block.LZ4BlockError,
    zstandard.ZstdError,
    ValueError,
)
"""The errors that codecs raise for damaged bytes. Each caller catches them itself: a context manager for every chunk
would take as long as finding its size."""


def _broken(codec: str, offset: int) -> DamagedFileError:
    return DamagedFileError(f"a compression chunk cannot be decompressed ({codec})", offset=offset)


def _zlib(data: bytes | memoryview, size: int) -> bytes:
    inflate = zlib.decompressobj(wbits=-15)
    out = inflate.decompress(data, size + 1)
    if not inflate.eof and len(out) <= size:
        raise ValueError("the deflate stream ends early")
    return out


def _snappy(data: bytes | memoryview, size: int) -> bytes:
    """Decompress a block. It begins with the size of its content as a varint, which is checked first."""
    stated = shift = 0
    for byte in data[:5]:
        stated |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if stated > size:
        raise ValueError("the content is larger than the block size")
    return pa.Codec("snappy").decompress(data, decompressed_size=stated, asbytes=True)


def _lz4(data: bytes | memoryview, size: int) -> bytes:
    return bytes(lz4.block.decompress(data, uncompressed_size=size))


class _ZstdContexts(threading.local):
    """The contexts of one thread. Making one takes as long as decompressing a part of a chunk."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()

    def compress(self, data: memoryview, level: int) -> bytes:
        """Return ``data`` as one frame."""
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return self.compressors[level].compress(data)


_zstd_contexts = _ZstdContexts()


def _zstd(data: bytes | memoryview, size: int) -> bytes:
    """Decompress frames. The library allocates the size that a frame states, so the size is checked first."""
    if not _is_one_frame(data):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read(size + 1))
    if zstandard.frame_content_size(data) > size:
        raise ValueError("the content is larger than the block size")
    return _zstd_contexts.decompressor.decompress(data, max_output_size=size)


def _stated_size(data: memoryview) -> int:
    return zstandard.frame_content_size(data) if _is_one_frame(data) else -1


def _is_one_frame(data: bytes | memoryview) -> bool:
    """Return whether ZSTD data is one frame and nothing else. The library would not say what it leaves over.

    A frame has a magic, a byte of flags, up to 13 bytes by these, then blocks: each has its type, its size and whether
    it is the last one in three bytes. A checksum may follow.
    """
    if len(data) < _ZSTD_FLAGS + 1 or data[:_ZSTD_FLAGS] != zstandard.FRAME_HEADER:
        return False
    flags = data[_ZSTD_FLAGS]
    is_single, has_checksum = flags >> 5 & 1, flags >> 2 & 1
    at = _ZSTD_FLAGS + 1 + (1 - is_single) + (0, 1, 2, 4)[flags & 3] + (is_single, 2, 4, 8)[flags >> 6]
    while at + 3 <= len(data):
        block = int.from_bytes(data[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == _ZSTD_RUN else block >> 3)
        if block & 1:
            return at + 4 * has_checksum == len(data)
    return False


def _zstd_into(data: bytes | memoryview, out: memoryview) -> None:
    """Decompress a frame that states the size of ``out`` into it."""
    if _zstd_contexts.decompressor.stream_reader(data).readinto(out) != len(out):
        raise ValueError("the frame ends early")


def _brotli(data: bytes | memoryview, size: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "brotli") as stream:
        return bytes(stream.read(size + 1))


_DECOMPRESS = {"ZLIB": _zlib, "SNAPPY": _snappy, "LZ4": _lz4, "ZSTD": _zstd, "BROTLI": _brotli}


def compress(data: bytes, codec: str, block_size: int, *, zstd_level: int = JAVA_ZSTD_LEVEL) -> bytes:
    """Return ``data`` as compression chunks. Parameters and errors are those of :func:`compress_parts`."""
    return b"".join(compress_parts((data,), codec, block_size, zstd_level=zstd_level))


def compress_parts(
    parts: Sequence[bytes | memoryview], codec: str, block_size: int, *, zstd_level: int = JAVA_ZSTD_LEVEL
) -> list[bytes | memoryview]:
    """Return the concatenation of ``parts`` as compression chunks, in parts; what does not shrink stays where it is.

    A chunk that would not shrink is stored as it is. ZLIB has level 2, which gives the same chunks as ORC's own
    writers, and so does ZSTD at the writer's ``zstd_level``. Raises :class:`UnsupportedFeatureError` for an unknown
    codec.
    """
    if codec == "NONE":
        return list(parts)
    function = _COMPRESS.get(codec)
    if function is None:
        raise UnsupportedFeatureError("this compression cannot be written", found=codec)
    out: list[bytes | memoryview] = []
    joined = memoryview(bytearray(min(block_size, sum(map(len, parts)))))
    for pieces in _blocks(parts, block_size):
        size = 0
        for piece in pieces:
            joined[size : size + len(piece)] = piece
            size += len(piece)
        packed = function(joined[:size], zstd_level)
        smaller = len(packed) < size
        chunk = [packed] if smaller else pieces
        out += ((min(len(packed), size) << 1 | (not smaller)).to_bytes(CHUNK_HEADER, "little"), *chunk)
    return out


def _blocks(parts: Sequence[bytes | memoryview], block_size: int) -> Iterator[list[memoryview]]:
    """Yield the concatenation of ``parts`` in blocks, each as its pieces."""
    pieces: list[memoryview] = []
    room = block_size
    for part in parts:
        left = memoryview(part)
        while left:
            pieces.append(left[:room])
            left = left[room:]
            room -= len(pieces[-1])
            if not room:
                yield pieces
                pieces, room = [], block_size
    if pieces:
        yield pieces


def _deflate(data: memoryview, zstd_level: int) -> bytes:
    deflate = zlib.compressobj(2, zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush()


_COMPRESS: dict[str, Callable[[memoryview, int], bytes]] = {
    "ZLIB": _deflate,
    "SNAPPY": lambda data, _: pa.Codec("snappy").compress(data, asbytes=True),
    "LZ4": lambda data, _: lz4.block.compress(data, store_size=False),
    "ZSTD": lambda data, zstd_level: _zstd_contexts.compress(data, zstd_level),
    "BROTLI": lambda data, _: pa.Codec("brotli").compress(data, asbytes=True),
}
