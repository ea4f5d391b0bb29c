"""Writes and reads blobs of page indexes and row indexes. The bytes are described in ``index_toc``.

An entry is verified as a whole and returned as it is. Whether its statistics can be believed is decided by the callers,
which know the file.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.field_blob import FieldBlob
from sidecar.bundle.field_parts import NewBlob, SegmentUnits, blob_pieces, check_units
from sidecar.bundle.indexes.index_toc import (
    LENGTH_BYTES,
    MAX_PART_BYTES,
    MEMBERS_PER_PIECE,
    PIECE_HEADER_BYTES,
    IndexForm,
    IndexGroup,
    IndexToc,
    K,
    StoredIndexGroup,
    encode_index_toc,
    split_entry,
)
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import DamagedFileError, SidecarError, UsageError, located

S = TypeVar("S")

Ranges = list[tuple[int, int]]
Reading = Generator[Ranges, Sequence["bytes | None"], S]
"""Yields ranges of a blob, is sent their bytes (``None`` where they cannot be read), and returns an ``S``."""

_OFFSET = struct.Struct("<Q")
_BATCH_BYTES = 16 << 20


class _Entry(NamedTuple):
    """The place of a unit's entry in the blob, and the lengths of its parts in bytes."""

    group: StoredIndexGroup[Any]
    unit: int
    offset: int
    lengths: tuple[int, ...]

    @property
    def length(self) -> int:
        """Bytes of all parts together, without checksum."""
        return sum(self.lengths)


@dataclass(frozen=True)
class FieldIndexes:
    """The page indexes or row indexes of one field for :func:`sidecar.bundle.writer.write_segment`.

    ``entries`` has, for each unit of each of ``groups`` in order, the parts of the unit's entry. With ``key``, the blob
    is encrypted; all blobs of a segment and field share one key. ``properties`` are the blob's in the Puffin footer.
    """

    form: IndexForm[Any]
    field_id: int
    groups: Sequence[IndexGroup[Any]]
    entries: Iterable[Sequence[bytes]]
    key: FieldKey | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """See :class:`sidecar.bundle.field_parts.FieldPart`."""
        return sum(int(group.lengths.sum()) for group in self.groups)

    def blobs(self, header: SegmentHeader, units: SegmentUnits) -> Iterator[NewBlob]:
        """Yield the one blob: see :meth:`sidecar.bundle.field_parts.FieldPart.blobs`."""
        form, key = self.form, self.key
        toc, offset = encode_index_toc(form, header, self.field_id, self.groups, units.num_units, units.toc, key)
        check_units((group.units for group in self.groups), units)
        place = BlobContext(header.segment_id, self.field_id) if key is None else key.place
        yield NewBlob(form.blob_type, toc, blob_pieces(form.magic, index_pieces(self, place), toc, offset, key))


def index_pieces(given: FieldIndexes, place: BlobContext) -> Iterator[bytes]:
    """Yield the bytes of all groups, piece by piece. Raises :class:`UsageError` if an entry has the wrong length."""
    form, entries = given.form, iter(given.entries)
    for group in given.groups:
        for unit, lengths in zip(group.units.tolist(), group.lengths.tolist(), strict=True):
            entry = next(entries, None)
            if entry is None or [len(part) for part in entry] != lengths:
                found = "nothing" if entry is None else [len(part) for part in entry]
                raise UsageError(f"a {form.what} does not have the stated length", expected=lengths, found=found)
            data = b"".join(entry)
            yield place.seal(place.context(form.entry, unit, group.ordinal), data)
        yield from _table_pieces(form, group, place)


def _table_pieces(form: IndexForm[K], group: IndexGroup[K], place: BlobContext) -> Iterator[bytes]:
    sizes = group.lengths.sum(axis=1) + place.sealing.overhead
    starts = np.cumsum(sizes) - sizes
    for piece, first in enumerate(range(0, len(sizes), MEMBERS_PER_PIECE)):
        lengths = group.lengths[first : first + MEMBERS_PER_PIECE].astype("<u4")
        data = _OFFSET.pack(int(starts[first])) + lengths.tobytes()
        yield place.seal(place.context(form.table, piece, group.ordinal), data)


class IndexBlob(FieldBlob[IndexToc[K]], ABC, Generic[K, S]):
    """The indexes of one field of one segment."""

    form: ClassVar[IndexForm[Any]]

    @property
    def members(self) -> int:
        """The units that have an index in the blob."""
        return sum(group.members for group in self.toc.groups)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all groups."""
        return sum(group.length for group in self.toc.groups)

    def describe(self) -> dict[str, Any]:
        """Return what the table of contents says, as plain data."""
        groups = [
            {
                "group": group.ordinal,
                **group.kind._asdict(),
                "units": group.members,
                "offset": group.offset,
                "length": group.length,
            }
            for group in self.toc.groups
        ]
        return {
            "field": self.toc.field_id,
            "encrypted": self.toc.lock is not None,
            "groups": groups,
            "damage": list(self.toc.damage),
        }

    def read(self, units: Iterable[int]) -> dict[int, S]:
        """Return the indexes of these units by unit. Units without an index or with a damaged one are left out.

        Makes one read for the tables and one for the entries (several beyond 16 MiB), with neighbours joined. Damage is
        reported, not raised.
        """
        return self._run(self.reading(units), self._read)

    def read_surely(self, units: Iterable[int]) -> dict[int, S]:
        """Return what :meth:`read` returns, but raise the error of a read that fails.

        So an index that is left out is a damaged one, and not one that storage could not deliver.
        """
        return self._run(self.reading(units), self.read_ranges)

    @staticmethod
    def _run(reading: Reading[dict[int, S]], read: Callable[[Ranges], Sequence[bytes | None]]) -> dict[int, S]:
        try:
            ranges = next(reading)
            while True:
                ranges = reading.send(read(ranges))
        except StopIteration as done:
            indexes: dict[int, S] = done.value
            return indexes

    def reading(self, units: Iterable[int]) -> Reading[dict[int, S]]:
        """Return the steps of :meth:`read` as a generator, so that reads of several blobs can be combined."""
        self.report_skipped_groups()
        indexes: dict[int, S] = {}
        place = self.usable_place()
        if place is None:
            return indexes
        entries = yield from self._locate(sorted(set(units)), place)
        for batch in _batches(entries):
            pieces = yield [(entry.offset, entry.length + place.sealing.overhead) for entry in batch]
            for entry, data in self._opened(batch, pieces, place):
                indexes[entry.unit] = self._stored(split_entry(data, entry.lengths), entry.group.kind)
        return indexes

    def verify(self) -> Iterator[str]:
        """Yield the blob's problems, one line for each damaged table piece or entry."""
        yield from self.toc.damage
        problems: list[str] = []

        def note(cause: SidecarError | str) -> None:
            problems.append(str(cause))

        reader = type(self)(self.toc, self.read_ranges, note, self._keys, self._units_digest)
        reader._skipped_groups_reported = True
        for group in self.toc.groups:
            units = group.ordinals().tolist()
            for first in range(0, len(units), MEMBERS_PER_PIECE):
                reader.read(units[first : first + MEMBERS_PER_PIECE])
        yield from dict.fromkeys(problems)

    @staticmethod
    @abstractmethod
    def _stored(parts: Sequence[bytes], kind: K) -> S:
        """Return an entry's parts in the type that readers get."""

    def _locate(self, units: Sequence[int], place: BlobContext) -> Reading[list[_Entry]]:
        """Read the table pieces that these units are in, and return the places of their entries."""
        lookups: list[tuple[StoredIndexGroup[K], int, list[tuple[int, int]]]] = []
        for group in self.toc.groups:
            positions: dict[int, list[tuple[int, int]]] = {}
            for unit, position in _positions(group, units):
                positions.setdefault(position // MEMBERS_PER_PIECE, []).append((unit, position))
            lookups += [(group, piece, members) for piece, members in positions.items()]
        entries: list[_Entry] = []
        if not lookups:
            return entries
        pieces = yield [self._piece_range(group, piece) for group, piece, _ in lookups]
        for (group, piece, members), data in zip(lookups, pieces, strict=True):
            try:
                with located(None, offset=self._piece_range(group, piece)[0]):
                    entries += self._entries(group, piece, members, data, place)
            except SidecarError as error:
                self.report(error)
        return entries

    def _piece_range(self, group: StoredIndexGroup[K], piece: int) -> tuple[int, int]:
        member_bytes, fixed = self.form.parts * LENGTH_BYTES, PIECE_HEADER_BYTES + self.toc.sealing.overhead
        members = min(MEMBERS_PER_PIECE, group.members - piece * MEMBERS_PER_PIECE)
        offset = group.table_offset + piece * (fixed + MEMBERS_PER_PIECE * member_bytes)
        return offset, fixed + members * member_bytes

    def _entries(
        self,
        group: StoredIndexGroup[K],
        piece: int,
        wanted: Sequence[tuple[int, int]],
        stored: bytes | None,
        place: BlobContext,
    ) -> Iterator[_Entry]:
        if stored is None:
            return
        table = f"the table of {self.form.what}es of group {group.ordinal}"
        data = place.open(place.context(self.form.table, piece, group.ordinal), stored)
        if data is None:
            raise DamagedFileError(f"{table} is damaged")
        (start,) = _OFFSET.unpack_from(data)
        numbers = np.frombuffer(data, "<u4", offset=PIECE_HEADER_BYTES)
        lengths = numbers.reshape(-1, self.form.parts).astype(np.int64)
        sizes, overhead = lengths.sum(axis=1), place.sealing.overhead
        room = group.table_offset - group.offset
        # The start is an unsigned number of 64 bits, which sums of signed ones cannot hold.
        if start > room or lengths.max(initial=0) > MAX_PART_BYTES or start + int((sizes + overhead).sum()) > room:
            raise DamagedFileError(f"{table} points outside its group")
        starts = start + np.cumsum(sizes + overhead) - sizes - overhead
        for unit, position in wanted:
            at = position - piece * MEMBERS_PER_PIECE
            yield _Entry(group, unit, group.offset + int(starts[at]), tuple(lengths[at].tolist()))

    def _opened(
        self, entries: Sequence[_Entry], pieces: Sequence[bytes | None], place: BlobContext
    ) -> Iterator[tuple[_Entry, bytes]]:
        for entry, piece in zip(entries, pieces, strict=True):
            if piece is None:
                continue
            data = place.open(place.context(self.form.entry, entry.unit, entry.group.ordinal), piece)
            if data is not None:
                yield entry, bytes(data)
            else:
                what = f"the {self.form.what} of unit {entry.unit}"
                self.report(DamagedFileError(f"{what} has a wrong checksum", offset=entry.offset))

    def _read(self, ranges: Ranges) -> Sequence[bytes | None]:
        try:
            return self.read_ranges(ranges)
        except SidecarError as error:
            self.report(error)
            return [None] * len(ranges)


def read_together(
    wanted: Sequence[tuple[int, IndexBlob[Any, S], Iterable[int]]], read_places: ReadRanges
) -> list[dict[int, S]]:
    """Return the indexes of units in several blobs of a file, each as :meth:`IndexBlob.read` returns them.

    ``wanted`` has, for each blob, its offset in the file, the blob and the units. ``read_places`` reads ranges of the
    file; one read serves all blobs. Its blob reports a damaged range, all blobs report a failed read.
    """
    indexes: list[dict[int, S]] = [{} for _ in wanted]
    running = [(at, offset, blob, blob.reading(units)) for at, (offset, blob, units) in enumerate(wanted)]
    answers: list[Sequence[bytes | None] | None] = [None] * len(running)
    while running:
        unfinished, requests = [], []
        for step, answer in zip(running, answers, strict=True):
            at, offset, _, reading = step
            try:
                ranges = next(reading) if answer is None else reading.send(answer)
            except StopIteration as done:
                indexes[at] = done.value
                continue
            unfinished.append(step)
            requests.append([(offset + start, length) for start, length in ranges])
        running = unfinished
        try:
            read = iter(read_places([place for request in requests for place in request]) if requests else [])
            answers = [[next(read) for _ in request] for request in requests]
        except SidecarError as error:
            for _, _, blob, _ in running:
                blob.report(error)
            answers = [[None] * len(request) for request in requests]
    return indexes


def _positions(group: StoredIndexGroup[K], units: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (unit, position in the group) for those of the rising ``units`` that are members."""
    if isinstance(group.units, slice):
        start, stop = group.units.start, group.units.stop
        yield from ((unit, unit - start) for unit in units if start <= unit < stop)
        return
    at = np.searchsorted(group.units, units)
    for unit, position in zip(units, at.tolist(), strict=True):
        if position < group.members and group.units[position] == unit:
            yield unit, position


def _batches(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """Split entries into batches of about 16 MiB."""
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
