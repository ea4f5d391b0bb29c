"""Sections of a units blob: named series of pieces, laid one after the other, each followed by its checksum.

The table of contents has for each section ``[name, field, offset, count, length, digests]``: field id (0: none),
offset from the blob's start, number of pieces, length of all of them with their checksums, and the SHA-256 (32 bytes)
of each piece with its checksum, one after the other, in base64. So who can tell that the table of contents is the one
that was written (``encryption``) can tell it of every piece. The section ``lengths`` holds, in
the order of the table of contents, the length with checksum (u32) of each piece of every section that has more or
less than one piece. A piece's checksum has the section's kind and field, and the piece's ordinal as position.

    name          kind  pieces
    files         16    Arrow IPC stream of at most 64 files, in the order of the files
    bounds        17    one section a field: Arrow IPC stream of at most 16,384 files
    partitions    18    Arrow IPC stream of at most 16,384 files
    fingerprints  19    24 bytes a file, 4,096 files a piece
    unit_counts   20    number of units of each file: u8, u16 or u32 (``unit_width`` 1, 2, 4), 16,384 files a
                        piece; absent if every file has exactly one unit
    schemas       21    one Arrow IPC stream: the Avro schemas that manifest entries were written with
    manifests     22    one Arrow IPC stream: the listed manifests
    coverage      23    states of all units for one field and kind, see ``coverage``
    lengths       24    one piece, see above
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidecar.bundle.checksum import SEAL_BYTES, BlobContext, PieceKind, is_sealed
from sidecar.bundle.envelope import HEADER_BYTES
from sidecar.errors import DamagedFileError, UnsupportedFeatureError

FILES = "files"
BOUNDS = "bounds"
PARTITIONS = "partitions"
FINGERPRINTS = "fingerprints"
UNIT_COUNTS = "unit_counts"
SCHEMAS = "schemas"
MANIFESTS = "manifests"
COVERAGE = "coverage"
LENGTHS = "lengths"

KINDS = {
    FILES: PieceKind.FILES,
    BOUNDS: PieceKind.BOUNDS,
    PARTITIONS: PieceKind.PARTITIONS,
    FINGERPRINTS: PieceKind.FINGERPRINTS,
    UNIT_COUNTS: PieceKind.UNIT_COUNTS,
    SCHEMAS: PieceKind.SCHEMAS,
    MANIFESTS: PieceKind.MANIFESTS,
    COVERAGE: PieceKind.COVERAGE,
    LENGTHS: PieceKind.LENGTHS,
}

FILES_PER_BATCH = 64
FILES_PER_COLUMN = 16_384
"""Files in a piece of bounds, partitions or unit counts."""
FILES_PER_FINGERPRINTS = 4_096
DIGEST_BYTES = 32
MAX_PIECE_BYTES = 256 << 20
"""No piece is read that claims to be longer."""

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads ranges (offset from the blob's start, length) of a blob."""


@dataclass(frozen=True)
class Section:
    """One line of the table of contents; ``length`` includes the checksums."""

    name: str
    field_id: int
    offset: int
    count: int
    length: int
    digests: bytes
    """SHA-256 of each piece."""

    def encode(self) -> list[object]:
        """Its JSON form."""
        digests = base64.b64encode(self.digests).decode("ascii")
        return [self.name, self.field_id, self.offset, self.count, self.length, digests]

    def is_piece(self, ordinal: int, data: bytes) -> bool:
        """Whether ``data`` has the digest of a piece."""
        at = DIGEST_BYTES * ordinal
        return hashlib.sha256(data).digest() == self.digests[at : at + DIGEST_BYTES]


def decode_sections(value: list[Any], end: int) -> list[Section]:
    """Sections of a TOC, all of which lie between the header and ``end``. Raises :class:`DamagedFileError`."""
    sections = []
    for line in value:
        if not (isinstance(line, list) and [type(part) for part in line] == [str, int, int, int, int, str]):
            raise DamagedFileError("a table of contents has a section that is none", found=repr(line)[:60])
        name, field_id, offset, count, length, digests = line
        section = Section(name, field_id, offset, count, length, _digests(digests))
        if len(section.digests) != section.count * DIGEST_BYTES:
            raise DamagedFileError(f"{section.name} has not one digest a piece", expected=section.count)
        if not -(1 << 31) <= section.field_id < 1 << 31:
            raise DamagedFileError("a section is of an impossible field", found=section.field_id)
        inside = section.offset >= HEADER_BYTES and 0 <= section.length <= end - section.offset
        if not inside or not 0 <= section.count * SEAL_BYTES <= section.length:
            raise DamagedFileError(
                "a section does not fit its blob", expected=f"{end} bytes", found=repr(line)[:60]
            )
        sections.append(section)
    return sections


def _digests(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DamagedFileError("the digests of a section are not base64", found=repr(text)[:60]) from error


class SectionReader:
    """Reads and verifies pieces of the sections of one blob."""

    def __init__(self, read_ranges: ReadRanges, sections: Sequence[Section], place: BlobContext) -> None:
        self.sections = {(section.name, section.field_id): section for section in sections}
        self._read_ranges = read_ranges
        self._ordered = sections
        self._place = place
        self._lengths: dict[tuple[str, int], list[int]] | None = None

    def find(self, name: str, field_id: int = 0) -> Section | None:
        """The section, if the blob has it."""
        return self.sections.get((name, field_id))

    def ranges(self, section: Section) -> list[tuple[int, int]]:
        """(offset, length with checksum) of each piece."""
        if section.count == 1:
            return [(section.offset, section.length)]
        ranges, at = [], section.offset
        for length in self._piece_lengths(section):
            ranges.append((at, length))
            at += length
        return ranges

    def read(self, section: Section, pieces: Sequence[int] | None = None) -> list[bytes]:
        """The verified bytes of the pieces asked for (all by default). Raises :class:`DamagedFileError`."""
        ranges = self.ranges(section)
        wanted = range(len(ranges)) if pieces is None else pieces
        if any(ranges[piece][1] > MAX_PIECE_BYTES for piece in wanted):
            raise UnsupportedFeatureError(f"a piece of {section.name} is too long", expected=MAX_PIECE_BYTES)
        kind = KINDS.get(section.name)
        if kind is None:
            raise UnsupportedFeatureError("a section of unknown kind", found=section.name)
        place = BlobContext(self._place.segment, section.field_id)
        found = self._read_ranges([ranges[piece] for piece in wanted])
        for piece, data in zip(wanted, found, strict=True):
            if not is_sealed(place.context(kind, piece), data):
                raise DamagedFileError(
                    f"piece {piece} of {section.name} has a wrong checksum", offset=ranges[piece][0]
                )
            if not section.is_piece(piece, data):
                raise DamagedFileError(
                    f"piece {piece} of {section.name} is not the one that the table of contents names",
                    offset=ranges[piece][0],
                )
        return [data[:-SEAL_BYTES] for data in found]

    def _piece_lengths(self, section: Section) -> list[int]:
        if self._lengths is None:
            self._lengths = self._read_lengths()
        return self._lengths[section.name, section.field_id]

    def _read_lengths(self) -> dict[tuple[str, int], list[int]]:
        index = self.find(LENGTHS)
        several = [section for section in self._ordered if section.count != 1]
        if index is None or index.count != 1:
            raise DamagedFileError("a units blob has no lengths of its pieces")
        numbers = np.frombuffer(self.read(index)[0], "<u4")
        if len(numbers) != sum(section.count for section in several):
            raise DamagedFileError("the lengths of pieces are not as many as the pieces")
        lengths, at = {}, 0
        for section in several:
            own = numbers[at : at + section.count].tolist()
            if sum(own) != section.length:
                raise DamagedFileError(
                    f"the pieces of {section.name} do not fill it", expected=section.length
                )
            lengths[section.name, section.field_id] = own
            at += section.count
        return lengths
