"""Reads a Puffin file: the footer in one read, ranges of blobs in as few reads as possible.

The tail of the file (32 KiB, or the footer if that is longer) is read once and kept. Ranges inside it cost no
further read. If the footer's length is not known and exceeds the tail, one more read fetches the rest. A
registered footer length that differs from the file's is damage, because the registration means another
file. The caller then plans without the sidecar.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, located
from sidecar.puffin import codecs
from sidecar.puffin.metadata import BlobMetadata, FileMetadata, decode_metadata, shorten
from sidecar.storage.ranges import read_ranges
from sidecar.storage.source import Source, check_range

MAGIC = b"PFA1"
TRAILER_LENGTH = 12
"""Bytes of payload length, flags and magic at the file's end."""
FRAMING_LENGTH = len(MAGIC) + TRAILER_LENGTH
"""Bytes of a footer besides its payload."""
TAIL_LENGTH = 32 * 1024
FOOTER_LIMIT = 64 * 1024 * 1024
"""The longest payload in bytes that is read, both as stored and decompressed."""
BLOB_LIMIT = 256 * 1024 * 1024
"""The longest blob in bytes that is read as a whole, decompressed."""

_PLAIN = bytes([0, 0, 0, 0])
_COMPRESSED = bytes([1, 0, 0, 0])


@dataclass(frozen=True)
class Trailer:
    """The last 12 bytes of the file, decoded."""

    payload_length: int
    flags: bytes


class PuffinReader:
    """A Puffin file behind a :class:`~sidecar.storage.source.Source`. The constructor reads the footer.

    ``footer_length`` is Iceberg's registered ``file-footer-size-in-bytes``. Raises
    :class:`DamagedFileError` for a foreign, truncated or contradictory file and for a wrong registered length,
    :class:`UnsupportedFeatureError` for reserved flags and for footers longer than ``footer_limit``.

    The magic at the file's start is checked if the tail includes it; otherwise :func:`verify_puffin` checks it.
    """

    def __init__(
        self,
        source: Source,
        *,
        footer_length: int | None = None,
        tail_length: int = TAIL_LENGTH,
        footer_limit: int = FOOTER_LIMIT,
    ) -> None:
        self.source = source
        self.name = source.name
        self.size = source.size
        self.tail = b""
        self.tail_offset = self.size
        with located(self.name):
            self._read_footer(footer_length, tail_length, footer_limit)

    def _read_footer(self, footer_length: int | None, tail_length: int, footer_limit: int) -> None:
        self._read_tail(footer_length, tail_length, footer_limit)
        trailer = decode_trailer(self.tail[-TRAILER_LENGTH:], self.size)
        self.footer_length = trailer.payload_length + FRAMING_LENGTH
        self.footer_offset = self.size - self.footer_length
        self._check_footer_length(footer_length, footer_limit)
        if self.tail_offset > self.footer_offset:
            self.tail = self.source.read(self.footer_offset, self.tail_offset - self.footer_offset) + self.tail
            self.tail_offset = self.footer_offset
        self._check_magic(self.footer_offset, "the footer does not begin with the magic")
        # Flags are checked last: in a truncated file, the four bytes in their place are not flags.
        self.footer_compressed = self._decode_flags(trailer.flags)
        if self.tail_offset == 0:
            self._check_magic(0, "this is not a Puffin file: it does not begin with the magic")
        self.metadata: FileMetadata = self._decode_footer(footer_limit)
        for blob in self.metadata.blobs:
            with self._located(blob):
                self._check_blob(blob)

    def read_blob(self, blob: BlobMetadata, limit: int = BLOB_LIMIT) -> bytes:
        """Return the blob's content, decompressed. Raises :class:`UnsupportedFeatureError` beyond ``limit`` bytes."""
        with self._located(blob):
            return codecs.decompress(blob.compression_codec, self.read_raw(blob, limit), limit)

    def read_raw(self, blob: BlobMetadata, limit: int = BLOB_LIMIT) -> bytes:
        """Return the blob's bytes as stored. Raises :class:`UnsupportedFeatureError` beyond ``limit`` bytes."""
        with self._located(blob):
            self._check_blob(blob)
            if blob.length > limit:
                what = f"the blob {shorten(blob.type)} is larger than the limit"
                raise UnsupportedFeatureError(what, expected=f"at most {limit} bytes", found=blob.length)
            return self.read_at(blob.offset, blob.length)

    def read_range(self, blob: BlobMetadata, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` of a plain blob, see :meth:`read_ranges`."""
        return self.read_ranges(blob, [(offset, length)])[0]

    def read_ranges(self, blob: BlobMetadata, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each ``(offset, length)`` of a plain blob, in the order of ``ranges``.

        Offsets count from the blob's start. Ranges in the tail need no read; near neighbours share one. Raises
        :class:`UsageError` for a compressed blob, :class:`DamagedFileError` for a range outside the blob.
        """
        with self._located(blob):
            if blob.compression_codec is not None:
                raise UsageError(
                    f"the blob {shorten(blob.type)} is compressed, so ranges of it cannot be read",
                    expected="no compression codec",
                    found=shorten(blob.compression_codec),
                )
            self._check_blob(blob)
            for offset, length in ranges:
                if offset < 0 or length < 0 or offset + length > blob.length:
                    raise DamagedFileError(
                        f"a range is outside the blob {shorten(blob.type)}",
                        expected=f"at most {blob.length} bytes",
                        found=f"{length} bytes from {offset}",
                    )
        return self.read_places([(blob.offset + offset, length) for offset, length in ranges])

    def read_places(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each ``(offset, length)`` of the file, like :meth:`read_ranges` for a blob."""
        for place in places:
            check_range(self.name, self.size, *place)
        distant = [place for place in places if place[0] < self.tail_offset and place[1]]
        fetched = dict(zip(distant, read_ranges(self.source, distant), strict=True))
        return [fetched[place] if place in fetched else self._from_tail(*place) for place in places]

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` of the file, from the tail if they are completely inside it."""
        check_range(self.name, self.size, offset, length)
        if offset >= self.tail_offset:
            return self._from_tail(offset, length)
        return self.source.read(offset, length)

    def _from_tail(self, offset: int, length: int) -> bytes:
        # An empty range may begin before the tail, where the slice would be wrong.
        start = offset - self.tail_offset
        return self.tail[start : start + length] if length else b""

    def _read_tail(self, footer_length: int | None, tail_length: int, footer_limit: int) -> None:
        smallest = len(MAGIC) + FRAMING_LENGTH
        if self.size < smallest:
            raise DamagedFileError(
                "the file is too short to be a Puffin file",
                offset=0,
                expected=f"at least {smallest} bytes",
                found=self.size,
            )
        stated = 0 if footer_length is None else footer_length
        # An impossible length is refused here, before it costs a long read. A wrong one is found after the read.
        if footer_length is not None and not FRAMING_LENGTH <= stated <= self.size - len(MAGIC):
            raise self._wrong_footer_length(f"{FRAMING_LENGTH} to {self.size - len(MAGIC)}", stated)
        tail_bytes = max(tail_length, TRAILER_LENGTH, min(stated, footer_limit + FRAMING_LENGTH))
        if self.size - tail_bytes <= tail_bytes // 4:  # the little that is left costs less than a read of its own
            tail_bytes = self.size
        self.tail_offset = self.size - tail_bytes
        self.tail = self.source.read(self.tail_offset, self.size - self.tail_offset)

    def _check_footer_length(self, registered: int | None, limit: int) -> None:
        if self.footer_offset < len(MAGIC):
            raise DamagedFileError(
                "the footer's payload does not fit into the file",
                offset=self.size - TRAILER_LENGTH,
                expected=f"at most {self.size - len(MAGIC) - FRAMING_LENGTH} bytes",
                found=self.footer_length - FRAMING_LENGTH,
            )
        if registered is not None and registered != self.footer_length:
            raise self._wrong_footer_length(str(self.footer_length), registered)
        if self.footer_length - FRAMING_LENGTH > limit:
            raise UnsupportedFeatureError(
                "the footer's payload is larger than the limit",
                offset=self.footer_offset,
                expected=f"at most {limit} bytes",
                found=self.footer_length - FRAMING_LENGTH,
            )

    def _wrong_footer_length(self, expected: str, found: int) -> DamagedFileError:
        return DamagedFileError(
            "the registered footer length does not match the file",
            offset=self.size - TRAILER_LENGTH,
            expected=f"{expected} bytes",
            found=found,
            hint="The statistics entry belongs to another file, or the file was changed. Rebuild the sidecar.",
        )

    def _check_magic(self, offset: int, what: str) -> None:
        found = self.read_at(offset, len(MAGIC))
        if found != MAGIC:
            raise _wrong_magic(what, offset, found)

    def _decode_flags(self, flags: bytes) -> bool:
        if flags not in (_PLAIN, _COMPRESSED):
            raise UnsupportedFeatureError(
                "the footer sets reserved flags",
                offset=self.size - 8,
                expected=f"{_PLAIN.hex(' ')} or {_COMPRESSED.hex(' ')}",
                found=flags.hex(" "),
                hint="The file may have a later version of the format.",
            )
        return flags == _COMPRESSED

    def _decode_footer(self, limit: int) -> FileMetadata:
        offset = self.footer_offset + len(MAGIC)
        payload = self.read_at(offset, self.footer_length - FRAMING_LENGTH)
        codec = codecs.LZ4 if self.footer_compressed else None
        with located(self.name, offset=offset):
            return decode_metadata(codecs.decompress(codec, payload, limit))

    def _located(self, blob: BlobMetadata) -> AbstractContextManager[None]:
        return located(self.name, offset=blob.offset)

    def _check_blob(self, blob: BlobMetadata) -> None:
        if blob.offset < len(MAGIC) or blob.length < 0 or blob.offset + blob.length > self.footer_offset:
            raise DamagedFileError(
                f"the blob {shorten(blob.type)} is outside the file's blobs",
                expected=f"bytes {len(MAGIC)} to {self.footer_offset}",
                found=f"{blob.length} bytes from {blob.offset}",
            )


def decode_trailer(trailer: bytes, size: int) -> Trailer:
    """Decode the last 12 bytes of a file of ``size`` bytes. See :class:`PuffinReader` for the errors."""
    at = size - TRAILER_LENGTH
    if trailer[8:] != MAGIC:
        raise _wrong_magic(
            "this is not a Puffin file, or it is truncated: it does not end with the magic",
            at + 8,
            trailer[8:],
        )
    length = int.from_bytes(trailer[:4], "little", signed=True)
    if length < 0:
        raise DamagedFileError(
            "the footer's payload length is negative",
            offset=at,
            expected="0 or more",
            found=length,
        )
    return Trailer(length, trailer[4:8])


def _wrong_magic(what: str, offset: int, found: bytes) -> DamagedFileError:
    return DamagedFileError(what, offset=offset, expected=MAGIC, found=found)
