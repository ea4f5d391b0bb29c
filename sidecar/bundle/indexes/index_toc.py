"""The table of contents of blobs with page indexes or row indexes, which keep each entry as the data file has it.

Page indexes (``page_indexes``) and row indexes (``row_indexes``) are blobs of this kind. They differ in the
parts of an entry and in the facts about the files that a reader needs. A table of contents has the
members of every ``field_toc``; ``kind`` is "page-index" or "row-index". Each group also has the facts that its members
share: the fields of ``PageIndexKind`` or ``RowIndexKind``.

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
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import CHECKED, ENCRYPTED, PieceKind, PieceOverhead
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.envelopes.envelope import HEADER_BYTES, integer
from sidecar.bundle.field_toc import (
    FieldToc,
    decode_field_toc,
    decode_members,
    described_group,
    encode_field_toc,
)
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import unit_ordinals
from sidecar.errors import DamagedFileError, UsageError

MEMBERS_PER_PIECE = 1024
"""Members in one piece of a group's table."""
PIECE_HEADER_BYTES = 8
LENGTH_BYTES = 4
MAX_PART_BYTES = 32 << 20
"""The longest part of an entry that is written or read."""


class GroupKind(Protocol):
    """The facts that the members of a group share: a named tuple."""

    @property
    def resolution(self) -> str:
        """How the column was found in the files."""

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


def plan_index_groups(form: IndexForm[K], members: Iterable[tuple[int, K, tuple[int, ...]]]) -> list[IndexGroup[K]]:
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


def split_entry(entry: bytes, lengths: Iterable[int]) -> list[bytes]:
    """Return the parts of an entry, which have these lengths."""
    return [entry[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


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

    @property
    def resolution(self) -> str:
        """How the column was found in the files of the members."""
        return self.kind.resolution

    def ordinals(self) -> npt.NDArray[np.int64]:
        """Return the members' unit ordinals, int64[N], rising."""
        return unit_ordinals(self.units)


@dataclass(frozen=True, kw_only=True)
class IndexToc(FieldToc, Generic[K]):
    """The decoded TOC of a blob with page indexes or row indexes."""

    groups: tuple[StoredIndexGroup[K], ...]


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
        described.append({**described_group(offset, length, group.units), **group.kind._asdict()})
        offset += length
    return encode_field_toc(form.name, header, field_id, described, num_units, units_toc, key)


def decode_index_toc(form: IndexForm[K], toc: bytes) -> IndexToc[K]:
    """Decode a verified TOC. A group that this reader does not understand is skipped and named in ``damage``.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    common, groups, _ = decode_field_toc(toc, form.name, f"{form.what}es", partial(_decode_group, form))
    return IndexToc(**vars(common), groups=groups)


def _decode_group(form: IndexForm[K], ordinal: int, content: dict[str, Any], toc: FieldToc) -> StoredIndexGroup[K]:
    members, units = decode_members(content, toc.num_units)
    offset, length = integer(content, "offset", HEADER_BYTES), integer(content, "length")
    table = form.table_length(members, toc.sealing)
    end = toc.toc_offset
    if offset + length > end or length < table + members * toc.sealing.overhead:
        raise DamagedFileError("a group does not fit its blob", expected=f"at most {end}", found=length)
    kind = form.decode_kind(content)
    return StoredIndexGroup(ordinal, offset, length, offset + length - table, kind, members, units)
