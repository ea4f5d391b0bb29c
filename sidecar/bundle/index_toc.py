"""The table of contents of blobs with page indexes or row indexes, which keep each entry as the data file has it.

Page indexes (``page_indexes``) and row indexes (``row_indexes``) are blobs of this kind. They differ in the
parts of an entry and in the facts about the files that a reader needs. A table of contents has

kind           "page-index", "row-index"       version       1; encrypted blobs 3
table          the table's UUID                segment       id, 32 hexadecimal digits
field          field id                        toc_offset    offset of the TOC in the blob
units          {"count": units of the segment, "digest": XXH64 of the units TOC, 16 hexadecimal digits}
groups         list of
    version    1. A reader skips groups of other versions
    offset, length   of the group's bytes in the blob
    members    N                               units         the members' unit ordinals, see ``unit_set``
    and the facts that the members share: the fields of ``PageIndexKind`` or ``RowIndexKind``
encryption     only in encrypted blobs, see ``encryption``: each entry and each table piece is then a module

A group's bytes, with offsets from the group's start:

    entries    for each member in order: the parts of its entry, concatenated, as the file has them, then the
               entry's checksum, which is bound to field, segment, group and *unit*
    table      pieces of 1,024 members: u64 offset of the first member's entry, then for each member the u32 length
               of each part of its entry. Each piece is followed by its checksum

The table ends where the group ends, and N determines its length, so one small read finds an entry.
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
from sidecar.bundle.filters.filter_toc import MAX_GROUPS, decode_lock, units_digest
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import count_units, decode_units, encode_units, unit_ordinals
from sidecar.bundle.units.reader import MAX_UNITS
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

MEMBERS_PER_PIECE = 1024
"""Members in one piece of a group's table."""
PIECE_HEADER_BYTES = 8
LENGTH_BYTES = 4
MAX_PART_BYTES = 32 << 20
"""The longest part of an entry that is written or read."""


class GroupKind(Protocol):
    """The facts that the members of a group share: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=GroupKind)


@dataclass(frozen=True)
class IndexForm(Generic[K]):
    """The facts that all blobs of one type share: names, parts of an entry, and the decoder of a group's kind.

    ``entry`` and ``table`` are the piece kinds in the contexts of checksums.
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
        """Return the bytes of a group's table, checksums included."""
        pieces = -(-members // MEMBERS_PER_PIECE)
        return members * self.parts * LENGTH_BYTES + pieces * (PIECE_HEADER_BYTES + sealing.overhead)


@dataclass(frozen=True)
class IndexGroup(Generic[K]):
    """A group to write. Position p is unit ``units[p]``, rising. ``lengths``: int64[N, parts], in bytes."""

    ordinal: int
    kind: K
    units: npt.NDArray[np.int64] = field(repr=False)
    lengths: npt.NDArray[np.int64] = field(repr=False)

    def entries_length(self, sealing: PieceOverhead) -> int:
        """Return the bytes of all entries, checksums included."""
        return int(self.lengths.sum()) + sealing.overhead * len(self.units)


def plan_index_groups(
    form: IndexForm[K], members: Iterable[tuple[int, K, tuple[int, ...]]]
) -> list[IndexGroup[K]]:
    """Group one field's entries by kind. ``members`` has (unit, kind, lengths of the entry's parts).

    Raises :class:`UsageError` if a unit occurs twice or a length is out of range.
    """
    kinds: dict[K, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    seen: set[int] = set()
    for unit, kind, lengths in members:
        if len(lengths) != form.parts or not all(0 <= length <= MAX_PART_BYTES for length in lengths):
            raise UsageError(f"a {form.what} has an impossible size", found=f"{lengths} bytes")
        if unit in seen or unit < 0:
            raise UsageError(f"a unit occurs twice among the {form.what}es of a field", found=unit)
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
    """A group as a TOC describes it. ``units`` is a slice if the members are one run of units.

    ``table_offset`` counts from the blob's start. The entries end there.
    """

    ordinal: int
    offset: int
    length: int
    table_offset: int
    kind: K
    members: int
    units: npt.NDArray[np.int64] | slice

    def ordinals(self) -> npt.NDArray[np.int64]:
        """Return the members' unit ordinals, int64[N], rising."""
        return unit_ordinals(self.units)


@dataclass(frozen=True)
class IndexToc(Generic[K]):
    """A decoded TOC. ``doubts`` names the groups that this reader skips."""

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
    """The key information of an encrypted blob."""
    digest: bytes = b""
    """SHA-256 of the TOC without the lock; empty for a plain blob."""

    def owner(self, units_digest: bytes) -> Owner:
        """Return the owner of the blob's wrapped key. ``units_digest`` is the SHA-256 of the units blob's TOC."""
        return Owner(self.table_uuid, self.segment_id, self.field_id, self.kind, units_digest, self.digest)

    @property
    def sealing(self) -> PieceOverhead:
        """The bytes around the data of each piece."""
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
    """Return the TOC's bytes and its offset in the blob."""
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
    """Decode a verified TOC. A group that this reader does not understand is skipped and named in ``doubts``.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    content = decode_toc(toc)
    if content.get("kind") != form.name:
        found = repr(content.get("kind"))[:40]
        raise DamagedFileError(f"this is not the table of contents of {form.what}es", found=found)
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
        raise DamagedFileError("a group is not a JSON object")
    if content.get("version") != VERSION:
        found = repr(content.get("version"))[:40]
        raise UnsupportedFeatureError("unknown version", expected=VERSION, found=found)
    units = decode_units(content.get("units"), num_units)
    members = integer(content, "members", 1, MAX_UNITS)
    if count_units(units) != members:
        raise DamagedFileError(
            "a group's units do not match its number of members",
            expected=members,
            found=count_units(units),
        )
    offset, length = integer(content, "offset", HEADER_BYTES), integer(content, "length")
    table = form.table_length(members, sealing)
    if offset + length > end or length < table + members * sealing.overhead:
        raise DamagedFileError("a group does not fit its blob", expected=f"at most {end}", found=length)
    kind = form.decode_kind(content)
    return StoredIndexGroup(ordinal, offset, length, offset + length - table, kind, members, units)
