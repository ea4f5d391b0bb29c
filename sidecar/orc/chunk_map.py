"""Finds where the compression chunks of a stream begin, and the length of their contents.

The stream is read in windows, and each chunk is decompressed once. A position of a row index names a chunk by its
offset in the stream, so it is right only if a chunk begins there. Without compression, positions are offsets in the
stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.errors import DamagedFileError, located
from sidecar.orc.stripe import Stream
from sidecar.orc.tail import OrcTail
from sidecar.storage.source import Source

_WINDOW = 4 << 20
_HEADER = 3


class ChunkMap:
    """The chunks of a stream: ``sizes[offset]`` is the length in bytes of the content of the chunk at ``offset``."""

    def __init__(self, length: int, sizes: dict[int, int] | None) -> None:
        self.length = length
        self.sizes = sizes
        """``None`` without compression."""

    def misplaced(self, numbers: tuple[int, ...]) -> str:
        """Return the reason why ``numbers``, a position, is wrong; empty if it is in the stream or at its end."""
        if self.sizes is None:
            return "" if numbers[0] <= self.length else f"offset {numbers[0]} in a stream of {self.length} bytes"
        chunk, skip = numbers[0], numbers[1]
        if chunk == self.length:
            return "" if skip == 0 else f"it skips {skip} bytes after the end of the stream"
        size = self.sizes.get(chunk)
        if size is None:
            return f"no chunk begins at offset {chunk}"
        return "" if skip <= size else f"it skips {skip} bytes in a chunk of {size} bytes"


def map_chunks(source: Source, tail: OrcTail, stream: Stream) -> ChunkMap:
    """Read a stream and decompress each chunk to check it. Raises :class:`DamagedFileError`."""
    if tail.compression == "NONE":
        return ChunkMap(stream.length, None)
    sizes: dict[int, int] = {}
    with located(tail.name, tail.columns[stream.column].path, stream.offset):
        for offset, chunk in _chunks(source, stream):
            content = tail.content(chunk, stream.offset + offset)
            sizes[offset] = len(content)
    return ChunkMap(stream.length, sizes)


def _chunks(source: Source, stream: Stream) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each chunk, with its header; only one window of the stream is in memory."""
    at = base = 0
    data = b""
    while at < stream.length:
        needed = at + _HEADER
        if needed <= base + len(data):
            start = at - base
            needed += int.from_bytes(data[start : start + _HEADER], "little") >> 1
        if needed > stream.length:
            raise DamagedFileError(
                "a compression chunk ends after its stream",
                offset=stream.offset + at,
                expected=f"an end at most at {stream.length}",
                found=needed,
            )
        if needed > base + len(data):
            length = min(max(_WINDOW, needed - at), stream.length - at)
            data, base = source.read(stream.offset + at, length), at
            continue
        yield at, data[at - base : needed - base]
        at = needed
