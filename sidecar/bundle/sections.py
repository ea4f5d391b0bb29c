"""Sections of a units blob: named series of pieces, each piece followed by its checksum.

The table of contents has ``[name, field, offset, count, length, digests]`` for each section: field id (0: none),
offset from the blob's start, number of pieces, length of all of them with their checksums, and the SHA-256 (32 bytes)
of each piece with its checksum, concatenated, in base64. So if the table of contents is authentic (``encryption``),
every piece can be checked to be authentic too. The section ``lengths`` has, in
the order of the table of contents, the length with checksum (u32) of each piece of every section that does not have
exactly one piece. The context of a piece's checksum has the section's kind and field, and the piece's ordinal as
position.

    name          kind  pieces
    files         16    Arrow IPC stream of at most 64 files, in the order of the files
    bounds        17    one section for each field: Arrow IPC stream of at most 16,384 files
    partitions    18    Arrow IPC stream of at most 16,384 files
    fingerprints  19    24 bytes for each file, 4,096 files in a piece
    unit_counts   20    number of units of each file: u8, u16 or u32 (``unit_width`` 1, 2, 4), 16,384 files in a
                        piece; absent if every file has exactly one unit
    schemas       21    one Arrow IPC stream: the Avro schemas that manifest entries were written with
    manifests     22    one Arrow IPC stream: the listed manifests
    coverage      23    states of all units for one field and kind, see ``coverage``
    lengths       24    one piece, see above
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidecar.bundle.envelopes.checksum import SEAL_BYTES, BlobContext, PieceKind, is_sealed
from sidecar.bundle.envelopes.envelope import HEADER_BYTES
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
"""Files in one piece of bounds, partitions or unit counts."""
FILES_PER_FINGERPRINTS = 4_096
DIGEST_BYTES = 32
MAX_PIECE_BYTES = 256 << 20
"""The longest piece that is read."""

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads ranges (offset from the blob's start, length) of a blob."""


@dataclass(frozen=True)
class Section:
    """A section as the table of contents lists it. ``length`` includes the checksums."""

    name: str
    field_id: int
    offset: int
    count: int
    length: int
    digests: bytes
    """SHA-256 of each piece, concatenated."""

    def encode(self) -> list[object]:
        """Return the JSON form in the table of contents."""
        digests = base64.b64encode(self.digests).decode("ascii")
        return [self.name, self.field_id, self.offset, self.count, self.length, digests]

    def is_piece(self, ordinal: int, data: bytes) -> bool:
        """Return whether ``data`` has the digest of the piece with this ordinal."""
        at = DIGEST_BYTES * ordinal
        return hashlib.sha256(data).digest() == self.digests[at : at + DIGEST_BYTES]


def decode_sections(value: list[Any], end: int) -> list[Section]:
    """Decode a TOC's sections. Raises :class:`DamagedFileError` if one is malformed or not before offset ``end``."""
    sections = []
    for line in value:
        if not (isinstance(line, list) and [type(part) for part in line] == [str, int, int, int, int, str]):
            raise DamagedFileError(
                "a section in the table of contents is malformed",
                expected="name, field, offset, count, length, digests",
                found=repr(line)[:60],
            )
        name, field_id, offset, count, length, digests = line
        section = Section(name, field_id, offset, count, length, _digests(digests))
        if len(section.digests) != section.count * DIGEST_BYTES:
            raise DamagedFileError(
                f"the section {section.name} does not have one digest for each piece", expected=section.count
            )
        if not -(1 << 31) <= section.field_id < 1 << 31:
            raise DamagedFileError("a section has an impossible field id", found=section.field_id)
        inside = section.offset >= HEADER_BYTES and 0 <= section.length <= end - section.offset
        if not inside or not 0 <= section.count * SEAL_BYTES <= section.length:
            raise DamagedFileError("a section does not fit its blob", expected=f"{end} bytes", found=repr(line)[:60])
        sections.append(section)
    return sections


def _digests(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DamagedFileError("the digests of a section are not base64", found=repr(text)[:60]) from error


class SectionReader:
    """Reads and verifies the pieces of one blob's sections."""

    def __init__(self, read_ranges: ReadRanges, sections: Sequence[Section], place: BlobContext) -> None:
        self.sections = {(section.name, section.field_id): section for section in sections}
        self._read_ranges = read_ranges
        self._ordered = sections
        self._place = place
        self._lengths: dict[tuple[str, int], list[int]] | None = None
        self._held: tuple[int, bytes] | None = None
        self._kept: dict[tuple[int, int], bytes] = {}

    def hold_together(self, names: Sequence[str], most_bytes: int) -> None:
        """Read several sections at once, with what is between them, and keep the bytes. Later calls do nothing.

        Does nothing either if that is more than ``most_bytes``. The pieces are verified when they are used.
        """
        if self._held is not None:
            return
        self._held = 0, b""
        sections = [section for name in names if (section := self.find(name)) is not None]
        start = min((section.offset for section in sections), default=0)
        end = max((section.offset + section.length for section in sections), default=0)
        if len(sections) > 1 and end - start <= most_bytes:
            (data,) = self._read_ranges([(start, end - start)])
            self._held = start, data

    def hold(self, pieces: Iterable[tuple[Section, Sequence[int] | None]]) -> None:
        """Read pieces of several sections (``None``: all) together, and keep each until it is read."""
        wanted = [(self.ranges(section), chosen) for section, chosen in pieces]
        ranges = [known[at] for known, chosen in wanted for at in (range(len(known)) if chosen is None else chosen)]
        if all(length <= MAX_PIECE_BYTES for _, length in ranges):
            self._kept = dict(zip(ranges, self._stored(ranges), strict=True))

    def _stored(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges of the blob; those that are held are not read."""
        if self._kept.keys() >= {*ranges}:
            return [self._kept.pop(one) for one in ranges]
        first, held = self._held or (0, b"")
        if all(first <= offset and offset + length <= first + len(held) for offset, length in ranges):
            return [held[offset - first : offset - first + length] for offset, length in ranges]
        return self._read_ranges(ranges)

    def find(self, name: str, field_id: int = 0) -> Section | None:
        """Return a section, ``None`` if the blob does not have it."""
        return self.sections.get((name, field_id))

    def ranges(self, section: Section) -> list[tuple[int, int]]:
        """Return (offset, length with checksum) of each piece. Raises :class:`DamagedFileError`."""
        if section.count == 1:
            return [(section.offset, section.length)]
        ranges, at = [], section.offset
        for length in self._piece_lengths(section):
            ranges.append((at, length))
            at += length
        return ranges

    def read(self, section: Section, pieces: Sequence[int] | None = None) -> list[bytes]:
        """Return the verified data of pieces (default: all).

        Raises :class:`DamagedFileError`, and :class:`UnsupportedFeatureError` for unknown sections and too long pieces.
        """
        ranges = self.ranges(section)
        wanted = range(len(ranges)) if pieces is None else pieces
        if any(ranges[piece][1] > MAX_PIECE_BYTES for piece in wanted):
            raise UnsupportedFeatureError(f"a piece of {section.name} is too long", expected=MAX_PIECE_BYTES)
        kind = KINDS.get(section.name)
        if kind is None:
            raise UnsupportedFeatureError("the section is of an unknown kind", found=section.name)
        place = BlobContext(self._place.segment, section.field_id)
        stored = self._stored([ranges[piece] for piece in wanted])
        for piece, data in zip(wanted, stored, strict=True):
            if not is_sealed(place.context(kind, piece), data):
                raise DamagedFileError(f"piece {piece} of {section.name} has a wrong checksum", offset=ranges[piece][0])
            if not section.is_piece(piece, data):
                raise DamagedFileError(
                    f"piece {piece} of {section.name} does not match its digest in the table of contents",
                    offset=ranges[piece][0],
                )
        return [data[:-SEAL_BYTES] for data in stored]

    def _piece_lengths(self, section: Section) -> list[int]:
        if self._lengths is None:
            self._lengths = self._read_lengths()
        return self._lengths[section.name, section.field_id]

    def _read_lengths(self) -> dict[tuple[str, int], list[int]]:
        index = self.find(LENGTHS)
        several = [section for section in self._ordered if section.count != 1]
        if index is None or index.count != 1:
            raise DamagedFileError("the units blob does not have the lengths of its pieces")
        numbers = np.frombuffer(self.read(index)[0], "<u4")
        if len(numbers) != sum(section.count for section in several):
            raise DamagedFileError("the units blob does not have one length for each piece")
        lengths, at = {}, 0
        for section in several:
            piece_lengths = numbers[at : at + section.count].tolist()
            if sum(piece_lengths) != section.length:
                raise DamagedFileError(
                    f"the lengths of the pieces of {section.name} do not add up", expected=section.length
                )
            lengths[section.name, section.field_id] = piece_lengths
            at += section.count
        return lengths
