"""``sidecar-theta-groups-v1``: for one field of one segment, a theta sketch of each group of files.

A sketch cannot forget a value. So each sketch counts the values of a few files only, and the sketch of the table is the
union of the groups that still have a live file. After files of a group were removed, only this group is read again.

A table of contents has the members of every ``field_toc``, with ``kind`` "theta-groups". Its list ``groups`` has one
member, which is a place of sketches:

    version 1, offset, length    of its bytes in the blob
    sketches   S, the number of sketches
    table      bytes of the table, checksum included

The bytes at this place, with offsets from its start:

    sketches   for each in order: a compact theta sketch as DataSketches writes it (``filters.theta``), then its
               checksum, whose position is the number of the sketch
    table      JSON in ASCII, then its checksum: {"sketches": [{"length", "files", "counted", "rows", "size", "type"}]}
               in the order of the sketches

    length     bytes of the sketch without its checksum
    files      ordinals in the units table of the files whose values are counted, see ``unit_set``
    counted    the number of files that are counted, at least that of ``files``
    rows       the rows of all files that are counted
    size       the bytes of all files that are counted
    type       the Iceberg type in which values were hashed, such as "long" or "decimal(9, 2)"

Merging segments may leave out files that the table has removed; ``counted``, ``rows`` and ``size`` still include them.
The table is not in the table of contents, because a plan reads all tables of contents and never a sketch. No sketch of
an encrypted column is written, so a blob of version 3 is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import SEAL_BYTES
from sidecar.bundle.envelopes.envelope import (
    HEADER_BYTES,
    MAX_TOC_BYTES,
    VERSION,
    decode_toc,
    encode_toc,
    integer,
    member,
)
from sidecar.bundle.field_toc import FieldToc, decode_field_toc, encode_field_toc
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import decode_units, encode_units, unit_ordinals
from sidecar.errors import DamagedFileError, UnsupportedFeatureError

NAME = "theta-groups"
WHAT = "sketches of groups"
MIN_SKETCH_BYTES = 8
MAX_SKETCH_BYTES = 24 + (8 << 20)
"""A compact sketch with 2^20 hashes, the most that DataSketches writers are used with."""
MAX_SKETCHES = 1 << 16
MAX_TYPE = 200
"""The longest text of a type that is read."""
REPEATED_FILES = 1 << 20
"""How many files may be in a second group of a field: of two builds of the same files."""


@dataclass(frozen=True)
class SketchGroup:
    """The sketch of a group of files of a segment. ``files``: int64[N], their ordinals in the segment, rising."""

    files: npt.NDArray[np.int64] = field(repr=False)
    counted: int
    """The files that the sketch counts, including files that are in no segment any more."""
    rows: int
    """The rows of these files."""
    size: int
    """The size of these files."""
    type: str
    """The Iceberg type in which values were hashed."""
    sketch: bytes = field(repr=False)
    """The compact theta sketch, 8 bytes to :data:`MAX_SKETCH_BYTES`."""


@dataclass(frozen=True)
class StoredSketchGroup:
    """A group as the table of a blob describes it, with the attributes of :class:`SketchGroup`.

    ``place`` and ``number`` are the ordinals of its place in the table of contents and of its sketch there.
    ``offset`` (from the blob's start) and ``length`` are those of the sketch, in bytes, without its checksum.
    """

    place: int
    number: int
    offset: int
    length: int
    files: npt.NDArray[np.int64] = field(repr=False)
    counted: int
    rows: int
    size: int
    type: str


@dataclass(frozen=True)
class SketchPlace:
    """The place of some sketches and their table in a blob, as the table of contents describes it."""

    ordinal: int
    offset: int
    length: int
    sketches: int
    table_length: int

    @property
    def table_offset(self) -> int:
        """Offset of the table from the blob's start."""
        return self.offset + self.length - self.table_length


@dataclass(frozen=True, kw_only=True)
class SketchToc(FieldToc):
    """The decoded table of contents of a blob of sketches."""

    places: tuple[SketchPlace, ...]


def encode_table(groups: Sequence[SketchGroup]) -> bytes:
    """Return the table of the groups, without its checksum."""
    described = [
        {
            "length": len(group.sketch),
            "files": encode_units(group.files),
            "counted": group.counted,
            "rows": group.rows,
            "size": group.size,
            "type": group.type,
        }
        for group in groups
    ]
    return encode_toc({"sketches": described})


def encode_sketch_toc(
    header: SegmentHeader, field_id: int, groups: Sequence[SketchGroup], table: bytes, num_units: int, units_toc: bytes
) -> tuple[bytes, int]:
    """Return the bytes of the table of contents and its offset in the blob."""
    table_length = len(table) + SEAL_BYTES
    place = {
        "version": VERSION,
        "offset": HEADER_BYTES,
        "length": sum(len(group.sketch) + SEAL_BYTES for group in groups) + table_length,
        "sketches": len(groups),
        "table": table_length,
    }
    return encode_field_toc(NAME, header, field_id, [place], num_units, units_toc, None)


def decode_sketch_toc(toc: bytes) -> SketchToc:
    """Decode a verified table of contents. A place that this reader does not understand is named in ``damage``.

    Raises :class:`DamagedFileError`, and :class:`UnsupportedFeatureError` for an encrypted blob.
    """
    common, places, _ = decode_field_toc(toc, NAME, WHAT, _decode_place)
    if common.lock is not None:
        raise UnsupportedFeatureError(f"{WHAT} are encrypted", hint="Rebuild the sidecar.")
    return SketchToc(**vars(common), places=places)


def _decode_place(ordinal: int, content: dict[str, Any], toc: FieldToc) -> SketchPlace:
    offset, length = integer(content, "offset", HEADER_BYTES), integer(content, "length")
    sketches = integer(content, "sketches", 1, MAX_SKETCHES)
    table = integer(content, "table", SEAL_BYTES, MAX_TOC_BYTES)
    if offset + length > toc.toc_offset or length < table + sketches * (MIN_SKETCH_BYTES + SEAL_BYTES):
        raise DamagedFileError("sketches do not fit their blob", expected=f"at most {toc.toc_offset}", found=length)
    return SketchPlace(ordinal, offset, length, sketches, table)


def decode_table(table: bytes, place: SketchPlace, num_files: int) -> list[StoredSketchGroup]:
    """Decode the verified table of a place. ``num_files`` are the files of the segment.

    Raises :class:`DamagedFileError` if anything in it contradicts the place or the segment.
    """
    described = member(decode_toc(table), "sketches", list)
    if len(described) != place.sketches:
        raise DamagedFileError("the table of sketches has the wrong length", expected=place.sketches)
    groups = list(_groups(described, place, num_files))
    end = place.offset + sum(group.length + SEAL_BYTES for group in groups)
    if end != place.table_offset:
        raise DamagedFileError("the sketches do not end at their table", expected=place.table_offset, found=end)
    return groups


def _groups(described: Sequence[object], place: SketchPlace, num_files: int) -> Iterator[StoredSketchGroup]:
    offset, listed = place.offset, 0
    for number, content in enumerate(described):
        if not isinstance(content, dict):
            raise DamagedFileError("a sketch in the table is not a JSON object", found=repr(content)[:60])
        group = _group(content, place.ordinal, number, offset, num_files)
        offset += group.length + SEAL_BYTES
        listed += len(group.files)
        if listed > num_files + REPEATED_FILES:
            raise DamagedFileError("the groups of sketches have too many files", expected=num_files, found=listed)
        yield group


def _group(content: Mapping[str, Any], place: int, number: int, offset: int, num_files: int) -> StoredSketchGroup:
    content = dict(content)
    files = unit_ordinals(decode_units(content.get("files"), num_files))
    kind = member(content, "type", str)
    if len(kind) > MAX_TYPE or not len(files):
        raise DamagedFileError("a group of a sketch has no files or an impossible type", found=repr(kind)[:60])
    return StoredSketchGroup(
        place=place,
        number=number,
        offset=offset,
        length=integer(content, "length", MIN_SKETCH_BYTES, MAX_SKETCH_BYTES),
        files=files,
        counted=integer(content, "counted", len(files)),
        rows=integer(content, "rows"),
        size=integer(content, "size"),
        type=kind,
    )
