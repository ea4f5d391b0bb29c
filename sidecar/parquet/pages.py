"""The pages of a column chunk: headers one after the other, bodies between them.

A chunk begins at its dictionary page (or its first data page) and has ``total_compressed_size`` bytes.
Each page is a Thrift structure ``PageHeader`` and a body of ``compressed_page_size`` bytes. The walk is
believed only if it ends exactly where the chunk ends; page types that are not known are stepped over.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, WrongChecksumError, located
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.thrift import Struct, TruncatedError, decode_struct
from sidecar.source import Source

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
DICTIONARY_ENCODINGS = (PLAIN_DICTIONARY, RLE_DICTIONARY)


MAX_VALUES = 1 << 28
"""Values of the largest page that is read: a few bytes may state any number of equal values."""

MAX_HEADER = 1 << 20
"""Bytes of the longest page header; statistics of long strings may stand in it."""

HEADER_WINDOW = 16 << 10
"""Bytes read at a time where only headers matter."""

_HEADER_FIELD = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}
_FIRST_HEADER = 256


class PageHeader(NamedTuple):
    """One page: ``offset`` of the header in the file, lengths in bytes, numbers of the specification.

    ``num_values`` counts nulls too. ``def_length`` and ``rep_length`` are those of a DATA_PAGE_V2, the level
    encodings those of a DATA_PAGE. Pages of other types have no values.
    """

    offset: int
    header_length: int
    compressed_size: int
    uncompressed_size: int
    type: int
    num_values: int = 0
    encoding: int = -1
    crc: int | None = None
    def_encoding: int = RLE
    rep_encoding: int = RLE
    def_length: int = 0
    rep_length: int = 0
    is_compressed: bool = True

    @property
    def body(self) -> int:
        """Offset of the body in the file."""
        return self.offset + self.header_length

    @property
    def end(self) -> int:
        """Offset behind the body."""
        return self.body + self.compressed_size

    @property
    def is_data(self) -> bool:
        """Whether the page has values of the column."""
        return self.type in (DATA_PAGE, DATA_PAGE_V2)


class ChunkReader:
    """The bytes of a column chunk, read in windows of at least ``window`` bytes, one kept at a time."""

    def __init__(self, source: Source, chunk: ColumnChunk, window: int) -> None:
        if chunk.encrypted:
            raise UnsupportedFeatureError("the column is encrypted (Parquet modular encryption)")
        if chunk.file_path is not None:
            raise UnsupportedFeatureError("the column chunk names another file (file_path)")
        self.start = chunk.start
        self.end = chunk.start + chunk.total_compressed_size
        without_pages = chunk.num_values == chunk.total_compressed_size == 0  # then any offset will do
        if not (without_pages or 0 < self.start <= self.end <= source.size):
            raise DamagedFileError(
                "the column chunk is outside the file",
                offset=self.start,
                expected=f"at most {source.size} bytes",
                found=f"{chunk.total_compressed_size} bytes from {self.start}",
            )
        self._source = source
        self._window = window
        self._data = b""
        self._at = 0

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes of the chunk from ``offset`` in the file."""
        if offset + length > self.end:
            raise DamagedFileError(
                "a page reaches beyond its column chunk", offset=offset, found=offset + length
            )
        if not (self._at <= offset and offset + length <= self._at + len(self._data)):
            self._data = self._source.read(offset, min(max(length, self._window), self.end - offset))
            self._at = offset
        return self._data[offset - self._at : offset - self._at + length]

    def window(self, offset: int) -> memoryview:
        """The bytes of the chunk that are at hand from ``offset`` in the file; read where there are none."""
        if not self._at <= offset < self._at + len(self._data):
            self.read(offset, min(1, self.end - offset))
        return memoryview(self._data)[offset - self._at :]

    def header(self, offset: int) -> PageHeader:
        """The page header at ``offset``; its body is known to lie inside the chunk."""
        length = min(_FIRST_HEADER, self.end - offset)
        while True:
            try:
                value, used = decode_struct(self.read(offset, length), base=offset)
                break
            except TruncatedError:
                if length >= min(MAX_HEADER, self.end - offset):
                    raise
                length = min(length * 8, MAX_HEADER, self.end - offset)
        try:
            page = _page(value, offset, used)
        except DamagedFileError as error:
            error.offset = offset
            raise
        if page.end > self.end:
            raise DamagedFileError(
                "a page reaches beyond its column chunk", offset=offset, expected=self.end, found=page.end
            )
        return page

    def body(self, page: PageHeader) -> bytes:
        """The body of a page, as stored; its checksum is verified where there is one."""
        data = self.read(page.body, page.compressed_size)
        check_page_body(page, data)
        return data

    def pages(self, start: int | None = None) -> Iterator[PageHeader]:
        """Every page from ``start`` (the chunk's first page unless told otherwise) to the chunk's end."""
        offset = self.start if start is None else start
        while offset < self.end:
            page = self.header(offset)
            yield page
            offset = page.end


def decode_page_header(data: bytes, offset: int) -> PageHeader:
    """The page header that ``data`` begins with; ``offset`` is its place in the file."""
    value, used = decode_struct(data, base=offset)
    return _page(value, offset, used)


def check_page_body(page: PageHeader, data: bytes | memoryview) -> None:
    """Raise :class:`WrongChecksumError` where a page has a checksum and it is not that of its body ``data``."""
    if page.crc is not None and zlib.crc32(data) != page.crc & 0xFFFFFFFF:
        raise WrongChecksumError(
            "the checksum of a page is wrong",
            offset=page.offset,
            expected=page.crc & 0xFFFFFFFF,
            found=zlib.crc32(data),
        )


def _page(value: Struct, offset: int, header_length: int) -> PageHeader:
    kind = value.need_integer(1, "the type of a page")
    sizes = (value.count(3, "compressed_page_size"), value.count(2, "uncompressed_page_size"))
    crc = value.integer(4)
    field_id = _HEADER_FIELD.get(kind)
    if field_id is None:
        return PageHeader(offset, header_length, *sizes, kind, crc=crc)
    detail = value.struct(field_id)
    if detail is None:
        raise DamagedFileError("a page header lacks the part that its type asks for", found=kind)
    num_values = detail.count(1, "num_values")
    if num_values > MAX_VALUES:
        raise UnsupportedFeatureError(
            "a page has too many values", offset=offset, expected=f"at most {MAX_VALUES}", found=num_values
        )
    if kind == DATA_PAGE_V2:
        compressed = detail.boolean(7)
        return PageHeader(
            offset,
            header_length,
            *sizes,
            kind,
            num_values,
            detail.need_integer(4, "encoding"),
            crc,
            def_length=detail.count(5, "definition_levels_byte_length"),
            rep_length=detail.count(6, "repetition_levels_byte_length"),
            is_compressed=compressed is not False,
        )
    encoding = detail.need_integer(2, "encoding")
    levels = (RLE, RLE)
    if kind == DATA_PAGE:
        levels = (detail.need_integer(3, "def encoding"), detail.need_integer(4, "rep encoding"))
    return PageHeader(offset, header_length, *sizes, kind, num_values, encoding, crc, *levels)


def walk_pages(source: Source, chunk: ColumnChunk) -> Iterator[PageHeader]:
    """The headers of a chunk's pages, in order; bodies are skipped over, not read.

    Raises :class:`DamagedFileError` where the headers do not lead exactly to the chunk's end.
    """
    with located(source.name, chunk.leaf.path):
        yield from ChunkReader(source, chunk, HEADER_WINDOW).pages()


def wholly_dictionary(source: Source, chunk: ColumnChunk) -> bool:
    """Whether every data page of the chunk is certainly dictionary-encoded.

    Known from ``encoding_stats``, or from every page header and from their counts adding up to the
    chunk's; the list ``encodings`` proves nothing. A chunk without data pages is not. Reads nothing where
    ``encoding_stats`` tell. Raises :class:`DamagedFileError` if page headers are needed and broken.
    """
    if chunk.leaf.physical == "BOOLEAN" or not chunk.num_values:
        return False
    known = _by_encoding_stats(chunk)
    return _by_page_headers(source, chunk) if known is None else known


def _by_encoding_stats(chunk: ColumnChunk) -> bool | None:
    if chunk.encoding_stats is None:
        return None
    counted = [entry for entry in chunk.encoding_stats if entry.count != 0]
    data = [entry for entry in counted if entry.page_type in (DATA_PAGE, DATA_PAGE_V2)]
    if not all(entry.encoding in DICTIONARY_ENCODINGS for entry in data):
        return False
    if not data or all(entry.page_type != DICTIONARY_PAGE for entry in counted):
        return None
    return True


def _by_page_headers(source: Source, chunk: ColumnChunk) -> bool:
    values = dictionaries = 0
    for number, page in enumerate(walk_pages(source, chunk)):
        if page.type == DICTIONARY_PAGE:
            dictionaries += 1
            if number or dictionaries > 1:
                raise DamagedFileError(
                    "a dictionary page is not the chunk's first page",
                    file=source.name,
                    column=chunk.leaf.path,
                    offset=page.offset,
                )
        elif page.is_data:
            values += page.num_values
            if page.encoding not in DICTIONARY_ENCODINGS:
                return False
    if values != chunk.num_values:
        raise DamagedFileError(
            "the pages of a column chunk have a different number of values than the footer says",
            file=source.name,
            column=chunk.leaf.path,
            expected=chunk.num_values,
            found=values,
        )
    return dictionaries == 1
