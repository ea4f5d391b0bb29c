"""Runs stage 2 of a build: slices the filters of one group, in parts of its blocks. Both engines run it.

A group of N positions and z blocks is worked on in parts: ranges of whole regions (whole pages if the group is
block-transposed), whose blocks over all N positions take a few megabytes. Widening a filter by an integer factor k
repeats each of its blocks k times. So the blocks ``[a, b)`` of the widened filter are the blocks
``[a // k, ceil(b / k))`` of the filter itself, and only those are sent to the worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.slicing import ALL_ONES, slice_blocks

PART_BYTES = 8 << 20
"""Bytes of one part, over the blocks of all positions; more only if a single page is larger."""

Key = tuple[int, int, int]
"""Identifies a filter: file ordinal, row group, field id."""


@dataclass(frozen=True)
class GroupTask:
    """One group of stage 2. ``number`` counts the groups of all fields; checksums bind to ``place``."""

    number: int
    group: BundleGroup
    place: BlobContext
    step: int
    """Blocks in a part. The driver fixes it, so that all workers cut alike."""
    keys: Sequence[Key] = field(repr=False)
    """The key of the filter at each position."""

    @property
    def members(self) -> int:
        """The number of positions of the group."""
        return len(self.group.units)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return -(-self.group.blocks // self.step)

    def blocks(self, part: int) -> tuple[int, int]:
        """Return the first and last (excluded) block of a part."""
        return part * self.step, min((part + 1) * self.step, self.group.blocks)

    def own_blocks(self, part: int, position: int) -> tuple[int, int, int]:
        """Return what a part needs of the filter at a position: its first and last (excluded) block, and the factor."""
        start, stop = self.blocks(part)
        factor = self.group.blocks // int(self.group.own_blocks[position])
        return start // factor, (stop - 1) // factor + 1, factor

    def slice(self, part: int, blocks: npt.NDArray[np.uint32]) -> bytes:
        """Return the finished pages of a part from its gathered blocks, uint32[N, r, 8]."""
        return slice_blocks(self.group, part * self.step, blocks, self.place)


def part_step(group: BundleGroup) -> int:
    """Return the number of blocks in a part: whole pages of about :data:`PART_BYTES`."""
    page = group.block_step
    return max(PART_BYTES // (len(group.units) * BLOCK_BYTES * page), 1) * page


class FilterSlice(NamedTuple):
    """The blocks of one filter for one part: block ``b`` of the group is block ``b // factor`` of the filter."""

    part: int
    factor: int
    data: bytes


def cut(bitset: bytes, task: GroupTask, position: int) -> Iterator[FilterSlice]:
    """Yield the blocks that each part needs of the filter at a position, not yet widened.

    Yields nothing if the filter's size differs from the planned one: stage 1 ran twice and the file changed between.
    The position then gets all ones, which keeps the unit.
    """
    if len(bitset) != int(task.group.own_blocks[position]) * BLOCK_BYTES:
        return
    for part in range(task.parts):
        start, stop, factor = task.own_blocks(part, position)
        yield FilterSlice(part, factor, bitset[start * BLOCK_BYTES : stop * BLOCK_BYTES])


def gather(task: GroupTask, part: int, pieces: Iterable[tuple[int, int, bytes]]) -> npt.NDArray[np.uint32]:
    """Return the blocks of a part, uint32[N, r, 8], from ``(position, factor, data)`` of :func:`cut`.

    A position without data gets all ones, so its unit is always kept.
    """
    start, stop = task.blocks(part)
    out = np.full((task.members, stop - start, 8), ALL_ONES, dtype=np.uint32)
    wanted = np.arange(start, stop)
    for position, factor, data in pieces:
        own = np.frombuffer(data, dtype="<u4").reshape(-1, 8)
        out[position] = own if factor == 1 else own[wanted // factor - start // factor]
    return out
