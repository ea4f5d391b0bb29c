"""Holds indexes that are about to go into a file against its values, before the file is published.

An index of another file denies values that the file has, and its readers then lose rows. Where something proves that
the file is the one that was indexed (:attr:`sidecar.convert.match.Match.proof`), one page of each column chunk is a
cheap witness on top. Where nothing does, all values are looked at, which proves that the indexes lose none of them.

Whoever takes indexes out of a file may ask one page of each column too (:class:`FileWitness`).

The values of a page are looked up in the filter, in the bytes in which they are stored and by which the filter's writer
hashed them; and what the page has is held against the page index: its place, rows, nulls and levels exactly, its
values against bounds that may be wider. Of ORC, :mod:`sidecar.convert.orc_witness` looks values up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.filters.block_filter import BlockFilter
from sidecar.parquet.bounds import find_ordering
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.inspect import place_and_reason
from sidecar.parquet.page_index import ColumnIndex, OffsetIndex
from sidecar.parquet.page_index_build import ScannedChunk, scan_chunk, scan_first_page
from sidecar.parquet.verify.filters import ValueLookup
from sidecar.parquet.verify.page_index import contradictions, misplaced_pages
from sidecar.source import Source

PAGE, FULL, NONE = "page", "full", "none"
WITNESSES = (PAGE, FULL, NONE)
"""How much is looked at where there is a proof: one page of each column chunk, all values, nothing."""
ANOTHER_FILE = "the sidecar's indexes deny values that the file has: they are of another file"


@dataclass(frozen=True)
class Testimony:
    """The result of looking at one column chunk: ``pages`` decoded (in ORC row groups) and ``values`` looked up.

    ``denial`` says what contradicts a filter or the bounds and counts of a page index, ``misplaced`` which pages are
    not where the page index says, ``unseen`` why something of the chunk could not be looked at. Empty means nothing.
    """

    pages: int = 0
    values: int = 0
    denial: str = ""
    unseen: str = ""
    misplaced: str = ""


@dataclass
class Witness:
    """What was looked at in one file, and the contradictions that were found.

    ``proof`` says what proves that the file is the one that was indexed, empty if nothing does; ``mode`` how much was
    looked at, one of :data:`WITNESSES`: everything where there is no proof.
    """

    proof: str
    mode: str
    chunks: int = 0
    pages: int = 0
    """Data pages that were decoded, in ORC row groups."""
    values: int = 0
    """Values that were looked up in filters."""
    denials: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Column chunks that could not be looked at, and why."""

    @classmethod
    def called(cls, asked: str, proof: str) -> Witness:
        """The witness of a file; raises :class:`UsageError` for an unknown ``asked``."""
        if asked not in WITNESSES:
            raise UsageError("unknown witness", expected=" or ".join(WITNESSES), found=asked)
        return cls(proof, asked if proof else FULL)

    @property
    def is_whole(self) -> bool:
        """Whether all values are looked at."""
        return self.mode == FULL

    def add(self, column: str, row_group: int, said: Testimony) -> None:
        """Add the result of one chunk."""
        self.chunks += 1
        self.pages += said.pages
        self.values += said.values
        place = f"column {column}, row group {row_group}"
        if said.denial:
            self.denials.append(f"{place}: {said.denial}")
        if said.unseen:
            self.unseen.append(f"{place}: {said.unseen}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


@dataclass(frozen=True)
class GivenIndexes:
    """The indexes that a column chunk is to get; ``None`` for those that it does not get."""

    filter: BlockFilter | None = None
    column_index: ColumnIndex | None = None
    offset_index: OffsetIndex | None = None


def ask_pages(
    source: Source, footer: Footer, chunk: ColumnChunk, given: GivenIndexes, *, whole: bool
) -> Testimony:
    """Hold ``given`` against all pages of the chunk (``whole``), or those up to the first that has a value.

    Raises :class:`StorageError`; pages that cannot be read or decoded are unseen.
    """
    lookup = None if given.filter is None else ValueLookup(chunk.leaf, given.filter)
    try:
        scan = scan_chunk if whole else scan_first_page
        scanned = scan(source, footer, chunk, lookup)
    except StorageError:
        raise
    except SidecarError as error:
        return Testimony(unseen=place_and_reason(error))
    return Testimony(
        len(scanned.pages),
        0 if lookup is None else lookup.asked,
        _denial(footer, chunk, given, lookup, scanned, whole),
        _unseen(footer, chunk, given, scanned)
        or ("" if lookup is None or not whole else _incomplete(lookup)),
        ""
        if given.offset_index is None
        else next(misplaced_pages(given.offset_index, scanned, whole=whole), ""),
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
    """Looks at one page of each column for the first filter and the first page index that are taken out of a file."""

    def __init__(self, source: Source, footer: Footer, witness: Witness) -> None:
        self._source = source
        self._footer = footer
        self._witness = witness
        self._said: dict[tuple[int, bool], str] = {}

    def denial(self, chunk: ColumnChunk, given: GivenIndexes) -> str:
        """What the column's page contradicts; empty if it contradicts nothing or cannot be looked at."""
        if self._witness.mode == NONE or chunk.encrypted:
            return ""
        place = chunk.leaf.index, given.filter is None
        if place not in self._said:
            said = ask_pages(self._source, self._footer, chunk, given, whole=False)
            self._witness.add(f"{chunk.leaf.path} of {self._source.name}", chunk.row_group, said)
            self._said[place] = said.denial or said.misplaced
        return self._said[place]
