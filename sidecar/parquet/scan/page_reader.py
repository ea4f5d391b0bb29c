"""Reads some rows of one row group: fetches the pages that hold them, decodes them and cuts them to those rows.

An offset index says where the pages of a leaf are and at which row each begins. The whole chunk is read instead if
the index is missing, contradicts itself, or contradicts a page that was read, and also if nearly all rows are
wanted. The leaves of one part are decoded together, so they are cut at rows where a page of every leaf begins.

Each page is compared with the index: its length, its number of values, and for lists the number of rows. A page
with a wrong checksum is an error, not a reason to read the whole chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, WrongChecksumError, located
from sidecar.filters.leaf import Leaf
from sidecar.parquet.compression import check_codec
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.page_indexes.page_bounds import offset_index_problems
from sidecar.parquet.page_indexes.page_index import OffsetIndex, OffsetIndexAnswer
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, DICTIONARY_PAGE
from sidecar.parquet.scan.known_indexes import KnownPageIndexes
from sidecar.parquet.scan.part_file import (
    LeafPages,
    PartCursor,
    TooManyRows,
    count_entries,
    decode_part,
    decode_together,
    read_page,
    rows_at_once,
    split_chunk,
)
from sidecar.parquet.scan.schema_parts import FileShape, SchemaPart
from sidecar.questions.row_ranges import RowRanges
from sidecar.storage.ranges import read_ranges
from sidecar.storage.source import Source

_DENSE = 0.9
"""Whole chunks are read if at least this share of a row group's rows is wanted, short gaps included."""

_SHORT_GAP = 64
"""Gaps of up to this many rows between wanted rows count as wanted: hardly any page is inside one."""

BUDGET = 32 << 20
"""Bytes that the decoded values of all parts of one read may take. Large pages may take more
(:data:`sidecar.parquet.scan.part_file.FREE_RATIO`)."""

MAX_ROWS = 1 << 20
"""Rows that are decoded at once, at most. A larger row group is read in parts of this many rows."""

_SMALL = 64 << 10
"""Bytes of a chunk that is decoded together with others: for larger ones that saves nothing."""

_MANY_RANGES = 64
"""With more ranges than this, rows are taken one by one instead of sliced."""


@dataclass
class PageCounts:
    """Counts the data pages that a scan read, over all row groups, and collects warnings."""

    data_pages: int = 0
    warnings: list[str] = field(default_factory=list)
    """For each index that exists but was not used: where it is, and why it was not used."""


class _Contradiction(Exception):
    """Raised if a page differs from what the offset index says about it."""


class NarrowedByFalseIndexError(Exception):
    """Raised if a page differs from an offset index by which rows were ruled out. The reader does not use it again."""


class _LargeRead:
    """A part whose rows are too large to decode together. It decodes at most ``most`` rows at a time, in order."""

    def __init__(self, start: Callable[[], PartCursor], most: int) -> None:
        self._start = start
        self._most = most
        self._cursor: PartCursor | None = None

    def read(self, rows: RowRanges) -> Any:
        """Return ``rows`` as a chunked array. Starts over if they are before the rows that were read last.

        Raises :class:`TooManyRows` for more than ``most`` rows, and :class:`UnsupportedFeatureError` if a single
        row is too large.
        """
        if self._most < 1:
            raise UnsupportedFeatureError(
                "the values of one row are too large to decode", expected=f"at most {BUDGET} bytes"
            )
        if rows.num_rows > self._most:
            raise TooManyRows(self._most)
        if self._cursor is None or rows.pairs[0, 0] < self._cursor.row:
            self._cursor = self._start()
        found = []
        for first, end in rows.pairs.tolist():
            self._cursor.skip(first - self._cursor.row, self._most)
            found.append(self._cursor.take(end - first))
        return pa.chunked_array([chunk for column in found for chunk in column.chunks], found[0].type)


@dataclass(frozen=True)
class _FetchedPages:
    """The pages of a part that are to be read: for each leaf its page numbers (int64[n]), and the rows in them."""

    indexes: tuple[OffsetIndex, ...]
    numbers: tuple[npt.NDArray[np.int64], ...]
    held: RowRanges


class RowGroupReader:
    """Reads rows of one row group. Keeps offset indexes and given dictionary pages for later reads."""

    def __init__(
        self,
        indexes: KnownPageIndexes,
        data: Source,
        footer: Footer,
        group: RowGroup,
        shape: FileShape,
        counts: PageCounts,
    ) -> None:
        """``indexes`` and ``data`` belong to the same file; ``counts`` is updated by every read."""
        self._indexes = indexes
        self._data = data
        self._footer = footer
        self._group = group
        self._shape = shape
        self._counts = counts
        self._offset_indexes: dict[int, OffsetIndex | None] = {}
        self._dictionaries: dict[int, bytes] = {}
        self._large: dict[SchemaPart, _LargeRead] = {}
        """Parts whose rows are too large to decode together."""
        self._narrowing: set[int] = set()
        """Leaves by whose page indexes rows were ruled out."""

    def narrowed_by(self, chunk: ColumnChunk) -> None:
        """Note that rows are ruled out by the page index of a chunk."""
        self._narrowing.add(chunk.leaf.index)

    def know_offset_index(self, chunk: ColumnChunk, answer: OffsetIndexAnswer) -> OffsetIndex | None:
        """Keep an offset index that was read already, and return it; ``None`` if it is missing or wrong."""
        found = None
        if isinstance(answer, OffsetIndex):
            problem = next(offset_index_problems(self._footer, chunk, answer), None)
            found = answer if problem is None else None
            if problem is not None:
                self._doubt(chunk, problem)
        elif answer is not None:
            self._doubt(chunk, answer.what)
        self._offset_indexes[chunk.leaf.index] = found
        return found

    def know_dictionary(self, chunk: ColumnChunk, raw: bytes) -> None:
        """Keep a dictionary page that was read already. ``raw`` begins with its header."""
        self._dictionaries[chunk.leaf.index] = raw

    def read(self, parts: Sequence[SchemaPart], rows: RowRanges) -> dict[SchemaPart, Any]:
        """Return ``rows`` of each part, as a chunked array of the top-level field that has only this part's leaves.

        Raises :class:`DamagedFileError` for broken pages (also for a wrong checksum), and
        :class:`UnsupportedFeatureError` for encrypted columns, chunks in other files and what pyarrow cannot decode.
        Raises :class:`sidecar.parquet.scan.part_file.TooManyRows` if this many rows are too large to decode together.
        """
        self._budget = BUDGET // max(len(parts), 1)
        for part in parts:
            self._check(part)
        if not rows:
            return {part: pa.chunked_array([], part.field.type) for part in parts}
        chosen = self._chosen(parts, rows)
        raw = self._fetch(chosen)
        together = self._decode_together([part for part, pages in chosen.items() if pages is None], raw, rows)
        left = {part: pages for part, pages in chosen.items() if part not in together}
        return together | {part: self._decode(part, pages, raw, rows) for part, pages in left.items()}

    def _decode_together(
        self, parts: Sequence[SchemaPart], raw: dict[tuple[int, int], bytes], rows: RowRanges
    ) -> dict[SchemaPart, Any]:
        """Decode parts that are read whole and are small as one file: many small chunks cost less than one by one.

        Whatever is wrong with one of them is found one by one, so then nothing is returned.
        """
        number, narrowing = self._group.num_rows, self._narrowing
        small = [
            part
            for part in parts
            if not part.depth
            and part not in self._large
            and narrowing.isdisjoint(leaf.index for leaf in part.leaves)
            and sum(self._chunk(leaf.index).total_compressed_size for leaf in part.leaves) <= _SMALL
        ]
        if len(small) < 2:
            return {}
        counted = self._counts.data_pages
        try:
            pages = [self._whole_pages(part, raw) for part in small]
            whole = all(min(rows_at_once(one, number, self._budget), MAX_ROWS) >= number for one in pages)
        except SidecarError:
            whole, pages = False, []
        flat = [leaf for one in pages for leaf in one]
        found = decode_together(self._footer, self._shape, small, flat, number) if whole else None
        if found is None:
            self._counts.data_pages = counted
            return {}
        held = RowRanges.all(number)
        return {part: _rows_of_held(column, rows, held) for part, column in zip(small, found, strict=True)}

    def share(self, parts: Sequence[SchemaPart], rows: RowRanges) -> float:
        """Return the share (0 to 1) of the bytes of ``parts`` that :meth:`read` would fetch for ``rows``."""
        fetched = total = 0
        for part, pages in self._chosen(parts, rows).items():
            for at, leaf in enumerate(part.leaves):
                size = self._chunk(leaf.index).total_compressed_size
                total += size
                if pages is None:
                    fetched += size
                else:
                    fetched += int(pages.indexes[at].compressed_page_sizes[pages.numbers[at]].sum())
        return fetched / total if total else 0.0

    def _chosen(self, parts: Sequence[SchemaPart], rows: RowRanges) -> dict[SchemaPart, _FetchedPages | None]:
        """Return the pages of each part that hold ``rows``; ``None`` for a part that is read whole."""
        sparse = rows.close_gaps(_SHORT_GAP).num_rows < _DENSE * self._group.num_rows
        if sparse:
            self._fetch_offset_indexes(parts)
        return {part: self._choose(part, rows) if sparse and part not in self._large else None for part in parts}

    def _chunk(self, leaf_index: int) -> ColumnChunk:
        found = self._group.columns.get(leaf_index)
        if found is not None:
            return found
        with located(self._footer.name):
            return self._group.columns[leaf_index]  # raises, and says why the chunk is locked

    def _check(self, part: SchemaPart) -> None:
        for leaf in part.leaves:
            chunk = self._chunk(leaf.index)
            place: dict[str, Any] = {"file": self._footer.name, "column": leaf.path}
            if chunk.file_path is not None:
                raise UnsupportedFeatureError("the column chunk is in another file (file_path)", **place)
            with located(**place):
                check_codec(chunk.codec)
            if not 0 < chunk.start <= chunk.start + chunk.total_compressed_size <= self._footer.offset:
                raise DamagedFileError(
                    "the column chunk is outside the file",
                    **place,
                    offset=chunk.start,
                    found=f"{chunk.total_compressed_size} bytes",
                )
            if chunk.num_values < self._group.num_rows:
                raise DamagedFileError(
                    "the column chunk has fewer values than its row group has rows",
                    **place,
                    expected=f"at least {self._group.num_rows}",
                    found=chunk.num_values,
                )

    def _doubt(self, chunk: ColumnChunk, why: str) -> None:
        self._counts.warnings.append(f"row group {chunk.row_group}, {chunk.leaf.path}: offset index not used: {why}")

    def _fetch_offset_indexes(self, parts: Iterable[SchemaPart]) -> None:
        indexes = (leaf.index for part in parts for leaf in part.leaves)
        chunks = [self._chunk(index) for index in indexes if index not in self._offset_indexes]
        for chunk, answer in zip(chunks, self._indexes.offsets(chunks), strict=True):
            self.know_offset_index(chunk, answer)

    def _choose(self, part: SchemaPart, rows: RowRanges) -> _FetchedPages | None:
        """Return the fewest pages that hold ``rows``; ``None`` if those are all pages or an offset index is missing."""
        indexes = [self._offset_indexes.get(leaf.index) for leaf in part.leaves]
        known = tuple(index for index in indexes if index is not None)
        if len(known) < len(indexes):
            return None
        edges = reduce(np.intersect1d, [index.first_row_indexes for index in known])
        wanted = rows.touches(np.append(edges, self._group.num_rows))
        if wanted.all():
            return None
        held = RowRanges.of_pages(edges, self._group.num_rows, wanted)
        numbers = tuple(np.flatnonzero(held.holds(index.first_row_indexes)) for index in known)
        return _FetchedPages(known, numbers, held)

    def _fetch(self, chosen: dict[SchemaPart, _FetchedPages | None]) -> dict[tuple[int, int], bytes]:
        """Return the bytes of every range that is needed, by (offset, length). Near ranges are fetched in one read."""
        ranges: set[tuple[int, int]] = set()
        for part, pages in chosen.items():
            for at, leaf in enumerate(part.leaves):
                chunk = self._chunk(leaf.index)
                if pages is None:
                    if part not in self._large:
                        ranges.add((chunk.start, chunk.total_compressed_size))
                    continue
                index, numbers = pages.indexes[at], pages.numbers[at]
                ranges |= set(_places(index, numbers))
                if leaf.index not in self._dictionaries and _surely_needs_dictionary(chunk, index):
                    ranges.add(_before_first_page(chunk, index))
        wanted = sorted(ranges)
        return dict(zip(wanted, read_ranges(self._data, wanted), strict=True))

    def _decode(
        self,
        part: SchemaPart,
        pages: _FetchedPages | None,
        raw: dict[tuple[int, int], bytes],
        rows: RowRanges,
    ) -> Any:
        if pages is not None:
            try:
                return _rows_of_held(self._decode_pages(part, pages, raw), rows, pages.held)
            except _Contradiction as contradiction:
                self._give_up(part, str(contradiction))
                raw = self._fetch({part: None})
            except TooManyRows:
                raw = self._fetch({part: None})
        if part in self._large:
            return self._large[part].read(rows)
        found = self._whole_pages(part, raw)
        self._check_whole(part, found)
        number = self._group.num_rows
        parts = (self._footer, self._shape, part, found, number)
        most = min(rows_at_once(found, number, self._budget), MAX_ROWS)
        if most < number:
            self._large[part] = _LargeRead(lambda: PartCursor(*parts), most)
            return self._large[part].read(rows)
        return _rows_of_held(PartCursor(*parts).take(number), rows, RowRanges.all(number))

    def _give_up(self, part: SchemaPart, why: str) -> None:
        """Stop using the offset indexes of a part. Raises :class:`NarrowedByFalseIndexError` if rows are missing."""
        self._doubt(self._chunk(part.leaves[0].index), why)
        leaves = {leaf.index for leaf in part.leaves}
        self._offset_indexes |= dict.fromkeys(leaves)
        if leaves & self._narrowing:
            self._narrowing -= leaves
            raise NarrowedByFalseIndexError

    def _check_whole(self, part: SchemaPart, pages: Sequence[LeafPages]) -> None:
        """Compare the pages of whole chunks with the offset indexes by which rows were ruled out."""
        for leaf, found in zip(part.leaves, pages, strict=True):
            index = self._offset_indexes.get(leaf.index)
            if leaf.index not in self._narrowing or index is None:
                continue
            counts = [count for count in found.values if count]
            if counts != index.rows(self._group.num_rows).tolist():
                self._give_up(part, "pages have other numbers of rows than it says")

    def _whole_pages(self, part: SchemaPart, raw: dict[tuple[int, int], bytes]) -> list[LeafPages]:
        found = []
        for leaf in part.leaves:
            chunk = self._chunk(leaf.index)
            with located(self._footer.name, leaf.path):
                found.append(split_chunk(chunk, raw[chunk.start, chunk.total_compressed_size]))
                if not leaf.max_rep and chunk.num_values != self._group.num_rows:
                    raise DamagedFileError(
                        "the column chunk has a different number of rows than its row group",
                        expected=self._group.num_rows,
                        found=chunk.num_values,
                    )
        self._counts.data_pages += sum(len(pages.data) for pages in found)
        return found

    def _decode_pages(self, part: SchemaPart, pages: _FetchedPages, raw: dict[tuple[int, int], bytes]) -> Any:
        found = []
        for at, leaf in enumerate(part.leaves):
            with located(self._footer.name, leaf.path):
                found.append(self._chunk_pages(self._chunk(leaf.index), pages.indexes[at], pages.numbers[at], raw))
        self._counts.data_pages += sum(len(chunk.data) for chunk in found)
        try:
            column = decode_part(self._footer, self._shape, part, found, pages.held.num_rows, self._budget)
        except DamagedFileError as error:
            if not part.leaves[0].max_rep:
                raise
            raise _Contradiction(error.what) from error  # only decoding counts the rows of lists
        if part.leaves[0].max_rep:
            self._check_rows(part, pages, found, column)
        return column

    def _chunk_pages(
        self,
        chunk: ColumnChunk,
        index: OffsetIndex,
        numbers: npt.NDArray[np.int64],
        raw: dict[tuple[int, int], bytes],
    ) -> LeafPages:
        pages, needs_dictionary = LeafPages(chunk), False
        rows = index.rows(self._group.num_rows)
        for number, place in zip(numbers, _places(index, numbers), strict=True):
            page = _read_page(raw[place], place[0], chunk.leaf)
            if not page.is_data or page.header_length + page.compressed_size != place[1]:
                raise _Contradiction(f"page {number} is not where the offset index says")
            if not chunk.leaf.max_rep and page.num_values != rows[number]:
                raise _Contradiction(f"page {number} has {page.num_values} rows, not {rows[number]}")
            pages.add(raw[place], page)
            needs_dictionary |= page.encoding in DICTIONARY_ENCODINGS
        if needs_dictionary:
            pages.dictionary = self._dictionary(chunk, index, raw)
        return pages

    def _dictionary(
        self, chunk: ColumnChunk, index: OffsetIndex, raw: dict[tuple[int, int], bytes]
    ) -> bytes | memoryview:
        """Return the dictionary page, header included. It is before the first data page."""
        known = self._dictionaries.get(chunk.leaf.index)
        if known is not None:
            return known
        place = _before_first_page(chunk, index)
        if not place[1]:
            raise _Contradiction("there is no room for a dictionary page before the first data page")
        data = raw[place] if place in raw else self._data.read(*place)
        page = _read_page(data, chunk.start, chunk.leaf)
        if page.type != DICTIONARY_PAGE:
            raise _Contradiction("the page before the first data page is not a dictionary page")
        return memoryview(data)[: page.header_length + page.compressed_size]

    def _check_rows(self, part: SchemaPart, pages: _FetchedPages, found: Sequence[LeafPages], column: Any) -> None:
        """Check that pages of lists end where the rows end that pyarrow put together.

        Headers of v1 pages count values, not rows, so wrong rows in an offset index show only here.
        """
        counts = [[] for _ in part.leaves]  # type: list[list[Any]]
        for chunk in column.chunks:
            for leaf, entries in zip(counts, count_entries(chunk), strict=True):
                leaf.append(entries)
        for at, leaf in enumerate(counts):
            entries_before = np.concatenate(([0], np.cumsum(np.concatenate(leaf)))) if leaf else np.zeros(1)
            rows = pages.indexes[at].rows(self._group.num_rows)[pages.numbers[at]]
            if not np.array_equal(entries_before[np.cumsum(rows)], np.cumsum(found[at].values)):
                raise _Contradiction("a page has other rows than the offset index says")


def _read_page(raw: bytes, offset: int, leaf: Leaf) -> Any:
    """Read the header of a page where the offset index says that one is.

    Damage may be the fault of the index, so it is a contradiction. A wrong checksum is the fault of the page.
    """
    try:
        return read_page(raw, offset, leaf)
    except WrongChecksumError:
        raise
    except DamagedFileError as error:
        raise _Contradiction(error.what) from error


def _places(index: OffsetIndex, numbers: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (offset, length) in bytes of the pages with these numbers."""
    offsets, sizes = index.offsets[numbers].tolist(), index.compressed_page_sizes[numbers].tolist()
    return list(zip(offsets, sizes, strict=True))


def _surely_needs_dictionary(chunk: ColumnChunk, index: OffsetIndex) -> bool:
    """Return whether every data page is dictionary-encoded, so that the dictionary can be fetched along with it.

    False if the chunk may have pages of other encodings. Then the dictionary is fetched when a page needs it.
    """
    stats = chunk.encoding_stats
    fell_back = stats is None or any(
        entry.page_type != DICTIONARY_PAGE and entry.encoding not in DICTIONARY_ENCODINGS for entry in stats
    )
    return not fell_back and index.offsets[0] > chunk.start


def _before_first_page(chunk: ColumnChunk, index: OffsetIndex) -> tuple[int, int]:
    """Return (offset, length) of the bytes before a chunk's first data page, where a dictionary page is."""
    return chunk.start, int(index.offsets[0]) - chunk.start


def _rows_of_held(column: Any, rows: RowRanges, held: RowRanges) -> Any:
    """Return ``rows`` of a column that has the rows ``held``, which include them."""
    if rows == held:
        return column
    if len(rows.pairs) > _MANY_RANGES:
        return column.take(pa.array(held.places_of(rows.rows())))
    starts = held.places_of(rows.pairs[:, 0]).tolist()
    lengths = (rows.pairs[:, 1] - rows.pairs[:, 0]).tolist()
    pieces = [column.slice(start, length) for start, length in zip(starts, lengths, strict=True)]
    return pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], column.type)
