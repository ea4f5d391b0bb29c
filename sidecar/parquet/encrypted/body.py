"""Finds the encrypted parts of a file's body, and decrypts each to plaintext of the same length.

A plain Thrift structure is shorter than its module. It is padded to the same length by a field that readers skip.

| unit | modules | plaintext |
| --- | --- | --- |
| page | header, body | see :mod:`sidecar.parquet.encrypted.pages` |
| page index | ColumnIndex or OffsetIndex | the structure, padded |
| filter | header, bitset | header, padded by what both lost; bitset |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.bloom import MAX_BYTES, MAX_HEADER, MIN_BYTES, check_num_bytes, header_doubt
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, Module
from sidecar.parquet.encrypted.pages import EncryptedPages, Region
from sidecar.parquet.encrypted.units import EncryptedChunk, EncryptedUnit
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.page_indexes.page_index import MAX_INDEX
from sidecar.parquet.thrift import decode_struct, draw_out, encode_padded
from sidecar.storage.source import Source

IN_CLEAR = "the Bloom filter of an encrypted column is not encrypted: anybody who has the file can look up values in it"


def refused(start: int, end: int, column: str, why: str) -> EncryptedUnit:
    """Return a range that cannot be decrypted, because the footer contradicts itself about it. ``why`` is the error."""

    def refuse(raw: memoryview) -> bytes:
        raise DamagedFileError(why)

    return EncryptedUnit(start, end, column, refuse)


def regions_of(
    column: EncryptedChunk, source: Source, read_index: Callable[[int, int], bytes], end: int
) -> Iterator[Region]:
    """Yield the encrypted parts of a column chunk. A part beyond ``end``, the end of the file's body, is refused.

    ``read_index`` takes (offset, length) and reads the plaintext view, for the offset index, which locates pages.
    """
    chunk = column.chunk
    ranges: list[tuple[int | None, int | None, int, Callable[[int, int], Region]]] = [
        (chunk.start, chunk.total_compressed_size, end, partial(EncryptedPages, column, source, read_index)),
        (
            chunk.column_index_offset,
            chunk.column_index_length,
            MAX_INDEX,
            partial(_index, column, Module.COLUMN_INDEX),
        ),
        (
            chunk.offset_index_offset,
            chunk.offset_index_length,
            MAX_INDEX,
            partial(_index, column, Module.OFFSET_INDEX),
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
        yield _checked(chunk, at, length, most, end, partial(_filter, column))


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
        return refused(start, stop, chunk.leaf.path, "an encrypted part of the column is outside the file's body")
    return region(offset, offset + length)


def _index(column: EncryptedChunk, module: Module, start: int, end: int) -> EncryptedUnit:
    """Return the unit of an encrypted ColumnIndex or OffsetIndex."""

    def decrypt(raw: memoryview) -> bytes:
        plain = column.open(raw, module)
        _, end = decode_struct(plain)
        return draw_out(plain[:end], len(raw))

    return EncryptedUnit(start, end, column.path, decrypt)


def _filter(column: EncryptedChunk, start: int, end: int) -> EncryptedUnit:
    """Return the unit of an encrypted Bloom filter: header and bitset."""
    return EncryptedUnit(start, end, column.path, partial(_open_filter, column))


def _open_filter(column: EncryptedChunk, raw: memoryview) -> bytes:
    try:
        return _decrypted_filter(column, raw)
    except SidecarError as error:
        if _is_plain_filter(raw):
            raise DamagedFileError(IN_CLEAR) from error
        raise


def _decrypted_filter(column: EncryptedChunk, raw: memoryview) -> bytes:
    """Return the plain filter, and unchanged the bytes after it if the range is longer."""
    encryption = column.encryption
    split = encryption.module_length(Module.BLOOM_FILTER_HEADER, raw, len(raw))
    header, _ = decode_struct(column.open(raw[:split], Module.BLOOM_FILTER_HEADER))
    length = encryption.module_length(Module.BLOOM_FILTER_BITSET, raw[split:], len(raw) - split)
    bits = column.open(raw[split : split + length], Module.BLOOM_FILTER_BITSET)
    if check_num_bytes(header) != len(bits):
        raise DamagedFileError(
            "the filter's numBytes differs from the length of its bitset",
            expected=len(bits),
            found=header.integer(1),
        )
    return encode_padded(header, split + length - len(bits)) + bits + bytes(raw[split + length :])


def _filter_length(column: EncryptedChunk, source: Source, start: int, end: int) -> int:
    """Return the bytes of a filter whose length is not stated, from the length prefixes of its two modules.

    If those make no sense, the filter may be unencrypted: return the most bytes that a header may have.
    """
    at = start
    try:
        for module in (Module.BLOOM_FILTER_HEADER, Module.BLOOM_FILTER_BITSET):
            prefix = source.read(at, min(LENGTH_BYTES, max(end - at, 0)))
            at += column.encryption.module_length(module, prefix, end - at)
    except DamagedFileError:
        return min(MAX_HEADER, max(end - start, 0))
    return at - start


def has_plain_filter(source: Source, chunk: ColumnChunk) -> bool:
    """Return whether an encrypted column chunk has an unencrypted Bloom filter in the file of ``source``."""
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
