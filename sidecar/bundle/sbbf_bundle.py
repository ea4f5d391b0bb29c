"""Looking values up in a ``sidecar-sbbf-v1`` blob; which bytes are where stands in ``layout`` and ``sbbf_toc``.

A split-block probe tests eight bits, one in each word of one block. Block i of all members lies side by side as 256
bit rows, so the AND of eight rows *is* the set of members that might contain the hash. Certain is only "no"; what
cannot be read, verified or understood stays "maybe".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import SEAL_BYTES, Kind, Place, is_sealed
from sidecar.bundle.layout import BLOCK_BITS
from sidecar.bundle.sbbf_toc import SbbfToc, StoredGroup
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import bits_of, block_of
from sidecar.filters.values import Probe

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Pieces:
    """What one lookup of one hash in one group reads: ranges of the blob with the contexts of their checksums."""

    ranges: list[tuple[int, int]]
    contexts: list[bytes]


class SbbfBundle:
    """The filters of one field of one segment. ``doubt`` is told of everything that makes a group unknown."""

    def __init__(
        self, toc: SbbfToc, read_ranges: ReadRanges, doubt: Callable[[SidecarError | str], None]
    ) -> None:
        self.toc = toc
        self.place = Place(toc.segment_id, toc.field_id)
        self.read_ranges = read_ranges
        self._doubt = doubt
        self._told = False

    def might_match(
        self, probe: Callable[[Encoding], Probe], resolution_holds: Callable[[str], bool]
    ) -> Bits:
        """bool[units]: False where a filter says that none of the probed values is there.

        All groups' ranges are handed to one call of the reader. Never raises for what the file holds.
        """
        self._tell_doubts()
        keep = np.ones(self.toc.num_units, np.bool_)
        wanted: list[tuple[StoredGroup, int, _Pieces]] = []
        answers: dict[int, Bits] = {}
        for group in self.toc.groups:
            found = self._ask(group, probe, resolution_holds)
            if found is None:
                continue
            answers[group.ordinal] = np.zeros(group.layout.members, np.bool_)
            if found.verdict == "probe":
                wanted += [(group, value, self._locate(group, value)) for value in found.hashes]
        for (group, value, pieces), data in zip(wanted, self._fetch(wanted), strict=True):
            answers[group.ordinal] |= self._evaluate(group, value, pieces, data)
        for group in self.toc.groups:
            if group.ordinal in answers:
                keep[group.units] &= answers[group.ordinal]
        return keep

    def _ask(
        self,
        group: StoredGroup,
        probe: Callable[[Encoding], Probe],
        resolution_holds: Callable[[str], bool],
    ) -> Probe | None:
        """How the value is looked up in the group's encoding; ``None`` if the group cannot answer."""
        try:
            if not resolution_holds(group.resolution):
                return None
            found = probe(Encoding.parse(group.encoding))
        except SidecarError as error:
            self._doubt(error)
            return None
        certain = found.verdict == "cannot-exist" or (found.verdict == "probe" and found.hashes)
        return found if certain else None

    def _locate(self, group: StoredGroup, value: int) -> _Pieces:
        layout = group.layout
        region = block_of(value, layout.blocks)
        if not layout.sliced:
            page = region // layout.page_regions
            offset = group.offset + layout.page_offset(page)
            context = self.place.context(Kind.PAGE, page, group.ordinal)
            return _Pieces([(offset, layout.page_length(page))], [context])
        if not layout.rows_sealed:
            context = self.place.context(Kind.REGION, region, group.ordinal)
            return _Pieces([(group.offset + layout.page_offset(region), layout.region_stride)], [context])
        rows = [word * 32 + bit for word, bit in enumerate(bits_of(value))]
        return _Pieces(
            [(group.offset + layout.row_offset(region, row), layout.row_stride) for row in rows],
            [self.place.context(Kind.ROW, region, group.ordinal, row) for row in rows],
        )

    def _fetch(self, wanted: Sequence[tuple[StoredGroup, int, _Pieces]]) -> Iterator[list[bytes] | None]:
        """The pieces of each lookup; ``None`` for all if they cannot be read."""
        ranges = list(dict.fromkeys(place for _, _, pieces in wanted for place in pieces.ranges))
        try:
            data = dict(zip(ranges, self.read_ranges(ranges), strict=True))
        except SidecarError as error:
            self._doubt(error)
            return iter([None] * len(wanted))
        return iter([[data[place] for place in pieces.ranges] for _, _, pieces in wanted])

    def _evaluate(self, group: StoredGroup, value: int, pieces: _Pieces, data: list[bytes] | None) -> Bits:
        """bool[N]: which members might contain the hash; all of them if a checksum is wrong."""
        everyone = np.ones(group.layout.members, np.bool_)
        if data is None:
            return everyone
        for (offset, _), context, piece in zip(pieces.ranges, pieces.contexts, data, strict=True):
            if not is_sealed(context, piece):
                self._doubt(
                    DamagedFileError(
                        f"filters of field {self.toc.field_id} have a wrong checksum; their units are kept",
                        offset=offset,
                    )
                )
                return everyone
        return evaluate(group, value, data)

    def _tell_doubts(self) -> None:
        if not self._told:
            self._told = True
            for doubt in self.toc.doubts:
                self._doubt(f"field {self.toc.field_id}: {doubt}; its units are kept")


def evaluate(group: StoredGroup, value: int, pieces: Sequence[bytes]) -> Bits:
    """bool[N] of verified pieces, checksums included: one page or region, or the eight rows of a hash."""
    layout = group.layout
    bits = bits_of(value)
    if not layout.sliced:
        page = np.frombuffer(pieces[0], "<u4", count=(len(pieces[0]) - SEAL_BYTES) // 4)
        region = block_of(value, layout.blocks) % layout.page_regions
        blocks = page.reshape(-1, layout.members, 8)[region]
        masks = np.array([1 << bit for bit in bits], np.uint32)
        matches: Bits = ((blocks & masks) == masks).all(axis=1)
        return matches
    if layout.rows_sealed:
        rows = np.stack([np.frombuffer(piece, np.uint8, count=layout.row_bytes) for piece in pieces])
    else:
        region_rows = np.frombuffer(pieces[0], np.uint8, count=BLOCK_BITS * layout.row_bytes)
        rows = region_rows.reshape(BLOCK_BITS, -1)[[word * 32 + bit for word, bit in enumerate(bits)]]
    both = np.bitwise_and.reduce(rows, axis=0)
    return np.unpackbits(both, count=layout.members, bitorder="little").view(np.bool_)
