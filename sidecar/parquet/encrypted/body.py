"""What is encrypted in a file's body, and what stands in its place in the plaintext view.

Encryption leaves room: a Thrift structure is drawn out to the length of its module, by a field that every reader skips.

| unit | modules | in their place |
| --- | --- | --- |
| page | header, body | see :mod:`sidecar.parquet.encrypted.pages` |
| page index | ColumnIndex or OffsetIndex | the structure, drawn out |
| filter | header, bitset | header, drawn out by what the bitset lost; bitset |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.bloom import MAX_BYTES, MAX_HEADER, MIN_BYTES, check_num_bytes, header_doubt
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, Module
from sidecar.parquet.encrypted.pages import EncryptedPages
from sidecar.parquet.encrypted.units import EncryptedChunk, EncryptedUnit, Region
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.page_index import MAX_INDEX
from sidecar.parquet.thrift import decode_struct, draw_out, encode_padded
from sidecar.source import Source

IN_CLEAR = (
    "the Bloom filter of an encrypted column stands in clear: whoever has the file can ask it for values"
)


@dataclass(frozen=True)
class RefusedRegion:
    """A range that cannot be decrypted, because what says so contradicts itself."""

    start: int
    end: int
    column: str
    why: str

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """One that raises."""
        return [EncryptedUnit(self.start, self.end, self.column, self._open)]

    def _open(self, raw: memoryview) -> bytes:
        raise DamagedFileError(self.why)


def regions_of(
    column: EncryptedChunk, source: Source, read_index: Callable[[int, int], bytes], end: int
) -> Iterator[Region]:
    """What of a column chunk is encrypted, checked against the ``end`` of the file's body.

    ``read_index`` reads the plaintext view, for the offset index that tells where pages are.
    """
    chunk = column.chunk
    ranges: list[tuple[int | None, int | None, int, Callable[[int, int], Region]]] = [
        (chunk.start, chunk.total_compressed_size, end, partial(EncryptedPages, column, source, read_index)),
        (
            chunk.column_index_offset,
            chunk.column_index_length,
            MAX_INDEX,
            partial(EncryptedIndex, column, Module.COLUMN_INDEX),
        ),
        (
            chunk.offset_index_offset,
            chunk.offset_index_length,
            MAX_INDEX,
            partial(EncryptedIndex, column, Module.OFFSET_INDEX),
        ),
    ]
    for offset, length, most, region in ranges:
        if offset and length:
            yield _checked(chunk, offset, length, most, end, region)
    if chunk.bloom_filter_offset:
        at, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        if length is None:
            length = _filter_length(column, source, at, end)
        most = MAX_BYTES + MAX_HEADER
        yield _checked(chunk, at, length, most, end, partial(EncryptedFilter, column))


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
        return RefusedRegion(
            start, stop, chunk.leaf.path, "an encrypted part of the column lies outside the file's body"
        )
    return region(offset, offset + length)


@dataclass(frozen=True)
class EncryptedIndex:
    """A ColumnIndex or OffsetIndex."""

    column: EncryptedChunk
    module: Module
    start: int
    end: int

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """The one that it is."""
        return [EncryptedUnit(self.start, self.end, self.column.path, self._open)]

    def _open(self, raw: memoryview) -> bytes:
        plain = self.column.open(raw, self.module)
        _, end = decode_struct(plain)
        return draw_out(plain[:end], len(raw))


@dataclass(frozen=True)
class EncryptedFilter:
    """A Bloom filter, header and bitset."""

    column: EncryptedChunk
    start: int
    end: int

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """The one that it is."""
        return [EncryptedUnit(self.start, self.end, self.column.path, self._open)]

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


def _filter_length(column: EncryptedChunk, source: Source, start: int, end: int) -> int:
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
