"""Writes a copy of a Parquet file with other filters and page indexes: pages are copied, the footer is written anew.

    placement "end":        magic | pages | filters, by row group and column | ColumnIndexes | OffsetIndexes | footer
    placement "row-group":  magic | pages of row group 0 | its filters | pages of 1 | ... | ColumnIndexes | ...

With placement "end", copied bytes keep their offsets. Old filters and page indexes between the pages and the footer
are dropped or written again. Those between row groups stay where they are; they become dead bytes if the new footer
does not refer to them. With placement "row-group", everything after the pages of the first row group moves. All offsets
of pages and row groups are updated, in the OffsetIndexes too, and there are no dead bytes. Bytes to which only an
unknown field refers are copied, but the offset in that field is not updated, because it is not known to be one.

ColumnIndexes and OffsetIndexes are one contiguous region, because readers fetch them with one read.

Encrypted files are copied as they are stored; new parts are encrypted (:mod:`sidecar.parquet.encrypted.sealing`).
Some writers leave filters of encrypted columns unencrypted: zeros replace them. Specification: BloomFilter.md ("File
Format"), PageIndex.md, Encryption.md, parquet.thrift.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import NamedTuple, get_args

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.parquet.encrypted.sealing import NO_KEY, Sealing, sealing_of
from sidecar.parquet.footer import KEYS_HINT, MAGIC, TRAILER, Footer, RowGroup
from sidecar.parquet.footer_rewrite import ChunkPlaces, move_pages, rewrite_metadata
from sidecar.parquet.page_indexes.copied_pages import CheckedPages
from sidecar.parquet.page_indexes.extents import Extents, Range, find_extents
from sidecar.results.choices import Placement
from sidecar.storage.costs import COPY_LENGTH
from sidecar.storage.local import check_unchanged
from sidecar.storage.source import Source
from sidecar.storage.target import Target

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
_SPOOL_LENGTH = 16 << 20
"""Bytes of page indexes that each spool keeps in memory before it uses a temporary file."""

Piece = bytes | Range
"""New bytes, or a range of the source that is copied."""


@dataclass(frozen=True)
class GroupIndexes:
    """All indexes of a row group in the new file, by leaf index. A chunk that is not listed has none.

    A filter is its header and bitset. An OffsetIndex has the offsets of the source. New pieces are not encrypted yet.
    Encrypted columns whose key is missing keep their indexes.
    """

    filters: Mapping[int, Piece] = field(default_factory=dict)
    column_indexes: Mapping[int, Piece] = field(default_factory=dict)
    offset_indexes: Mapping[int, Piece] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenParquet:
    """Sizes of a written file and its parts, in bytes."""

    size: int
    """The size of the file."""
    filter_bytes: int
    """The bytes of its filters."""
    page_index_bytes: int
    """The bytes of its page indexes."""
    footer_bytes: int
    """The bytes of its footer."""
    dead_bytes: int
    """Bytes of old filters and page indexes between row groups to which the footer does not refer."""


def check_embeddable(source: Source, footer: Footer) -> Sealing:
    """Check that indexes can be embedded into a file, and return how its new parts are written.

    ``source`` is what :func:`sidecar.parquet.encrypted.plain_view.unlock` returns. Raises
    :class:`UnsupportedFeatureError` for an encrypted or signed file without its footer key and for column chunks in
    other files (``_metadata``), and :class:`DamagedFileError` for a wrong magic at the start.
    """
    if source.read(0, len(MAGIC)) != MAGIC:
        raise DamagedFileError("the file begins with the wrong magic", file=source.name, offset=0, expected=MAGIC)
    if footer.encryption is None and (footer.locked or {8, 9} & footer.metadata.fields.keys()):
        raise UnsupportedFeatureError(
            "the file is encrypted (Parquet modular encryption)",
            file=source.name,
            hint=KEYS_HINT,
        )
    for chunk in (chunk for group in footer.row_groups for chunk in group.columns.stored):
        if chunk.file_path is not None:
            raise UnsupportedFeatureError(
                "a column chunk is in another file (file_path), so the footer is not rewritten",
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
    """Write a copy of ``source`` with ``indexes``, one item a row group in order, to the empty ``target``.

    An item is taken from ``indexes`` when the pages before it are written, so an iterator may build one at a time.
    Memory holds one row group's filters, 16 MiB of each kind of page index, and the footer. Raises the errors of
    :func:`check_embeddable`, :class:`DamagedFileError` for column chunks outside the file,
    :class:`UnsupportedFeatureError` for placement ``row-group`` if row groups interleave or columns are locked,
    :class:`UsageError` for an unknown placement, :class:`sidecar.errors.StorageError` if ``source`` has changed
    meanwhile, and :class:`sidecar.errors.WrongChecksumError` for a page with a wrong checksum, if its bytes come
    through this process (:mod:`sidecar.parquet.page_indexes.copied_pages`).
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
    check_unchanged(source)  # otherwise the indexes may describe other pages than the copied ones
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
                f"row group {number} begins before the end of the row group before it",
                file=footer.name,
                offset=part.offset,
                hint="Place filters at the end of the file.",
            )
        end = part.end if part is not None else end


class _Copied(NamedTuple):
    """A copied range: its start and end in the source, and its start in the target."""

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
    """Ranges in the column spool, by row group and leaf index."""
    offset_indexes: list[dict[int, Range]] = field(default_factory=list)
    """Ranges in the offset spool, by row group and leaf index."""

    def __post_init__(self) -> None:
        self.pages = CheckedPages(self.sealing.source, self.footer)

    @property
    def moves(self) -> bool:
        return self.placement == "row-group"

    def body(self, indexes: Iterable[GroupIndexes]) -> None:
        """Write everything before the page indexes: pages and filters."""
        at = 0
        if not self.moves:
            self._copy_without(self._leaks())
            at = self.extents.cut
        for group, given in zip(self.footer.row_groups, indexes, strict=True):
            if self.moves and self.extents.groups[group.ordinal] is not None:
                end = self.extents.next_start(group.ordinal)
                self._copy_between(at, end)
                at = end
            self._add(group, given)
        self._copy_between(at, self.extents.cut)

    def finish(self) -> WrittenParquet:
        """Write the page indexes and the footer."""
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
            footer_bytes=self.target.position - footer_start - TRAILER,
            dead_bytes=0 if self.moves else sum(part.length for part in dead),
        )

    def _copy(self, part: Range) -> None:
        self.copied.append(_Copied(part.offset, part.end, self.target.position))
        self.target.copy(self.pages, part.offset, part.length)

    def _leaks(self) -> list[Range]:
        """Return the unencrypted filters of encrypted columns, which some writers leave; by offset."""
        known, found = set(self.extents.indexes), set()
        for group in self.footer.row_groups:
            for chunk in group.columns:
                part = Range(chunk.bloom_filter_offset or 0, chunk.bloom_filter_length or 0)
                inside = part.length and part in known and part.end <= self.extents.cut
                if inside and self.sealing.is_leak(group.ordinal, chunk.leaf.index, *part):
                    found.add(part)
        return sorted(found)

    def _copy_without(self, leaks: list[Range]) -> None:
        """Copy everything up to the cut to the same place, with zeros instead of ``leaks``."""
        at = 0
        for part in leaks:
            if part.offset >= at:
                self._copy(Range(at, part.offset - at))
                self.target.write(bytes(part.length))
                at = part.end
        self._copy(Range(at, self.extents.cut - at))

    def _copy_between(self, start: int, end: int) -> None:
        """Copy the bytes of ``[start, end)`` that are not filters or page indexes."""
        for part in self.extents.between(start, end):
            self._copy(part)

    def _add(self, group: RowGroup, given: GroupIndexes) -> None:
        """Write the filters of a row group, and keep its page indexes for later."""
        at, sealing = group.ordinal, self.sealing
        self.filters.append({leaf: self._put(at, leaf, given.filters[leaf]) for leaf in sorted(given.filters)})
        columns, offsets = given.column_indexes, given.offset_indexes
        self.column_indexes.append(
            {
                leaf: self._spool(self.column_spool, self._encrypted(sealing.column_index, at, leaf, columns[leaf]))
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

    def _encrypted(self, encrypt: Callable[[int, int, bytes], bytes], row_group: int, leaf: int, piece: Piece) -> bytes:
        """Return the bytes of a piece for the new file: encrypted if it is new, unchanged if it is copied."""
        return self._stored(piece) if isinstance(piece, Range) else encrypt(row_group, leaf, piece)

    def _stored(self, part: Range) -> bytes:
        return self.sealing.source.read(part.offset, part.length)

    def _offset_index(self, row_group: int, leaf: int, piece: Piece) -> bytes:
        """Return the bytes of an OffsetIndex for the new file, with the offsets of pages in that file."""
        if self.moves:
            if isinstance(piece, Range):
                piece = self.sealing.open_offset_index(row_group, leaf, self._stored(piece))
            piece = move_pages(piece, self._moved)
        return self._encrypted(self.sealing.offset_index, row_group, leaf, piece)

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
                if group.columns.get(leaf) is None
                else ChunkPlaces(
                    self.filters[group.ordinal].get(leaf),
                    _shifted(self.column_indexes[group.ordinal].get(leaf), column_base),
                    _shifted(self.offset_indexes[group.ordinal].get(leaf), offset_base),
                )
                for leaf in range(len(self.footer.columns))
            ]
            for group in self.footer.row_groups
        ]

    def _moved(self, offset: int) -> int:
        """Return the target offset of a byte of the source; 0, which means absent, if it was not copied."""
        number = bisect_right(self.copied, offset, key=lambda part: part.old) - 1
        part = self.copied[number]
        return part.new + offset - part.old if offset <= part.end else 0


def _shifted(part: Range | None, base: int) -> Range | None:
    return None if part is None else Range(base + part.offset, part.length)
