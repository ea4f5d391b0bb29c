"""Where the compression chunks of a stream begin and how much each holds, read in windows and decompressed once.

Positions of a row index name a chunk by its offset in the stream, so a position is right only if a chunk begins there.
Without compression a stream is like one chunk, and positions are offsets in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.errors import DamagedFileError, located
from sidecar.orc.compression import decompress
from sidecar.orc.stripe import Stream
from sidecar.orc.tail import OrcTail
from sidecar.source import Source

_WINDOW = 4 << 20
_HEADER = 3


class ChunkMap:
    """The chunks of one stream: ``sizes[offset]`` is the content's length of the chunk that begins there."""

    def __init__(self, length: int, sizes: dict[int, int] | None) -> None:
        self.length = length
        self.sizes = sizes
        """``None`` without compression."""

    def misplaced(self, numbers: tuple[int, ...]) -> str:
        """Why a stream's positions point nowhere; empty if they are inside the stream, or at its end."""
        if self.sizes is None:
            return "" if numbers[0] <= self.length else f"offset {numbers[0]} of {self.length} bytes"
        chunk, skip = numbers[0], numbers[1]
        if chunk == self.length:
            return "" if skip == 0 else f"{skip} bytes into the stream's end"
        size = self.sizes.get(chunk)
        if size is None:
            return f"no chunk begins at {chunk}"
        return "" if skip <= size else f"{skip} bytes into a chunk of {size}"


def map_chunks(source: Source, tail: OrcTail, stream: Stream) -> ChunkMap:
    """The chunks of a stream, each decompressed to be checked. Raises :class:`DamagedFileError`."""
    if tail.compression == "NONE":
        return ChunkMap(stream.length, None)
    sizes: dict[int, int] = {}
    with located(tail.name, tail.columns[stream.column].path, stream.offset):
        for offset, chunk in _chunks(source, stream):
            content = decompress(chunk, tail.compression, tail.block_size, offset=stream.offset + offset)
            sizes[offset] = len(content)
    return ChunkMap(stream.length, sizes)


def _chunks(source: Source, stream: Stream) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each chunk, its header included; a window of the stream in memory at a time."""
    at = base = 0
    data = b""
    while at < stream.length:
        needed = at + _HEADER
        if needed <= base + len(data):
            start = at - base
            needed += int.from_bytes(data[start : start + _HEADER], "little") >> 1
        if needed > stream.length:
            raise DamagedFileError(
                "a compression chunk goes on behind its stream",
                offset=stream.offset + at,
                expected=stream.length,
            )
        if needed > base + len(data):
            length = min(max(_WINDOW, needed - at), stream.length - at)
            data, base = source.read(stream.offset + at, length), at
            continue
        yield at, data[at - base : needed - base]
        at = needed
