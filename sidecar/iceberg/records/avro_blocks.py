"""Decompresses the blocks of Avro files, so many bytes of each file: a small one can say that it is gigabytes.

pyiceberg's codecs have no limit. The results are theirs.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Mapping
from io import BytesIO

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec

from sidecar.errors import DamagedFileError, UnsupportedFeatureError

_CODECS: Mapping[str, type[Codec] | None] = dict[str, type[Codec] | None](KNOWN_CODECS.items())
LEAST_LIMIT = 64 << 20
"""Bytes that the blocks of any file may have together, decompressed."""
MOST_TIMES = 64
"""How many times as long as the file its blocks may be. Manifests become ten times as long."""


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
    """Return a block decompressed, or the first ``most`` bytes of it and one more."""
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
    """Return the length that a snappy block states, for which memory is taken before anything is read."""
    length = 0
    for at, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    return length
