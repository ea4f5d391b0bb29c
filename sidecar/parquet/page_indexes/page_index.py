"""Reads and writes page indexes: where each data page of a chunk is (OffsetIndex) and what is in it (ColumnIndex).

Both are Thrift structures outside of the pages. The footer's ColumnChunk has their offsets and lengths.

| OffsetIndex | | |
| --- | --- | --- |
| 1 | page_locations | for each data page: 1 offset, 2 compressed_page_size (with the header), 3 first_row_index |
| 2 | unencoded_byte_array_data_bytes | bytes of each page's BYTE_ARRAY values |

| ColumnIndex | | |
| --- | --- | --- |
| 1 | null_pages | true: the page has only nulls, and its bounds are empty |
| 2, 3 | min_values, max_values | outer bounds of each page, see :mod:`sidecar.parquet.bounds` |
| 4 | boundary_order | 0 unordered, 1 ascending, 2 descending |
| 5, 8 | null_counts, nan_counts | |
| 6, 7 | repetition_, definition_level_histograms | pages x (highest level + 1) |

Booleans in a list take a byte: 1 is true, 0 and 2 are false. The field tree with unknown fields and the original bytes
are kept, so an index can be copied unchanged.

A decoded index is well-formed, but may be wrong: :mod:`sidecar.parquet.page_indexes.page_bounds` checks it.
Specification: PageIndex.md and parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.thrift import (
    BINARY,
    BOOL,
    BOOL_FALSE,
    I32,
    I64,
    INTEGERS,
    LIST,
    PADDING,
    STRUCT,
    Items,
    Struct,
    decode_struct,
    encode_struct,
)
from sidecar.storage.ranges import try_ranges
from sidecar.storage.source import Source

MAX_INDEX = 32 << 20
"""Bytes of a ColumnIndex or OffsetIndex, at most."""

UNORDERED, ASCENDING, DESCENDING = range(3)

OURS = 0x7FFF
"""Id of the field that says that sidecar built an index, in a file whose writer or statistics contradict it. The format
leaves this id, with a binary value, to extensions; readers skip it."""
_OURS = (BINARY, b"sidecar")


@dataclass(frozen=True, eq=False)
class OffsetIndex:
    """The places of a chunk's data pages. Each array is int64[pages]; offsets and sizes are bytes."""

    offsets: npt.NDArray[np.int64]
    compressed_page_sizes: npt.NDArray[np.int64]
    first_row_indexes: npt.NDArray[np.int64]
    unencoded_byte_array_data_bytes: list[int] | None
    tree: Struct
    raw: bytes

    @property
    def num_pages(self) -> int:
        """Number of data pages."""
        return len(self.offsets)

    @property
    def is_ours(self) -> bool:
        """Whether the index says that sidecar built it from the pages."""
        return self.tree.fields.get(OURS) == _OURS

    def rows(self, num_rows: int) -> npt.NDArray[np.int64]:
        """Return the number of rows of each page (int64[pages]); ``num_rows`` is that of the row group."""
        return np.diff(self.first_row_indexes, append=np.int64(num_rows))


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """Nulls, bounds and levels of a chunk's data pages. Lists have one entry a page, histograms highest level + 1."""

    null_pages: list[bool]
    min_values: list[bytes]
    max_values: list[bytes]
    boundary_order: int
    null_counts: list[int] | None
    nan_counts: list[int] | None
    repetition_level_histograms: list[int] | None
    definition_level_histograms: list[int] | None
    tree: Struct
    raw: bytes

    @property
    def num_pages(self) -> int:
        """Number of data pages."""
        return len(self.null_pages)

    @property
    def is_ours(self) -> bool:
        """Whether the index says that sidecar built it from the pages."""
        return self.tree.fields.get(OURS) == _OURS


ColumnIndexAnswer = ColumnIndex | SidecarError | None
OffsetIndexAnswer = OffsetIndex | SidecarError | None


def decode_offset_index(data: bytes, *, base: int = 0) -> OffsetIndex:
    """Decode the OffsetIndex at the start of ``data``. Bytes after it are ignored, because encrypting writers pad.

    ``base`` is its offset in the file, for errors. Raises :class:`DamagedFileError`.
    """
    tree, data = _decode_tree(data, base)
    locations = _items(tree, 1, (STRUCT,), "page_locations")
    if locations is None:
        raise DamagedFileError("an offset index has no page_locations", offset=base)
    table = np.array([_location(entry) for entry in locations], np.int64).reshape(len(locations), 3)
    return OffsetIndex(
        offsets=table[:, 0],
        compressed_page_sizes=table[:, 1],
        first_row_indexes=table[:, 2],
        unencoded_byte_array_data_bytes=_items(tree, 2, INTEGERS, "unencoded_byte_array_data_bytes"),
        tree=tree,
        raw=data,
    )


def _decode_tree(data: bytes, base: int) -> tuple[Struct, bytes]:
    """The field tree and its bytes, without what the plaintext view of an encrypted file has added to them."""
    tree, _ = decode_struct(data, base=base)
    return tree, data if tree.fields.pop(PADDING, None) is None else encode_struct(tree)


def _location(entry: Struct) -> tuple[int, int, int]:
    return (
        entry.count(1, "a page's offset"),
        entry.count(2, "a page's compressed_page_size"),
        entry.count(3, "a page's first_row_index"),
    )


def decode_column_index(data: bytes, *, base: int = 0) -> ColumnIndex:
    """Decode the ColumnIndex at the start of ``data``. Bytes after it are ignored.

    ``base`` is its offset in the file, for errors. Raises :class:`DamagedFileError`, also if null_pages, min_values and
    max_values differ in length. Nothing else is compared here.
    """
    tree, data = _decode_tree(data, base)
    flags = _items(tree, 1, (BOOL, BOOL_FALSE), "null_pages")
    lower = _items(tree, 2, (BINARY,), "min_values")
    upper = _items(tree, 3, (BINARY,), "max_values")
    if flags is None or lower is None or upper is None:
        raise DamagedFileError("a column index lacks null_pages, min_values or max_values", offset=base)
    if not len(flags) == len(lower) == len(upper):
        raise DamagedFileError(
            "the lists of a column index differ in length",
            offset=base,
            expected=f"{len(flags)} pages",
            found=f"{len(lower)} min_values, {len(upper)} max_values",
        )
    if any(flag > 2 for flag in flags):
        raise DamagedFileError("null_pages has a byte that is not a boolean", offset=base)
    return ColumnIndex(
        null_pages=[flag == 1 for flag in flags],
        min_values=lower,
        max_values=upper,
        boundary_order=tree.need_integer(4, "boundary_order"),
        null_counts=_items(tree, 5, INTEGERS, "null_counts"),
        nan_counts=_items(tree, 8, INTEGERS, "nan_counts"),
        repetition_level_histograms=_items(tree, 6, INTEGERS, "repetition_level_histograms"),
        definition_level_histograms=_items(tree, 7, INTEGERS, "definition_level_histograms"),
        tree=tree,
        raw=data,
    )


def _items(tree: Struct, field_id: int, kinds: tuple[int, ...], what: str) -> list[Any] | None:
    kind, items = tree.fields.get(field_id, (LIST, None))
    if items is None or kind != LIST:  # readers skip a field of another type
        return None
    if items.values and items.element_type not in kinds:
        raise DamagedFileError(f"{what} has the wrong type")
    values: list[Any] = items.values
    return values


def encode_offset_index(
    locations: Sequence[tuple[int, int, int]], data_bytes: Sequence[int] | None = None
) -> OffsetIndex:
    """Encode an OffsetIndex. ``locations`` has (offset, compressed_page_size, first_row_index) for each page."""
    pages = [Struct({1: (I64, at), 2: (I32, size), 3: (I64, row)}) for at, size, row in locations]
    tree = Struct({1: (LIST, Items(STRUCT, pages))})
    if data_bytes is not None:
        tree.fields[2] = (LIST, Items(I64, list(data_bytes)))
    return decode_offset_index(encode_struct(tree))


def encode_column_index(
    null_pages: Sequence[bool],
    min_values: Sequence[bytes],
    max_values: Sequence[bytes],
    boundary_order: int,
    null_counts: Sequence[int],
    *,
    nan_counts: Sequence[int] | None = None,
    repetition_level_histograms: Sequence[int] | None = None,
    definition_level_histograms: Sequence[int] | None = None,
) -> ColumnIndex:
    """Encode a ColumnIndex. Its booleans have element type 1, and false is 2, as other writers write them."""
    tree = Struct(
        {
            1: (LIST, Items(BOOL, [1 if flag else 2 for flag in null_pages])),
            2: (LIST, Items(BINARY, list(min_values))),
            3: (LIST, Items(BINARY, list(max_values))),
            4: (I32, boundary_order),
            5: (LIST, Items(I64, list(null_counts))),
        }
    )
    optional = {6: repetition_level_histograms, 7: definition_level_histograms, 8: nan_counts}
    for field_id, counts in optional.items():
        if counts is not None:
            tree.fields[field_id] = (LIST, Items(I64, [int(count) for count in counts]))
    return decode_column_index(encode_struct(tree))


def marked_column_index(index: ColumnIndex) -> ColumnIndex:
    """Return a ColumnIndex that says that sidecar built it."""
    return decode_column_index(encode_struct(Struct(index.tree.fields | {OURS: _OURS})))


def marked_offset_index(index: OffsetIndex) -> OffsetIndex:
    """Return an OffsetIndex that says that sidecar built it."""
    return decode_offset_index(encode_struct(Struct(index.tree.fields | {OURS: _OURS})))


def read_indexes_by_leaf(
    source: Source, footer: Footer, chunks: Iterable[ColumnChunk]
) -> tuple[dict[int, ColumnIndexAnswer], dict[int, OffsetIndexAnswer]]:
    """Read the page indexes that ``chunks`` of one row group have, by leaf index; see :func:`read_page_indexes`."""
    with_columns = [chunk for chunk in chunks if chunk.column_index_offset]
    with_offsets = [chunk for chunk in chunks if chunk.offset_index_offset]
    columns, offsets = read_page_indexes(source, footer, with_columns, with_offsets)
    return (
        dict(zip((chunk.leaf.index for chunk in with_columns), columns, strict=True)),
        dict(zip((chunk.leaf.index for chunk in with_offsets), offsets, strict=True)),
    )


def read_page_indexes(
    source: Source,
    footer: Footer,
    column_index_of: Collection[ColumnChunk],
    offset_index_of: Collection[ColumnChunk],
) -> tuple[list[ColumnIndexAnswer], list[OffsetIndexAnswer]]:
    """Read the ColumnIndexes of some chunks and the OffsetIndexes of others, neighbours in one read.

    Each chunk is in a list at most once. The answers are in the order of the chunks: the index, ``None`` if there is
    none, or the error. ``first_row_index`` counts from the first row of the row group. Raises only
    :class:`sidecar.errors.StorageError`.
    """
    asked = [
        *(("column index", c, c.column_index_offset, c.column_index_length) for c in column_index_of),
        *(("offset index", c, c.offset_index_offset, c.offset_index_length) for c in offset_index_of),
    ]
    ranges = [_range(footer, *question) for question in asked]
    _refuse_overlaps(source.name, asked, ranges)
    found = [place for place in ranges if isinstance(place, tuple)]
    data = iter(try_ranges(source, found))
    raw = [next(data) if isinstance(place, tuple) else place for place in ranges]
    answers: list[Any] = [
        _decode(source.name, chunk, what, offset or 0, item)
        for (what, chunk, offset, _), item in zip(asked, raw, strict=True)
    ]
    return answers[: len(column_index_of)], answers[len(column_index_of) :]


_AskedRanges = tuple[str, ColumnChunk, int | None, int | None]
_Range = tuple[int, int] | SidecarError | None


def _range(footer: Footer, what: str, chunk: ColumnChunk, offset: int | None, length: int | None) -> _Range:
    """Return (offset, length) of an index, ``None`` if it is absent, or an error if it is not in the file's body."""
    if offset is None and length is None:
        return None
    place: dict[str, Any] = {"file": footer.name, "column": chunk.leaf.path, "offset": offset}
    if chunk.file_path is not None:
        return UnsupportedFeatureError("the column chunk is in another file (file_path)", **place)
    if offset is None or length is None:
        return DamagedFileError(f"the {what} has only one of offset and length", **place)
    if offset <= 0 or length <= 0 or offset + length > footer.offset:
        return DamagedFileError(
            f"the {what} is outside the file's body",
            **place,
            expected=f"at most {footer.offset} bytes",
            found=f"{length} bytes from {offset}",
        )
    if length > MAX_INDEX:
        return UnsupportedFeatureError(
            f"the {what} is too large", **place, expected=f"at most {MAX_INDEX} bytes", found=length
        )
    return offset, length


def _refuse_overlaps(name: str, asked: list[_AskedRanges], ranges: list[_Range]) -> None:
    """Replace ranges that overlap by errors. Else a thousand indexes could each copy the same large range."""
    places = sorted((place, i) for i, place in enumerate(ranges) if isinstance(place, tuple))
    end = 0
    for (offset, length), i in places:
        if offset < end:
            what, chunk = asked[i][0], asked[i][1]
            ranges[i] = DamagedFileError(
                f"the {what} overlaps another index", file=name, column=chunk.leaf.path, offset=offset
            )
        end = max(end, offset + length)


_DECODERS: Mapping[str, Callable[..., ColumnIndex | OffsetIndex]] = {
    "column index": decode_column_index,
    "offset index": decode_offset_index,
}


def _decode(
    name: str, chunk: ColumnChunk, what: str, offset: int, raw: bytes | SidecarError | None
) -> ColumnIndex | OffsetIndex | SidecarError | None:
    if raw is None or isinstance(raw, SidecarError):
        return raw
    try:
        with located(name, chunk.leaf.path, offset):
            return _DECODERS[what](raw, base=offset)
    except SidecarError as error:
        return error
