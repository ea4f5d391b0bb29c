"""Reads the pages of a column chunk: their headers one after the other, and their bodies.

A chunk begins at its dictionary page, or at its first data page, and has ``total_compressed_size`` bytes. Each page is
a Thrift structure ``PageHeader`` and a body of ``compressed_page_size`` bytes. The last page must end exactly where the
chunk ends, unless the file's writer is not believed about the size. Pages of unknown types are skipped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, WrongChecksumError, located
from sidecar.filters.leaf import Leaf
from sidecar.parquet.compression import one_block_a_frame
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.thrift import I32, Struct, TruncatedError, decode_struct, encode_struct
from sidecar.storage.source import Source

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
DICTIONARY_ENCODINGS = (PLAIN_DICTIONARY, RLE_DICTIONARY)


MAX_VALUES = 1 << 28
"""Values of a page, at most. A limit is needed because a few bytes can encode any number of equal values."""

MAX_HEADER = 1 << 20
"""Bytes of a page header, at most. It may have statistics with long strings."""

HEADER_WINDOW = 16 << 10
"""Bytes of one read if only headers are needed."""

_HEADER_FIELD = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}
FIRST_HEADER = 256
"""Bytes that are read for a header first. Nearly all are shorter."""


class PageHeader(NamedTuple):
    """The header of a page. ``offset`` is its place in the file, lengths are bytes, types and encodings are the spec's.

    ``num_values`` includes nulls. Only a DATA_PAGE_V2 has ``def_length`` and ``rep_length``, only a DATA_PAGE the level
    encodings. Pages that are neither data nor dictionary have no values.
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
        """Offset after the body."""
        return self.body + self.compressed_size

    @property
    def is_data(self) -> bool:
        """Whether the page is a data page."""
        return self.type in (DATA_PAGE, DATA_PAGE_V2)


class ChunkReader:
    """Reads a column chunk in windows of at least ``window`` bytes, and keeps one window in memory."""

    def __init__(self, source: Source, chunk: ColumnChunk, window: int) -> None:
        if chunk.file_path is not None:
            raise UnsupportedFeatureError("the column chunk is in another file (file_path)")
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
        self._values = chunk.num_values if chunk.may_end_early else None
        self._source = source
        self._window = window
        self._data = b""
        self._at = 0

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of the chunk from ``offset`` in the file.

        Raises :class:`DamagedFileError` beyond the chunk's end.
        """
        return bytes(self._view(offset, length))

    def _view(self, offset: int, length: int) -> memoryview:
        if offset + length > self.end:
            raise DamagedFileError("a page reaches beyond its column chunk", offset=offset, found=offset + length)
        if not (self._at <= offset and offset + length <= self._at + len(self._data)):
            self._data = self._source.read(offset, min(max(length, self._window), self.end - offset))
            self._at = offset
        return memoryview(self._data)[offset - self._at : offset - self._at + length]

    def window(self, offset: int) -> memoryview:
        """Return the bytes in memory from ``offset`` in the file on. Reads a new window if there are none."""
        if not self._at <= offset < self._at + len(self._data):
            self._view(offset, min(1, self.end - offset))
        return memoryview(self._data)[offset - self._at :]

    def header(self, offset: int) -> PageHeader:
        """Return the page header at ``offset`` in the file. Raises :class:`DamagedFileError` if it is broken.

        The body of the page is inside the chunk.
        """
        length = min(FIRST_HEADER, self.end - offset)
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

    def body(self, page: PageHeader) -> memoryview:
        """Return the body of a page, as stored. Raises :class:`WrongChecksumError` if it has a wrong checksum."""
        data = self._view(page.body, page.compressed_size)
        check_page_body(page, data)
        return data

    def pages(self, start: int | None = None) -> Iterator[PageHeader]:
        """Yield every page from ``start`` (an offset in the file; the chunk's first page by default) to the end."""
        offset, values = self.start if start is None else start, 0
        while offset < self.end and (self._values is None or values < self._values):
            page = self.header(offset)
            yield page
            offset = page.end
            values += page.num_values if page.is_data else 0


def decode_page_header(data: bytes, offset: int) -> PageHeader:
    """Decode the page header that ``data`` begins with; ``offset`` is its place in the file."""
    value, used = decode_struct(data, base=offset)
    return _page(value, offset, used)


def check_page_body(page: PageHeader, data: bytes | memoryview) -> None:
    """Raise :class:`WrongChecksumError` if a page has a checksum that differs from that of its body ``data``."""
    if page.crc is not None and zlib.crc32(data) != page.crc & 0xFFFFFFFF:
        raise WrongChecksumError(
            "the checksum of a page is wrong",
            offset=page.offset,
            expected=page.crc & 0xFFFFFFFF,
            found=zlib.crc32(data),
        )


def check_dictionary_size(page: PageHeader, leaf: Leaf) -> None:
    """Raise :class:`DamagedFileError` if a dictionary page is too short for its values, before room is made for them.

    ``leaf`` is the page's column.
    """
    smallest = leaf.width or 4
    if page.num_values * smallest > page.uncompressed_size:
        raise DamagedFileError(
            "a dictionary page is too short for its values",
            offset=page.offset,
            expected=f"{page.num_values} values of at least {smallest} bytes",
            found=f"{page.uncompressed_size} bytes",
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
        raise DamagedFileError("a page header lacks the structure for its page type", found=kind)
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


def ends_at_data(chunk: ColumnChunk, dictionary: PageHeader) -> bool:
    """Return whether a dictionary page ends where the footer lets the data pages begin, if it says where.

    Else the footer may name the dictionary of another column.
    """
    return chunk.data_page_offset <= chunk.start or dictionary.end == chunk.data_page_offset


def check_dictionary_place(chunk: ColumnChunk, dictionary: PageHeader) -> None:
    """Raise :class:`DamagedFileError` unless a dictionary page :func:`ends_at_data`."""
    if not ends_at_data(chunk, dictionary):
        raise DamagedFileError(
            "the dictionary page does not end where the data pages begin",
            offset=dictionary.offset,
            expected=chunk.data_page_offset,
            found=dictionary.end,
        )


def has_bit_packed_levels(leaf: Leaf, page: PageHeader) -> bool:
    """Return whether a page of ``leaf`` has BIT_PACKED levels. Writers also name this encoding for levels of 0 bits."""
    if page.type != DATA_PAGE or not page.num_values:
        return False
    definitions = leaf.max_def > 0 and page.def_encoding == BIT_PACKED
    return definitions or (leaf.max_rep > 0 and page.rep_encoding == BIT_PACKED)


def with_single_blocks(chunk: ColumnChunk, page: PageHeader, raw: bytes | memoryview) -> bytes | memoryview:
    """Return a page of ``chunk``, header included, whose Hadoop frames of LZ4 have one block each, as pyarrow reads
    them; ``raw`` itself if that is so already. The blocks are copied.
    """
    if chunk.codec != "LZ4" or not page.is_compressed:
        return raw
    levels = page.def_length + page.rep_length  # those of a DATA_PAGE_V2 are not compressed
    stored = memoryview(raw)[page.header_length : page.header_length + page.compressed_size]
    frames = one_block_a_frame(stored[levels:], page.uncompressed_size - levels)
    if frames is None:
        return raw
    header, _ = decode_struct(bytes(raw[: page.header_length]))
    header.fields.pop(4, None)  # the checksum was verified when the page was read
    header.fields[3] = (I32, levels + len(frames))
    return b"".join((encode_struct(header), stored[:levels], frames))


def walk_pages(source: Source, chunk: ColumnChunk) -> Iterator[PageHeader]:
    """Yield the headers of a chunk's pages, in order. Checksums of bodies are not verified.

    Raises :class:`DamagedFileError` if a header is broken or the last page does not end where the chunk ends.
    """
    with located(source.name, chunk.leaf.path):
        yield from ChunkReader(source, chunk, HEADER_WINDOW).pages()


def wholly_dictionary(source: Source, chunk: ColumnChunk) -> bool:
    """Return whether every data page of the chunk is certainly dictionary-encoded; false if there are no data pages.

    ``encoding_stats`` decide without a read. If they are missing, every page header is read, and the values must add
    up to the chunk's. The list ``encodings`` proves nothing. Raises :class:`DamagedFileError` for broken page headers.
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
