"""Stage 2 of a build: the filters of one group, cut into block ranges and sliced. Both engines run it.

A group of N positions and z blocks is worked on in parts: ranges of whole regions (pages, where the group is
block-transposed) whose blocks of all N positions together take some megabytes. Widening a filter by an
integer factor k repeats each of its blocks k times, so the blocks ``[a, b)`` of the widened filter are the
blocks ``[a // k, ceil(b / k))`` of the filter itself, and only those travel.
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
"""Blocks of all positions that one part holds, in bytes (more only if a single page is larger)."""

Key = tuple[int, int, int]
"""Names a filter: file ordinal, row group, field id."""


@dataclass(frozen=True)
class GroupTask:
    """One group of stage 2. ``number`` counts groups of all fields; ``place`` is what checksums bind to."""

    number: int
    group: BundleGroup
    place: BlobContext
    step: int
    """Blocks in a part: the driver fixes it, workers go by it."""
    keys: Sequence[Key] = field(repr=False)
    """The filter that stands at each position."""

    @property
    def members(self) -> int:
        """Positions of the group."""
        return len(self.group.units)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.group.blocks // self.step)

    def blocks(self, part: int) -> tuple[int, int]:
        """First and last (excluded) block of a part."""
        return part * self.step, min((part + 1) * self.step, self.group.blocks)

    def slice(self, part: int, blocks: npt.NDArray[np.uint32]) -> bytes:
        """Finished pages of a part from its gathered blocks."""
        return slice_blocks(self.group, part * self.step, blocks, self.place)


def part_step(group: BundleGroup) -> int:
    """How many blocks of a group make a part: whole pages of some :data:`PART_BYTES`."""
    page = group.block_step
    return max(PART_BYTES // (len(group.units) * BLOCK_BYTES * page), 1) * page


class FilterSlice(NamedTuple):
    """Some blocks of one filter, for one part: block ``b`` of the group is block ``b // factor`` of the
    filter."""

    part: int
    factor: int
    data: bytes


def cut(bitset: bytes, task: GroupTask, position: int) -> Iterator[FilterSlice]:
    """Each part's blocks of the filter at a position, not yet widened.

    Nothing for a filter of another size than the one that was placed there: stage 1 ran twice and its file
    had changed, so the position stays without a filter.
    """
    own = int(task.group.own_blocks[position])
    if len(bitset) != own * BLOCK_BYTES:
        return
    factor = task.group.blocks // own
    for part in range(task.parts):
        start, stop = task.blocks(part)
        data = bitset[start // factor * BLOCK_BYTES : ((stop - 1) // factor + 1) * BLOCK_BYTES]
        yield FilterSlice(part, factor, data)


def gather(task: GroupTask, part: int, pieces: Iterable[tuple[int, int, bytes]]) -> npt.NDArray[np.uint32]:
    """Blocks ``[N, r, 8]`` of a part from ``(position, factor, data)`` of :func:`cut`; ones where there is
    none."""
    start, stop = task.blocks(part)
    out = np.full((task.members, stop - start, 8), ALL_ONES, dtype=np.uint32)
    wanted = np.arange(start, stop)
    for position, factor, data in pieces:
        own = np.frombuffer(data, dtype="<u4").reshape(-1, 8)
        out[position] = own[wanted // factor - start // factor]
    return out


def gather_spooled(
    task: GroupTask, part: int, spooled: npt.NDArray[np.uint32], first: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """The same from the blocks of all filters, ``spooled[n, 8]``: that at position ``p`` begins at
    ``first[p]``."""
    start, stop = task.blocks(part)
    factor = task.group.blocks // task.group.own_blocks
    rows = first[:, None] + np.arange(start, stop) // factor[:, None]
    gathered: npt.NDArray[np.uint32] = spooled[rows]
    return gathered
