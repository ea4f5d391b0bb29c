"""Finds the rows of each row group that may meet a condition: by statistics, page indexes, filters, dictionaries.

They are asked in this order, and only if the answer can change anything. No index is read for a part of the condition
that statistics already decide, or that an OR makes useless. No filter is read that is as large as the pages it could
save. Anything that is missing, damaged or in doubt keeps its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.leaf import Leaf
from sidecar.filters.values import plain_forms
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.chunk_statistics import chunk_bounds, statistics_problems, writers_problems
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import LOCKED, ColumnChunk, Footer, RowGroup
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.page_indexes.page_bounds import contradicts_statistics, page_bounds
from sidecar.parquet.page_indexes.page_index import ColumnIndex, ColumnIndexAnswer, OffsetIndex
from sidecar.parquet.pages import DICTIONARY_PAGE, PLAIN, PLAIN_DICTIONARY, ends_at_data, wholly_dictionary
from sidecar.parquet.scan.known_indexes import KnownPageIndexes
from sidecar.parquet.scan.page_reader import PageCounts, RowGroupReader
from sidecar.parquet.scan.part_file import read_page
from sidecar.parquet.trust import as_shown, is_float
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.questions.conditions import Condition, HoldsAny, LeafCondition
from sidecar.questions.narrowing import helpful, holds, narrow
from sidecar.questions.row_ranges import RowRanges
from sidecar.storage.source import CountingSource

_BATCH = 64
"""Row groups whose page indexes are read together."""

Readers = Callable[[RowGroup], RowGroupReader]
WantedRows = Callable[[RowGroup], RowRanges]
"""Returns the rows of a row group that the caller wants, before any index is asked."""


class IndexUse(NamedTuple):
    """The indexes that a scan may use: page indexes, and if ``filters`` is true Bloom filters and dictionaries."""

    pages: KnownPageIndexes
    filters: bool = True


class Survivors:
    """Finds the row groups and pages of one file that may match. ``index`` and ``data`` count the bytes read."""

    def __init__(
        self,
        index: CountingSource,
        data: CountingSource,
        footer: Footer,
        condition: Condition | None,
        use: IndexUse,
        dropped: dict[str, int],
        counts: PageCounts,
    ) -> None:
        self._index = index
        self._use = use
        self._data = data
        self._footer = footer
        self._condition = condition
        self._dropped = dropped
        self._counts = counts

    def survivors(self, wanted: WantedRows, reader_of: Readers) -> Iterator[tuple[RowGroup, RowRanges, RowGroupReader]]:
        """Yield each row group that may match, its rows that may match, and a reader with the indexes read so far."""
        groups = ((group, wanted(group)) for group in self._footer.row_groups)
        some = ((group, rows) for group, rows in groups if rows)
        while batch := list(islice(some, _BATCH)):
            verdicts = [
                _GroupVerdict(self._footer, group, rows, reader_of(group), self._use.pages, self._counts.warnings)
                for group, rows in batch
            ]
            if self._condition is None:
                yield from ((v.group, v.wanted, v.reader) for v in verdicts)
            else:
                yield from self._judge(self._condition, verdicts)

    def _judge(
        self, condition: Condition, verdicts: list[_GroupVerdict]
    ) -> Iterator[tuple[RowGroup, RowRanges, RowGroupReader]]:
        left = [verdict for verdict in verdicts if holds(condition, verdict.may_match)]
        self._dropped["statistics"] += len(verdicts) - len(left)
        self._read_page_indexes(condition, left)
        for verdict in left:
            rows = narrow(condition, verdict.wanted, verdict.rows)
            if not rows:
                self._dropped["page_index"] += 1
                continue
            if self._use.filters:
                filters = _Filters(self._index, self._data, verdict, self._counts)
                rows = narrow(condition, rows, filters.rows)
                if not rows:
                    self._dropped["dictionary" if filters.by_dictionary else "filter"] += 1
                    continue
            yield verdict.group, rows, verdict.reader

    def _read_page_indexes(self, condition: Condition, verdicts: list[_GroupVerdict]) -> None:
        """Read the page indexes that can narrow the condition, for all row groups together in few reads."""
        wanted = [(v, v.group.columns[i]) for v in verdicts for i in sorted(v.helpful(condition) or ())]
        if not wanted:
            return
        found = self._use.pages.both([chunk for _, chunk in wanted])
        for (verdict, chunk), index in zip(wanted, found, strict=True):
            offset = verdict.reader.know_offset_index(chunk, index.offset)
            if offset is not None:
                problem = verdict.know_pages(chunk, index.column, offset)
                if problem:
                    self._counts.warnings.append(
                        f"row group {chunk.row_group}, {chunk.leaf.path}: column index not used: {problem}"
                    )


class _GroupVerdict:
    """The bounds that statistics and page indexes of one row group prove, and the rows that they leave."""

    def __init__(
        self,
        footer: Footer,
        group: RowGroup,
        wanted: RowRanges,
        reader: RowGroupReader,
        indexes: KnownPageIndexes,
        warnings: list[str],
    ) -> None:
        self.group = group
        self.wanted = wanted
        self.reader = reader
        self._indexes = indexes
        self._footer = footer
        self._warnings = warnings
        self._bounds: dict[int, Bounds] = {}
        self._pages: dict[int, tuple[Bounds, OffsetIndex]] = {}

    def statistics(self, index: int) -> Bounds:
        """Return the bounds that the chunk statistics of a leaf prove, as if the chunk were one page."""
        if index not in self._bounds:
            chunk = self.group.columns.get(index)
            if chunk is None:
                self._bounds[index] = Bounds.of_one(None, None, reason=LOCKED)
                return self._bounds[index]
            self._bounds[index] = chunk_bounds(self._footer, chunk)
            if self._bounds[index].reason or chunk.null_count is None:
                self._add_warnings(chunk)
        return self._bounds[index]

    def _add_warnings(self, chunk: ColumnChunk) -> None:
        """Note which statistics of a chunk are there and not used; what the writer does wrong only once a column."""
        for problem in statistics_problems(self._footer, chunk):
            self._warnings.append(f"row group {chunk.row_group}, {chunk.leaf.path}: statistics not used: {problem}")
        for problem in writers_problems(self._footer, chunk):
            if (warning := f"{chunk.leaf.path}: {problem}") not in self._warnings:
                self._warnings.append(warning)

    def may_match(self, condition: LeafCondition) -> bool:
        """Return whether some row may meet the condition, by the chunk statistics."""
        return condition.may_match(self.statistics(condition.column.index), 0)

    def helpful(self, condition: Condition) -> set[int] | None:
        """Return the indexes of the leaves whose page indexes can narrow the condition; ``None`` if none can."""
        return helpful(condition, self.statistics, self._has_page_index)

    def _has_page_index(self, index: int) -> bool:
        chunk = self.group.columns.get(index)
        return chunk is not None and self._indexes.has_both(chunk)

    def know_pages(self, chunk: ColumnChunk, column: ColumnIndexAnswer, offset: OffsetIndex) -> str:
        """Keep the page bounds of a chunk. Returns the reason if the column index proves nothing, else ``""``.

        The chunk's statistics are not used any more if the column index contradicts them.
        """
        index = chunk.leaf.index
        found = page_bounds(self._footer, chunk, column, offset)
        if (
            isinstance(column, ColumnIndex)
            and (isinstance(found, Unknown) or column.is_ours)
            and contradicts_statistics(self._footer, chunk, column, offset)
        ):
            self._bounds[index] = Bounds.of_one(None, None, may_have_nan=is_float(chunk.leaf))
        if isinstance(found, Unknown):
            return found.reason
        if not self.statistics(index).may_have_nan[0]:
            # Without nan_counts every page may have NaN, unless the statistics rule NaN out for the chunk.
            found = replace(found, may_have_nan=[False] * offset.num_pages)
        self._pages[index] = found, offset
        self.reader.narrowed_by(chunk)
        return ""

    def rows(self, condition: LeafCondition, wanted: RowRanges) -> RowRanges:
        """Return the rows of ``wanted`` that are in pages which may meet the condition."""
        if not self.may_match(condition):
            return RowRanges()
        known = self._pages.get(condition.column.index)
        if known is None:
            return wanted
        bounds, offset = known
        keep = np.fromiter((condition.may_match(bounds, i) for i in range(offset.num_pages)), np.bool_)
        return wanted & RowRanges.of_pages(offset.first_row_indexes, self.group.num_rows, keep)

    def known_data_pages(self, chunk: ColumnChunk) -> int:
        """Return the number of data pages in the chunk's offset index; 0 if it is not known."""
        known = self._pages.get(chunk.leaf.index)
        return 0 if known is None else known[1].num_pages

    def page_bytes(self, chunk: ColumnChunk, rows: RowRanges) -> int:
        """Return the bytes of the chunk's pages that hold ``rows``; of the whole chunk if pages are not known."""
        known = self._pages.get(chunk.leaf.index)
        if known is None:
            return chunk.total_compressed_size
        offset = known[1]
        touched = rows.touches(np.append(offset.first_row_indexes, self.group.num_rows))
        return int(offset.compressed_page_sizes[touched].sum())


class _Filters:
    """Looks up the values of a condition in the Bloom filters and dictionaries of one row group."""

    def __init__(self, index: CountingSource, data: CountingSource, verdict: _GroupVerdict, counts: PageCounts) -> None:
        self.by_dictionary = False
        self._index = index
        self._data = data
        self._verdict = verdict
        self._counts = counts
        self._known: dict[LeafCondition, bool] = {}

    def rows(self, condition: LeafCondition, wanted: RowRanges) -> RowRanges:
        """Return the rows of ``wanted`` that may match; none if a filter or dictionary lacks all values asked for."""
        rows = self._verdict.rows(condition, wanted)
        if not rows or not isinstance(condition, HoldsAny):
            return rows
        if condition not in self._known:
            self._known[condition] = self._is_absent(condition, rows)
        return RowRanges() if self._known[condition] else rows

    def _is_absent(self, condition: HoldsAny, rows: RowRanges) -> bool:
        column, chunk = condition.column, self._verdict.group.columns.get(condition.column.index)
        if not condition.is_for_filters or chunk is None or chunk.file_path is not None:
            return False
        forms: list[bytes] = []
        for value in condition.values:
            found = plain_forms(value, column.iceberg_type, column.encoding)
            if found is None:
                return False
            forms += found
        if not forms:
            return True  # the column's type cannot store any of the values
        try:
            if self._filter_denies(condition, chunk, rows):
                return True
            self.by_dictionary = self._dictionary_denies(forms, chunk)
            return self.by_dictionary
        except SidecarError as error:
            self._counts.warnings.append(f"row group {chunk.row_group}, {column.name}: not used: {error.what}")
            return False

    def _filter_denies(self, condition: HoldsAny, chunk: ColumnChunk, rows: RowRanges) -> bool:
        column, length = condition.column, chunk.bloom_filter_length
        if not chunk.bloom_filter_offset or not column.may_have_filters:
            return False
        if length is not None and length >= self._verdict.page_bytes(chunk, rows):
            return False
        found = read_bloom_filter(self._index, chunk)
        if found is None:
            return False
        if found.defect:
            self._counts.warnings.append(
                f"row group {chunk.row_group}, {column.name}: Bloom filter not used: {found.defect}"
            )
            return False
        might = found.filter.might_contain
        return not any(might(value, column.iceberg_type, column.encoding) for value in condition.values)

    def _dictionary_denies(self, forms: list[bytes], chunk: ColumnChunk) -> bool:
        length = chunk.data_page_offset - chunk.start
        if not 0 < length <= chunk.total_compressed_size or not wholly_dictionary(self._data, chunk):
            return False
        stated = chunk.stated_data_pages
        if stated is not None and stated < self._verdict.known_data_pages(chunk):
            self._counts.warnings.append(
                f"row group {chunk.row_group}, {chunk.leaf.path}: dictionary not used: "
                f"encoding_stats count {stated} data pages, the offset index has more"
            )
            return False
        raw = self._data.read(chunk.start, length)
        page = read_page(raw, chunk.start, chunk.leaf)
        is_dictionary = page.type == DICTIONARY_PAGE and ends_at_data(chunk, page)
        if not is_dictionary or page.encoding not in (PLAIN, PLAIN_DICTIONARY):
            return False
        end = page.header_length + page.compressed_size
        self._verdict.reader.know_dictionary(chunk, raw[:end])
        body = decompress(chunk.codec, raw[page.header_length : end], page.uncompressed_size)
        return not dictionary_holds(chunk.leaf, body, page.num_values, forms)


def dictionary_holds(leaf: Leaf, body: bytes, num_values: int, forms: list[bytes]) -> bool:
    """Return whether a dictionary page has one of ``forms``, which are PLAIN values without a length prefix.

    Raises :class:`DamagedFileError` if ``body`` is not exactly ``num_values`` values.
    """
    if leaf.width is not None:
        size = num_values * leaf.width
        stored = np.frombuffer(body, np.uint8, len(body) // leaf.width * leaf.width)
        values = as_shown(stored, leaf).view(np.dtype((np.void, leaf.width)))
        held = any((values == np.void(form)).any() for form in forms)
    else:
        array: Any = decode_pages(leaf, [(PLAIN, num_values, body)])
        size = 4 * num_values + (pc.sum(pc.binary_length(array)).as_py() or 0)
        held = pc.any(pc.is_in(array, pa.array(forms, array.type))).as_py() is True
    if size != len(body):
        raise DamagedFileError("a dictionary page is longer than its values", expected=size, found=len(body))
    return held
