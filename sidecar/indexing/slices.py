"""Keeps the filters and page indexes of stage 1 in this process, and runs stage 2: slices the filters of each group.

The filters of both engines come here, each once, into an unnamed temporary file. A build writes the sliced filters
into one file, so they pass through this process in any case, and slicing them is faster than moving them.

A group of N positions and z blocks is worked on in parts: ranges of whole regions (whole pages if the group is
block-transposed), whose blocks over all N positions take a few megabytes. Widening a filter by an integer factor k
repeats each of its blocks k times. So the blocks ``[a, b)`` of the widened filter are the blocks
``[a // k, ceil(b / k))`` of the filter itself, and only those are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.conversion.spool import Spool
from sidecar.indexing.costs import PART_BYTES, PARTS_OF_GROUP, SMALL_PART_BYTES
from sidecar.indexing.stage_one.tasks import StageResult
from sidecar.run import in_turn, report_progress

UnitKey = tuple[int, int, int]
"""Identifies a filter: file ordinal, row group, field id."""


@dataclass(frozen=True)
class GroupTask:
    """One group of stage 2. ``number`` counts the groups of all fields; checksums bind to ``place``."""

    number: int
    group: BundleGroup
    place: BlobContext
    step: int
    """Blocks in a part."""
    keys: Sequence[UnitKey] = field(repr=False)
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
    """Return the number of blocks in a part: whole pages."""
    page = group.block_step
    row = len(group.units) * BLOCK_BYTES
    size = min(max(row * group.blocks // PARTS_OF_GROUP, SMALL_PART_BYTES), PART_BYTES)
    return max(size // (row * page), 1) * page


class KeptIndexes:
    """The filters and page indexes of stage 1, kept until they are in the sidecar. Any thread may add some.

    They need disk. Slicing needs memory for a few parts a thread.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._spool = Spool()
        self._filters: dict[UnitKey, int] = {}
        self._pages: dict[UnitKey, tuple[int, int]] = {}

    def keep(self, record: StageResult) -> StageResult:
        """Keep the filter or page index of a record. Returns the record without it."""
        if not record.kept_bytes or record.data is None:
            return record
        return self.keep_all([record], record.data)[0]

    def keep_all(self, records: Sequence[StageResult], data: bytes) -> list[StageResult]:
        """Keep the filters and page indexes of ``records``. Returns the records without them.

        They follow each other in ``data``, :attr:`sidecar.indexing.stage_one.tasks.StageResult.kept_bytes` of each
        record.
        """
        at = self._spool.append(data)
        kept = []
        for record in records:
            length = record.kept_bytes
            if length:
                key = record.file, record.row_group, record.field_id
                if record.kind == "pages":
                    self._pages[key] = at, length
                else:
                    self._filters[key] = at
                at += length
                record = record._replace(data=None)
            kept.append(record)
        return kept

    def slices(self, groups: Sequence[GroupTask]) -> Iterator[tuple[int, bytes]]:
        """Run stage 2 and yield ``(group number, finished regions)``: groups in order, regions in order in each."""
        ranges = [
            (group, first, part)
            for group, first in ((group, [self._filters[key] for key in group.keys]) for group in groups)
            for part in range(group.parts)
        ]
        report_progress("slicing", 0, len(ranges))
        is_small = sum(group.group.layout.length for group in groups) <= SMALL_PART_BYTES
        finished = in_turn(lambda work: self._slice(*work), ranges, 1 if is_small else self._threads)
        for done, ((group, _, _), data) in enumerate(zip(ranges, finished, strict=True), 1):
            yield group.number, data
            report_progress("slicing", done, len(ranges))

    def page_indexes(self, keys: Sequence[UnitKey]) -> Iterator[bytes]:
        """Yield the page indexes, or row indexes, in the order of ``keys``."""
        return (self._spool.read(*self._pages[key]) for key in keys)

    def close(self) -> None:
        """Free the temporary file."""
        self._spool.close()

    def _slice(self, group: GroupTask, first: Sequence[int], part: int) -> bytes:
        """Return the finished regions of a part; ``first`` has the offset of each position's filter in the spool."""
        start, stop = group.blocks(part)
        blocks = np.empty((group.members, stop - start, 8), dtype=np.uint32)
        wanted = np.arange(start, stop)
        for position, at in enumerate(first):
            own_start, own_stop, factor = group.own_blocks(part, position)
            # Read, not mapped: pages of a mapped file count as memory of this process as long as it is mapped.
            data = self._spool.read(at + own_start * BLOCK_BYTES, (own_stop - own_start) * BLOCK_BYTES)
            own = np.frombuffer(data, dtype="<u4").reshape(own_stop - own_start, 8)
            blocks[position] = own if factor == 1 else own[wanted // factor - own_start]
        return group.slice(part, blocks)
