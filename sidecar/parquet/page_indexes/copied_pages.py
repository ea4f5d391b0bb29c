"""Checks the checksums of pages while a file is copied, so that bytes that changed on the way do not become its data.

A copy that comes through this process is read once, front to back, in blocks that end anywhere. This module follows the
pages of the file through these blocks. Pages without a checksum cannot be checked, and neither can page headers. Pages
of encrypted columns have a tag of their own, which their readers check. A chunk whose headers cannot be decoded is
copied as it is, and so are chunks that begin inside of it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, WrongChecksumError
from sidecar.parquet.footer import Footer
from sidecar.parquet.pages import FIRST_HEADER, MAX_HEADER, PageHeader, decode_page_header
from sidecar.parquet.thrift import TruncatedError
from sidecar.storage.source import ObservingSource, Source


class CheckedPages(ObservingSource):
    """Wraps a source, and checks the pages that are read whole, by reads that follow each other.

    ``read`` raises :class:`WrongChecksumError` for a page with a wrong checksum.
    """

    def __init__(self, inner: Source, footer: Footer) -> None:
        super().__init__(inner)
        chunks = [c for group in footer.row_groups for c in group.columns if not c.was_decrypted]
        with_pages = [c for c in chunks if c.total_compressed_size > 0]
        self._chunks = sorted((c.start, c.start + c.total_compressed_size, c.leaf.path) for c in with_pages)
        self._at = 0
        """Offset after the last byte that was seen."""
        self._follow_from = 0
        """Chunks that begin before this offset are not followed."""
        self._chunk: tuple[int, int, str] | None = None
        """Start, end and column of the chunk that the next byte is in, while its pages can be followed."""
        self._header = b""
        """The first bytes of a header that continues in the next block."""
        self._page: PageHeader | None = None
        """The page whose body continues in the next block."""
        self._crc = 0

    def read(self, offset: int, length: int) -> bytes:
        """Check the pages that are read, see :meth:`sidecar.storage.source.Source.read`."""
        data = self.inner.read(offset, length)
        if offset != self._at:
            self._chunk, self._header, self._page = None, b"", None
            self._follow_from = 0
        self._at = offset
        left = memoryview(data)
        while left:
            taken = self._take(left)
            self._at += taken
            left = left[taken:]
        return data

    def _take(self, data: memoryview) -> int:
        """Follow the next bytes; return how many."""
        if self._chunk is not None and self._at >= self._chunk[1]:
            self._chunk = None
        if self._chunk is None:
            self._header = b""
            number = bisect_left(self._chunks, (max(self._at, self._follow_from),))
            if number == len(self._chunks):
                return len(data)
            if self._chunks[number][0] > self._at:
                return min(len(data), self._chunks[number][0] - self._at)
            self._chunk = self._chunks[number]
        return self._take_body(self._page, data) if self._page else self._take_header(self._chunk, data)

    def _take_header(self, chunk: tuple[int, int, str], data: memoryview) -> int:
        known = len(self._header)
        start = self._at - known
        most = min(chunk[1] - start, MAX_HEADER)
        length = max(FIRST_HEADER, known + 1)
        while True:
            text = self._header + bytes(data[: min(length, most) - known])
            try:
                page = decode_page_header(text, start)
                break
            except TruncatedError:
                if len(text) == most:
                    return self._leave_chunk(chunk)
                if len(text) == known + len(data):
                    self._header = text  # it continues in the next block
                    return len(data)
                length *= 8
            except (DamagedFileError, UnsupportedFeatureError):
                return self._leave_chunk(chunk)
        if page.end > chunk[1]:
            return self._leave_chunk(chunk)
        self._header = b""
        if page.compressed_size:
            self._page, self._crc = page, 0
        return page.header_length - known

    def _take_body(self, page: PageHeader, data: memoryview) -> int:
        part = data[: page.end - self._at]
        if page.crc is not None:
            self._crc = zlib.crc32(part, self._crc)
        if self._at + len(part) == page.end:
            self._page = None
            if page.crc is not None and self._crc != page.crc & 0xFFFFFFFF:
                raise WrongChecksumError(
                    "the checksum of a page is wrong",
                    file=self.name,
                    column=None if self._chunk is None else self._chunk[2],
                    offset=page.offset,
                    expected=page.crc & 0xFFFFFFFF,
                    found=self._crc,
                    hint="If verify finds no such page in the file, its bytes changed on their way here: try again.",
                )
        return len(part)

    def _leave_chunk(self, chunk: tuple[int, int, str]) -> int:
        """Follow no more pages of a chunk; none of the next bytes is taken.

        Chunks that overlap it are left too. Otherwise the same bytes could be decoded as headers for any number of
        chunks.
        """
        self._chunk, self._header = None, b""
        self._follow_from = chunk[1]
        return 0
