"""Read and write compression chunks, in which ORC files store streams, stripe footers, footer and metadata.

With compression NONE the bytes are stored as they are. Otherwise they are a sequence of chunks: three bytes
``length << 1 | is_original`` in little-endian, then ``length`` bytes. An original chunk is not compressed, because
compression would not make it smaller; both kinds may be mixed. The content of a chunk has at most compressionBlockSize
bytes (a field of the postscript). A message may continue in the next chunk.

ZLIB is raw deflate, without zlib's header; SNAPPY and LZ4 are bare blocks, ZSTD is one frame. LZO is not read.
The postscript itself is never compressed. Specification: orc-v1.md, "Compression".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.block
import pyarrow as pa
import zstandard

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

CODECS = ("NONE", "ZLIB", "SNAPPY", "LZO", "LZ4", "ZSTD", "BROTLI")
"""CompressionKind of the postscript, by number."""

MAX_BLOCK = 1 << 23
"""Largest compressionBlockSize in bytes: the length of a chunk has 23 bits."""

_HEADER = 3
_EXPANSION = 512


def bound(compressed: int, most: int) -> int:
    """Return the limit, in bytes, for the content of a stream of ``compressed`` bytes: at most ``most``.

    No index or footer of a sound file exceeds it.
    """
    return min(most, MAX_BLOCK + _EXPANSION * compressed)


def decompress(
    data: bytes | memoryview,
    codec: str,
    block_size: int,
    *,
    file: str | None = None,
    offset: int = 0,
    limit: int = 64 << 20,
) -> bytes:
    """Return the content of a whole stream.

    ``codec`` is a name of :data:`CODECS`. ``offset`` is the place of ``data`` in its file, for errors. ``limit`` is the
    largest content in bytes. Raises :class:`DamagedFileError`, and :class:`UnsupportedFeatureError` for LZO, an unknown
    codec, and content beyond ``limit``.
    """
    parts = decompress_chunks(data, codec, block_size, file=file, offset=offset, limit=limit)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def decompress_chunks(
    data: bytes | memoryview,
    codec: str,
    block_size: int,
    *,
    file: str | None = None,
    offset: int = 0,
    limit: int = 64 << 20,
) -> list[bytes | memoryview]:
    """Return the content of a stream as a list of chunks; original chunks are not copied. See :func:`decompress`."""
    if codec == "NONE":
        _check_limit(len(data), limit, file, offset)
        return [data]
    parts: list[bytes | memoryview] = []
    total = at = 0
    while at < len(data):
        start = at + _HEADER
        header = int.from_bytes(data[at:start], "little")
        end = start + (header >> 1)
        if end > len(data):
            raise DamagedFileError(
                "a compression chunk ends after its stream",
                file=file,
                offset=offset + at,
                expected=f"at most {max(len(data) - start, 0)} bytes",
                found=header >> 1,
            )
        if header >> 1 > block_size:
            raise DamagedFileError(
                "a compression chunk is longer than the block size",
                file=file,
                offset=offset + at,
                expected=f"at most {block_size} bytes",
                found=header >> 1,
            )
        part = data[start:end] if header & 1 else _chunk(data[start:end], codec, block_size, file, offset + at)
        total += len(part)
        _check_limit(total, limit, file, offset + at)
        parts.append(part)
        at = end
    return parts


def _check_limit(size: int, limit: int, file: str | None, offset: int) -> None:
    if size > limit:
        raise UnsupportedFeatureError(
            "the content of a stream is too large",
            file=file,
            offset=offset,
            expected=f"at most {limit} bytes",
            found=size,
        )


def _chunk(data: bytes | memoryview, codec: str, block_size: int, file: str | None, offset: int) -> bytes:
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise UnsupportedFeatureError("this compression cannot be read", file=file, offset=offset, found=codec)
    try:
        out = function(data, block_size)
    except (
        pa.ArrowException,
        OSError,
        zlib.error,
        lz4.block.LZ4BlockError,
        zstandard.ZstdError,
        ValueError,
    ) as error:
        raise DamagedFileError(
            f"a compression chunk cannot be decompressed ({codec})", file=file, offset=offset
        ) from error
    if len(out) > block_size:
        raise DamagedFileError(
            "the content of a compression chunk is larger than the block size",
            file=file,
            offset=offset,
            expected=f"at most {block_size} bytes",
        )
    return out


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


def _zstd(data: bytes | memoryview, size: int) -> bytes:
    """Decompress a frame. The library allocates the size that the frame states, so the size is checked first."""
    if zstandard.frame_content_size(data) > size:
        raise ValueError("the content is larger than the block size")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)


def _brotli(data: bytes | memoryview, size: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "brotli") as stream:
        return bytes(stream.read(size + 1))


_DECOMPRESS = {"ZLIB": _zlib, "SNAPPY": _snappy, "LZ4": _lz4, "ZSTD": _zstd, "BROTLI": _brotli}


def compress(data: bytes, codec: str, block_size: int) -> bytes:
    """Return ``data`` as compression chunks; a chunk that would not shrink is stored as it is.

    ZLIB has level 2, which gives the same chunks as ORC's own writers. Raises :class:`UnsupportedFeatureError` for an
    unknown codec.
    """
    if codec == "NONE":
        return data
    function = _COMPRESS.get(codec)
    if function is None:
        raise UnsupportedFeatureError("this compression cannot be written", found=codec)
    out = bytearray()
    for at in range(0, len(data), block_size):
        original = data[at : at + block_size]
        packed = function(original)
        smaller = len(packed) < len(original)
        chunk = packed if smaller else original
        out += (len(chunk) << 1 | (not smaller)).to_bytes(_HEADER, "little")
        out += chunk
    return bytes(out)


def _deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(2, zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush()


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "ZLIB": _deflate,
    "SNAPPY": lambda data: pa.Codec("snappy").compress(data, asbytes=True),
    "LZ4": lambda data: lz4.block.compress(data, store_size=False),
    "ZSTD": lambda data: zstandard.ZstdCompressor(level=3).compress(data),
    "BROTLI": lambda data: pa.Codec("brotli").compress(data, asbytes=True),
}
