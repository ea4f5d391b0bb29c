"""Compares indexes of a column chunk of a Parquet file with its pages: those that it has, or is about to get."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import SidecarError, StorageError, reason_at
from sidecar.filters.block_filter import BlockFilter
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import ScannedChunk, scan_chunk, scan_one_page
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex
from sidecar.parquet.verify.filters import ValueLookup
from sidecar.parquet.verify.page_index import contradictions, misplaced_pages
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import Source


@dataclass(frozen=True)
class ChunkCheck:
    """The result for one column chunk: ``pages`` decoded (row groups in ORC) and ``values`` looked up.

    ``contradiction`` says what contradicts a filter or the bounds and counts of a page index. ``misplaced`` says which
    page is not where the page index says. ``not_compared`` says why values could not be compared. An empty text means
    no problem.
    """

    pages: int = 0
    values: int = 0
    contradiction: str = ""
    not_compared: str = ""
    misplaced: str = ""


@dataclass(frozen=True)
class GivenIndexes:
    """The indexes of a column chunk that are compared with its pages; ``None`` for each one that there is not."""

    filter: BlockFilter | None = None
    column_index: ColumnIndex | None = None
    offset_index: OffsetIndex | None = None


def ask_pages(source: Source, footer: Footer, chunk: ColumnChunk, given: GivenIndexes, *, whole: bool) -> ChunkCheck:
    """Compare ``given`` with the pages of a chunk: all of them (``whole``), or one that has a value.

    Raises :class:`StorageError`. If a page cannot be read or decoded, the result's ``not_compared`` says why.
    """
    lookup = None if given.filter is None else ValueLookup(chunk.leaf, given.filter)
    try:
        if whole:
            scanned = scan_chunk(source, footer, chunk, lookup)
        else:
            scanned = scan_one_page(source, footer, chunk, lookup, given.offset_index)
    except StorageError:
        raise
    except SidecarError as error:
        return ChunkCheck(not_compared=reason_at(error))
    return ChunkCheck(
        len(scanned.pages),
        0 if lookup is None else lookup.asked,
        _contradiction(footer, chunk, given, lookup, scanned, whole),
        _not_compared(footer, chunk, given, scanned) or ("" if lookup is None or not whole else _incomplete(lookup)),
        "" if given.offset_index is None else next(misplaced_pages(given.offset_index, scanned, whole=whole), ""),
    )


def _contradiction(
    footer: Footer,
    chunk: ColumnChunk,
    given: GivenIndexes,
    lookup: ValueLookup | None,
    scanned: ScannedChunk,
    whole: bool,
) -> str:
    if lookup is not None and lookup.denied:
        return f"the filter denies {lookup.denied} of {lookup.asked} values"
    if given.column_index is None:
        return ""
    return next(contradictions(footer, chunk, given.column_index, scanned, whole=whole), "")


def _not_compared(footer: Footer, chunk: ColumnChunk, given: GivenIndexes, scanned: ScannedChunk) -> str:
    if scanned.reason:
        return scanned.reason
    ordering = find_ordering(footer, chunk.leaf)
    return ordering.reason if given.column_index is not None and isinstance(ordering, Unknown) else ""


def _incomplete(lookup: ValueLookup) -> str:
    return "" if lookup.complete else "not all values could be decoded"
