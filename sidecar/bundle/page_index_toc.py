"""The table of contents of ``sidecar-page-index-v1`` and how the bytes of its groups lie.

kind           "page-index"                    version       1
table          the table's UUID                segment       id, 32 hexadecimal digits
field          field id                        toc_offset    offset of the TOC in the blob
units          {"count": units of the segment, "digest": XXH64 of the units TOC, 16 hexadecimal digits}
groups         list of
    version    1: a reader steps over a group of another version
    offset, length   of the group's bytes in the blob
    encoding   how the files store the column: a name of the fixed registry
    resolution how the column was found in the files: "id" or "name:<path>"
    comparison how bounds compare: "signed:4", "bytes", "float:8", ...; "" if they have no known order
    order      the files' column order: 1 TYPE_ORDER, 2 IEEE_754_TOTAL_ORDER, 3 INT96_TIMESTAMP_ORDER, 0 unknown
    max_def, max_rep   highest definition and repetition level
    members    N                               units         the members' unit ordinals, see ``unit_set``

A group's bytes, offsets from its first one:

    entries    for each member in order: ColumnIndex, OffsetIndex (Thrift bytes as the file has them, either may be
               empty), then the entry's checksum, bound to field, segment, group and *unit*
    table      pieces of 1,024 members: u64 offset of the first member's entry, then for each member u32 length
               of the ColumnIndex and u32 length of the OffsetIndex; each piece followed by its checksum

The table ends where the group ends and its length follows from N, so an entry is found with one small read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import SEAL_BYTES
from sidecar.bundle.envelope import (
    HEADER_BYTES,
    VERSION,
    decode_toc,
    encode_toc,
    integer,
    member,
    segment_bytes,
)
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.sbbf_toc import MAX_GROUPS, units_digest
from sidecar.bundle.unit_set import count_units, decode_units, encode_units
from sidecar.bundle.units import MAX_UNITS
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

MEMBERS_PER_PIECE = 1024
"""Members in a piece of a group's table."""
PIECE_HEADER_BYTES = 8
MEMBER_BYTES = 8
MAX_INDEX_BYTES = 32 << 20
"""No ColumnIndex or OffsetIndex is written or read that is longer."""


class PageIndexKind(NamedTuple):
    """What the members of a group have in common: all that a reader must know of their files."""

    encoding: str
    resolution: str
    comparison: str = ""
    order: int = 0
    max_def: int = 0
    max_rep: int = 0


@dataclass(frozen=True)
class PageIndexMember:
    """The page index of one unit, by the lengths of its two structures (0: there is none)."""

    unit: int
    kind: PageIndexKind
    column_length: int
    offset_length: int


@dataclass(frozen=True)
class PageIndexGroup:
    """A group that is to be written; position p is unit ``units[p]``, rising. ``lengths``: int64[N, 2]."""

    ordinal: int
    kind: PageIndexKind
    units: npt.NDArray[np.int64] = field(repr=False)
    lengths: npt.NDArray[np.int64] = field(repr=False)

    @property
    def entries_length(self) -> int:
        """Bytes of all entries with their checksums."""
        return int(self.lengths.sum()) + SEAL_BYTES * len(self.units)

    @property
    def length(self) -> int:
        """Bytes of the whole group."""
        return self.entries_length + table_length(len(self.units))


def table_length(members: int) -> int:
    """Bytes of the table of a group, checksums included."""
    pieces = -(-members // MEMBERS_PER_PIECE)
    return members * MEMBER_BYTES + pieces * (PIECE_HEADER_BYTES + SEAL_BYTES)


def plan_page_indexes(members: Iterable[PageIndexMember]) -> list[PageIndexGroup]:
    """Groups of one field's page indexes; each unit at most once. Raises :class:`UsageError`."""
    kinds: dict[PageIndexKind, list[PageIndexMember]] = defaultdict(list)
    seen: set[int] = set()
    for one in members:
        lengths = (one.column_length, one.offset_length)
        if not any(lengths) or not all(0 <= length <= MAX_INDEX_BYTES for length in lengths):
            raise UsageError("a page index has an impossible size", found=f"{lengths} bytes")
        if one.unit in seen or one.unit < 0:
            raise UsageError("a unit stands twice among the page indexes of a field", found=one.unit)
        seen.add(one.unit)
        kinds[one.kind].append(one)
    groups = []
    for ordinal, (kind, same) in enumerate(sorted(kinds.items())):
        same.sort(key=lambda one: one.unit)
        units = np.array([one.unit for one in same], np.int64)
        sizes = np.array([(one.column_length, one.offset_length) for one in same], np.int64)
        groups.append(PageIndexGroup(ordinal, kind, units, sizes))
    return groups


@dataclass(frozen=True)
class StoredPageIndexGroup:
    """A group as a TOC describes it; ``units`` is a slice where the members are one run."""

    ordinal: int
    offset: int
    length: int
    kind: PageIndexKind
    members: int
    units: npt.NDArray[np.int64] | slice

    @property
    def table_offset(self) -> int:
        """Offset of the table in the blob: the entries end there."""
        return self.offset + self.length - table_length(self.members)

    def ordinals(self) -> npt.NDArray[np.int64]:
        """The members' unit ordinals, int64[N], rising."""
        if isinstance(self.units, slice):
            return np.arange(self.units.start, self.units.stop, dtype=np.int64)
        return self.units


@dataclass(frozen=True)
class PageIndexToc:
    """A decoded TOC. ``doubts`` names the groups that this reader steps over."""

    table_uuid: str
    segment_id: bytes
    field_id: int
    num_units: int
    units_digest: int
    toc_offset: int
    groups: tuple[StoredPageIndexGroup, ...]
    doubts: tuple[str, ...]


def encode_page_index_toc(
    header: SegmentHeader,
    field_id: int,
    groups: Sequence[PageIndexGroup],
    num_units: int,
    digest: int,
) -> tuple[bytes, int]:
    """The TOC's bytes and its offset in the blob."""
    offset, described = HEADER_BYTES, []
    for group in groups:
        described.append(
            {
                "version": VERSION,
                "offset": offset,
                "length": group.length,
                **group.kind._asdict(),
                "members": len(group.units),
                "units": encode_units(group.units),
            }
        )
        offset += group.length
    content: dict[str, Any] = {
        "kind": "page-index",
        "version": VERSION,
        "table": header.table_uuid,
        "segment": header.segment_id.hex(),
        "field": field_id,
        "units": {"count": num_units, "digest": f"{digest:016x}"},
        "toc_offset": offset,
        "groups": described,
    }
    return encode_toc(content), offset


def decode_page_index_toc(toc: bytes) -> PageIndexToc:
    """Decode verified bytes; raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.

    A group that cannot be understood is stepped over and named in ``doubts``.
    """
    content = decode_toc(toc)
    if content.get("kind") != "page-index":
        found = repr(content.get("kind"))[:40]
        raise DamagedFileError("not the table of contents of page indexes", found=found)
    if content.get("version") != VERSION:
        found = repr(content.get("version"))[:40]
        raise UnsupportedFeatureError("page indexes of another version", found=found)
    units = member(content, "units", dict)
    num_units = integer(units, "count", high=MAX_UNITS)
    end = integer(content, "toc_offset")
    groups, doubts = [], []
    for ordinal, described in enumerate(member(content, "groups", list)[:MAX_GROUPS]):
        try:
            groups.append(_decode_group(ordinal, described, num_units, end))
        except (DamagedFileError, UnsupportedFeatureError) as error:
            doubts.append(f"group {ordinal} of page indexes is not understood: {error}")
    return PageIndexToc(
        table_uuid=member(content, "table", str),
        segment_id=segment_bytes(content),
        field_id=integer(content, "field", -(1 << 31), (1 << 31) - 1),
        num_units=num_units,
        units_digest=units_digest(units),
        toc_offset=end,
        groups=tuple(groups),
        doubts=tuple(doubts),
    )


def _decode_group(ordinal: int, content: Any, num_units: int, end: int) -> StoredPageIndexGroup:
    if not isinstance(content, dict):
        raise DamagedFileError("a group is no JSON object")
    if content.get("version") != VERSION:
        found = repr(content.get("version"))[:40]
        raise UnsupportedFeatureError("unknown version", expected=VERSION, found=found)
    units = decode_units(content.get("units"), num_units)
    members = integer(content, "members", 1, MAX_UNITS)
    if count_units(units) != members:
        raise DamagedFileError("a group lists other units", expected=members, found=count_units(units))
    offset, length = integer(content, "offset", HEADER_BYTES), integer(content, "length")
    if offset + length > end or length < table_length(members) + members * SEAL_BYTES:
        raise DamagedFileError("a group does not fit its blob", expected=f"at most {end}", found=length)
    kind = PageIndexKind(
        encoding=member(content, "encoding", str),
        resolution=member(content, "resolution", str),
        comparison=member(content, "comparison", str),
        order=integer(content, "order", 0, 255),
        max_def=integer(content, "max_def", 0, 1 << 15),
        max_rep=integer(content, "max_rep", 0, 1 << 15),
    )
    return StoredPageIndexGroup(ordinal, offset, length, kind, members, units)
