"""A Parquet file with other filters and page indexes: its pages copied as bytes, its footer written anew.

    placement "end":        magic | pages | filters, by row group and column | ColumnIndexes | OffsetIndexes | footer
    placement "row-group":  magic | pages of row group 0 | its filters | pages of 1 | ... | ColumnIndexes | ...

At the end, nothing that is copied moves, so no offset changes. Old filters and page indexes that stand between
the pages and the footer are left behind or written again; those between row groups stay where they are, as dead
bytes if nothing names them any more. After each row group, everything behind the first one's pages moves: all
offsets of pages and row groups are set right, in the OffsetIndexes too, and nothing is dead. Bytes that only an
unknown field speaks of are copied, but an offset in such a field is not known to be one.

ColumnIndexes and OffsetIndexes are one contiguous region, because readers fetch them in one span.

Encrypted files are copied as they are stored; what is new in them is sealed
(:mod:`sidecar.parquet.encrypted.sealing`). Filters of encrypted columns that some writers leave in clear are not
copied: zeros take their place. Specification: BloomFilter.md ("File Format"), PageIndex.md, Encryption.md,
parquet.thrift.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.parquet.encrypted.sealing import MAGIC, NO_KEY, Sealing, sealing_of
from sidecar.parquet.extents import MAGIC_LENGTH, Extents, Range, find_extents
from sidecar.parquet.footer import Footer, RowGroup
from sidecar.parquet.footer_rewrite import ChunkPlaces, move_pages, rewrite_metadata
from sidecar.source import Source, check_unchanged
from sidecar.target import COPY_LENGTH, Target

PLACEMENTS = ("end", "row-group")
_TRAILER = 8
_SPOOL_LENGTH = 16 << 20
"""Bytes of page indexes kept in memory; they are written last, all kinds together."""

Piece = bytes | Range
"""New bytes, or bytes of the source that are carried over as they are."""


@dataclass(frozen=True)
class GroupIndexes:
    """All that a row group has in the new file, by leaf index; a chunk that is not named has none.

    A filter is its header and bitset; an OffsetIndex names offsets of the source. New ones are in clear here. Columns
    of an encrypted file whose key is not at hand keep what they have.
    """

    filters: Mapping[int, Piece] = field(default_factory=dict)
    column_indexes: Mapping[int, Piece] = field(default_factory=dict)
    offset_indexes: Mapping[int, Piece] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenParquet:
    """What was written, in bytes."""

    size: int
    filter_bytes: int
    page_index_bytes: int
    footer_bytes: int
    dead_bytes: int
    """Old filters and page indexes that nothing names any more, left between row groups."""


def check_embeddable(source: Source, footer: Footer) -> Sealing:
    """How new parts of a file are written; the file is what :func:`unlock` makes of it.

    Raises :class:`UnsupportedFeatureError` for a file whose footer must not be rewritten here: an encrypted or signed
    one without its footer key, and one with column chunks in other files (``_metadata``).
    """
    if source.read(0, MAGIC_LENGTH) != MAGIC:
        raise DamagedFileError("wrong magic at the file's start", file=source.name, offset=0, expected=MAGIC)
    chunks = [chunk for group in footer.row_groups for chunk in group.columns]
    locked = any(chunk.encrypted for chunk in chunks)
    if footer.encryption is None and (locked or {8, 9} & footer.metadata.fields.keys()):
        raise UnsupportedFeatureError(
            "the file is encrypted (Parquet modular encryption)",
            file=source.name,
            hint="Its keys are given as encryption_keys, on the command line as --encryption-keys.",
        )
    for chunk in chunks:
        if chunk.file_path is not None:
            raise UnsupportedFeatureError(
                "a column chunk names another file (file_path), so the footer is not rewritten",
                file=source.name,
                column=chunk.leaf.path,
            )
    return sealing_of(source, footer)


def embed(
    source: Source,
    footer: Footer,
    target: Target,
    indexes: Iterable[GroupIndexes],
    *,
    placement: str = "end",
) -> WrittenParquet:
    """Write the file ``source`` with ``indexes``, one for each row group in order, to the empty ``target``.

    ``indexes`` is asked for a row group when the pages before it are written, so it may build one at a time:
    memory holds one row group's filters, 16 MiB of page indexes and the footer. Raises as
    :func:`check_embeddable`, :class:`DamagedFileError` for column chunks outside the file,
    :class:`UnsupportedFeatureError` for placement ``row-group`` where row groups interleave,
    :class:`UsageError` for an unknown placement, and :class:`sidecar.errors.StorageError` if somebody wrote to the
    file meanwhile.
    """
    if placement not in PLACEMENTS:
        raise UsageError("unknown placement", expected=" or ".join(PLACEMENTS), found=placement)
    sealing = check_embeddable(source, footer)
    extents = find_extents(source, footer)
    if placement == "row-group":
        _check_order(footer, extents)
    with SpooledTemporaryFile(_SPOOL_LENGTH) as first, SpooledTemporaryFile(_SPOOL_LENGTH) as second:
        rewrite = _Rewrite(sealing, footer, target, extents, placement, first, second)
        rewrite.body(indexes)
        written = rewrite.finish()
    check_unchanged(source)  # or the indexes could be of other pages than those that were copied
    return written


def _check_order(footer: Footer, extents: Extents) -> None:
    if extents.locked:
        raise UnsupportedFeatureError(
            f"nothing can be moved in the file: {NO_KEY}",
            file=footer.name,
            column=extents.locked[0].leaf.path,
            hint="Place filters at the end of the file.",
        )
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
    sealing: Sealing
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
            self._copy_without(self._leaks())
            at = self.extents.cut
        for group, given in zip(self.footer.row_groups, indexes, strict=True):
            part = self.extents.groups[group.ordinal]
            if self.moves and part is not None:
                self._copy_between(at, part.end)
                at = part.end
            self._add(group, given)
        self._copy_between(at, self.extents.cut)

    def finish(self) -> WrittenParquet:
        """Page indexes and footer."""
        filter_end = self.target.position
        bases = [self._unspool(spool) for spool in (self.column_spool, self.offset_spool)]
        footer_start = self.target.position
        metadata = rewrite_metadata(
            self.sealing.metadata,
            self._places(*bases),
            self._moved if self.moves else None,
            self.sealing.column_metadata,
        )
        self.target.write(self.sealing.footer(metadata))
        named = {part for group in self.filters for part in group.values()}
        dead = [p for p in self.extents.indexes if p.end <= self.extents.cut and p not in named]
        return WrittenParquet(
            size=self.target.position,
            filter_bytes=sum(part.length for part in named),
            page_index_bytes=footer_start - filter_end,
            footer_bytes=self.target.position - footer_start - _TRAILER,
            dead_bytes=0 if self.moves else sum(part.length for part in dead),
        )

    def _copy(self, part: Range) -> None:
        self.copied.append(_Copied(part.offset, part.end, self.target.position))
        self.target.copy(self.sealing.source, part.offset, part.length)

    def _leaks(self) -> list[Range]:
        """Filters in clear of encrypted columns, which some writers leave."""
        known, found = set(self.extents.indexes), set()
        for group in self.footer.row_groups:
            for chunk in group.columns:
                part = Range(chunk.bloom_filter_offset or 0, chunk.bloom_filter_length or 0)
                inside = part.length and part in known and part.end <= self.extents.cut
                if inside and self.sealing.is_leak(group.ordinal, chunk.leaf.index, *part):
                    found.add(part)
        return sorted(found)

    def _copy_without(self, leaks: list[Range]) -> None:
        """Everything up to the cut to the same place, zeros instead of ``leaks``."""
        at = 0
        for part in leaks:
            if part.offset >= at:
                self._copy(Range(at, part.offset - at))
                self.target.write(bytes(part.length))
                at = part.end
        self._copy(Range(at, self.extents.cut - at))

    def _copy_between(self, start: int, end: int) -> None:
        """Copy what is neither a filter nor a page index."""
        for part in self.extents.between(start, end):
            self._copy(part)

    def _add(self, group: RowGroup, given: GroupIndexes) -> None:
        """Write the filters of a row group, keep its page indexes for later."""
        at, sealing = group.ordinal, self.sealing
        self.filters.append(
            {leaf: self._put(at, leaf, given.filters[leaf]) for leaf in sorted(given.filters)}
        )
        columns, offsets = given.column_indexes, given.offset_indexes
        self.column_indexes.append(
            {
                leaf: self._spool(
                    self.column_spool, self._sealed(sealing.column_index, at, leaf, columns[leaf])
                )
                for leaf in sorted(columns)
            }
        )
        self.offset_indexes.append(
            {
                leaf: self._spool(self.offset_spool, self._offset_index(at, leaf, offsets[leaf]))
                for leaf in sorted(offsets)
            }
        )

    def _put(self, row_group: int, leaf: int, piece: Piece) -> Range:
        if isinstance(piece, Range) and not self.moves and piece.end <= self.extents.cut:
            return piece  # copied with the pages around it, to the same place
        start = self.target.position
        if isinstance(piece, Range):
            self.target.copy(self.sealing.source, piece.offset, piece.length)
        else:
            self.target.write(self.sealing.filter(row_group, leaf, piece))
        return Range(start, self.target.position - start)

    def _sealed(
        self, seal: Callable[[int, int, bytes], bytes], row_group: int, leaf: int, piece: Piece
    ) -> bytes:
        """A piece as it goes into the file: sealed if it is new, as it is stored otherwise."""
        return self._stored(piece) if isinstance(piece, Range) else seal(row_group, leaf, piece)

    def _stored(self, part: Range) -> bytes:
        return self.sealing.source.read(part.offset, part.length)

    def _offset_index(self, row_group: int, leaf: int, piece: Piece) -> bytes:
        """An OffsetIndex as it goes into the file, of the pages where they are now."""
        if self.moves:
            if isinstance(piece, Range):
                piece = self.sealing.open_offset_index(row_group, leaf, self._stored(piece))
            piece = move_pages(piece, self._moved)
        return self._sealed(self.sealing.offset_index, row_group, leaf, piece)

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

    def _places(self, column_base: int, offset_base: int) -> list[list[ChunkPlaces | None]]:
        return [
            [
                None
                if group.columns[leaf].encrypted
                else ChunkPlaces(
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
