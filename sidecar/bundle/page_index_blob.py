"""``sidecar-page-index-v1``: ColumnIndex and OffsetIndex of one field's units, the Thrift bytes as they were.

What the bytes are stands in ``page_index_toc``. An entry is verified as a whole and handed out as it is; whether
what it says may be believed is for :mod:`sidecar.parquet.page_bounds`, which has seen nothing of the file yet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sidecar.bundle.checksum import SEAL_BYTES, Kind, Place, is_sealed, seal
from sidecar.bundle.page_index_toc import (
    MAX_INDEX_BYTES,
    MEMBER_BYTES,
    MEMBERS_PER_PIECE,
    PIECE_HEADER_BYTES,
    PageIndexGroup,
    PageIndexKind,
    PageIndexToc,
    StoredPageIndexGroup,
)
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import DamagedFileError, SidecarError, UsageError

_OFFSET = struct.Struct("<Q")
_BATCH_BYTES = 16 << 20


class StoredPageIndex(NamedTuple):
    """The page index of one unit: Thrift bytes, ``None`` for a structure that the file does not have."""

    column_index: bytes | None
    offset_index: bytes | None
    kind: PageIndexKind


class _Entry(NamedTuple):
    """Where the entry of a unit lies in the blob; ``length`` is without the checksum."""

    group: StoredPageIndexGroup
    unit: int
    offset: int
    column_length: int
    length: int


@dataclass(frozen=True)
class FieldPageIndexes:
    """Page indexes of one field for :func:`sidecar.bundle.writer.write_segment`.

    ``entries``: for each of ``groups`` and each of its units in order, ColumnIndex and OffsetIndex.
    """

    field_id: int
    groups: Sequence[PageIndexGroup]
    entries: Iterable[tuple[bytes, bytes]]


def page_index_pieces(given: FieldPageIndexes, place: Place) -> Iterator[bytes]:
    """The bytes of all groups, piece by piece. Raises :class:`UsageError` for entries of other lengths."""
    entries = iter(given.entries)
    for group in given.groups:
        for unit, lengths in zip(group.units.tolist(), group.lengths.tolist(), strict=True):
            entry = next(entries, None)
            if entry is None or [len(part) for part in entry] != lengths:
                found = "nothing" if entry is None else [len(part) for part in entry]
                raise UsageError("a page index has not the length stated", expected=lengths, found=found)
            data = b"".join(entry)
            yield data + seal(place.context(Kind.PAGE_INDEX, unit, group.ordinal), data)
        yield from _table_pieces(group, place)


def _table_pieces(group: PageIndexGroup, place: Place) -> Iterator[bytes]:
    sizes = group.lengths.sum(axis=1) + SEAL_BYTES
    starts = np.cumsum(sizes) - sizes
    for piece, first in enumerate(range(0, len(sizes), MEMBERS_PER_PIECE)):
        lengths = group.lengths[first : first + MEMBERS_PER_PIECE].astype("<u4")
        data = _OFFSET.pack(int(starts[first])) + lengths.tobytes()
        yield data + seal(place.context(Kind.PAGE_INDEX_TABLE, piece, group.ordinal), data)


class PageIndexBlob:
    """The page indexes of one field of one segment. ``doubt`` is told of everything that cannot be read."""

    def __init__(
        self, toc: PageIndexToc, read_ranges: ReadRanges, doubt: Callable[[SidecarError | str], None]
    ) -> None:
        self.toc = toc
        self._place = Place(toc.segment_id, toc.field_id)
        self._read_ranges = read_ranges
        self._doubt = doubt
        self._told = False

    def read(self, units: Iterable[int]) -> dict[int, StoredPageIndex]:
        """The page indexes of these units, those that have none or whose bytes are damaged left out.

        One read of ranges for the tables, one for the entries (several beyond 16 MiB); the reader joins
        neighbours. Damage is doubted, not raised.
        """
        self._tell_doubts()
        found: dict[int, StoredPageIndex] = {}
        for batch in _batches(self._locate(sorted(set(units)))):
            for entry, data in self._fetch(batch):
                column = data[: entry.column_length]
                found[entry.unit] = StoredPageIndex(
                    column or None, data[entry.column_length : entry.length] or None, entry.group.kind
                )
        return found

    def verify(self) -> Iterator[str]:
        """What is wrong with the blob, one line for each table piece and entry."""
        yield from self.toc.doubts
        problems: list[str] = []
        reader = PageIndexBlob(self.toc, self._read_ranges, lambda cause: problems.append(str(cause)))
        reader._told = True
        for group in self.toc.groups:
            units = group.ordinals().tolist()
            for first in range(0, len(units), MEMBERS_PER_PIECE):
                reader.read(units[first : first + MEMBERS_PER_PIECE])
        yield from dict.fromkeys(problems)

    def _tell_doubts(self) -> None:
        if not self._told:
            self._told = True
            for text in self.toc.doubts:
                self._doubt(text)

    def _locate(self, units: Sequence[int]) -> list[_Entry]:
        """Read the pieces of tables that these units stand in."""
        wanted: list[tuple[StoredPageIndexGroup, int, list[tuple[int, int]]]] = []
        for group in self.toc.groups:
            positions: dict[int, list[tuple[int, int]]] = {}
            for unit, position in _positions(group, units):
                positions.setdefault(position // MEMBERS_PER_PIECE, []).append((unit, position))
            wanted += [(group, piece, mine) for piece, mine in positions.items()]
        pieces = self._read([_piece_range(group, piece) for group, piece, _ in wanted])
        entries: list[_Entry] = []
        for (group, piece, mine), data in zip(wanted, pieces, strict=True):
            try:
                entries += _entries(group, piece, mine, data, self._place)
            except SidecarError as error:
                self._doubt(error)
        return entries

    def _fetch(self, entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, bytes]]:
        data = self._read([(entry.offset, entry.length + SEAL_BYTES) for entry in entries])
        for entry, piece in zip(entries, data, strict=True):
            context = self._place.context(Kind.PAGE_INDEX, entry.unit, entry.group.ordinal)
            if piece is None:
                continue
            if is_sealed(context, piece):
                yield entry, piece[: entry.length]
            else:
                where = f"field {self.toc.field_id}, unit {entry.unit}"
                self._doubt(
                    DamagedFileError(f"the page index of {where} has a wrong checksum", offset=entry.offset)
                )

    def _read(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | None]:
        if not ranges:
            return []
        try:
            return self._read_ranges(ranges)
        except SidecarError as error:
            self._doubt(error)
            return [None] * len(ranges)


def _positions(group: StoredPageIndexGroup, units: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(unit, position) of those of the rising ``units`` that are members."""
    if isinstance(group.units, slice):
        start, stop = group.units.start, group.units.stop
        yield from ((unit, unit - start) for unit in units if start <= unit < stop)
        return
    at = np.searchsorted(group.units, units)
    for unit, position in zip(units, at.tolist(), strict=True):
        if position < group.members and group.units[position] == unit:
            yield unit, position


def _piece_range(group: StoredPageIndexGroup, piece: int) -> tuple[int, int]:
    full = PIECE_HEADER_BYTES + MEMBERS_PER_PIECE * MEMBER_BYTES + SEAL_BYTES
    members = min(MEMBERS_PER_PIECE, group.members - piece * MEMBERS_PER_PIECE)
    return group.table_offset + piece * full, PIECE_HEADER_BYTES + members * MEMBER_BYTES + SEAL_BYTES


def _entries(
    group: StoredPageIndexGroup,
    piece: int,
    wanted: Sequence[tuple[int, int]],
    data: bytes | None,
    place: Place,
) -> Iterator[_Entry]:
    if data is None:
        return
    offset = _piece_range(group, piece)[0]
    if not is_sealed(place.context(Kind.PAGE_INDEX_TABLE, piece, group.ordinal), data):
        raise DamagedFileError(f"a table of page indexes of group {group.ordinal} is damaged", offset=offset)
    (start,) = _OFFSET.unpack_from(data)
    end = len(data) - SEAL_BYTES
    lengths = np.frombuffer(data[PIECE_HEADER_BYTES:end], "<u4").reshape(-1, 2).astype(np.int64)
    sizes = lengths.sum(axis=1)
    starts = start + np.cumsum(sizes + SEAL_BYTES) - sizes - SEAL_BYTES
    room = group.table_offset - group.offset
    if lengths.max(initial=0) > MAX_INDEX_BYTES or starts[-1] + sizes[-1] + SEAL_BYTES > room:
        raise DamagedFileError(
            f"a table of page indexes of group {group.ordinal} names an impossible place", offset=offset
        )
    for unit, position in wanted:
        at = position - piece * MEMBERS_PER_PIECE
        yield _Entry(group, unit, group.offset + int(starts[at]), int(lengths[at, 0]), int(sizes[at]))


def _batches(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """Entries of some 16 MiB together."""
    batch: list[_Entry] = []
    total = 0
    for entry in entries:
        if batch and total + entry.length > _BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += entry.length
    if batch:
        yield batch
