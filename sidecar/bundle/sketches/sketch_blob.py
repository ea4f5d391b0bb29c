"""Writes and reads blobs with the sketches of groups of files. ``group_table`` describes the bytes.

A plan reads nothing here. A builder reads all of it. A group that cannot be read is left out, and its files are then
counted again, so damage costs reads and never a count that is too low.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import SEAL_BYTES, BlobContext, PieceKind
from sidecar.bundle.envelopes.envelope import THETA_GROUPS_MAGIC
from sidecar.bundle.field_parts import NewBlob, SegmentUnits, blob_pieces
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.sections import ReadRanges
from sidecar.bundle.sketches.group_table import (
    MAX_SKETCH_BYTES,
    MAX_SKETCHES,
    MIN_SKETCH_BYTES,
    SketchGroup,
    SketchPlace,
    SketchToc,
    StoredSketchGroup,
    decode_table,
    encode_sketch_toc,
    encode_table,
)
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.filters.theta import ThetaSketch
from sidecar.puffin.types import THETA_GROUPS

BATCH_BYTES = 16 << 20
"""Sketches are read in batches of about this many bytes."""


@dataclass(frozen=True)
class FieldSketches:
    """The groups of one field of a segment, to be written. ``properties`` are the blob's in the Puffin footer."""

    field_id: int
    groups: Sequence[SketchGroup]
    properties: Mapping[str, str] = field(default_factory=dict)
    key: ClassVar[None] = None

    @property
    def size(self) -> int:
        """See :class:`sidecar.bundle.field_parts.FieldPart`."""
        return sum(len(group.sketch) for group in self.groups)

    def blobs(self, header: SegmentHeader, units: SegmentUnits) -> Iterator[NewBlob]:
        """Yield the one blob, never encrypted: see :meth:`sidecar.bundle.field_parts.FieldPart.blobs`.

        Holds the sketches of the field in memory.
        """
        _check(self, units.num_files)
        table = encode_table(self.groups)
        toc, offset = encode_sketch_toc(header, self.field_id, self.groups, table, units.num_units, units.toc)
        pieces = self._pieces(BlobContext(header.segment_id, self.field_id), table)
        yield NewBlob(THETA_GROUPS, toc, blob_pieces(THETA_GROUPS_MAGIC, pieces, toc, offset))

    def _pieces(self, place: BlobContext, table: bytes) -> Iterator[bytes]:
        for number, group in enumerate(self.groups):
            yield place.seal(place.context(PieceKind.GROUP_SKETCH, number), group.sketch)
        yield place.seal(place.context(PieceKind.GROUP_TABLE), table)


def _check(given: FieldSketches, num_files: int) -> None:
    if not 1 <= len(given.groups) <= MAX_SKETCHES:
        raise UsageError("a field has an impossible number of sketches", found=len(given.groups))
    for group in given.groups:
        if not len(group.files) or not 0 <= group.files[0] <= group.files[-1] < num_files:
            raise UsageError("a group of a sketch has files that are not in the segment", expected=num_files)
        if not MIN_SKETCH_BYTES <= len(group.sketch) <= MAX_SKETCH_BYTES or group.counted < len(group.files):
            raise UsageError("a group of a sketch has an impossible size", found=len(group.sketch))


class SketchGroupsBlob:
    """The sketches of one field of one segment."""

    def __init__(self, toc: SketchToc, num_files: int, read_ranges: ReadRanges) -> None:
        """``num_files`` are the files of the segment, to which the groups' ordinals refer."""
        self.toc = toc
        self._num_files = num_files
        self._read_ranges = read_ranges
        self._place = BlobContext(toc.segment_id, toc.field_id)

    @property
    def members(self) -> None:
        """Sketches are of groups of files, not of units."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of all sketches and their tables."""
        return sum(place.length for place in self.toc.places)

    def describe(self) -> dict[str, Any]:
        """Return the groups as plain data. Their table is read."""
        try:
            groups = self.groups()
        except SidecarError as error:
            return {"field": self.toc.field_id, "groups": [], "damage": [str(error)]}
        described = [
            {
                "group": number,
                "files": len(group.files),
                "counted": group.counted,
                "rows": group.rows,
                "size": group.size,
                "type": group.type,
                "length": group.length,
            }
            for number, group in enumerate(groups)
        ]
        return {"field": self.toc.field_id, "groups": described, "damage": []}

    def groups(self) -> list[StoredSketchGroup]:
        """Return the groups as their table describes them; one read. Raises :class:`SidecarError` for damage."""
        if self.toc.damage:
            raise DamagedFileError(self.toc.damage[0])
        tables = self._read_ranges([(place.table_offset, place.table_length) for place in self.toc.places])
        pairs = zip(self.toc.places, tables, strict=True)
        return [group for place, table in pairs for group in self._decoded(place, table)]

    def _decoded(self, place: SketchPlace, stored: bytes) -> list[StoredSketchGroup]:
        table = self._place.open(self._place.context(PieceKind.GROUP_TABLE, group=place.ordinal), stored)
        if table is None:
            raise DamagedFileError("the table of sketches has a wrong checksum", offset=place.table_offset)
        return decode_table(bytes(table), place, self._num_files)

    def read(
        self, groups: Sequence[StoredSketchGroup]
    ) -> Iterator[tuple[StoredSketchGroup, ThetaSketch | SidecarError]]:
        """Yield each group with its sketch of at most 4,096 hashes, or with the error that hides it."""
        for group, data in self.stored(groups):
            try:
                yield group, data if isinstance(data, SidecarError) else ThetaSketch.from_bytes(data)
            except SidecarError as error:
                yield group, error

    def stored(self, groups: Sequence[StoredSketchGroup]) -> Iterator[tuple[StoredSketchGroup, bytes | SidecarError]]:
        """Yield each group with the stored bytes of its sketch, or with the error that hides it.

        Reads batches of about 16 MiB, with neighbours joined.
        """
        for batch in _batches(groups):
            try:
                pieces = self._read_ranges([(group.offset, group.length + SEAL_BYTES) for group in batch])
            except SidecarError as error:
                yield from ((group, error) for group in batch)
                continue
            for group, piece in zip(batch, pieces, strict=True):
                context = self._place.context(PieceKind.GROUP_SKETCH, group.number, group.place)
                data = self._place.open(context, piece)
                yield group, DamagedFileError("a sketch has a wrong checksum") if data is None else bytes(data)

    def load(self, lost: npt.NDArray[np.bool_] | None = None) -> list[SketchGroup]:
        """Return all groups with their sketches as stored, without those that cannot be read.

        ``lost``, bool[files], is set for the files of damaged ones. Raises :class:`SidecarError` if their table cannot
        be read.
        """
        found = []
        for group, data in self.stored(self.groups()):
            if not isinstance(data, SidecarError):
                found.append(SketchGroup(group.files, group.counted, group.rows, group.size, group.type, data))
            elif lost is not None and isinstance(data, DamagedFileError):
                lost[group.files] = True
        return found

    def verify(self) -> Iterator[str]:
        """Yield the blob's problems, one line for each damaged table or sketch."""
        yield from self.toc.damage
        try:
            for group, found in self.read(self.groups()):
                if isinstance(found, SidecarError):
                    yield f"the sketch of group {group.number} cannot be used: {found}"
        except SidecarError as error:
            yield str(error)


def _batches(groups: Sequence[StoredSketchGroup]) -> Iterator[list[StoredSketchGroup]]:
    """Split groups into batches of about :data:`BATCH_BYTES`."""
    taken, numbers = 0, []
    for group in groups:
        taken += group.length
        numbers.append(taken // BATCH_BYTES)
    pairs = zip(numbers, groups, strict=True)
    for _, batch in groupby(pairs, key=lambda pair: pair[0]):
        yield [group for _, group in batch]
