"""Reads filters out of a sidecar, bit for bit, for many files at once.

A bundle is sliced across its members, so the bytes of one filter are spread over its whole group. A group is therefore
read whole, and only once for all files that need filters from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sidecar.bundle.extract import extract_blocks, take_own_blocks
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.pages import read_own_blocks, read_tails
from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.collection import KeptFilter
from sidecar.conversion.matching.match import Match
from sidecar.conversion.spool import Spool
from sidecar.data_files.open_file import DataLeaf
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.arrays import Blocks

GroupKey = tuple[int, int]
"""Identity of the bundle in memory, group ordinal."""

IN_MEMORY = 128 << 20
"""Bytes of filters that are kept in memory; the rest goes to a temporary file."""


@dataclass(frozen=True)
class PooledFilters:
    """The filters that one group has for a leaf column of a file. ``units`` are unit ordinals by row group."""

    leaf: DataLeaf
    bundle: FilterBundle
    match: Match
    group: StoredGroup
    units: dict[int, int]

    @property
    def column(self) -> int:
        """The number of the leaf."""
        return self.leaf.index

    @property
    def key(self) -> GroupKey:
        """The key of the group in a pool."""
        return group_key(self.bundle, self.group)


def group_key(bundle: FilterBundle, group: StoredGroup) -> GroupKey:
    """Return a key that identifies the group among the groups of an open sidecar."""
    return id(bundle), group.ordinal


@dataclass(frozen=True)
class _InMemory:
    """The blocks of a filter, uint32[z, 8], and the bytes after its last whole block."""

    blocks: Blocks
    tail: bytes


class FilterPool:
    """Filters of a sidecar: up to 128 MiB in memory, the rest in a temporary file. Close it to free both."""

    def __init__(self) -> None:
        self._spool = Spool()
        self._kept: dict[tuple[GroupKey, int], _InMemory | KeptFilter] = {}
        self._failures: dict[GroupKey, SidecarError] = {}
        self._in_memory = 0

    def load(self, parts: Iterable[PooledFilters]) -> None:
        """Read each group of ``parts`` once and keep the filters of their units.

        A damaged group fails alone: :meth:`failure` returns its error.
        """
        groups: dict[GroupKey, PooledFilters] = {}
        units: dict[GroupKey, set[int]] = defaultdict(set)
        for part in parts:
            groups.setdefault(part.key, part)
            units[part.key].update(part.units.values())
        for key, part in groups.items():
            self._try_group(part.bundle, part.group, sorted(units[key]))

    def load_all(self, sidecar: SidecarFile) -> None:
        """Read all groups of a sidecar and keep all filters. A damaged group fails alone."""
        for field_id in sorted(sidecar.filtered_fields):
            for bundle, group, _ in sidecar.groups_of(field_id):
                self._try_group(bundle, group, group.ordinals().tolist())

    def failure(self, part: PooledFilters) -> SidecarError | None:
        """Return the error of reading the part's group; ``None`` if there was none."""
        return self._failures.get(part.key)

    def get(self, part: PooledFilters, row_group: int) -> AnyFilter:
        """Return a filter of a loaded part."""
        kept, rule = self._kept[part.key, part.units[row_group]], part.group.rule
        if isinstance(kept, KeptFilter):
            blocks = self._spool.read(kept.offset, kept.blocks * BLOCK_BYTES)
        else:
            blocks = kept.blocks.tobytes()
        return rule.filter_from(rule.join(blocks, kept.tail))

    def close(self) -> None:
        """Free the filters and the temporary file."""
        self._kept.clear()
        self._spool.close()

    def _try_group(self, bundle: FilterBundle, group: StoredGroup, units: Sequence[int]) -> None:
        try:
            self.load_group(bundle, group, units)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            self._failures[group_key(bundle, group)] = error

    def load_group(self, bundle: FilterBundle, group: StoredGroup, units: Sequence[int]) -> None:
        """Read one group and keep the filters of ``units`` (unit ordinals of members, in rising order).

        Raises :class:`~sidecar.errors.DamagedFileError` for a wrong checksum.
        """
        positions = np.flatnonzero(np.isin(group.ordinals(), units)).tolist()
        sizes = read_own_blocks(group, bundle.place, bundle.read_ranges)[positions].tolist()
        tails = read_tails(group, bundle.place, bundle.read_ranges)
        targets = self._make_room(group, sizes, [tails[position] for position in positions])
        # In the bundle a small member is widened: each of its blocks is repeated. Take one copy of each.
        for first, blocks_of_all in extract_blocks(bundle, group):
            for position, (target, _) in zip(positions, targets, strict=True):
                take_own_blocks(blocks_of_all[position], first, group.layout.blocks // len(target), target)
        key = group_key(bundle, group)
        for unit, (_, kept) in zip(units, targets, strict=True):
            self._kept[key, unit] = kept

    def has(self, part: PooledFilters, row_group: int) -> bool:
        """Return whether the filter of a row group is loaded."""
        return (part.key, part.units[row_group]) in self._kept

    def _make_room(
        self, group: StoredGroup, sizes: Sequence[int], tails: Sequence[bytes]
    ) -> list[tuple[Blocks, _InMemory | KeptFilter]]:
        """Allocate filters of ``sizes`` blocks: in memory while there is room, else in the temporary file."""
        total = sum(sizes) * BLOCK_BYTES
        if self._in_memory + total <= IN_MEMORY:
            self._in_memory += total
            made = [_InMemory(np.empty((size, 8), np.uint32), tail) for size, tail in zip(sizes, tails, strict=True)]
            return [(found.blocks, found) for found in made]
        places = [self._spool.reserve(size * BLOCK_BYTES) for size in sizes]
        spooled = self._spool.array()
        return [
            (
                spooled[at : at + size * BLOCK_BYTES].view("<u4").reshape(-1, 8),
                KeptFilter(group.encoding, at, size, tail, group.rule),
            )
            for at, size, tail in zip(places, sizes, tails, strict=True)
        ]
