"""Reads the rows of a Parquet file that meet a condition, and as little of the file as its indexes allow.

For each row group, these are asked in turn: the statistics in the footer, the page indexes of the condition's columns
if they can change anything, then Bloom filters and dictionaries. A chunk whose pages are all dictionary-encoded is
answered exactly by its dictionary. Then the columns of the predicate are read for the rows that may match, and the
predicate itself (the *residual*) is evaluated on them. All other columns are read only for the rows that match.

A wrong index never drops rows: it is not used, and the report says why.

Decoding pages column by column costs about twice as much as a reader of whole files. A caller that has such a reader
sets :attr:`PageRequest.too_much`. The scan then raises :class:`TooMuchLeft` before it decodes a row. If only the rows
can tell, it decodes the predicate's columns of one row group first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError
from sidecar.parquet.footer import Footer, RowGroup
from sidecar.parquet.scan.known_indexes import Known, KnownPageIndexes
from sidecar.parquet.scan.page_reader import MAX_ROWS, NarrowedByFalseIndexError, PageCounts, RowGroupReader
from sidecar.parquet.scan.part_file import TooManyRows
from sidecar.parquet.scan.schema_parts import FileShape, SchemaPart, assemble
from sidecar.parquet.scan.survivors import IndexUse, Survivors, WantedRows
from sidecar.questions.conditions import Condition
from sidecar.questions.narrowing import asks_for_few
from sidecar.questions.row_ranges import RowRanges
from sidecar.results.base import Summarized
from sidecar.storage.source import CountingSource, Source


class FoundRows(NamedTuple):
    """Rows of a file. ``positions`` (int64[n]) has the number of each row in the file, counted from 0."""

    positions: npt.NDArray[np.int64]
    rows: pa.Table
    """The rows as an Arrow table."""


Residual = Callable[[pa.Table], npt.NDArray[np.int64]]
"""Takes a table of the predicate's columns; returns the ascending row numbers in it that match (int64[n])."""


def every_row(group: RowGroup) -> RowRanges:
    """Return all rows of a row group."""
    return RowRanges.all(group.num_rows)


@dataclass(frozen=True, eq=False)
class PageRequest:
    """The request of a scan of one file: columns, the condition that indexes are asked, and the residual."""

    shape: FileShape
    condition: Condition | None
    question: FileShape | None = None
    """The columns that the residual needs; ``None`` if it needs none."""
    residual: Residual | None = None
    wanted: WantedRows = every_row
    """Returns the rows of a row group that are not deleted and not ruled out before the scan."""
    unlimited: WantedRows | None = None
    """The rows of ``wanted`` before indexes ruled some out; ``None`` if none did."""
    known: Known = field(default_factory=dict)
    filters: bool = True
    """Whether Bloom filters and dictionaries of the file may be used."""
    too_much: float = math.inf
    """The scan raises :class:`TooMuchLeft` if indexes leave at least this share of the rows that another reader would
    read, or if the rows that match need at least this share of the bytes of the remaining columns."""
    other_rows: int | None = None
    """Rows that another reader would read; ``None`` means all rows of the file."""

    sample: bool = True
    """Whether to evaluate an equality on the first row group, to learn whether few rows match, before giving up.
    False if many rows matched in files like this one."""


class TooMuchLeft(Exception):
    """Raised if indexes leave so much of a file that reading it whole is cheaper. No rows were returned before.

    ``often`` is true if many rows matched, which is likely in similar files too. It is false if few rows matched but
    they are on most pages.
    """

    def __init__(self, *, often: bool = True) -> None:
        super().__init__()
        self.often = often


@dataclass(repr=False)
class ScanReport(Summarized):
    """What a scan read and why. The scan updates it as it goes."""

    file: str = ""
    """The path of the file."""
    file_bytes: int = 0
    """The size of the file in bytes."""
    rows: int = 0
    """The rows of the file."""
    rows_may_match: int = 0
    """The rows that indexes leave."""
    rows_found: int = 0
    """The rows that match."""
    row_groups: int = 0
    """The row groups of the file."""
    row_groups_read: int = 0
    """The row groups that were read."""
    dropped: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("statistics", "page_index", "filter", "dictionary"), 0)
    )
    """Row groups that were dropped, by the index that proved that no row matches."""
    data_pages: int = 0
    """The data pages that were read."""
    footer_bytes: int = 0
    """The bytes of the footer that were read."""
    index_bytes: int = 0
    """The bytes of indexes that were read."""
    index_reads: int = 0
    """The number of reads of indexes."""
    data_bytes: int = 0
    """Bytes of pages, dictionaries, and gaps between pages that were fetched together."""
    data_reads: int = 0
    """The number of reads of data."""
    warnings: list[str] = field(default_factory=list)
    """Indexes that cannot be used, and why."""

    @property
    def bytes_read(self) -> int:
        """All bytes read: footer, indexes, filters and pages."""
        return self.footer_bytes + self.index_bytes + self.data_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "file": self.file,
            "rows": {"total": self.rows, "may_match": self.rows_may_match, "found": self.rows_found},
            "row_groups": {
                "total": self.row_groups,
                "dropped": dict(self.dropped),
                "read": self.row_groups_read,
            },
            "data_pages_read": self.data_pages,
            "file_bytes": self.file_bytes,
            "bytes_read": self.bytes_read,
            "footer_bytes_read": self.footer_bytes,
            "index_bytes_read": self.index_bytes,
            "index_reads": self.index_reads,
            "data_bytes_read": self.data_bytes,
            "data_reads": self.data_reads,
            "warnings": list(self.warnings),
        }


def scan_pages(
    source: Source,
    footer: Footer,
    request: PageRequest,
    limit: int | None = None,
    report: ScanReport | None = None,
) -> Iterator[FoundRows]:
    """Yield the rows that match, in the order of the file, at most ``limit`` in all.

    Each item has rows of one row group. A row group whose values are too large to decode together comes in several
    items. Tables have the fields of ``request.shape``. Raises :class:`TooMuchLeft` before the first item,
    :class:`sidecar.errors.DamagedFileError` for broken data and :class:`sidecar.errors.UnsupportedFeatureError` for
    encrypted columns and what pyarrow cannot decode.
    """
    scan = _PageScan(source, footer, request, report or ScanReport())
    left = footer.num_rows if limit is None else limit
    if left <= 0:
        return
    candidates = scan.candidates()
    if request.too_much < math.inf:
        candidates = scan.few(candidates)
    for group, rows, reader in candidates:
        returned = False
        todo = rows.pieces(MAX_ROWS)  # made one by one: a damaged footer may say that there are any number of rows
        while (piece := next(todo, None)) is not None:
            try:
                found = scan.read(group, piece, reader, left)
            except TooManyRows as error:
                todo = _split(chain([piece], todo), error.rows)
                continue
            except NarrowedByFalseIndexError:
                todo = scan.all_rows(group, returned).pieces(MAX_ROWS)
                continue
            if found is not None:
                returned = True
                left -= len(found.positions)
                scan.count()
                yield found
            if left <= 0:
                return


def _split(pieces: Iterable[RowRanges], most: int) -> Iterator[RowRanges]:
    for piece in pieces:
        yield from piece.pieces(most)


_Candidate = tuple[RowGroup, RowRanges, RowGroupReader]


class _PageScan:
    def __init__(self, source: Source, footer: Footer, request: PageRequest, report: ScanReport) -> None:
        self._index, self._data = CountingSource(source), CountingSource(source)
        self._footer = footer
        self._request = request
        self._counts = PageCounts()
        self._report = report
        report.file, report.file_bytes = footer.name, footer.size
        report.rows = sum(group.num_rows for group in footer.row_groups)
        report.row_groups = len(footer.row_groups)
        self._indexes = KnownPageIndexes(self._index, footer, request.known)
        self._first = [] if request.question is None else list(request.question.parts())
        same = {_key(part) for part in self._first}
        self._rest = [part for part in request.shape.parts() if _key(part) not in same]
        self._sampling = self._may_turn_back = False

    def candidates(self) -> Iterator[_Candidate]:
        """Yield each row group that may match, its rows that may match, and its reader. Updates the report."""
        use = IndexUse(self._indexes, self._request.filters)
        condition, dropped = self._request.condition, self._report.dropped
        verdicts = Survivors(self._index, self._data, self._footer, condition, use, dropped, self._counts)
        for group, rows, reader in verdicts.survivors(self._request.wanted, self._reader):
            self._report.rows_may_match += rows.num_rows
            self._report.row_groups_read += 1
            yield group, rows, reader
            self.count()
        self.count()

    def few(self, candidates: Iterator[_Candidate]) -> Iterator[_Candidate]:
        """Return the candidates; raise :class:`TooMuchLeft` if they have too many rows.

        An equality may match few rows even so. Then :meth:`read` decides after the first row group.
        """
        found = list(candidates)
        rows = [rows.num_rows for _, rows, _ in found]
        others = self._report.rows if self._request.other_rows is None else self._request.other_rows
        if sum(rows) >= self._request.too_much * max(others, 1):
            condition = self._request.condition
            if condition is None or not self._request.sample or not asks_for_few(condition):
                raise TooMuchLeft
            # After the first row group, turning back wastes too much, unless most columns are not read yet.
            self._sampling = sum(rows) > 2 * rows[0]
            self._may_turn_back = len(self._rest) > len(self._first)
        return iter(found)

    def all_rows(self, group: RowGroup, returned: bool) -> RowRanges:
        """Return the rows of a row group that were wanted before a page index ruled out some that may match.

        Raises :class:`DamagedFileError` if rows were ``returned`` already, among which the others belong.
        """
        if returned:
            raise DamagedFileError(
                f"an offset index of row group {group.ordinal} contradicts its pages after rows were read by it",
                file=self._footer.name,
                hint="Build its page index anew: sidecar strip, then sidecar embed --page-index.",
            )
        return self._request.unlimited(group) if self._request.unlimited else self._request.wanted(group)

    def _reader(self, group: RowGroup) -> RowGroupReader:
        return RowGroupReader(self._indexes, self._data, self._footer, group, self._request.shape, self._counts)

    def read(self, group: RowGroup, rows: RowRanges, reader: RowGroupReader, most: int) -> FoundRows | None:
        """Return the rows of a row group that match, at most ``most``; ``None`` if there are none."""
        first = reader.read(self._first, rows)
        kept = self._matching(first, rows.num_rows)[:most]
        sampling, self._sampling = self._sampling, False
        if not len(kept):
            return None
        matched = rows if len(kept) == rows.num_rows else RowRanges.of_rows(rows.rows()[kept])
        turning_back, self._may_turn_back = sampling or self._may_turn_back, False
        if turning_back and reader.share(self._rest, matched) >= self._request.too_much:
            raise TooMuchLeft(often=sampling)
        if matched is not rows:
            places = pa.array(kept)
            first = {part: column.take(places) for part, column in first.items()}
        rest = reader.read(self._rest, matched)
        self._report.rows_found += len(kept)
        positions = matched.rows()
        positions += group.first_row
        return FoundRows(positions, _table(self._request.shape, first | rest))

    def _matching(self, arrays: dict[SchemaPart, Any], num_rows: int) -> npt.NDArray[np.int64]:
        residual, question = self._request.residual, self._request.question
        if residual is None:
            return np.arange(num_rows)
        if question is None:  # TRUE or FALSE, which need no column
            return residual(pa.table({"": pa.nulls(num_rows)}))
        return residual(_table(question, arrays))

    def count(self) -> None:
        """Update the report."""
        report = self._report
        report.index_bytes, report.index_reads = self._index.bytes_read, self._index.reads
        report.data_bytes, report.data_reads = self._data.bytes_read, self._data.reads
        report.data_pages = self._counts.data_pages
        report.warnings[:] = self._counts.warnings


def _table(shape: FileShape, arrays: dict[SchemaPart, Any]) -> pa.Table:
    by_key = {_key(part): column for part, column in arrays.items()}
    parts = {part: by_key[_key(part)] for part in shape.parts()}
    return pa.table([assemble(node, parts) for node in shape.nodes], schema=shape.schema)


def _key(part: SchemaPart) -> int:
    """Return the index of the part's first leaf, which is the same in every shape of one file."""
    return part.leaves[0].index
