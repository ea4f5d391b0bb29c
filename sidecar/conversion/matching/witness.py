"""Compares indexes with the values of a file before they are published in it.

An index of a different file denies values that this file has, so readers lose rows. If something proves that the file
is the one that was indexed (:attr:`sidecar.conversion.matching.match.Match.proof`), one page of each column chunk is a
cheap extra check. Without a proof, all values are looked up, which proves that the indexes lose none of them.

``extract`` also checks one page of each column before it takes indexes out of a file (:class:`FileWitness`).

The values of a page are looked up in the filter in their stored bytes, which the filter's writer hashed. The page index
must have the page's offset, rows, nulls and levels exactly; its bounds may be wider than the values.
:mod:`sidecar.conversion.matching.orc_witness` does this for ORC filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidecar.conversion.matching.identity import is_local
from sidecar.errors import SidecarError, StorageError, place_and_reason
from sidecar.filters.block_filter import BlockFilter
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_indexes.build import ScannedChunk, scan_chunk, scan_first_page
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex
from sidecar.parquet.verify.filters import ValueLookup
from sidecar.parquet.verify.page_index import contradictions, misplaced_pages
from sidecar.storage.source import Source

UNPROVEN = "nothing proves that the file is the one that was indexed"
ANOTHER_FILE = "the sidecar's indexes deny values that the file has: they belong to another file"


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


@dataclass
class Witness:
    """Counts what was compared in one file, and lists the contradictions that were found.

    ``proof`` says what proves that the file is the one that was indexed. Then one page of each chunk is compared, and
    all values without a proof, when it is empty.
    """

    proof: str = ""
    chunks: int = 0
    """Column chunks that were compared."""
    pages: int = 0
    """Data pages that were decoded; row groups in ORC."""
    values: int = 0
    """Values that were looked up in filters."""
    contradictions: list[str] = field(default_factory=list)
    """Indexes that the values contradict, and how."""
    not_compared: list[str] = field(default_factory=list)
    """Column chunks that could not be compared, and why."""

    def add(self, column: str, row_group: int, check: ChunkCheck) -> None:
        """Add the result of one chunk."""
        self.chunks += 1
        self.pages += check.pages
        self.values += check.values
        place = f"column {column}, row group {row_group}"
        if check.contradiction:
            self.contradictions.append(f"{place}: {check.contradiction}")
        if check.not_compared:
            self.not_compared.append(f"{place}: {check.not_compared}")

    def add_all(self, other: Witness) -> None:
        """Add what was compared in other files."""
        self.chunks += other.chunks
        self.pages += other.pages
        self.values += other.values
        self.contradictions += other.contradictions
        self.not_compared += other.not_compared

    def why_not_used(self) -> str:
        """Return why doubtful indexes are not used."""
        return ANOTHER_FILE if self.contradictions else UNPROVEN

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class GivenIndexes:
    """The indexes that a column chunk is about to get; ``None`` for each one that it does not get."""

    filter: BlockFilter | None = None
    column_index: ColumnIndex | None = None
    offset_index: OffsetIndex | None = None


def ask_pages(source: Source, footer: Footer, chunk: ColumnChunk, given: GivenIndexes, *, whole: bool) -> ChunkCheck:
    """Compare ``given`` with the pages of a chunk: all of them (``whole``), or up to the first that has a value.

    Raises :class:`StorageError`. If a page cannot be read or decoded, the result's ``not_compared`` says why.
    """
    lookup = None if given.filter is None else ValueLookup(chunk.leaf, given.filter)
    try:
        scan = scan_chunk if whole else scan_first_page
        scanned = scan(source, footer, chunk, lookup)
    except StorageError:
        raise
    except SidecarError as error:
        return ChunkCheck(not_compared=place_and_reason(error))
    return ChunkCheck(
        len(scanned.pages),
        0 if lookup is None else lookup.asked,
        _denial(footer, chunk, given, lookup, scanned, whole),
        _unseen(footer, chunk, given, scanned) or ("" if lookup is None or not whole else _incomplete(lookup)),
        "" if given.offset_index is None else next(misplaced_pages(given.offset_index, scanned, whole=whole), ""),
    )


def _denial(
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


def _unseen(footer: Footer, chunk: ColumnChunk, given: GivenIndexes, scanned: ScannedChunk) -> str:
    if scanned.reason:
        return scanned.reason
    ordering = find_ordering(footer, chunk.leaf)
    return ordering if given.column_index is not None and isinstance(ordering, str) else ""


def _incomplete(lookup: ValueLookup) -> str:
    return "" if lookup.complete else "not all values could be decoded"


class FileWitness:
    """Compares a page of each column of a local file with the first filter and page index that are taken out of it.

    One page is usually enough, because an index of the wrong file or column contradicts nearly every page.
    """

    def __init__(self, source: Source, footer: Footer, witness: Witness) -> None:
        self._source = source
        self._footer = footer
        self._witness = witness
        self._contradictions: dict[tuple[int, bool], str] = {}

    def contradiction(self, chunk: ColumnChunk, given: GivenIndexes) -> str:
        """Return what the column's page contradicts; an empty text if nothing, or if the page cannot be read."""
        if not is_local(self._source.name):
            return ""
        place = chunk.leaf.index, given.filter is None
        if place not in self._contradictions:
            check = ask_pages(self._source, self._footer, chunk, given, whole=False)
            self._witness.add(f"{chunk.leaf.path} of {self._source.name}", chunk.row_group, check)
            self._contradictions[place] = check.contradiction or check.misplaced
        return self._contradictions[place]
