"""Makes a Parquet file in memory from some pages of a part, so that pyarrow decodes them.

The pages are copied byte for byte: for each leaf its dictionary page, if there is one, then the wanted data pages. Only
pages that pyarrow decodes wrong are rewritten (:mod:`sidecar.parquet.scan.rle_levels`,
:func:`sidecar.parquet.pages.with_single_blocks`). The new footer says that they are a column chunk. A data page does
not state its place, so pages that are apart in the original may follow each other here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.errors import DamagedFileError, SidecarError, located, undecodable
from sidecar.filters.leaf import Leaf
from sidecar.parquet.compression import check_page_size
from sidecar.parquet.footer import MAGIC, ColumnChunk, Footer
from sidecar.parquet.pages import (
    DICTIONARY_PAGE,
    MAX_HEADER,
    PageHeader,
    check_dictionary_place,
    check_dictionary_size,
    check_page_body,
    decode_page_header,
    with_single_blocks,
)
from sidecar.parquet.scan.rle_levels import with_rle_levels
from sidecar.parquet.scan.schema_parts import OPTIONS, FileShape, SchemaPart, finish_file, part_footer
from sidecar.parquet.scan.wide_decimals import with_bytes_for_decimals, with_decimals
from sidecar.parquet.thrift import I64, STRUCT, Struct, TruncatedError

FREE_RATIO = 8
"""Decoded bytes that are always allowed for each byte of the pages, even beyond the budget."""

_USUAL_HEADER = 1024
_KEPT_FIELDS = (1, 2, 3, 4)  # type, encodings, path_in_schema, codec


@dataclass
class LeafPages:
    """Pages of one leaf that were read. ``values`` has the number of values of each data page, nulls included."""

    chunk: ColumnChunk
    dictionary: bytes | memoryview = b""
    data: list[bytes | memoryview] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    headers: list[PageHeader] = field(default_factory=list)

    def add(self, raw: bytes | memoryview, header: PageHeader) -> None:
        """Append a data page; ``raw`` begins with its header."""
        self.data.append(raw)
        self.values.append(header.num_values)
        self.headers.append(header)


def read_page(raw: bytes | memoryview, offset: int, leaf: Leaf) -> PageHeader:
    """Return the header of the page of ``leaf`` that ``raw`` begins with; ``offset`` is its place in the file.

    Raises :class:`DamagedFileError` if the page reaches beyond ``raw``, its header or checksum is wrong, or a
    dictionary has more values than bytes for them, and :class:`UnsupportedFeatureError` for pages that are too large.
    """
    try:
        page = decode_page_header(bytes(raw[:_USUAL_HEADER]), offset)
    except TruncatedError:
        if len(raw) <= _USUAL_HEADER:
            raise
        page = decode_page_header(bytes(raw[:MAX_HEADER]), offset)
    end = page.header_length + page.compressed_size
    if end > len(raw):
        raise DamagedFileError("a page is longer than its place", offset=offset, expected=len(raw), found=end)
    check_page_size(page.compressed_size, page.uncompressed_size)
    if page.type == DICTIONARY_PAGE:
        check_dictionary_size(page, leaf)
    check_page_body(page, memoryview(raw)[page.header_length : end])
    return page


def split_chunk(chunk: ColumnChunk, raw: bytes) -> LeafPages:
    """Return all pages of a column chunk whose bytes are ``raw``. Pages of unknown types are left out.

    Raises :class:`DamagedFileError` if a page is broken, a dictionary page is not the first page, or the pages do not
    have the chunk's number of values.
    """
    pages = LeafPages(chunk)
    view, at, values = memoryview(raw), 0, 0
    while at < len(raw) and (values < chunk.num_values or not pages.data):
        page = read_page(view[at:], chunk.start + at, chunk.leaf)
        body = view[at : at + page.header_length + page.compressed_size]
        at += len(body)
        if page.is_data:
            pages.add(body, page)
            values += page.num_values
        elif page.type == DICTIONARY_PAGE:
            if pages.data or pages.dictionary:
                raise DamagedFileError("a second or late dictionary page", offset=page.offset)
            check_dictionary_place(chunk, page)
            pages.dictionary = body
    if values != chunk.num_values:
        raise DamagedFileError(
            "the pages of a column chunk have a different number of values than the footer says",
            expected=chunk.num_values,
            found=values,
        )
    return pages


class TooManyRows(Exception):
    """Raised if decoding all rows at once would take too much memory. ``rows`` may be decoded at a time."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows


def rows_at_once(chunks: Sequence[LeafPages], num_rows: int, budget: int) -> int:
    """Return how many of ``num_rows`` rows of a part may be decoded at a time within ``budget`` bytes.

    Values may always take :data:`FREE_RATIO` times the bytes of their pages. Raises the errors of
    :func:`sidecar.parquet.decoded_size.bytes_a_value`.
    """
    from sidecar.parquet.decoded_size import bytes_a_value  # compiles loops, which a plan does not need

    most = num_rows
    for pages in chunks:
        stored = sum(map(len, pages.data)) + len(pages.dictionary)
        known = list(zip(pages.headers, pages.data, strict=True))
        size = bytes_a_value(pages.chunk, pages.dictionary, known) * sum(pages.values)
        allowed = max(budget, FREE_RATIO * stored)
        if size > allowed:
            most = min(most, num_rows * allowed // size)
    return most


def decode_part(
    footer: Footer,
    shape: FileShape,
    part: SchemaPart,
    chunks: Sequence[LeafPages],
    num_rows: int,
    budget: int,
) -> Any:
    """Return the part's rows, as a chunked array of the top-level field that has only this part's leaves.

    Raises :class:`TooManyRows` if that would take more memory than ``budget`` (in bytes) allows,
    :class:`DamagedFileError` if pyarrow fails or finds a different number of rows, and
    :class:`UnsupportedFeatureError` if pyarrow does not implement what the pages need.
    """
    if (most := rows_at_once(chunks, num_rows, budget)) < num_rows:
        raise TooManyRows(most)
    return PartCursor(footer, shape, part, chunks, num_rows).take(num_rows)


def decode_together(
    footer: Footer, shape: FileShape, parts: Sequence[SchemaPart], chunks: Sequence[LeafPages], num_rows: int
) -> list[Any] | None:
    """Return the rows of each part, decoded as one file, which takes less time than a file for each.

    ``None`` if that fails: only decoding one by one finds out which part is wrong.
    """
    readable = [with_bytes_for_decimals(part) for part in parts]
    try:
        data = pa.BufferReader(_part_file(footer, shape, readable, chunks, num_rows))
        columns: list[Any] = pq.ParquetFile(data, **OPTIONS).read(use_threads=False).columns
        found = [with_decimals(one, part.field.type) for one, part in zip(columns, parts, strict=True)]
    except (SidecarError, pa.ArrowException, OSError, ValueError):
        return None
    return found if all(len(column) == num_rows for column in found) else None


class PartCursor:
    """Decodes the rows of a part's pages in order. ``row`` is the number of the next row, counted from 0."""

    def __init__(
        self, footer: Footer, shape: FileShape, part: SchemaPart, chunks: Sequence[LeafPages], num_rows: int
    ) -> None:
        self.row = 0
        self._place: dict[str, Any] = {"file": footer.name, "column": part.path}
        self._num_rows = num_rows
        self._kind = part.field.type
        part = with_bytes_for_decimals(part)
        with self._errors():
            self._file = pq.ParquetFile(pa.BufferReader(_part_file(footer, shape, [part], chunks, num_rows)), **OPTIONS)
        self._batches: Iterator[Any] | None = None
        self._left: list[Any] = []

    def take(self, rows: int) -> Any:
        """Return the next ``rows`` rows. Raises the errors of :func:`decode_part`, except :class:`TooManyRows`."""
        if self.row == 0 and rows == self._num_rows:
            with self._errors():
                column: Any = with_decimals(self._file.read(use_threads=False).column(0), self._kind)
            if len(column) != rows:
                raise DamagedFileError(
                    "the pages have the wrong number of rows", **self._place, expected=rows, found=len(column)
                )
            return column
        found: list[Any] = []
        missing = rows
        while missing:
            part = self._left.pop() if self._left else self._next(missing)
            if len(part) > missing:
                self._left.append(part.slice(missing))
                part = part.slice(0, missing)
            found.append(part)
            missing -= len(part)
        self.row += rows
        return pa.chunked_array(found)

    def _next(self, rows: int) -> Any:
        with self._errors():
            if self._batches is None:
                self._batches = self._file.iter_batches(rows, use_threads=False)
            batch = next(self._batches, None)
            if batch is not None:
                return with_decimals(batch.column(0), self._kind)
        raise DamagedFileError("the pages have the wrong number of rows", **self._place, expected=self._num_rows)

    def skip(self, rows: int, most: int) -> None:
        """Skip ``rows`` rows. They are decoded, at most ``most`` at a time, and dropped."""
        for start in range(0, rows, most):
            self.take(min(most, rows - start))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with located(self._place["file"], self._place["column"]):
                yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise undecodable("pyarrow cannot decode", error, **self._place) from error


def _part_file(
    footer: Footer, shape: FileShape, parts: Sequence[SchemaPart], chunks: Sequence[LeafPages], num_rows: int
) -> bytes:
    """Return the bytes of a Parquet file that has the pages of the parts' leaves as its only row group."""
    pieces: list[bytes | memoryview] = []
    metas, at = [], len(MAGIC)
    for pages in chunks:
        start = at
        chunk, dictionary = pages.chunk, pages.dictionary
        if dictionary and chunk.codec == "LZ4":
            dictionary = with_single_blocks(chunk, read_page(dictionary, chunk.start, chunk.leaf), dictionary)
        data = [_readable(chunk, *page) for page in zip(pages.headers, pages.data, strict=True)]
        pieces += [dictionary, *data]
        at += len(dictionary) + sum(map(len, data))
        metas.append(_chunk(footer, pages, start, start + len(dictionary), at))
    return finish_file(b"".join(pieces), part_footer(parts, shape, metas, num_rows))


def _readable(chunk: ColumnChunk, page: PageHeader, raw: bytes | memoryview) -> bytes | memoryview:
    """Return a data page of ``chunk`` that pyarrow decodes; ``raw`` itself if it does so already."""
    rewritten = with_rle_levels(chunk, page, raw)
    return with_single_blocks(chunk, page, raw) if rewritten is raw else rewritten


def _chunk(footer: Footer, pages: LeafPages, start: int, data: int, end: int) -> Struct:
    """Return the ColumnChunk of pages from ``start`` to ``end`` in the new file, the data pages from ``data`` on."""
    old = footer.chunk_metadata(pages.chunk)
    fields = {k: v for k, v in old.fields.items() if k in _KEPT_FIELDS}
    size = (I64, end - start)
    fields |= {5: (I64, sum(pages.values)), 6: size, 7: size, 9: (I64, data)}
    if data > start:
        fields[11] = (I64, start)
    return Struct({2: (I64, 0), 3: (STRUCT, Struct(fields))})


def count_entries(array: Any) -> list[npt.NDArray[np.int64]]:
    """Return, for each leaf below ``array``, the number of level entries of every row (int64[rows]).

    A null or an empty list has one entry. The sum is the number of values, nulls included, that page headers state.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return count_entries(array.storage)
    if pa.types.is_struct(kind):
        return [counts for child in array.flatten() for counts in count_entries(child)]
    if pa.types.is_map(kind):  # pyarrow counts and flattens lists, not maps
        return count_entries(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if not _is_list(kind):
        return [np.ones(len(array), np.int64)]
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    out = []
    for below in count_entries(array.flatten()):
        before = np.concatenate(([0], np.cumsum(below)))
        out.append(np.maximum(before[ends] - before[ends - lengths], 1))
    return out


def _is_list(kind: Any) -> bool:
    t = pa.types
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))
