"""Builds the page index of a column chunk from its pages.

Every page header is read, checksums are verified if there are any, and levels and values are summed up page by page.
Page statistics are not used: most writers leave none, and older ones leave wrong ones.

The OffsetIndex lists the data pages in order; their sizes include the header. It needs pages that begin with a row,
which v1 data pages of some writers do not. Pages without entries are not listed, because two pages cannot begin at
the same row.

The ColumnIndex is left out, with a reason, if the order of the column's values is not known
(:func:`sidecar.parquet.bounds.find_ordering`: INT96 in TYPE_ORDER, INTERVAL, no column orders), if a column in
TYPE_ORDER has a NaN (readers that ignore nan_counts would lose it), if encoding or codec is unknown, or if its bounds
take more than 4,096 bytes a page. Otherwise:

- null pages have empty bounds; null_counts count the entries below the highest definition level;
- long strings are cut to 64 bytes, see :func:`sidecar.parquet.bounds.truncate_upper`;
- in TYPE_ORDER a lower bound of zero is -0.0 and an upper one is +0.0;
- boundary_order is computed from the bounds as written, without null pages; ASCENDING if both would be right;
- an index that contradicts the chunk's statistics, or replaces one of a writer that is not believed, says that it is
  ours (:data:`sidecar.parquet.page_indexes.page_index.OURS`);
- histograms are written where they say more than null_counts: for repetition levels if the highest is above 0,
  for definition levels if it is above 1; nan_counts are written for all floats.

parquet.thrift (``ColumnIndex``, ``OffsetIndex``, ``ColumnOrder``), PageIndex.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, located
from sidecar.parquet.bounds import TYPE_ORDER, Ordering, find_ordering, truncate_lower, truncate_upper
from sidecar.parquet.compression import decompress
from sidecar.parquet.dictionary import check_dictionary_encoding, decode_dictionary
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.levels import Histogram, PageLevels, open_page
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import (
    ASCENDING,
    DESCENDING,
    UNORDERED,
    ColumnIndex,
    OffsetIndex,
    encode_column_index,
    encode_offset_index,
    marked_column_index,
    marked_offset_index,
)
from sidecar.parquet.pages import (
    DICTIONARY_PAGE,
    HEADER_WINDOW,
    PLAIN,
    ChunkReader,
    PageHeader,
    check_dictionary_place,
)
from sidecar.parquet.stored_values import StoredValues
from sidecar.parquet.trust import is_float
from sidecar.parquet.value_bounds import PageFolder, PageValues
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import Source

WINDOW = 4 << 20
"""Bytes of a chunk that one read fetches."""

LARGE_DICTIONARY = 64 << 10
"""Stored bytes of a dictionary page that are not read for one page, if another page does without it."""

MAX_BOUND = 4096
"""Bytes of bounds a page, on average, above which a ColumnIndex is not worth its size."""


class BuiltPageIndex(NamedTuple):
    """The indexes built for a chunk. ``reason`` says why one of them is missing; ``""`` if both are there."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None
    reason: str


@dataclass(frozen=True)
class ScannedPage:
    """A data page with entries: its header, levels and values. ``values`` is ``None`` if they were not summed up."""

    header: PageHeader
    rows: int
    starts_row: bool
    levels: PageLevels | None
    values: PageValues | None


@dataclass
class ScannedChunk:
    """The data pages of a chunk; those without entries are in ``empty_pages``.

    ``first`` is the number of the first one, ``first_row`` that of its first row. ``reason`` says why the values could
    not be decoded; ``""`` if they could.
    """

    first: int = 0
    first_row: int = 0
    pages: list[ScannedPage] = field(default_factory=list)
    empty_pages: list[PageHeader] = field(default_factory=list)
    reason: str = ""


def build_page_index(
    source: Source, footer: Footer, chunk: ColumnChunk, taker: StoredValues | None = None
) -> BuiltPageIndex:
    """Build both indexes of a chunk, as far as that is possible; ``taker`` gets the values too.

    Reads the whole chunk, in windows of :data:`WINDOW` bytes. Raises :class:`DamagedFileError` for broken pages: also
    for a wrong checksum, a second or late dictionary page, or rows or values that differ in number from the footer.
    If the pages are sound but cannot be indexed, the answer has the reason.
    """
    try:
        scanned = scan_chunk(source, footer, chunk, taker)
    except UnsupportedFeatureError as error:
        return BuiltPageIndex(None, None, _reason(error))
    offset_index, reason = _offset_index(footer, chunk, scanned)
    if offset_index is None:
        return BuiltPageIndex(None, None, reason)
    if any(offset_index_problems(footer, chunk, offset_index)):
        offset_index = marked_offset_index(offset_index)
    ordering = find_ordering(footer, chunk.leaf)
    if isinstance(ordering, Unknown) or scanned.reason:
        reason = ordering.reason if isinstance(ordering, Unknown) else ""
        return BuiltPageIndex(None, offset_index, scanned.reason or reason)
    if not scanned.pages:
        return BuiltPageIndex(None, offset_index, "the chunk has no rows")
    return _believed(footer, chunk, _column_index(chunk, ordering, scanned.pages, offset_index))


def _believed(footer: Footer, chunk: ColumnChunk, built: BuiltPageIndex) -> BuiltPageIndex:
    """Return a built ColumnIndex so that readers of the file believe it, or without it if they must not."""
    column, offset = built.column_index, built.offset_index
    if column is None or not any(column_index_problems(footer, chunk, column, offset)):
        return built
    marked = marked_column_index(column)
    problem = next(column_index_problems(footer, chunk, marked, offset), "")
    return BuiltPageIndex(None if problem else marked, offset, problem)


def scan_chunk(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    taker: StoredValues | None = None,
) -> ScannedChunk:
    """Read all pages of a chunk and sum them up.

    ``taker`` gets the values too; it is complete afterwards, unless the codec or an encoding is unknown. Raises
    :class:`DamagedFileError` as :func:`build_page_index` does, and :class:`UnsupportedFeatureError` if not even the
    rows of the pages can be counted.
    """
    ordering = find_ordering(footer, chunk.leaf)
    folder = PageFolder(chunk.leaf, ordering) if isinstance(ordering, Ordering) else None
    return _scan(source, chunk, footer.row_groups[chunk.row_group].num_rows, folder, taker)


def scan_one_page(
    source: Source,
    footer: Footer,
    chunk: ColumnChunk,
    taker: StoredValues | None = None,
    index: OffsetIndex | None = None,
) -> ScannedChunk:
    """Read one data page that has a value, and what is before the first such page; ``taker`` gets the values.

    It is the last page where ``index`` leads to one of PLAIN values and a large dictionary comes before the first page,
    because decoding the dictionary takes longer than all else. In other chunks, and in those with a broken last page,
    it is the first one with a value: mostly the dictionary page and one data page are read. A chunk without values is
    read to its end. ``reason`` of the answer says why the page's values could not be decoded. Raises as
    :func:`scan_chunk`.
    """
    ordering = find_ordering(footer, chunk.leaf)
    folder = PageFolder(chunk.leaf, ordering) if isinstance(ordering, Ordering) else None
    with located(source.name, chunk.leaf.path):
        reader = ChunkReader(source, chunk, HEADER_WINDOW)
        if index is not None and (last := _last_page(reader, chunk, index)) is not None:
            scan = _ChunkScan(reader, chunk, folder, taker)
            with suppress(DamagedFileError):
                scan.page(last, first=False)
            if scan.has_value:
                rows = footer.row_groups[chunk.row_group].num_rows - scan.result.pages[0].rows
                scan.result.first, scan.result.first_row = index.num_pages - 1, rows
                scan.hand_over()
                return scan.result
        scan = _ChunkScan(reader, chunk, folder, taker)
        for number, page in enumerate(reader.pages()):
            with located(source.name, chunk.leaf.path, page.offset):
                scan.page(page, first=number == 0)
            if scan.has_value:
                break
        scan.hand_over()
    return scan.result


def _last_page(reader: ChunkReader, chunk: ColumnChunk, index: OffsetIndex) -> PageHeader | None:
    """Return the last page by ``index`` if it has PLAIN values and the first page has a large dictionary before it."""
    at = int(index.offsets[-1]) if index.num_pages > 1 else 0
    if chunk.data_page_offset - chunk.start < LARGE_DICTIONARY or not chunk.data_page_offset < at < reader.end:
        return None
    try:
        page = reader.header(at)
    except (DamagedFileError, UnsupportedFeatureError):
        return None
    return page if page.is_data and page.encoding == PLAIN else None


def nan_counts(pages: Sequence[ScannedPage]) -> list[int]:
    """Return the number of NaN of each page; 0 for a page whose values were not summed up."""
    return [0 if page.values is None else page.values.nan_count for page in pages]


def lost_nan(index: ColumnIndex, nans: Sequence[int]) -> str:
    """Return why readers may lose NaN rows through a ColumnIndex; ``""`` if they cannot.

    ``nans`` has the number of NaN of each page. Bounds leave NaN out, so the format demands nan_counts. Without them
    a reader must expect NaN in every page. Spark's reader does not, and prunes pages that have NaN.
    """
    pages = [page for page, count in enumerate(nans) if count]
    if index.nan_counts is not None or not pages:
        return ""
    return f"{len(pages)} pages (the first is {pages[0]}) have NaN, but there are no nan_counts"


def nan_problem(source: Source, footer: Footer, chunk: ColumnChunk, index: ColumnIndex) -> str:
    """Return why readers may lose NaN rows through the ColumnIndex of a chunk; ``""`` if they cannot.

    Reads the whole chunk if it is of floats and the index has no nan_counts. Raises :class:`StorageError`.
    """
    if index.nan_counts is not None or not is_float(chunk.leaf):
        return ""
    try:
        scanned = scan_chunk(source, footer, chunk)
    except StorageError:
        raise
    except SidecarError as error:
        return f"NaN cannot be ruled out: {_reason(error)}"
    if scanned.reason:
        return f"there are no nan_counts, and NaN cannot be ruled out: {scanned.reason}"
    return lost_nan(index, nan_counts(scanned.pages))


def take_values(source: Source, chunk: ColumnChunk, num_rows: int, taker: StoredValues) -> ScannedChunk:
    """Read all pages of a chunk and hand their values to ``taker``; no bounds are computed.

    ``num_rows`` is the number of rows of the row group. Raises as :func:`scan_chunk`.
    """
    return _scan(source, chunk, num_rows, None, taker)


def _scan(
    source: Source, chunk: ColumnChunk, num_rows: int, folder: PageFolder | None, taker: StoredValues | None
) -> ScannedChunk:
    with located(source.name, chunk.leaf.path):
        reader = ChunkReader(source, chunk, WINDOW)
        scan = _ChunkScan(reader, chunk, folder, taker)
        for number, page in enumerate(reader.pages()):
            with located(source.name, chunk.leaf.path, page.offset):
                scan.page(page, first=number == 0)
        scan.finish(num_rows)
    return scan.result


class _ChunkScan:
    def __init__(
        self, reader: ChunkReader, chunk: ColumnChunk, folder: PageFolder | None, taker: StoredValues | None
    ) -> None:
        self.result = ScannedChunk()
        self._reader = reader
        self._chunk = chunk
        self._folder = folder
        self._taker = taker

    def page(self, page: PageHeader, *, first: bool) -> None:
        if page.type == DICTIONARY_PAGE:
            if not first:
                raise DamagedFileError("a dictionary page is not the chunk's first page")
            check_dictionary_place(self._chunk, page)
            self._dictionary(page)
        elif page.is_data:
            self._data(page)

    def _dictionary(self, page: PageHeader) -> None:
        body = self._reader.body(page)
        if self._folder is None and self._taker is None:
            return
        try:
            check_dictionary_encoding(page)
            plain = np.frombuffer(decompress(self._chunk.codec, body, page.uncompressed_size), np.uint8)
            smallest = self._chunk.leaf.width or 4
            if page.num_values * smallest > len(plain):
                raise DamagedFileError("a dictionary page is too short for its values", found=page.num_values)
            dictionary = decode_dictionary(plain, page.num_values, self._chunk.leaf)
            if self._taker is not None:
                self._taker.set_dictionary(dictionary)
            if self._folder is not None:
                self._folder.set_dictionary(dictionary)
        except UnsupportedFeatureError as error:
            self._give_up(error)

    def _data(self, page: PageHeader) -> None:
        body = self._reader.body(page)
        if not page.num_values:
            self.result.empty_pages.append(page)
            return
        leaf = self._chunk.leaf
        try:
            levels, data = open_page(self._chunk.codec, page, body, leaf)
        except UnsupportedFeatureError as error:
            if leaf.max_rep:
                raise
            self._give_up(error)  # a flat column has one row an entry, so its rows are known without its values
            self.result.pages.append(ScannedPage(page, page.num_values, True, None, None))
            return
        values = None
        try:
            if self._taker is not None:
                self._taker.add(page.encoding, levels.num_present, data)
            if self._folder is not None:
                values = self._folder.add(page.encoding, levels.num_present, data)
        except UnsupportedFeatureError as error:
            self._give_up(error)
        self.result.pages.append(ScannedPage(page, levels.rows, levels.starts_row, levels, values))

    def _give_up(self, error: UnsupportedFeatureError) -> None:
        """Stop decoding values. The OffsetIndex does not need them."""
        self._folder = self._taker = None
        self.result.reason = self.result.reason or _reason(error)

    @property
    def has_value(self) -> bool:
        """Whether the scan has met a value, or has failed to decode one."""
        last = self.result.pages[-1].levels if self.result.pages else None
        return bool(self.result.reason) or (last is not None and last.num_present > 0)

    def hand_over(self) -> None:
        """End the scan after the pages so far, and give their values to the taker."""
        self._sum_up()
        if self._taker is not None:
            try:
                self._taker.hand_over()
            except UnsupportedFeatureError as error:
                self._give_up(error)

    def _sum_up(self) -> None:
        if self._folder is not None:
            try:
                self._folder.finish()
            except UnsupportedFeatureError as error:
                self._give_up(error)

    def finish(self, num_rows: int) -> None:
        self._sum_up()
        for what, found, expected in (
            ("values", sum(page.header.num_values for page in self.result.pages), self._chunk.num_values),
            ("rows", sum(page.rows for page in self.result.pages), num_rows),
        ):
            if found != expected:
                raise DamagedFileError(
                    f"the pages of a column chunk have a different number of {what} than the footer says",
                    expected=expected,
                    found=found,
                )
        if self._taker is not None:
            with suppress(UnsupportedFeatureError):  # the taker then says itself that it is not complete
                self._taker.finish()


def _offset_index(footer: Footer, chunk: ColumnChunk, scanned: ScannedChunk) -> tuple[OffsetIndex | None, str]:
    locations: list[tuple[int, int, int]] = []
    first_row = 0
    for page in scanned.pages:
        if not page.starts_row:
            return None, f"the page at {page.header.offset} does not begin with a row"
        locations.append((page.header.offset, page.header.end - page.header.offset, first_row))
        first_row += page.rows
    if scanned.pages and any(page.offset < locations[0][0] for page in scanned.empty_pages):
        # readers take the bytes between a chunk's start and its first listed page for a dictionary page
        return None, "the chunk begins with an empty data page"
    if not scanned.pages:
        locations = [(page.offset, page.end - page.offset, 0) for page in scanned.empty_pages[:1]]
    data_bytes = None
    if chunk.leaf.physical == "BYTE_ARRAY" and scanned.pages:
        sums = [page.values.data_bytes for page in scanned.pages if page.values is not None]
        data_bytes = sums if len(sums) == len(locations) and not scanned.reason else None
    return encode_offset_index(locations, data_bytes), ""


def _column_index(
    chunk: ColumnChunk, ordering: Ordering, pages: list[ScannedPage], offset_index: OffsetIndex
) -> BuiltPageIndex:
    values = [page.values or PageValues() for page in pages]
    floats = is_float(chunk.leaf)
    if floats and ordering.column_order == TYPE_ORDER and any(page.nan_count for page in values):
        return BuiltPageIndex(None, offset_index, "the column has NaN, which its order does not place")
    lower, upper = _bounds(chunk, ordering, values)
    if sum(map(len, lower)) + sum(map(len, upper)) > MAX_BOUND * len(pages):
        return BuiltPageIndex(None, offset_index, f"the bounds take more than {MAX_BOUND} bytes a page")
    levels = [page.levels for page in pages if page.levels is not None]
    null_pages = [page.lower is None for page in values]
    keys = [(ordering.key(lower[i]), ordering.key(upper[i])) for i, null in enumerate(null_pages) if not null]
    index = encode_column_index(
        null_pages,
        lower,
        upper,
        _boundary_order(keys),
        [page.num_nulls for page in levels],
        nan_counts=[page.nan_count for page in values] if floats else None,
        repetition_level_histograms=_histograms([page.repetition for page in levels], chunk.leaf.max_rep > 0),
        definition_level_histograms=_histograms([page.definition for page in levels], chunk.leaf.max_def > 1),
    )
    return BuiltPageIndex(index, offset_index, "")


def _bounds(chunk: ColumnChunk, ordering: Ordering, values: list[PageValues]) -> tuple[list[bytes], list[bytes]]:
    lower = [page.lower or b"" for page in values]
    upper = [page.upper or b"" for page in values]
    if ordering.kind == "bytes" and chunk.leaf.physical == "BYTE_ARRAY":
        return [truncate_lower(bound) for bound in lower], [truncate_upper(bound) for bound in upper]
    if ordering.kind == "float" and ordering.column_order == TYPE_ORDER:
        zero = bytes(ordering.width or 0)
        negative = zero[:-1] + b"\x80"
        return [negative if b == zero else b for b in lower], [zero if b == negative else b for b in upper]
    return lower, upper


def _boundary_order(bounds: list[tuple[Any, Any]]) -> int:
    def ordered(pairs: list[tuple[Any, Any]]) -> bool:
        return all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(pairs))

    if ordered(bounds):
        return ASCENDING
    return DESCENDING if ordered(bounds[::-1]) else UNORDERED


def _histograms(pages: list[Histogram], wanted: bool) -> list[int] | None:
    return [int(count) for page in pages for count in page] if wanted else None


def _reason(error: SidecarError) -> str:
    return error.what if error.found is None else f"{error.what}: {error.found}"
