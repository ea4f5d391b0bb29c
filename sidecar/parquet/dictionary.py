"""Reads dictionary pages: the distinct values of a dictionary-encoded chunk, without reading its data pages.

A dictionary page is the chunk's first page. Its body has the PLAIN values in the order of their indices. A data page
has repetition levels, definition levels, one byte with the bit width, and the indices as RLE / bit-packed hybrid. A
DATA_PAGE compresses all of that together, and each kind of levels follows its length. In a DATA_PAGE_V2 the levels
come first and are uncompressed, and the header has their lengths.

A dictionary may have entries that no row uses (pyarrow writes such files). They do not harm a filter, but a sketch of
distinct values must not count them: :func:`read_used` finds the entries that are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.filters.layouts import Spans
from sidecar.filters.leaf import Leaf
from sidecar.kernels import rle
from sidecar.parquet.compression import MAX_PAGE, check_page_size, decompress
from sidecar.parquet.dictionary_runs import mark_index_pages
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.levels import open_page
from sidecar.parquet.pages import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    PLAIN,
    PLAIN_DICTIONARY,
    ChunkReader,
    PageHeader,
    check_dictionary_place,
    check_dictionary_size,
)
from sidecar.parquet.trust import as_shown
from sidecar.storage.source import Source

DATA_WINDOW = 512 << 10
"""Bytes of data pages read at a time. Reading stops when every entry has been seen."""

_FIRST_READ = 64 << 10
_MOST_PAGES = 256  # read together: one at first, twice as many each time, because one or two may use every entry
_MAX_BIT_WIDTH = 32
_SPANS = 1 << 14
"""Values whose places are found at a time."""


@dataclass(frozen=True)
class DictionaryPage:
    """The values of a dictionary page.

    ``data`` (uint8[n]) has the PLAIN values one after the other, and nothing else. ``width`` is the length of each in
    bytes; ``None`` if they have any length.
    """

    num_values: int
    data: npt.NDArray[np.uint8]
    width: int | None

    @cached_property
    def spans(self) -> Spans:
        """Where the values of any length are in ``data``."""
        starts, lengths = np.empty(self.num_values, np.int64), np.empty(self.num_values, np.int64)
        rle.byte_array_spans(self.data, self.num_values, starts, lengths)
        return Spans(self.data, starts, lengths)

    def to_arrow(self, leaf: Leaf) -> pa.Array[Any]:
        """Return the values as an Arrow array of the type that pyarrow gives the column.

        Small integers are int32, with the bits that readers show; ENUM and JSON are binary. Raises
        :class:`UnsupportedFeatureError` for types that are not supported (INT96, INTERVAL, FLOAT16, decimals of
        variable length or beyond 38 digits).
        """
        if self.width is None and not leaf.encoding.is_decimal:
            return self.binaries(pa.string() if leaf.annotation.kind == "STRING" else pa.binary())
        if leaf.encoding.is_decimal:
            return self._decimals(leaf)
        data = as_shown(self.data, leaf)
        return pa.Array.from_buffers(_arrow_type(leaf), self.num_values, [None, pa.py_buffer(data.data)])

    def binaries(self, kind: pa.DataType) -> pa.Array[Any]:
        """Return the values of any length as an Arrow array of ``kind``, string or binary. They are copied."""
        out, offsets = np.empty(len(self.data), np.uint8), np.empty(self.num_values + 1, np.int32)
        views = rle.unaligned_words(self.data), rle.unaligned_words(out)
        length = rle.split_byte_arrays(self.data, views[0], self.num_values, out, views[1], offsets)
        return pa.Array.from_buffers(
            kind, self.num_values, [None, pa.py_buffer(offsets.data), pa.py_buffer(out[:length].data)]
        )

    def _decimals(self, leaf: Leaf) -> pa.Array[Any]:
        """Return decimal128 values: integers sign-extended, big-endian bytes reversed first."""
        precision = leaf.annotation.precision or {"INT32": 9, "INT64": 18}.get(leaf.physical, 0)
        if self.width is None or self.width > 16 or not 1 <= precision <= 38:
            raise UnsupportedFeatureError("decimals of this width are not read from dictionaries", column=leaf.path)
        wide: npt.NDArray[Any]
        if leaf.physical == "FIXED_LEN_BYTE_ARRAY":
            values = self.data.reshape(self.num_values, self.width)[:, ::-1]
            wide = np.empty((self.num_values, 16), np.uint8)
            wide[:, : self.width] = values
            wide[:, self.width :] = (values[:, -1:] >> 7) * np.uint8(255)
        else:
            integers = self.data.view("<i4" if self.width == 4 else "<i8")
            wide = np.empty((self.num_values, 2), np.int64)
            wide[:, 0] = integers
            wide[:, 1] = wide[:, 0] >> np.int64(63)
        kind = pa.decimal128(precision, leaf.annotation.scale)
        return pa.Array.from_buffers(kind, self.num_values, [None, pa.py_buffer(wide.data)])


def _arrow_type(leaf: Leaf) -> pa.DataType:
    zone = "UTC" if leaf.annotation.utc else None
    kinds: dict[str, pa.DataType] = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "int32/date": pa.date32(),
        "int32/time-ms": pa.time32("ms"),
        "int64/time-us": pa.time64("us"),
        "int64/time-ns": pa.time64("ns"),
        "int64/timestamp-ms": pa.timestamp("ms", zone),
        "int64/timestamp-us": pa.timestamp("us", zone),
        "int64/timestamp-ns": pa.timestamp("ns", zone),
    }
    if leaf.encoding.name.startswith("flba:") and leaf.width is not None:
        return pa.binary(leaf.width)
    kind = kinds.get(leaf.encoding.name)
    if kind is None:
        raise UnsupportedFeatureError(
            "dictionaries of this type are not read", column=leaf.path, found=leaf.encoding.name
        )
    return kind


def read_dictionary(source: Source, chunk: ColumnChunk) -> DictionaryPage:
    """Read the chunk's dictionary page, with one read if the footer gives its size.

    Raises :class:`DamagedFileError` if there is none or its bytes are broken (also for a wrong checksum), and
    :class:`UnsupportedFeatureError` for an unknown encoding or codec and for a page that is too large
    (:func:`sidecar.parquet.compression.check_page_size`).
    """
    with located(source.name, chunk.leaf.path, chunk.start):
        gap = chunk.data_page_offset - chunk.start
        reader = ChunkReader(source, chunk, gap if 0 < gap <= MAX_PAGE else _FIRST_READ)
        return _decoded(reader, _dictionary_header(reader, chunk), chunk)


def check_dictionary_encoding(page: PageHeader) -> None:
    """Raise :class:`UnsupportedFeatureError` unless the values of a dictionary page are PLAIN."""
    if page.encoding not in (PLAIN, PLAIN_DICTIONARY):
        raise UnsupportedFeatureError("dictionary pages of this encoding are not supported", found=page.encoding)


def _dictionary_header(reader: ChunkReader, chunk: ColumnChunk) -> PageHeader:
    """Read the header of the chunk's first page, and check that it is a dictionary whose values fit into its size."""
    page = reader.header(reader.start)
    if page.type != DICTIONARY_PAGE:
        raise DamagedFileError("the column chunk does not begin with a dictionary page", found=page.type)
    check_dictionary_place(chunk, page)
    check_dictionary_encoding(page)
    check_dictionary_size(page, chunk.leaf)
    check_page_size(page.compressed_size, page.uncompressed_size)
    return page


def _decoded(reader: ChunkReader, page: PageHeader, chunk: ColumnChunk) -> DictionaryPage:
    body = decompress(chunk.codec, reader.body(page), page.uncompressed_size)
    return decode_dictionary(np.frombuffer(body, np.uint8), page.num_values, chunk.leaf)


def decode_dictionary(body: npt.NDArray[np.uint8], num_values: int, leaf: Leaf) -> DictionaryPage:
    """Decode the entries of a decompressed dictionary page (uint8[n]).

    Raises :class:`DamagedFileError` if the page is shorter or longer than its values, and
    :class:`UnsupportedFeatureError` for BOOLEAN columns.
    """
    if leaf.physical == "BOOLEAN":
        raise UnsupportedFeatureError("BOOLEAN columns have no dictionary")
    if leaf.width is not None:
        _expect_filled(num_values * leaf.width, len(body))
        return DictionaryPage(num_values, body, leaf.width)
    _expect_filled(_end_of_values(body, num_values), len(body))
    return DictionaryPage(num_values, body, None)


def _end_of_values(body: npt.NDArray[np.uint8], count: int) -> int:
    """Return where the last of ``count`` values of any length ends. Raises :class:`DamagedFileError` if one is cut.

    Spans of all values can take four times the bytes of the page, so only some are made at a time.
    """
    starts, lengths = np.empty(_SPANS, np.int64), np.empty(_SPANS, np.int64)
    end = 0
    for first in range(0, count, _SPANS):
        some = min(count - first, _SPANS)
        if not rle.byte_array_spans(body[end:], some, starts, lengths):
            raise DamagedFileError("a value of a dictionary page is longer than the rest of the page")
        end += int(starts[some - 1] + lengths[some - 1])
    return end


def _expect_filled(used: int, size: int) -> None:
    """Raise :class:`DamagedFileError` unless values fill the page. Bytes that are left may be values that we miss."""
    if used != size:
        raise DamagedFileError("a dictionary page is longer than its values", expected=used, found=size)


def read_used(source: Source, chunk: ColumnChunk) -> tuple[DictionaryPage, npt.NDArray[np.bool_]]:
    """Return the dictionary page, and which of its entries the data pages use: bool[num_values].

    The chunk must be :func:`~sidecar.parquet.pages.wholly_dictionary`. Reading stops when all entries are used. Raises
    as :func:`read_dictionary` does, :class:`DamagedFileError` for broken data pages (also for an index beyond the
    dictionary), and :class:`UnsupportedFeatureError` for a data page that is not dictionary-encoded.
    """
    with located(source.name, chunk.leaf.path, chunk.start):
        reader = ChunkReader(source, chunk, DATA_WINDOW)
        header = _dictionary_header(reader, chunk)
        dictionary = _decoded(reader, header, chunk)
        used = np.zeros(dictionary.num_values, np.bool_)
        values, offset, most = 0, header.end, 1
        while offset < reader.end and not (chunk.may_end_early and values >= chunk.num_values):
            marked, end = mark_index_pages(reader, offset, chunk, used, most)
            if end == offset:
                page = reader.header(offset)
                marked, end = _mark_page(reader, page, chunk, used), page.end
            values, offset, most = values + marked, end, min(2 * most, _MOST_PAGES)
            if used.all():
                return dictionary, used
        if values != chunk.num_values:
            raise DamagedFileError(
                "the pages of a column chunk have a different number of values than the footer says",
                expected=chunk.num_values,
                found=values,
            )
        return dictionary, used


def _mark_page(reader: ChunkReader, page: PageHeader, chunk: ColumnChunk, used: npt.NDArray[np.bool_]) -> int:
    """Mark the entries that one page uses. Returns the number of its values, nulls included."""
    try:
        return _mark(reader, page, chunk, used)
    except SidecarError as error:
        error.offset = page.offset
        raise


def _mark(reader: ChunkReader, page: PageHeader, chunk: ColumnChunk, used: npt.NDArray[np.bool_]) -> int:
    if page.type == DICTIONARY_PAGE:
        raise DamagedFileError("a second dictionary page")
    if not page.is_data or not page.num_values:
        return 0
    if page.encoding not in DICTIONARY_ENCODINGS:
        raise UnsupportedFeatureError("a data page is not dictionary-encoded", found=page.encoding)
    levels, data = open_page(chunk.codec, page, reader.body(page), chunk.leaf)
    if levels.num_present:
        mark_indices(data, levels.num_present, used)
    return page.num_values


def mark_indices(data: npt.NDArray[np.uint8], count: int, used: npt.NDArray[np.bool_]) -> None:
    """Set ``used`` (bool, one an entry) for the ``count`` indices of a data page.

    ``data`` begins with their bit width. Raises :class:`DamagedFileError` for too few indices and for an index beyond
    the dictionary.
    """
    if not len(data):
        raise DamagedFileError("a data page has no dictionary indices")
    width = int(data[0])
    if width > _MAX_BIT_WIDTH:
        raise DamagedFileError("the bit width of dictionary indices is out of range", expected="0 to 32", found=width)
    if width == 0:
        status = 0 if len(used) else rle.BAD_INDEX
        used[:1] = True
    else:
        status = rle.mark_used(data, rle.unaligned_words(data), 1, len(data), width, count, used)
    check_indices(status, len(used), count)


def check_indices(status: int, entries: int, count: int) -> None:
    """Raise :class:`DamagedFileError` if a kernel's ``status`` says that ``count`` indices are too few or too large.

    ``entries`` is the length of the dictionary.
    """
    if status == rle.BAD_INDEX:
        raise DamagedFileError("a dictionary index is too large", expected=f"less than {entries}")
    if status < 0:
        raise DamagedFileError("a data page has too few dictionary indices", expected=f"{count} indices")
