"""Rewrites a footer with new places of filters and page indexes, and changes nothing else.

It works on the generic field tree, so unknown fields survive, absent fields stay absent, and fields keep their order.

| struct | field | set to |
| --- | --- | --- |
| ColumnMetaData | 14 bloom_filter_offset, 15 bloom_filter_length | the filter: header and bitset |
| ColumnChunk | 4, 5 offset_index_offset, _length | the OffsetIndex |
| ColumnChunk | 6, 7 column_index_offset, _length | the ColumnIndex |

If pages move, these offsets are updated too: ColumnMetaData 9, 10 and 11 (data, index and dictionary page), RowGroup 5
and ColumnChunk 2 (file_offset). Sizes never change, because filters and indexes are not part of a chunk.

In encrypted files the ColumnMetaData may be a module in field 9 of the ColumnChunk. A plaintext footer then also has a
copy without statistics in field 3. Both get the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sidecar.parquet.page_indexes.extents import Range
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, decode_struct, encode_struct

Move = Callable[[int], int]
"""Takes the offset of a byte in the old file; returns its offset in the new one."""

EncryptAgain = Callable[[int, int, bytes, Callable[[Struct], Struct]], bytes]
"""Takes row group, column, an encrypted ColumnMetaData and a change; returns it changed and encrypted again."""

_PAGE_OFFSETS = (9, 10, 11)


class ChunkPlaces(NamedTuple):
    """The ranges of a chunk's filter and page index in the new file; ``None`` for one that is missing."""

    filter: Range | None = None
    column_index: Range | None = None
    offset_index: Range | None = None


def rewrite_metadata(
    metadata: Struct, places: Sequence[Sequence[ChunkPlaces | None]], move: Move | None, encrypt_again: EncryptAgain
) -> Struct:
    """Return a FileMetaData with new places. ``places`` is by row group and column; ``None`` keeps a chunk unchanged.

    ``move`` is ``None`` if pages do not move.
    """
    groups = metadata.structs(4)
    if not groups:
        return metadata
    rewriter = _Rewriter(move, encrypt_again)
    new = [
        rewriter.group(ordinal, group, chunks)
        for ordinal, (group, chunks) in enumerate(zip(groups, places, strict=True))
    ]
    return _changed(metadata, {4: (LIST, Items(STRUCT, new))})


def move_pages(offset_index: bytes, move: Move) -> bytes:
    """Return an OffsetIndex with the new offsets of its pages. Unknown fields survive."""
    tree, _ = decode_struct(offset_index)
    locations = [_moved(entry, (1,), move) for entry in tree.structs(1) or ()]
    return encode_struct(_changed(tree, {1: (LIST, Items(STRUCT, locations))}))


class _Rewriter(NamedTuple):
    move: Move | None
    encrypt_again: EncryptAgain

    def group(self, number: int, group: Struct, places: Sequence[ChunkPlaces | None]) -> Struct:
        chunks = [
            chunk if new_places is None else self.chunk(number, column, chunk, new_places)
            for column, (chunk, new_places) in enumerate(zip(group.structs(1) or (), places, strict=True))
        ]
        new = _changed(group, {1: (LIST, Items(STRUCT, chunks))})
        return _moved(new, (5,), self.move)

    def chunk(self, row_group: int, column: int, chunk: Struct, places: ChunkPlaces) -> Struct:
        def change(meta: Struct) -> Struct:
            return _moved(_changed(meta, _place(places.filter, 14)), _PAGE_OFFSETS, self.move)

        changes = _place(places.offset_index, 4) | _place(places.column_index, 6)
        meta, encrypted = chunk.struct(3), chunk.binary(9)
        if meta is not None:
            changes[3] = (STRUCT, change(meta))
        if encrypted is not None:
            changes[9] = (BINARY, self.encrypt_again(row_group, column, encrypted, change))
        return _moved(_changed(chunk, changes), (2,), self.move)


def _place(part: Range | None, field_id: int) -> dict[int, tuple[int, Any] | None]:
    """Return the changes that set offset and length, in two neighbouring fields, or remove both."""
    if part is None:
        return {field_id: None, field_id + 1: None}
    return {field_id: (I64, part.offset), field_id + 1: (I32, part.length)}


def _moved(value: Struct, field_ids: Sequence[int], move: Move | None) -> Struct:
    """Return the struct with the offsets in these fields moved. Offsets of 0 and below mean absent, and stay."""
    if move is None:
        return value
    offsets = {field_id: value.integer(field_id) or 0 for field_id in field_ids}
    return _changed(value, {i: (value.fields[i][0], move(old)) for i, old in offsets.items() if old > 0})


def _changed(value: Struct, changes: dict[int, tuple[int, Any] | None]) -> Struct:
    """Return a copy with fields replaced, removed (``None``) or added. Sorted fields stay sorted by id."""
    fields = {i: changes.get(i, field) for i, field in value.fields.items()}
    added = [i for i in changes if i not in fields and changes[i] is not None]
    if added:
        was_sorted = list(fields) == sorted(fields)
        fields.update({i: changes[i] for i in added})
        if was_sorted:
            fields = dict(sorted(fields.items()))
    return Struct({i: field for i, field in fields.items() if field is not None})
