"""Tells whether two Parquet files have the same pages, wherever their indexes are.

The fingerprint covers the whole footer (schema, row groups, sizes, statistics, key-value metadata, unknown fields)
without the places of pages, filters and page indexes: ColumnMetaData 9, 10, 11, 14, 15, ColumnChunk 2, 4 to 7 and
RowGroup 5. So embedding and stripping do not change it. It is XXH64 with seed 0, then XXH64 with seed 1, of the Thrift
bytes of that tree, both little-endian.

Without statistics, files of the same sizes have the same fingerprint even if their values differ: check
:func:`is_distinctive` first. Even equal sizes and bounds do not prove that all values are the same. Only the digest of
the pages does (:func:`pages_digest`).
"""

from __future__ import annotations

import struct

import xxhash

from sidecar.parquet.footer import Footer
from sidecar.parquet.page_indexes.copied_pages import CheckedPages
from sidecar.parquet.thrift import LIST, STRUCT, Items, Struct, encode_struct
from sidecar.storage.ranges import digest_ranges
from sidecar.storage.source import Source

_META_PLACES = {9, 10, 11, 14, 15}
_CHUNK_PLACES = {2, 4, 5, 6, 7}
_GROUP_PLACES = {5}
_STATISTICS = 12
_BOUNDS = {1, 2, 5, 6}
FINGERPRINT_BYTES = 16


def pages_fingerprint(footer: Footer) -> bytes:
    """Return 16 bytes that are the same for all files whose footers differ only in places."""
    groups = [_group(group) for group in footer.metadata.structs(4) or ()]
    tree = Struct({**footer.metadata.fields, 4: (LIST, Items(STRUCT, groups))})
    data = encode_struct(tree)
    return struct.pack("<QQ", xxhash.xxh64_intdigest(data, 0), xxhash.xxh64_intdigest(data, 1))


def pages_digest(source: Source, footer: Footer, *, check: bool) -> bytes:
    """Return the SHA-256 of all column chunks as stored, by row group and column: see :func:`digest_ranges`.

    With ``check``, raises :class:`sidecar.errors.WrongChecksumError` for a page with a wrong checksum: its digest would
    be of no file.
    """
    chunks = (chunk for group in footer.row_groups for chunk in group.columns.stored)
    ranges = [(chunk.start, chunk.total_compressed_size) for chunk in chunks]
    return digest_ranges(CheckedPages(source, footer) if check else source, ranges)


def is_distinctive(footer: Footer) -> bool:
    """Return whether every row group with rows has bounds of some column, so that the footer depends on values."""
    groups = footer.metadata.structs(4) or []
    return all(any(_has_bounds(chunk) for chunk in group.structs(1) or ()) for group in groups if group.integer(3) != 0)


def _has_bounds(chunk: Struct) -> bool:
    meta = chunk.struct(3)
    statistics = meta.struct(_STATISTICS) if meta is not None else None
    return statistics is not None and bool(_BOUNDS & statistics.fields.keys())


def _group(group: Struct) -> Struct:
    chunks = [_chunk(chunk) for chunk in group.structs(1) or ()]
    return _without(Struct({**group.fields, 1: (LIST, Items(STRUCT, chunks))}), _GROUP_PLACES)


def _chunk(chunk: Struct) -> Struct:
    meta = chunk.struct(3)
    fields = dict(chunk.fields)
    if meta is not None:
        fields[3] = (STRUCT, _without(meta, _META_PLACES))
    return _without(Struct(fields), _CHUNK_PLACES)


def _without(value: Struct, field_ids: set[int]) -> Struct:
    return Struct({i: field for i, field in value.fields.items() if i not in field_ids})
