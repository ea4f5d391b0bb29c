"""Some rows of one row group: the pages that hold them, fetched, decoded and cut to those rows.

An offset index tells where the pages of a leaf are and which rows they begin with. Where it is missing, contradicts
itself or turns out to be wrong about a page that was read, the whole chunk is read instead, and so where nearly all
rows are wanted. The leaves of one part are cut at rows where pages of all of them begin.

What a page says of itself is held against the index: its length, its values, and for lists the rows that they
make up. Checksums of pages count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, WrongChecksumError, located
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.page_bounds import offset_index_problems
from sidecar.parquet.page_index import OffsetIndex, OffsetIndexAnswer
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, DICTIONARY_PAGE
from sidecar.parquet.scan.known_indexes import KnownPageIndexes
from sidecar.parquet.scan.part_file import (
    LeafPages,
    PartCursor,
    TooManyRows,
    count_entries,
    decode_part,
    read_page,
    rows_at_once,
    split_chunk,
)
from sidecar.parquet.scan.schema_parts import FileShape, SchemaPart
from sidecar.questions.row_ranges import RowRanges
from sidecar.source import Source, read_ranges

_DENSE = 0.9
"""Share of a row group's rows, short gaps included, from which on whole chunks are read."""

_SHORT_GAP = 64
"""Rows between wanted ones that a page would hardly leave out."""

BUDGET = 32 << 20
"""Bytes that the values of all parts that are read together may take, where their pages are small."""

MAX_ROWS = 1 << 20
"""Rows of the largest row group that is decoded at once; larger ones are read in parts of so many rows."""

_MANY_RANGES = 64
"""Ranges from which on rows are gathered one by one instead of sliced."""


@dataclass
class PageCounts:
    """What was read: data pages, and the rows that were decoded, of each part once."""

    data_pages: int = 0
    whole_chunks: int = 0
    doubts: list[str] = field(default_factory=list)
    """Why an offset index was not used, where there is one."""


class _Contradiction(Exception):
    """A page is not what the offset index says."""


class _LargeRead:
    """The rows of a part that are too large to be decoded together, ``most`` at a time, in their order."""

    def __init__(self, start: Callable[[], PartCursor], most: int) -> None:
        self._start = start
        self._most = most
        self._cursor: PartCursor | None = None

    def read(self, rows: RowRanges) -> Any:
        """Some rows; from the first one on again where they are in front of those that were read before."""
        if self._most < 1:
            raise UnsupportedFeatureError(
                "the values of one row are too large to be decoded", expected=f"at most {BUDGET} bytes"
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
    """The pages of a part to be read: for each leaf their numbers, and the rows that they hold."""

    indexes: tuple[OffsetIndex, ...]
    numbers: tuple[npt.NDArray[np.int64], ...]
    held: RowRanges


class RowGroupReader:
    """Reads rows of one row group; offset indexes and dictionary pages are fetched once."""

    def __init__(
        self,
        indexes: KnownPageIndexes,
        data: Source,
        footer: Footer,
        group: RowGroup,
        shape: FileShape,
        counts: PageCounts,
    ) -> None:
        """``indexes`` and ``data`` are of the same file."""
        self._indexes = indexes
        self._data = data
        self._footer = footer
        self._group = group
        self._shape = shape
        self._counts = counts
        self._offset_indexes: dict[int, OffsetIndex | None] = {}
        self._dictionaries: dict[int, bytes] = {}
        self._large: dict[SchemaPart, _LargeRead] = {}
        """Parts whose rows are too large to be decoded together."""

    def know_offset_index(self, chunk: ColumnChunk, answer: OffsetIndexAnswer) -> OffsetIndex | None:
        """Keep an offset index that was read already, if it can be believed."""
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
        """Keep a dictionary page that was read already, header included."""
        self._dictionaries[chunk.leaf.index] = raw

    def read(self, parts: Sequence[SchemaPart], rows: RowRanges) -> dict[SchemaPart, Any]:
        """``rows`` of each part as a chunked array of the top-level field, cut down to the part.

        Raises :class:`DamagedFileError` for broken pages (a wrong checksum included), and
        :class:`UnsupportedFeatureError` for encrypted columns, chunks in other files and what pyarrow cannot decode.
        Raises :class:`sidecar.parquet.scan.part_file.TooManyRows` where so many rows are too large to be decoded
        together.
        """
        self._budget = BUDGET // max(len(parts), 1)
        for part in parts:
            self._check(part)
        if not rows:
            return {part: pa.chunked_array([], part.field.type) for part in parts}
        chosen = self._chosen(parts, rows)
        raw = self._fetch(chosen)
        return {part: self._decode(part, pages, raw, rows) for part, pages in chosen.items()}

    def share(self, parts: Sequence[SchemaPart], rows: RowRanges) -> float:
        """The share of the bytes of ``parts`` that :meth:`read` would fetch for ``rows``; 0 where there are none."""
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
        """The pages of each part that hold ``rows``, ``None`` where all of it is read."""
        sparse = rows.close_gaps(_SHORT_GAP).num_rows < _DENSE * self._group.num_rows
        if sparse:
            self._fetch_offset_indexes(parts)
        return {
            part: self._choose(part, rows) if sparse and part not in self._large else None for part in parts
        }

    def _chunk(self, leaf_index: int) -> ColumnChunk:
        return self._group.columns[leaf_index]

    def _check(self, part: SchemaPart) -> None:
        for leaf in part.leaves:
            chunk = self._chunk(leaf.index)
            place: dict[str, Any] = {"file": self._footer.name, "column": leaf.path}
            if chunk.encrypted:
                raise UnsupportedFeatureError("the column is encrypted (Parquet modular encryption)", **place)
            if chunk.file_path is not None:
                raise UnsupportedFeatureError("the column chunk names another file (file_path)", **place)
            if not 0 < chunk.start <= chunk.start + chunk.total_compressed_size <= self._footer.offset:
                raise DamagedFileError(
                    "the column chunk lies outside the file",
                    **place,
                    offset=chunk.start,
                    found=f"{chunk.total_compressed_size} bytes",
                )

    def _doubt(self, chunk: ColumnChunk, why: str) -> None:
        self._counts.doubts.append(
            f"row group {chunk.row_group}, {chunk.leaf.path}: offset index not used: {why}"
        )

    def _fetch_offset_indexes(self, parts: Iterable[SchemaPart]) -> None:
        indexes = (leaf.index for part in parts for leaf in part.leaves)
        chunks = [self._chunk(index) for index in indexes if index not in self._offset_indexes]
        for chunk, answer in zip(chunks, self._indexes.offsets(chunks), strict=True):
            self.know_offset_index(chunk, answer)

    def _choose(self, part: SchemaPart, rows: RowRanges) -> _FetchedPages | None:
        """The fewest pages that hold ``rows``; ``None`` where that is the whole row group."""
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
        """Every range that is needed, by (offset, length); near ones in one read."""
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
                    ranges.add(_gap(chunk, index))
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
                return _cut(self._decode_pages(part, pages, raw), rows, pages.held)
            except _Contradiction as contradiction:
                self._doubt(self._chunk(part.leaves[0].index), str(contradiction))
                raw = self._fetch({part: None})
            except TooManyRows:
                raw = self._fetch({part: None})
        if part in self._large:
            return self._large[part].read(rows)
        found = self._whole_pages(part, raw)
        number = self._group.num_rows
        parts = (self._footer, self._shape, part, found, number)
        most = min(rows_at_once(found, number, self._budget), MAX_ROWS)
        if most < number:
            self._large[part] = _LargeRead(lambda: PartCursor(*parts), most)
            return self._large[part].read(rows)
        return _cut(PartCursor(*parts).take(number), rows, RowRanges.all(number))

    def _whole_pages(self, part: SchemaPart, raw: dict[tuple[int, int], bytes]) -> list[LeafPages]:
        found = []
        for leaf in part.leaves:
            chunk = self._chunk(leaf.index)
            with located(self._footer.name, leaf.path):
                found.append(split_chunk(chunk, raw[chunk.start, chunk.total_compressed_size]))
                if not leaf.max_rep and chunk.num_values != self._group.num_rows:
                    raise DamagedFileError(
                        "the column chunk has another number of rows",
                        expected=self._group.num_rows,
                        found=chunk.num_values,
                    )
        self._counts.whole_chunks += len(found)
        self._counts.data_pages += sum(len(pages.data) for pages in found)
        return found

    def _decode_pages(self, part: SchemaPart, pages: _FetchedPages, raw: dict[tuple[int, int], bytes]) -> Any:
        found = []
        for at, leaf in enumerate(part.leaves):
            with located(self._footer.name, leaf.path):
                found.append(
                    self._chunk_pages(self._chunk(leaf.index), pages.indexes[at], pages.numbers[at], raw)
                )
        self._counts.data_pages += sum(len(chunk.data) for chunk in found)
        try:
            column = decode_part(self._footer, self._shape, part, found, pages.held.num_rows, self._budget)
        except DamagedFileError as error:
            if not part.leaves[0].max_rep:
                raise
            raise _Contradiction(error.what) from error  # rows of lists are only known now
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
            page = _read_page(raw[place], place[0])
            if not page.is_data or page.header_length + page.compressed_size != place[1]:
                raise _Contradiction(f"page {number} is not where it says")
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
        """The dictionary page, which stands in front of the data pages."""
        known = self._dictionaries.get(chunk.leaf.index)
        if known is not None:
            return known
        place = _gap(chunk, index)
        if not place[1]:
            raise _Contradiction("there is no room for the dictionary")
        data = raw[place] if place in raw else self._data.read(*place)
        page = _read_page(data, chunk.start)
        if page.type != DICTIONARY_PAGE:
            raise _Contradiction("there is no dictionary where it should be")
        return memoryview(data)[: page.header_length + page.compressed_size]

    def _check_rows(
        self, part: SchemaPart, pages: _FetchedPages, found: Sequence[LeafPages], column: Any
    ) -> None:
        """Lists: the rows that pyarrow put together must end where pages end."""
        counts = [[] for _ in part.leaves]  # type: list[list[Any]]
        for chunk in column.chunks:
            for leaf, entries in zip(counts, count_entries(chunk), strict=True):
                leaf.append(entries)
        for at, leaf in enumerate(counts):
            entries_before = np.concatenate(([0], np.cumsum(np.concatenate(leaf)))) if leaf else np.zeros(1)
            rows = pages.indexes[at].rows(self._group.num_rows)[pages.numbers[at]]
            if not np.array_equal(entries_before[np.cumsum(rows)], np.cumsum(found[at].values)):
                raise _Contradiction("a page has other rows than it says")


def _read_page(raw: bytes, offset: int) -> Any:
    """A page where the index says that there is one; a wrong checksum is no matter of the index."""
    try:
        return read_page(raw, offset)
    except WrongChecksumError:
        raise
    except DamagedFileError as error:
        raise _Contradiction(error.what) from error


def _places(index: OffsetIndex, numbers: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Offset and length of some pages."""
    offsets, sizes = index.offsets[numbers].tolist(), index.compressed_page_sizes[numbers].tolist()
    return list(zip(offsets, sizes, strict=True))


def _surely_needs_dictionary(chunk: ColumnChunk, index: OffsetIndex) -> bool:
    """Whether any data page will; where a chunk may have fallen back to another encoding, the pages tell."""
    stats = chunk.encoding_stats
    fell_back = stats is None or any(
        entry.page_type != DICTIONARY_PAGE and entry.encoding not in DICTIONARY_ENCODINGS for entry in stats
    )
    return not fell_back and index.offsets[0] > chunk.start


def _gap(chunk: ColumnChunk, index: OffsetIndex) -> tuple[int, int]:
    """What lies in front of a chunk's first data page."""
    return chunk.start, int(index.offsets[0]) - chunk.start


def _cut(column: Any, rows: RowRanges, held: RowRanges) -> Any:
    """``rows`` out of a column that has the rows ``held``."""
    if rows == held:
        return column
    if len(rows.pairs) > _MANY_RANGES:
        return column.take(pa.array(held.places_of(rows.rows())))
    starts = held.places_of(rows.pairs[:, 0]).tolist()
    lengths = (rows.pairs[:, 1] - rows.pairs[:, 0]).tolist()
    pieces = [column.slice(start, length) for start, length in zip(starts, lengths, strict=True)]
    return pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], column.type)
