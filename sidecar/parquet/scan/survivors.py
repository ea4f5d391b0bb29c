"""Which rows of each row group may meet a condition: statistics, page indexes, filters, dictionaries, in that order.

Each is asked only if its answer can change anything: no index is read for a part of the condition that the
statistics settle, or that an OR makes useless; no filter that is larger than the pages it could save.
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
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.page_bounds import chunk_bounds, page_bounds
from sidecar.parquet.page_index import ColumnIndexAnswer, OffsetIndex
from sidecar.parquet.pages import DICTIONARY_PAGE, PLAIN, PLAIN_DICTIONARY, wholly_dictionary
from sidecar.parquet.scan.known_indexes import KnownPageIndexes
from sidecar.parquet.scan.page_reader import PageCounts, RowGroupReader
from sidecar.parquet.scan.part_file import read_page
from sidecar.questions.bounds import Bounds, contradicts
from sidecar.questions.conditions import Condition, HoldsAny, LeafCondition
from sidecar.questions.narrowing import helpful, holds, narrow
from sidecar.questions.row_ranges import RowRanges
from sidecar.source import CountingSource

_BATCH = 64
"""Row groups whose page indexes are read together."""

Readers = Callable[[RowGroup], RowGroupReader]
Wanted = Callable[[RowGroup], RowRanges]
"""The rows of a row group that are worth a question at all."""


class IndexUse(NamedTuple):
    """What may be asked: page indexes, and Bloom filters and dictionaries if ``filters``."""

    pages: KnownPageIndexes
    filters: bool = True


class Survivors:
    """The row groups and pages of one file that may hold rows; ``index`` and ``data`` count what is read."""

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

    def survivors(
        self, wanted: Wanted, reader_of: Readers
    ) -> Iterator[tuple[RowGroup, RowRanges, RowGroupReader]]:
        """Row groups in which wanted rows may match, with those and a reader that knows the indexes read for it."""
        groups = ((group, wanted(group)) for group in self._footer.row_groups)
        some = ((group, rows) for group, rows in groups if rows)
        while batch := list(islice(some, _BATCH)):
            verdicts = [
                _GroupVerdict(self._footer, group, rows, reader_of(group), self._use.pages)
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
        """The page indexes that can narrow the condition down, of all row groups in few reads."""
        wanted = [(v, v.group.columns[i]) for v in verdicts for i in sorted(v.helpful(condition) or ())]
        if not wanted:
            return
        found = self._use.pages.both([chunk for _, chunk in wanted])
        for (verdict, chunk), index in zip(wanted, found, strict=True):
            offset = verdict.reader.know_offset_index(chunk, index.offset)
            if offset is not None:
                problem = verdict.know_pages(chunk, index.column, offset)
                if problem:
                    self._counts.doubts.append(
                        f"row group {chunk.row_group}, {chunk.leaf.path}: column index not used: {problem}"
                    )


class _GroupVerdict:
    """What the statistics and page indexes of one row group say."""

    def __init__(
        self,
        footer: Footer,
        group: RowGroup,
        wanted: RowRanges,
        reader: RowGroupReader,
        indexes: KnownPageIndexes,
    ) -> None:
        self.group = group
        self.wanted = wanted
        self.reader = reader
        self._indexes = indexes
        self._footer = footer
        self._bounds: dict[int, Bounds] = {}
        self._pages: dict[int, tuple[Bounds, OffsetIndex]] = {}

    def statistics(self, index: int) -> Bounds:
        """What the statistics of a leaf's chunk prove, as of one page."""
        if index not in self._bounds:
            self._bounds[index] = chunk_bounds(self._footer, self.group.columns[index])
        return self._bounds[index]

    def may_match(self, condition: LeafCondition) -> bool:
        """Whether the statistics leave room for a row."""
        return condition.may_match(self.statistics(condition.column.index), 0)

    def helpful(self, condition: Condition) -> set[int] | None:
        """Leaves whose page indexes can narrow the condition down; ``None`` if nothing can."""
        return helpful(condition, self.statistics, lambda i: self._indexes.has_both(self.group.columns[i]))

    def know_pages(self, chunk: ColumnChunk, column: ColumnIndexAnswer, offset: OffsetIndex) -> str:
        """Keep a chunk's page index; the reason if it proves nothing."""
        found = page_bounds(self._footer, chunk, column, offset)
        if isinstance(found, str):
            return found
        problem = contradicts(found, self.statistics(chunk.leaf.index))
        if problem:
            return problem
        if not self.statistics(chunk.leaf.index).may_have_nan[0]:
            found = replace(found, may_have_nan=[False] * offset.num_pages)
        self._pages[chunk.leaf.index] = found, offset
        return ""

    def rows(self, condition: LeafCondition, wanted: RowRanges) -> RowRanges:
        """The rows among ``wanted`` whose pages may meet the condition."""
        if not self.may_match(condition):
            return RowRanges()
        known = self._pages.get(condition.column.index)
        if known is None:
            return wanted
        bounds, offset = known
        keep = np.fromiter((condition.may_match(bounds, i) for i in range(offset.num_pages)), np.bool_)
        return wanted & RowRanges.of_pages(offset.first_row_indexes, self.group.num_rows, keep)

    def page_bytes(self, chunk: ColumnChunk, rows: RowRanges) -> int:
        """Bytes of a chunk's pages that hold ``rows``, as far as is known."""
        known = self._pages.get(chunk.leaf.index)
        if known is None:
            return chunk.total_compressed_size
        offset = known[1]
        touched = rows.touches(np.append(offset.first_row_indexes, self.group.num_rows))
        return int(offset.compressed_page_sizes[touched].sum())


class _Filters:
    """Bloom filters and dictionaries of one row group, asked for the values of a condition."""

    def __init__(
        self, index: CountingSource, data: CountingSource, verdict: _GroupVerdict, counts: PageCounts
    ) -> None:
        self.by_dictionary = False
        self._index = index
        self._data = data
        self._verdict = verdict
        self._counts = counts
        self._known: dict[LeafCondition, bool] = {}

    def rows(self, condition: LeafCondition, wanted: RowRanges) -> RowRanges:
        """As :meth:`_GroupVerdict.rows`, and none where a filter or dictionary knows of no such value."""
        rows = self._verdict.rows(condition, wanted)
        if not rows or not isinstance(condition, HoldsAny):
            return rows
        if condition not in self._known:
            self._known[condition] = self._is_absent(condition, rows)
        return RowRanges() if self._known[condition] else rows

    def _is_absent(self, condition: HoldsAny, rows: RowRanges) -> bool:
        column, chunk = condition.column, self._verdict.group.columns[condition.column.index]
        if not condition.is_for_filters or chunk.encrypted or chunk.file_path is not None:
            return False
        forms: list[bytes] = []
        for value in condition.values:
            found = plain_forms(value, column.iceberg_type, column.encoding)
            if found is None:
                return False
            forms += found
        if not forms:
            return True  # no value of this encoding equals any of them
        try:
            if self._filter_denies(condition, chunk, rows):
                return True
            self.by_dictionary = self._dictionary_denies(forms, chunk)
            return self.by_dictionary
        except SidecarError as error:
            self._counts.doubts.append(f"row group {chunk.row_group}, {column.name}: not used: {error.what}")
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
            self._counts.doubts.append(
                f"row group {chunk.row_group}, {column.name}: Bloom filter not used: {found.defect}"
            )
            return False
        might = found.filter.might_contain
        return not any(might(value, column.iceberg_type, column.encoding) for value in condition.values)

    def _dictionary_denies(self, forms: list[bytes], chunk: ColumnChunk) -> bool:
        length = chunk.data_page_offset - chunk.start
        if not 0 < length <= chunk.total_compressed_size or not wholly_dictionary(self._data, chunk):
            return False
        raw = self._data.read(chunk.start, length)
        page = read_page(raw, chunk.start)
        if page.type != DICTIONARY_PAGE or page.encoding not in (PLAIN, PLAIN_DICTIONARY):
            return False
        end = page.header_length + page.compressed_size
        self._verdict.reader.know_dictionary(chunk, raw[:end])
        body = decompress(chunk.codec, raw[page.header_length : end], page.uncompressed_size)
        return not dictionary_holds(chunk.leaf, body, page.num_values, forms)


def dictionary_holds(leaf: Leaf, body: bytes, num_values: int, forms: list[bytes]) -> bool:
    """Whether one of ``forms``, PLAIN values without a length in front, stands in a dictionary page.

    Raises :class:`DamagedFileError` for a page that is not exactly its values.
    """
    if leaf.width is not None:
        size = num_values * leaf.width
        values = np.frombuffer(body, np.dtype((np.void, leaf.width)), len(body) // leaf.width)
        held = any((values == np.void(form)).any() for form in forms)
    else:
        array: Any = decode_pages(leaf, [(PLAIN, num_values, body)])
        size = 4 * num_values + (pc.sum(pc.binary_length(array)).as_py() or 0)
        held = pc.any(pc.is_in(array, pa.array(forms, array.type))).as_py() is True
    if size != len(body):
        raise DamagedFileError("a dictionary page is longer than its values", expected=size, found=len(body))
    return held
