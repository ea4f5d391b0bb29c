"""Decrypts the pages of a column chunk; a plain page takes as many bytes as the encrypted page, at the same offset.

An encrypted page is two modules, header and body. The plain page is the header, padded by the bytes that decryption
removes, and the plain body. The plain header has the length of the plain body. It has no checksum, because the
checksum in the file covers the encrypted body; it is verified before decryption. parquet-java leaves the levels of v2
data pages unencrypted before the encrypted values. Other writers encrypt the whole body, as the specification says.

The offset index says where pages begin, if it covers every byte of the chunk. Else the headers are read one after the
other, as far as needed. Either way a page can only be decrypted as the page with its own number.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

from sidecar.errors import DamagedFileError, SidecarError, StorageError, WrongChecksumError, located
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, Module
from sidecar.parquet.encrypted.units import EncryptedChunk, EncryptedUnit
from sidecar.parquet.page_indexes.page_index import OffsetIndex, decode_offset_index
from sidecar.parquet.pages import DICTIONARY_PAGE, HEADER_WINDOW
from sidecar.parquet.thrift import I32, Struct, decode_struct, encode_padded
from sidecar.storage.source import Source, check_range

_COMPRESSED_SIZE, _CRC, _DATA_PAGE_V2 = 3, 4, 8  # fields of PageHeader
_DEFINITION_BYTES, _REPETITION_BYTES = 5, 6  # of DataPageHeaderV2


class _EncryptedPage(NamedTuple):
    """An encrypted page from ``start`` to ``end``. ``number`` counts data pages; ``None`` for the dictionary page."""

    start: int
    end: int
    number: int | None


class EncryptedPages:
    """Pages of an encrypted column chunk. ``read_index`` takes (offset, length) and reads the plain offset index."""

    def __init__(
        self,
        column: EncryptedChunk,
        source: Source,
        read_index: Callable[[int, int], bytes],
        start: int,
        end: int,
    ) -> None:
        self.column = column
        self.source = source
        self.start, self.end = start, end
        self._read_index = read_index
        self._walked: list[EncryptedUnit] = []
        self._walk = self._by_walking(source)
        self._lock = threading.Lock()

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """Return at least the units that overlap ``[start, end)``, in order: one a page, found when they are read.

        It is one unit in all if the whole chunk is read and there is no usable offset index. Bytes between units are
        not encrypted. Raises :class:`DamagedFileError`.
        """
        if self._indexed is not None:
            return self._indexed
        if start <= self.start and self.end <= end:
            return [EncryptedUnit(self.start, self.end, self.column.path, self._open_all)]
        with self._lock:
            while not self._walked or self._walked[-1].end < min(end, self.end):
                self._walked.append(self._unit(self._next_page()))
            return self._walked[:]

    def _next_page(self) -> _EncryptedPage:
        """Return the next page. After an error the walk starts over, so the next call raises the same error."""
        try:
            return next(self._walk)
        except SidecarError:
            self._walked, self._walk = [], self._by_walking(self.source)
            raise

    @cached_property
    def _indexed(self) -> list[EncryptedUnit] | None:
        pages = self._by_offset_index()
        return None if pages is None else [self._unit(page) for page in pages]

    def _unit(self, page: _EncryptedPage) -> EncryptedUnit:
        return EncryptedUnit(page.start, page.end, self.column.path, partial(self._open, page.number))

    def _open_all(self, raw: memoryview) -> bytes:
        parts: list[bytes] = []
        for page in self._by_walking(_PagePart(self.source.name, raw, self.start)):
            with located(self.source.name, self.column.path, page.start):
                parts.append(self._open(page.number, raw[page.start - self.start : page.end - self.start]))
        return b"".join(parts)

    @property
    def _has_dictionary(self) -> bool:
        return self.column.chunk.start == self.column.chunk.dictionary_page_offset

    def _by_offset_index(self) -> list[_EncryptedPage] | None:
        """Return the pages by the offset index; ``None`` if it is missing, broken or does not cover the chunk."""
        chunk = self.column.chunk
        if not chunk.offset_index_offset or not chunk.offset_index_length:
            return None
        try:
            index = decode_offset_index(self._read_index(chunk.offset_index_offset, chunk.offset_index_length))
        except StorageError:
            raise
        except SidecarError:
            return None  # a reader of the index itself gets the error
        return self._pages_of(index)

    def _pages_of(self, index: OffsetIndex) -> list[_EncryptedPage] | None:
        starts = index.offsets.tolist()
        ends = (index.offsets + index.compressed_page_sizes).tolist()
        if not starts or starts[0] < self.start or [*starts[1:], self.end] != ends:
            return None
        if (starts[0] > self.start) != self._has_dictionary:
            return None
        pages = [_EncryptedPage(*place, number) for number, place in enumerate(zip(starts, ends, strict=True))]
        return [_EncryptedPage(self.start, starts[0], None), *pages] if self._has_dictionary else pages

    def _by_walking(self, source: Source) -> Iterator[_EncryptedPage]:
        """Yield the pages by reading one header after the other."""
        at, number = self.start, -1 if self._has_dictionary else 0
        window = _ReadWindow(source, self.end)
        while at < self.end:
            start, page = at, None if number < 0 else number
            with located(self.source.name, self.column.path, at):
                at += self._length_of_page(window, at, page)
            yield _EncryptedPage(start, at, page)
            number += 1

    def _length_of_page(self, window: _ReadWindow, at: int, number: int | None) -> int:
        """Return the bytes of the page at ``at``: from its header, else from the length prefixes of its modules.

        The prefixes are not authenticated. They are used only if the header cannot be decrypted, so that a damaged
        header costs one page, not all pages after it.
        """
        of_header, of_body = _modules(number)
        encryption, room = self.column.encryption, self.end - at
        split = encryption.module_length(of_header, window.read(at, LENGTH_BYTES), room)
        try:
            encrypted = window.read(at, split)
            header, _ = decode_struct(self.column.open(encrypted, of_header, number or 0))
        except StorageError:
            raise
        except SidecarError:
            prefix = window.read(at + split, LENGTH_BYTES)
            return split + encryption.module_length(of_body, prefix, room - split)
        length = header.count(_COMPRESSED_SIZE, "compressed_page_size")
        if length > room - split:
            raise DamagedFileError("a page reaches beyond its column chunk", expected=room - split, found=length)
        return split + length

    def _open(self, number: int | None, raw: memoryview) -> bytes:
        """Return the plain page. Its authenticated header states the type and the length of the body."""
        of_header, of_body = _modules(number)
        encryption = self.column.encryption
        split = encryption.module_length(of_header, raw, len(raw))
        header, _ = decode_struct(self.column.open(raw[:split], of_header, number or 0))
        body = raw[split:]
        _check_header(header, number, body)
        levels = _clear_levels(header, body)
        plain = bytes(body[:levels]) + self.column.open(body[levels:], of_body, number or 0)
        header.fields[_COMPRESSED_SIZE] = (I32, len(plain))
        header.fields.pop(_CRC, None)
        return encode_padded(header, split + encryption.overhead(of_body)) + plain


Region = EncryptedUnit | EncryptedPages
"""A range of the file with units."""


def _clear_levels(header: Struct, body: memoryview) -> int:
    """Return the bytes of plain levels before the encrypted values of a page; 0 if the whole body is encrypted."""
    version_2 = header.struct(_DATA_PAGE_V2)
    if version_2 is None or LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little") == len(body):
        return 0
    levels = version_2.count(_DEFINITION_BYTES, "a length of levels")
    levels += version_2.count(_REPETITION_BYTES, "a length of levels")
    return levels if levels <= len(body) else 0


def _modules(number: int | None) -> tuple[Module, Module]:
    if number is None:
        return Module.DICTIONARY_PAGE_HEADER, Module.DICTIONARY_PAGE
    return Module.DATA_PAGE_HEADER, Module.DATA_PAGE


def _check_header(header: Struct, number: int | None, body: memoryview) -> None:
    if (header.integer(1) == DICTIONARY_PAGE) != (number is None):
        raise DamagedFileError("the type of a page header differs from its module", found=header.integer(1))
    size = header.count(_COMPRESSED_SIZE, "compressed_page_size")
    if size != len(body):
        raise DamagedFileError(
            "the length of a page's encrypted body differs from its header",
            expected=size,
            found=len(body),
        )
    crc = header.integer(_CRC)
    if crc is not None and zlib.crc32(body) != crc & 0xFFFFFFFF:
        raise WrongChecksumError("the checksum of a page is wrong", expected=crc & 0xFFFFFFFF, found=zlib.crc32(body))


class _PagePart:
    """A source that has only the bytes from ``start`` on."""

    def __init__(self, name: str, data: memoryview, start: int) -> None:
        self.name, self._data, self._start = name, data, start

    @property
    def size(self) -> int:
        """Offset after the last byte."""
        return self._start + len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        check_range(self.name, self.size, offset, length)
        return bytes(self._data[offset - self._start : offset - self._start + length])

    def close(self) -> None:
        """Do nothing, because no file is open."""


class _ReadWindow:
    """Serves small reads at ascending offsets from larger reads."""

    def __init__(self, source: Source, end: int) -> None:
        self._source, self._end = source, end
        self._at, self._data = 0, b""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer at the end."""
        if not (self._at <= offset and offset + length <= self._at + len(self._data)):
            self._at = offset
            self._data = self._source.read(offset, min(max(HEADER_WINDOW, length), self._end - offset))
        return self._data[offset - self._at : offset - self._at + length]
