"""Indexes of one file out of a sidecar, byte for byte as they were.

A bundle is sliced across its members, so a filter is scattered over all of its group, and a group is read whole:
once, for all files that want filters of it (:class:`FilterPool`). Page indexes are read for each file alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidecar.bundle.extract import extract_blocks, take_own_blocks
from sidecar.bundle.filter_toc import StoredGroup
from sidecar.bundle.layout import BLOCK_BYTES
from sidecar.bundle.page_index_blob import StoredPageIndex
from sidecar.bundle.page_index_use import decode_page_index
from sidecar.bundle.pages import read_own_blocks, read_tails
from sidecar.bundle.sidecar_file import Segment
from sidecar.convert.collection import BY_ID, BY_NAME, KeptFilter
from sidecar.convert.match import Match
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.convert.spool import Spool
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.parquet.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.schema import Leaf

GroupKey = tuple[str, int, int]
"""Segment id, field number, group ordinal."""


IN_MEMORY = 128 << 20
"""Bytes of filters that are kept in memory."""

Blocks = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Part:
    """The filters of one column of a file that stand in one group: unit ordinals by row group."""

    leaf: Leaf
    field_id: int
    segment: Segment
    group: StoredGroup
    units: dict[int, int]

    @property
    def key(self) -> GroupKey:
        """Names the group."""
        return self.segment.id, self.field_id, self.group.ordinal


@dataclass(frozen=True)
class RestoredPages:
    """The page index of one chunk as it goes into the file; ``reason`` says what is missing and why."""

    column_index: bytes | None
    offset_index: bytes | None
    reason: str = ""


def filter_parts(
    matches: Sequence[Match], footer: Footer, wanted: Collection[int] | None = None
) -> list[Part]:
    """Where a file's filters stand, for the leaves ``wanted`` (indexes; all by default).

    Of segments that both have a filter of a column and row group, the newer one's counts.
    """
    places: dict[tuple[int, int], tuple[Part, int]] = {}
    for match in matches:
        for field_id, bundle in sorted(match.segment.bundles.items()):
            for group in bundle.toc.groups:
                leaf = find_leaf(footer, field_id, group.resolution, group.encoding)
                if leaf is None or (wanted is not None and leaf.index not in wanted):
                    continue
                part = Part(leaf, field_id, match.segment, group, {})
                for row_group in _members(group, match.units):
                    places[leaf.index, row_group] = part, match.units[row_group]
    parts: dict[int, Part] = {}
    for (_, row_group), (part, unit) in places.items():
        parts.setdefault(id(part), part).units[row_group] = unit
    return list(parts.values())


def _members(group: StoredGroup, units: Sequence[int]) -> list[int]:
    """Row groups whose units stand in the group."""
    found = np.flatnonzero(np.isin(np.array(units, np.int64), group.ordinals()))
    return [int(row_group) for row_group in found]


def find_leaf(footer: Footer, field_id: int, resolution: str, encoding: str) -> Leaf | None:
    """The leaf of a file that a group speaks of; ``None`` unless there is exactly one, in that encoding."""
    if resolution == BY_ID:
        found = [leaf for leaf in footer.columns if leaf.field_id == field_id]
    elif resolution.startswith(BY_NAME):
        # A plain file's path may have any character, a name mapping's goes up to the first bar.
        path = resolution.removeprefix(BY_NAME)
        found = [leaf for leaf in footer.columns if leaf.path in (path, path.split("|")[0])]
    else:
        found = []
    return found[0] if len(found) == 1 and found[0].encoding.name == encoding else None


class FilterPool:
    """Filters that were read out of groups, kept in memory, those beyond 128 MiB in a temporary file. To be closed."""

    def __init__(self) -> None:
        self._spool = Spool()
        self._kept: dict[tuple[str, int, int], SplitBlockBloomFilter | KeptFilter] = {}
        self._failures: dict[GroupKey, SidecarError] = {}
        self._in_memory = 0

    def load(self, parts: Iterable[Part]) -> None:
        """Read the groups of these parts, each once, and keep the filters of their units.

        A group that is damaged fails alone, see :meth:`failure`.
        """
        groups: dict[GroupKey, Part] = {}
        units: dict[GroupKey, set[int]] = defaultdict(set)
        for part in parts:
            groups.setdefault(part.key, part)
            units[part.key].update(part.units.values())
        for key, part in groups.items():
            self._try_group(part.segment, part.field_id, part.group, sorted(units[key]))

    def load_all(self, segments: Iterable[Segment]) -> None:
        """Read all groups of these segments and keep all of their filters."""
        for segment in segments:
            for field_id, bundle in sorted(segment.bundles.items()):
                for group in bundle.toc.groups:
                    self._try_group(segment, field_id, group, group.ordinals().tolist())

    def failure(self, part: Part) -> SidecarError | None:
        """Why the part's group could not be read; ``None`` if it could."""
        return self._failures.get(part.key)

    def get(self, part: Part, row_group: int) -> SplitBlockBloomFilter:
        """A filter of a part that was loaded."""
        kept = self._kept[part.segment.id, part.field_id, part.units[row_group]]
        if isinstance(kept, SplitBlockBloomFilter):
            return kept
        data = self._spool.read(kept.offset, kept.blocks * BLOCK_BYTES)
        return SplitBlockBloomFilter.from_bytes(data + kept.tail)

    def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._spool.close()

    def _try_group(self, segment: Segment, field_id: int, group: StoredGroup, units: Sequence[int]) -> None:
        try:
            self.load_group(segment, field_id, group, units)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            self._failures[segment.id, field_id, group.ordinal] = error

    def load_group(self, segment: Segment, field_id: int, group: StoredGroup, units: Sequence[int]) -> None:
        """Read one group and keep the filters of ``units``, which are members, in rising order.

        Raises :class:`~sidecar.errors.DamagedFileError` for a wrong checksum.
        """
        bundle = segment.bundles[field_id]
        positions = np.flatnonzero(np.isin(group.ordinals(), units)).tolist()
        sizes = read_own_blocks(group, bundle.place, bundle.read_ranges)[positions].tolist()
        tails = read_tails(group, bundle.place, bundle.read_ranges)
        targets = self._make_room(group, sizes, [tails[position] for position in positions])
        for first, blocks_of_all in extract_blocks(segment, field_id, group):
            for position, (target, _) in zip(positions, targets, strict=True):
                take_own_blocks(blocks_of_all[position], first, group.layout.blocks // len(target), target)
        for unit, (_, kept) in zip(units, targets, strict=True):
            self._kept[segment.id, field_id, unit] = kept

    def has(self, part: Part, row_group: int) -> bool:
        """Whether a filter was loaded."""
        return (part.segment.id, part.field_id, part.units[row_group]) in self._kept

    def _make_room(
        self, group: StoredGroup, sizes: Sequence[int], tails: Sequence[bytes]
    ) -> list[tuple[Blocks, SplitBlockBloomFilter | KeptFilter]]:
        """Empty filters of so many blocks: in memory, or in the temporary file once that is full."""
        total = sum(sizes) * BLOCK_BYTES
        if self._in_memory + total <= IN_MEMORY:
            self._in_memory += total
            made = [
                SplitBlockBloomFilter(np.empty((size, 8), np.uint32), tail)
                for size, tail in zip(sizes, tails, strict=True)
            ]
            return [(found.blocks, found) for found in made]
        places = [self._spool.reserve(size * BLOCK_BYTES) for size in sizes]
        spooled = self._spool.array()
        return [
            (
                spooled[at : at + size * BLOCK_BYTES].view("<u4").reshape(-1, 8),
                KeptFilter(group.encoding, at, size, tail),
            )
            for at, size, tail in zip(places, sizes, tails, strict=True)
        ]


def restore_pages(
    matches: Sequence[Match], footer: Footer, wanted: Collection[int] | None = None
) -> dict[tuple[int, int], RestoredPages]:
    """The page indexes of a file by (row group, leaf index), checked against its footer.

    What contradicts the footer, or is damaged, has a reason instead.
    """
    found: dict[tuple[int, int], RestoredPages] = {}
    for match in matches:
        for field_id, blob in sorted(match.segment.page_index_blobs.items()):
            by_unit = {unit: row_group for row_group, unit in enumerate(match.units)}
            for unit, stored in blob.read(match.units).items():
                leaf = find_leaf(footer, field_id, stored.kind.resolution, stored.kind.encoding)
                if leaf is not None and (wanted is None or leaf.index in wanted):
                    chunk = footer.row_groups[by_unit[unit]].columns[leaf.index]
                    known = match.is_proven and first_page(stored.offset_index) == chunk.data_page_offset
                    found[chunk.row_group, leaf.index] = (
                        RestoredPages(stored.column_index, stored.offset_index)
                        if known
                        else _checked(footer, chunk, stored)
                    )
    return found


def first_page(offset_index: bytes | None) -> int | None:
    """Offset of the first page in an OffsetIndex, as all writers begin one; ``None`` for any other beginning.

    A list of structs as field 1, and in the first of them an i64 as field 1: the rest of the structure is not looked
    at. Of pages that are known to be those that were indexed, it tells whether they lie where they lay.
    """
    data = offset_index or b""
    if data[:1] != b"\x19" or data[1:2] == b"" or data[1] & 15 != 12 or data[1] < 16:
        return None
    at = 2
    if data[1] >> 4 == 15:  # the number of pages follows
        while data[at : at + 1] >= b"\x80":
            at += 1
        at += 1
    if data[at : at + 1] != b"\x16":
        return None
    number = shift = 0
    for byte in data[at + 1 : at + 11]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 if number & 1 == 0 else None
    return None


def _checked(footer: Footer, chunk: ColumnChunk, stored: StoredPageIndex) -> RestoredPages:
    try:
        column, offset, _ = decode_page_index(stored)
    except SidecarError as error:
        return RestoredPages(None, None, error.what)
    if offset is None:
        return RestoredPages(None, None, "no offset index")
    problem = next(offset_index_problems(footer, chunk, offset), "")
    if problem:
        return RestoredPages(None, None, f"of other pages: {problem}")
    problem = "" if column is None else next(column_index_problems(footer, chunk, column, offset), "")
    if problem:
        return RestoredPages(None, stored.offset_index, f"no column index: {problem}")
    return RestoredPages(stored.column_index, stored.offset_index)


def coverage(matches: Sequence[Match], footer: Footer, kind: str) -> Iterator[tuple[int, Leaf, str]]:
    """(row group, leaf, state) of all units that a sidecar speaks of, for one kind: indexed, or the reason why not."""
    assert kind in (BLOOM, PAGE_INDEX)
    for match in matches:
        for covered in match.segment.coverages:
            if covered.kind != kind:
                continue
            for row_group, unit in enumerate(match.units):
                state = covered.states[covered.codes[unit]]
                leaf = _leaf_of(footer, covered.field_id, state.resolution)
                if leaf is not None:
                    yield row_group, leaf, state.state


def _leaf_of(footer: Footer, field_id: int, resolution: str) -> Leaf | None:
    for leaf in footer.columns:
        if find_leaf(footer, field_id, resolution, leaf.encoding.name) is leaf:
            return leaf
    return None
