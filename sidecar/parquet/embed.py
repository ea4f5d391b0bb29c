"""A Parquet file with other filters and page indexes: its pages copied as bytes, its footer written anew.

    placement "end":        magic | pages | filters, by row group and column | ColumnIndexes | OffsetIndexes | footer
    placement "row-group":  magic | pages of row group 0 | its filters | pages of 1 | ... | ColumnIndexes | ...

At the end, nothing that is copied moves, so no offset changes. Old filters and page indexes that stand between
the pages and the footer are left behind or written again; those between row groups stay where they are, as dead
bytes if nothing names them any more. After each row group, everything behind the first one's pages moves: all
offsets of pages and row groups are set right, in the OffsetIndexes too, and nothing is dead. Bytes that only an
unknown field speaks of are copied, but an offset in such a field is not known to be one.

ColumnIndexes and OffsetIndexes are one contiguous region, because readers fetch them in one span.
Specification: BloomFilter.md ("File Format"), PageIndex.md, parquet.thrift.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.parquet.extents import MAGIC_LENGTH, Extents, Range, find_extents
from sidecar.parquet.footer import Footer, RowGroup
from sidecar.parquet.footer_rewrite import ChunkPlaces, move_pages, rewrite_metadata
from sidecar.parquet.thrift import encode_struct
from sidecar.source import Source
from sidecar.target import COPY_LENGTH, Target

MAGIC = b"PAR1"
PLACEMENTS = ("end", "row-group")
_SPOOL_LENGTH = 16 << 20
"""Bytes of page indexes kept in memory; they are written last, all kinds together."""

Piece = bytes | Range
"""New bytes, or bytes of the source that are carried over as they are."""


@dataclass(frozen=True)
class GroupIndexes:
    """All that a row group has in the new file, by leaf index; a chunk that is not named has none.

    A filter is its header and bitset; an OffsetIndex names offsets of the source.
    """

    filters: Mapping[int, Piece] = field(default_factory=dict)
    column_indexes: Mapping[int, Piece] = field(default_factory=dict)
    offset_indexes: Mapping[int, Piece] = field(default_factory=dict)


@dataclass(frozen=True)
class Embedded:
    """What was written, in bytes."""

    size: int
    filter_bytes: int
    page_index_bytes: int
    footer_bytes: int
    dead_bytes: int
    """Old filters and page indexes that nothing names any more, left between row groups."""


def check_embeddable(source: Source, footer: Footer) -> None:
    """Raise :class:`UnsupportedFeatureError` for a file whose footer must not be rewritten here.

    That is one with encryption or a signature, and one with column chunks in other files (``_metadata``).
    """
    if source.read(0, MAGIC_LENGTH) != MAGIC:
        raise DamagedFileError("wrong magic at the file's start", file=source.name, offset=0, expected=MAGIC)
    if {8, 9} & footer.metadata.fields.keys():
        raise UnsupportedFeatureError("the file is encrypted (Parquet modular encryption)", file=source.name)
    for group in footer.row_groups:
        for chunk in group.columns:
            if chunk.encrypted or chunk.file_path is not None:
                what = "is encrypted" if chunk.encrypted else "names another file (file_path)"
                raise UnsupportedFeatureError(
                    f"a column chunk {what}, so the footer is not rewritten",
                    file=source.name,
                    column=chunk.leaf.path,
                )


def embed(
    source: Source,
    footer: Footer,
    target: Target,
    indexes: Iterable[GroupIndexes],
    *,
    placement: str = "end",
) -> Embedded:
    """Write the file ``source`` with ``indexes``, one for each row group in order, to the empty ``target``.

    ``indexes`` is asked for a row group when the pages before it are written, so it may build one at a time:
    memory holds one row group's filters, 16 MiB of page indexes and the footer. Raises as
    :func:`check_embeddable`, :class:`DamagedFileError` for column chunks outside the file,
    :class:`UnsupportedFeatureError` for placement ``row-group`` where row groups interleave, and
    :class:`UsageError` for an unknown placement.
    """
    if placement not in PLACEMENTS:
        raise UsageError("unknown placement", expected=" or ".join(PLACEMENTS), found=placement)
    check_embeddable(source, footer)
    extents = find_extents(source, footer)
    if placement == "row-group":
        _check_order(footer, extents)
    with SpooledTemporaryFile(_SPOOL_LENGTH) as first, SpooledTemporaryFile(_SPOOL_LENGTH) as second:
        rewrite = _Rewrite(source, footer, target, extents, placement, first, second)
        rewrite.body(indexes)
        return rewrite.finish()


def _check_order(footer: Footer, extents: Extents) -> None:
    end = 0
    for number, part in enumerate(extents.groups):
        if part is not None and part.offset < end:
            raise UnsupportedFeatureError(
                f"row group {number} does not lie behind the one before it",
                file=footer.name,
                offset=part.offset,
                hint="Place filters at the end of the file.",
            )
        end = part.end if part is not None else end


class _Copied(NamedTuple):
    """A range of the source, and where it begins in the target."""

    old: int
    end: int
    new: int


@dataclass
class _Rewrite:
    source: Source
    footer: Footer
    target: Target
    extents: Extents
    placement: str
    column_spool: SpooledTemporaryFile[bytes]
    offset_spool: SpooledTemporaryFile[bytes]
    copied: list[_Copied] = field(default_factory=list)
    filters: list[dict[int, Range]] = field(default_factory=list)
    column_indexes: list[dict[int, Range]] = field(default_factory=list)
    """Offsets in the spool, as those of ``offset_indexes``."""
    offset_indexes: list[dict[int, Range]] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        return self.placement == "row-group"

    def body(self, indexes: Iterable[GroupIndexes]) -> None:
        """Everything before the page indexes."""
        at = 0
        if not self.moves:
            self._copy(Range(0, self.extents.cut))
            at = self.extents.cut
        for group, given in zip(self.footer.row_groups, indexes, strict=True):
            part = self.extents.groups[group.ordinal]
            if self.moves and part is not None:
                self._copy_between(at, part.end)
                at = part.end
            self._add(group, given)
        self._copy_between(at, self.extents.cut)

    def finish(self) -> Embedded:
        """Page indexes and footer."""
        filter_end = self.target.position
        bases = [self._unspool(spool) for spool in (self.column_spool, self.offset_spool)]
        footer_start = self.target.position
        metadata = rewrite_metadata(
            self.footer.metadata, self._places(*bases), self._moved if self.moves else None
        )
        data = encode_struct(metadata)
        self.target.write(b"".join((data, len(data).to_bytes(4, "little"), MAGIC)))
        named = {part for group in self.filters for part in group.values()}
        dead = [p for p in self.extents.indexes if p.end <= self.extents.cut and p not in named]
        return Embedded(
            size=self.target.position,
            filter_bytes=sum(part.length for part in named),
            page_index_bytes=footer_start - filter_end,
            footer_bytes=len(data),
            dead_bytes=0 if self.moves else sum(part.length for part in dead),
        )

    def _copy(self, part: Range) -> None:
        self.copied.append(_Copied(part.offset, part.end, self.target.position))
        self.target.copy(self.source, part.offset, part.length)

    def _copy_between(self, start: int, end: int) -> None:
        """Copy what is neither a filter nor a page index."""
        for part in self.extents.between(start, end):
            self._copy(part)

    def _add(self, group: RowGroup, given: GroupIndexes) -> None:
        """Write the filters of a row group, keep its page indexes for later."""
        self.filters.append({leaf: self._put(given.filters[leaf]) for leaf in sorted(given.filters)})
        self.column_indexes.append(
            {
                leaf: self._spool(self.column_spool, self._bytes(given.column_indexes[leaf]))
                for leaf in sorted(given.column_indexes)
            }
        )
        moved = {
            leaf: self._offset_index(given.offset_indexes[leaf]) for leaf in sorted(given.offset_indexes)
        }
        self.offset_indexes.append(
            {leaf: self._spool(self.offset_spool, data) for leaf, data in moved.items()}
        )

    def _put(self, piece: Piece) -> Range:
        if isinstance(piece, Range) and not self.moves and piece.end <= self.extents.cut:
            return piece  # copied with the pages around it, to the same place
        start = self.target.position
        if isinstance(piece, Range):
            self.target.copy(self.source, piece.offset, piece.length)
        else:
            self.target.write(piece)
        return Range(start, self.target.position - start)

    def _bytes(self, piece: Piece) -> bytes:
        return self.source.read(piece.offset, piece.length) if isinstance(piece, Range) else piece

    def _offset_index(self, piece: Piece) -> bytes:
        data = self._bytes(piece)
        return move_pages(data, self._moved) if self.moves else data

    def _spool(self, spool: SpooledTemporaryFile[bytes], data: bytes) -> Range:
        start = spool.tell()
        spool.write(data)
        return Range(start, len(data))

    def _unspool(self, spool: SpooledTemporaryFile[bytes]) -> int:
        start = self.target.position
        spool.seek(0)
        while data := spool.read(COPY_LENGTH):
            self.target.write(data)
        return start

    def _places(self, column_base: int, offset_base: int) -> list[list[ChunkPlaces]]:
        return [
            [
                ChunkPlaces(
                    self.filters[group.ordinal].get(leaf),
                    _shifted(self.column_indexes[group.ordinal].get(leaf), column_base),
                    _shifted(self.offset_indexes[group.ordinal].get(leaf), offset_base),
                )
                for leaf in range(len(group.columns))
            ]
            for group in self.footer.row_groups
        ]

    def _moved(self, offset: int) -> int:
        """Where a byte of the source is now; 0 ("nothing") for one that was not copied."""
        number = bisect_right(self.copied, offset, key=lambda part: part.old) - 1
        part = self.copied[number]
        return part.new + offset - part.old if offset <= part.end else 0


def _shifted(part: Range | None, base: int) -> Range | None:
    return None if part is None else Range(base + part.offset, part.length)
