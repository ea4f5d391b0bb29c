"""Blobs of indexes that data files carry, entry by entry as they were: their tables of contents, and where bytes lie.

Page indexes (``page_index_toc``) and row indexes (``row_index_toc``) are blobs of this kind; they differ in what an
entry consists of and in what a reader must know of the files. A table of contents has

kind           "page-index", "row-index"       version       1, of encrypted blobs 3
table          the table's UUID                segment       id, 32 hexadecimal digits
field          field id                        toc_offset    offset of the TOC in the blob
units          {"count": units of the segment, "digest": XXH64 of the units TOC, 16 hexadecimal digits}
groups         list of
    version    1: a reader steps over a group of another version
    offset, length   of the group's bytes in the blob
    members    N                               units         the members' unit ordinals, see ``unit_set``
    and what the members have in common: the fields of ``PageIndexKind`` or ``RowIndexKind``
encryption     of encrypted blobs, see ``encryption``: each entry, and each piece of a table, is a module then

A group's bytes, offsets from its first one:

    entries    for each member in order: the parts of its entry, one after the other, as the file has them, then the
               entry's checksum, bound to field, segment, group and *unit*
    table      pieces of 1,024 members: u64 offset of the first member's entry, then for each member the u32 length
               of each part of its entry; each piece followed by its checksum

The table ends where the group ends and its length follows from N, so an entry is found with one small read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import CHECKED, ENCRYPTED, PieceKind, PieceOverhead
from sidecar.bundle.encryption import (
    ENCRYPTED_VERSION,
    FieldKey,
    Lock,
    Owner,
    bound_part,
    digest_of,
    toc_with_lock,
)
from sidecar.bundle.envelope import (
    HEADER_BYTES,
    VERSION,
    decode_toc,
    integer,
    member,
    segment_bytes,
    toc_digest,
)
from sidecar.bundle.filter_toc import MAX_GROUPS, decode_lock, units_digest
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import count_units, decode_units, encode_units, unit_ordinals
from sidecar.bundle.units import MAX_UNITS
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

MEMBERS_PER_PIECE = 1024
"""Members in a piece of a group's table."""
PIECE_HEADER_BYTES = 8
LENGTH_BYTES = 4
MAX_PART_BYTES = 32 << 20
"""No part of an entry is written or read that is longer."""


class GroupKind(Protocol):
    """What the members of a group have in common: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=GroupKind)


@dataclass(frozen=True)
class IndexForm(Generic[K]):
    """What all blobs of one type have in common: names, number of parts of an entry, and how to read a description.

    ``entry`` and ``table`` are what checksums call the pieces.
    """

    name: str
    what: str
    blob_type: str
    magic: bytes
    entry: PieceKind
    table: PieceKind
    parts: int
    decode_kind: Callable[[dict[str, Any]], K]

    def table_length(self, members: int, sealing: PieceOverhead = CHECKED) -> int:
        """Bytes of the table of a group, seals included."""
        pieces = -(-members // MEMBERS_PER_PIECE)
        return members * self.parts * LENGTH_BYTES + pieces * (PIECE_HEADER_BYTES + sealing.overhead)


@dataclass(frozen=True)
class IndexGroup(Generic[K]):
    """A group that is to be written; position p is unit ``units[p]``, rising. ``lengths``: int64[N, parts]."""

    ordinal: int
    kind: K
    units: npt.NDArray[np.int64] = field(repr=False)
    lengths: npt.NDArray[np.int64] = field(repr=False)

    def entries_length(self, sealing: PieceOverhead) -> int:
        """Bytes of all entries with their seals."""
        return int(self.lengths.sum()) + sealing.overhead * len(self.units)


def plan_index_groups(
    form: IndexForm[K], members: Iterable[tuple[int, K, tuple[int, ...]]]
) -> list[IndexGroup[K]]:
    """Groups of one field's entries from (unit, kind, lengths of its parts); each unit at most once.

    Raises :class:`UsageError`.
    """
    kinds: dict[K, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    seen: set[int] = set()
    for unit, kind, lengths in members:
        if len(lengths) != form.parts or not all(0 <= length <= MAX_PART_BYTES for length in lengths):
            raise UsageError(f"a {form.what} has an impossible size", found=f"{lengths} bytes")
        if unit in seen or unit < 0:
            raise UsageError(f"a unit stands twice among the {form.what}es of a field", found=unit)
        seen.add(unit)
        kinds[kind].append((unit, lengths))
    groups = []
    for ordinal, (kind, same) in enumerate(sorted(kinds.items())):
        same.sort()
        units = np.array([unit for unit, _ in same], np.int64)
        sizes = np.array([lengths for _, lengths in same], np.int64)
        groups.append(IndexGroup(ordinal, kind, units, sizes))
    return groups


@dataclass(frozen=True)
class StoredIndexGroup(Generic[K]):
    """A group as a TOC describes it; ``units`` is a slice where the members are one run.

    ``table_offset`` counts from the blob's start: the entries end there.
    """

    ordinal: int
    offset: int
    length: int
    table_offset: int
    kind: K
    members: int
    units: npt.NDArray[np.int64] | slice

    def ordinals(self) -> npt.NDArray[np.int64]:
        """The members' unit ordinals, int64[N], rising."""
        return unit_ordinals(self.units)


@dataclass(frozen=True)
class IndexToc(Generic[K]):
    """A decoded TOC. ``doubts`` names the groups that this reader steps over."""

    table_uuid: str
    segment_id: bytes
    field_id: int
    num_units: int
    units_digest: int
    toc_offset: int
    groups: tuple[StoredIndexGroup[K], ...]
    doubts: tuple[str, ...]
    kind: str
    lock: Lock | None = None
    """Of an encrypted blob."""
    digest: bytes = b""
    """SHA-256 of the TOC without the lock; empty for a plain blob."""

    def owner(self, units_digest: bytes) -> Owner:
        """The owner of the blob's wrapped key; ``units_digest`` is the SHA-256 of its units' table of contents."""
        return Owner(self.table_uuid, self.segment_id, self.field_id, self.kind, units_digest, self.digest)

    @property
    def sealing(self) -> PieceOverhead:
        """What stands around the data of each piece."""
        return CHECKED if self.lock is None else ENCRYPTED


def encode_index_toc(
    form: IndexForm[K],
    header: SegmentHeader,
    field_id: int,
    groups: Sequence[IndexGroup[K]],
    num_units: int,
    units_toc: bytes,
    key: FieldKey | None = None,
) -> tuple[bytes, int]:
    """The TOC's bytes and its offset in the blob."""
    offset, described = HEADER_BYTES, []
    sealing = CHECKED if key is None else ENCRYPTED
    for group in groups:
        length = group.entries_length(sealing) + form.table_length(len(group.units), sealing)
        described.append(
            {
                "version": VERSION,
                "offset": offset,
                "length": length,
                **group.kind._asdict(),
                "members": len(group.units),
                "units": encode_units(group.units),
            }
        )
        offset += length
    content: dict[str, Any] = {
        "kind": form.name,
        "version": VERSION if key is None else ENCRYPTED_VERSION,
        "table": header.table_uuid,
        "segment": header.segment_id.hex(),
        "field": field_id,
        "units": {"count": num_units, "digest": f"{toc_digest(units_toc):016x}"},
        "toc_offset": offset,
        "groups": described,
    }
    return toc_with_lock(content, key, units_toc), offset


def decode_index_toc(form: IndexForm[K], toc: bytes) -> IndexToc[K]:
    """Decode verified bytes; raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.

    A group that cannot be understood is stepped over and named in ``doubts``.
    """
    content = decode_toc(toc)
    if content.get("kind") != form.name:
        found = repr(content.get("kind"))[:40]
        raise DamagedFileError(f"not the table of contents of {form.what}es", found=found)
    lock = decode_lock(content, f"{form.what}es")
    sealing = CHECKED if lock is None else ENCRYPTED
    units = member(content, "units", dict)
    num_units = integer(units, "count", high=MAX_UNITS)
    end = integer(content, "toc_offset")
    groups, doubts = [], []
    for ordinal, described in enumerate(member(content, "groups", list)[:MAX_GROUPS]):
        try:
            groups.append(_decode_group(form, ordinal, described, num_units, end, sealing))
        except (DamagedFileError, UnsupportedFeatureError) as error:
            doubts.append(f"group {ordinal} of {form.what}es is not understood: {error}")
    return IndexToc(
        table_uuid=member(content, "table", str),
        segment_id=segment_bytes(content),
        field_id=integer(content, "field", -(1 << 31), (1 << 31) - 1),
        num_units=num_units,
        units_digest=units_digest(units),
        toc_offset=end,
        groups=tuple(groups),
        doubts=tuple(doubts),
        kind=form.name,
        lock=lock,
        digest=b"" if lock is None else digest_of(bound_part(toc, lock)),
    )


def _decode_group(
    form: IndexForm[K], ordinal: int, content: Any, num_units: int, end: int, sealing: PieceOverhead
) -> StoredIndexGroup[K]:
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
    table = form.table_length(members, sealing)
    if offset + length > end or length < table + members * sealing.overhead:
        raise DamagedFileError("a group does not fit its blob", expected=f"at most {end}", found=length)
    kind = form.decode_kind(content)
    return StoredIndexGroup(ordinal, offset, length, offset + length - table, kind, members, units)
