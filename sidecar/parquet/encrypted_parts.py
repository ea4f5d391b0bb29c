"""What is encrypted in a file's body, piece by piece, and what stands in its place in the plaintext view.

A *unit* is a range of bytes that is decrypted as one and becomes plaintext of the same length, so that no offset and
no length elsewhere in the file changes. Encryption leaves room for that, a Thrift structure is drawn out with a field
that every reader skips:

| unit | modules | in their place |
| --- | --- | --- |
| page | header, body | header, drawn out by what the body lost; body |
| page index | ColumnIndex or OffsetIndex | the structure, drawn out |
| filter | header, bitset | header, drawn out by what the bitset lost; bitset |

parquet-java leaves the levels of data pages v2 in clear, in front of the encrypted values; others encrypt the whole
body, as the specification has it.

The header of a page then states the length of the plain body, and no checksum: that is of the encrypted body,
where it is compared. Where the pages of a chunk begin is known from its offset index if that accounts for every byte
of the chunk, else from one header after the other. Either way a page only opens as the page with its number.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from sidecar.errors import DamagedFileError, SidecarError, StorageError, located
from sidecar.parquet.bloom import MAX_BYTES, MAX_HEADER, MIN_BYTES, check_num_bytes, header_doubt
from sidecar.parquet.encryption import LENGTH_BYTES, FileEncryption, Module
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.page_index import MAX_INDEX, OffsetIndex, decode_offset_index
from sidecar.parquet.pages import DICTIONARY_PAGE, HEADER_WINDOW, WRONG_CHECKSUM
from sidecar.parquet.thrift import I32, Struct, decode_struct, encode_padded
from sidecar.source import Source

_COMPRESSED_SIZE, _CRC, _DATA_PAGE_V2 = 3, 4, 8  # fields of PageHeader
_DEFINITION_BYTES, _REPETITION_BYTES = 5, 6  # of DataPageHeaderV2

IN_CLEAR = (
    "the Bloom filter of an encrypted column stands in clear: whoever has the file can ask it for values"
)

Opener = Callable[[memoryview], bytes]


class Unit(NamedTuple):
    """Bytes of the file that are decrypted together; ``open`` gives as many in clear."""

    start: int
    end: int
    column: str
    open: Opener


class Region(Protocol):
    """A range of the file whose units are found when it is read."""

    @property
    def start(self) -> int:
        """Where it begins."""

    @property
    def end(self) -> int:
        """Where it ends."""

    def units(self) -> list[Unit]:
        """All units in their order, gaps between them are in clear. Raises :class:`DamagedFileError`."""


@dataclass(frozen=True)
class Refused:
    """A range that cannot be decrypted, because what says so contradicts itself."""

    start: int
    end: int
    column: str
    why: str

    def units(self) -> list[Unit]:
        """One that raises."""
        return [Unit(self.start, self.end, self.column, self._open)]

    def _open(self, raw: memoryview) -> bytes:
        raise DamagedFileError(self.why)


class Column(NamedTuple):
    """A column chunk with what opens its modules."""

    chunk: ColumnChunk
    encryption: FileEncryption
    key: bytes

    @property
    def path(self) -> str:
        """The column's dotted path."""
        return self.chunk.leaf.path

    def open(self, data: bytes | memoryview, module: Module, page: int = 0) -> bytes:
        """What is in a module of this chunk."""
        place = (self.chunk.row_group, self.chunk.leaf.index, page)
        return self.encryption.open_module(self.key, data, module, *place)


def regions_of(
    column: Column, source: Source, read_index: Callable[[int, int], bytes], end: int
) -> Iterator[Region]:
    """What of a column chunk is encrypted, checked against the ``end`` of the file's body.

    ``read_index`` reads the plaintext view, for the offset index that tells where pages are.
    """
    chunk = column.chunk
    ranges: list[tuple[int | None, int | None, int, Callable[[int, int], Region]]] = [
        (chunk.start, chunk.total_compressed_size, end, partial(Pages, column, source, read_index)),
        (*_column_index(chunk), MAX_INDEX, partial(Index, column, Module.COLUMN_INDEX)),
        (*_offset_index(chunk), MAX_INDEX, partial(Index, column, Module.OFFSET_INDEX)),
    ]
    for offset, length, most, region in ranges:
        if offset and length:
            yield _checked(chunk, offset, length, most, end, region)
    if chunk.bloom_filter_offset:
        at, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        if length is None:
            length = _filter_length(column, source, at, end)
        most = MAX_BYTES + MAX_HEADER
        yield _checked(chunk, at, length, most, end, partial(Filter, column))


def _checked(
    chunk: ColumnChunk,
    offset: int,
    length: int,
    most: int,
    end: int,
    region: Callable[[int, int], Region],
) -> Region:
    if offset < LENGTH_BYTES or length < 0 or offset + length > end or length > most:
        start = min(max(offset, LENGTH_BYTES), end)
        stop = min(max(offset + length, start), end)
        return Refused(
            start, stop, chunk.leaf.path, "an encrypted part of the column lies outside the file's body"
        )
    return region(offset, offset + length)


def _column_index(chunk: ColumnChunk) -> tuple[int | None, int | None]:
    return chunk.column_index_offset, chunk.column_index_length


def _offset_index(chunk: ColumnChunk) -> tuple[int | None, int | None]:
    return chunk.offset_index_offset, chunk.offset_index_length


@dataclass(frozen=True)
class Index:
    """A ColumnIndex or OffsetIndex."""

    column: Column
    module: Module
    start: int
    end: int

    def units(self) -> list[Unit]:
        """The one that it is."""
        return [Unit(self.start, self.end, self.column.path, self._open)]

    def _open(self, raw: memoryview) -> bytes:
        tree, _ = decode_struct(self.column.open(raw, self.module))
        return encode_padded(tree, len(raw))


@dataclass(frozen=True)
class Filter:
    """A Bloom filter, header and bitset."""

    column: Column
    start: int
    end: int

    def units(self) -> list[Unit]:
        """The one that it is."""
        return [Unit(self.start, self.end, self.column.path, self._open)]

    def _open(self, raw: memoryview) -> bytes:
        try:
            return self._decrypted(raw)
        except SidecarError as error:
            if _is_plain_filter(raw):
                raise DamagedFileError(IN_CLEAR) from error
            raise

    def _decrypted(self, raw: memoryview) -> bytes:
        """The filter, and whatever follows it in a range that is longer, as it is."""
        encryption = self.column.encryption
        split = encryption.module_length(Module.BLOOM_FILTER_HEADER, raw, len(raw))
        header, _ = decode_struct(self.column.open(raw[:split], Module.BLOOM_FILTER_HEADER))
        length = encryption.module_length(Module.BLOOM_FILTER_BITSET, raw[split:], len(raw) - split)
        bits = self.column.open(raw[split : split + length], Module.BLOOM_FILTER_BITSET)
        if check_num_bytes(header) != len(bits):
            raise DamagedFileError(
                "the filter's numBytes is not the length of its bitset",
                expected=len(bits),
                found=header.integer(1),
            )
        return encode_padded(header, split + length - len(bits)) + bits + bytes(raw[split + length :])


def _filter_length(column: Column, source: Source, start: int, end: int) -> int:
    """Bytes of a filter whose length is not stated: those of its two modules, or of what is left without sense."""
    at = start
    try:
        for module in (Module.BLOOM_FILTER_HEADER, Module.BLOOM_FILTER_BITSET):
            prefix = source.read(at, min(LENGTH_BYTES, max(end - at, 0)))
            at += column.encryption.module_length(module, prefix, end - at)
    except DamagedFileError:
        return min(MAX_HEADER, max(end - start, 0))
    return at - start


def stands_in_clear(source: Source, chunk: ColumnChunk) -> bool:
    """Whether a column chunk that is encrypted in the file of ``source`` has a Bloom filter that is not."""
    offset = chunk.bloom_filter_offset or 0
    length = min(chunk.bloom_filter_length or MAX_HEADER, source.size - offset)
    if not offset or offset < 0 or not 0 < length <= MAX_BYTES + MAX_HEADER:
        return False
    return _is_plain_filter(memoryview(source.read(offset, length)))


def _is_plain_filter(raw: memoryview) -> bool:
    try:
        header, used = decode_struct(bytes(raw[:MAX_HEADER]))
        return not header_doubt(header) and MIN_BYTES <= check_num_bytes(header) <= len(raw) - used
    except DamagedFileError:
        return False


class _Page(NamedTuple):
    """A page: the two modules from ``start`` to ``end``; ``number`` is ``None`` of the dictionary page."""

    start: int
    end: int
    number: int | None


@dataclass(frozen=True)
class Pages:
    """The pages of a column chunk."""

    column: Column
    source: Source
    read_index: Callable[[int, int], bytes]
    start: int
    end: int

    def units(self) -> list[Unit]:
        """One a page."""
        return self._units

    @cached_property
    def _units(self) -> list[Unit]:
        pages = self._by_offset_index() or list(self._by_walking())
        path = self.column.path
        return [Unit(page.start, page.end, path, partial(self._open, page.number)) for page in pages]

    @property
    def _has_dictionary(self) -> bool:
        return self.column.chunk.start == self.column.chunk.dictionary_page_offset

    def _by_offset_index(self) -> list[_Page] | None:
        """``None`` where there is no offset index, or none that accounts for every byte of the chunk."""
        offset, length = _offset_index(self.column.chunk)
        if not offset or not length or self.column.chunk.file_path is not None:
            return None
        try:
            index = decode_offset_index(self.read_index(offset, length))
        except StorageError:
            raise
        except SidecarError:
            return None  # whoever reads the index itself is told
        return self._pages_of(index)

    def _pages_of(self, index: OffsetIndex) -> list[_Page] | None:
        starts = index.offsets.tolist()
        ends = (index.offsets + index.compressed_page_sizes).tolist()
        if not starts or starts[0] < self.start or [*starts[1:], self.end] != ends:
            return None
        if (starts[0] > self.start) != self._has_dictionary:
            return None
        pages = [_Page(*place, number) for number, place in enumerate(zip(starts, ends, strict=True))]
        return [_Page(self.start, starts[0], None), *pages] if self._has_dictionary else pages

    def _by_walking(self) -> Iterator[_Page]:
        """From header to header."""
        at, number = self.start, -1 if self._has_dictionary else 0
        window = _Window(self.source, self.end)
        while at < self.end:
            start, page = at, None if number < 0 else number
            with located(self.source.name, self.column.path, at):
                at += self._length_of_page(window, at, page)
            yield _Page(start, at, page)
            number += 1

    def _length_of_page(self, window: _Window, at: int, number: int | None) -> int:
        """By its header; by the lengths of its modules where that does not authenticate, to lose one page alone."""
        of_header, of_body = _modules(number)
        encryption, room = self.column.encryption, self.end - at
        split = encryption.module_length(of_header, window.read(at, LENGTH_BYTES), room)
        try:
            sealed = window.read(at, split)
            header, _ = decode_struct(self.column.open(sealed, of_header, number or 0))
        except StorageError:
            raise
        except SidecarError:
            prefix = window.read(at + split, LENGTH_BYTES)
            return split + encryption.module_length(of_body, prefix, room - split)
        length = header.count(_COMPRESSED_SIZE, "compressed_page_size")
        if length > room - split:
            raise DamagedFileError("a page reaches beyond its chunk", expected=room - split, found=length)
        return split + length

    def _open(self, number: int | None, raw: memoryview) -> bytes:
        """A page in clear. Its header, which is authenticated, says how long the body is and of which kind."""
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


def _clear_levels(header: Struct, body: memoryview) -> int:
    """Bytes of levels in front of the encrypted values of a page; 0 where the body is one module."""
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
        raise DamagedFileError("a page header of another kind than its module", found=header.integer(1))
    size = header.count(_COMPRESSED_SIZE, "compressed_page_size")
    if size != len(body):
        raise DamagedFileError(
            "the encrypted body of a page has another length than its header says",
            expected=size,
            found=len(body),
        )
    crc = header.integer(_CRC)
    if crc is not None and zlib.crc32(body) != crc & 0xFFFFFFFF:
        raise DamagedFileError(WRONG_CHECKSUM, expected=crc & 0xFFFFFFFF, found=zlib.crc32(body))


class _Window:
    """Reads of a few bytes each, rising, from larger reads."""

    def __init__(self, source: Source, end: int) -> None:
        self._source, self._end = source, end
        self._at, self._data = 0, b""

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes, fewer at the end."""
        if not (self._at <= offset and offset + length <= self._at + len(self._data)):
            self._at = offset
            self._data = self._source.read(offset, min(max(HEADER_WINDOW, length), self._end - offset))
        return self._data[offset - self._at : offset - self._at + length]
