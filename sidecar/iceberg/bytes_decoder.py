"""Decodes Avro values out of bytes, in Python, for pyiceberg's readers of records.

pyiceberg's compiled decoder reads beyond the end of the buffer, and its Python decoder calls a stream for each byte.
This one indexes the bytes, and ends with an error where they end.

pyiceberg's codecs decompress a block whatever its length, and a small file can say that it is gigabytes.
:class:`BlockReader` makes the same of blocks, so many bytes of each file.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Mapping
from io import BytesIO

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

_CODECS: Mapping[str, type[Codec] | None] = dict[str, type[Codec] | None](KNOWN_CODECS.items())
LEAST_LIMIT = 64 << 20
"""Bytes that the blocks of any file may have together, decompressed."""
MOST_TIMES = 64
"""The most bytes of all blocks together, decompressed, for each byte of the file. Manifests reach ten."""
_LONGEST = 70
"""Bits in the ten bytes that the longest varint has."""


class BytesDecoder(BinaryDecoder):
    """A position in ``data``. Methods are those of pyiceberg's decoders.

    They raise EOFError where the bytes end too early or a length is negative, and ValueError for numbers that no writer
    makes.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._at

    def read(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        start, end = self._at, self._at + n
        if not start <= end <= len(self._data):
            raise EOFError(f"{n} bytes are wanted, {len(self._data) - start} are left")
        self._at = end
        return self._data[start:end]

    def skip(self, n: int) -> None:
        """Go ``n`` bytes on."""
        self.read(n)

    def read_int(self) -> int:
        """Return the next varint in zigzag coding."""
        at = self._at
        if at < len(self._data) and (byte := self._data[at]) < 0x80:  # as most are
            self._at = at + 1
            return (byte >> 1) ^ -(byte & 1)
        return self.read_ints(1)[0]

    def skip_int(self) -> None:
        """Skip the next varint."""
        self.read_int()

    def read_bytes(self) -> bytes:
        """Read a number, and return so many bytes after it."""
        return self.read(self.read_int())

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        """Add the next ``n`` pairs of a number and bytes to ``dest``."""
        for _ in range(n):
            key = self.read_int()
            dest[key] = self.read_bytes()

    def read_ints(self, n: int) -> tuple[int, ...]:
        """Return the next ``n`` varints."""
        data, at, found = self._data, self._at, list[int]()
        try:
            for _ in range(n):
                byte = data[at]
                at += 1
                number = byte & 0x7F
                shift = 7
                while byte & 0x80:
                    if shift == _LONGEST:
                        raise ValueError("a number has more than ten bytes")
                    byte = data[at]
                    at += 1
                    number |= (byte & 0x7F) << shift
                    shift += 7
                found.append((number >> 1) ^ -(number & 1))
        except IndexError:
            raise EOFError("a number goes on after the end") from None
        self._at = at
        return tuple(found)


class BlockReader:
    """Decompresses the blocks of a file of ``length`` bytes, in their order.

    Raises :class:`UnsupportedFeatureError` for an unknown codec.
    """

    def __init__(self, codec: str, length: int) -> None:
        if codec not in _CODECS:
            raise UnsupportedFeatureError(f"pyiceberg does not know the Avro codec '{codec}'")
        self._codec = codec
        self._most = self._left = max(LEAST_LIMIT, MOST_TIMES * length)

    def read(self, block: bytes) -> bytes:
        """Return a block decompressed. Raises :class:`DamagedFileError` beyond the limit, and errors of the codec."""
        found = _decompressed(self._codec, block, self._left)
        self._left -= len(found)
        if self._left < 0:
            raise DamagedFileError("the Avro blocks are too long", expected=f"at most {self._most:,} bytes together")
        return found


def _decompressed(codec: str, block: bytes, most: int) -> bytes:
    """Return a block decompressed; of a block of more than ``most`` bytes, the first ``most`` + 1."""
    if codec == "deflate":
        inflate = zlib.decompressobj(-15)
        found = inflate.decompress(block, most + 1)
        if not inflate.eof and len(found) <= most:
            raise DamagedFileError("a compressed Avro block ends early")
        return found
    if codec == "bzip2":
        return bz2.BZ2File(BytesIO(block)).read(most + 1)
    if codec == "zstandard":
        from zstandard import ZstdDecompressor

        return ZstdDecompressor().stream_reader(BytesIO(block)).read(most + 1)
    if codec == "snappy" and _length_of_snappy(block) > most:
        return bytes(most + 1)
    known = _CODECS[codec]
    return block if known is None else known.decompress(block)


def _length_of_snappy(block: bytes) -> int:
    """Return the length that a snappy block states. The decoder allocates as much before it decodes."""
    length = 0
    for at, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    return length
