"""Walking through all pages of a group in order, with bounded memory, and checking them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import SEAL_BYTES, Kind, Place, is_sealed
from sidecar.bundle.filter_toc import StoredGroup
from sidecar.bundle.layout import BLOCK_BITS, BLOCK_BYTES
from sidecar.bundle.seals import contexts_of, wrong_seals
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import DamagedFileError

PIECE_BYTES = 4 << 20
"""Pages are read in pieces of about this many bytes, but never less than one page."""


class Pages(NamedTuple):
    """The pages of a range of blocks of a group, checksums included."""

    first_block: int
    blocks: int
    data: bytes


def walk_pages(
    group: StoredGroup, read_ranges: ReadRanges, piece_bytes: int = PIECE_BYTES
) -> Iterator[Pages]:
    """All pages of a group, in order."""
    layout = group.layout
    step = layout.page_regions
    count = max(step, piece_bytes // (layout.members * BLOCK_BYTES) // step * step)
    for first in range(0, layout.blocks, count):
        wanted = min(count, layout.blocks - first)
        offset = group.offset + layout.page_offset(first // step)
        (data,) = read_ranges([(offset, layout.body_bytes(first, wanted))])
        yield Pages(first, wanted, data)


def bad_places(group: StoredGroup, place: Place, pages: Pages) -> Iterator[str]:
    """Names of the pages, regions or rows whose checksum is wrong, or whose padding bits are not 0."""
    layout = group.layout
    data = np.frombuffer(pages.data, np.uint8)
    first = pages.first_block // layout.page_regions
    full, left = divmod(pages.blocks, layout.page_regions)
    whole = (
        data[: full * layout.page_length(first)].reshape(full, -1)
        if full
        else data[:0].reshape(0, SEAL_BYTES)
    )
    if layout.rows_sealed and layout.sliced:
        yield from _bad_rows(group, place, first, whole)
    else:
        name, kind = ("region", group.rule.region) if layout.sliced else ("page", group.rule.page)
        contexts = contexts_of(kind, full, place, group.ordinal)
        contexts["position"] = np.arange(first, first + full)
        yield from (f"{name} {first + number}" for number in wrong_seals(whole, contexts))
    if left and not is_sealed(
        place.context(group.rule.page, first + full, group.ordinal), data[whole.size :].data
    ):
        yield f"page {first + full}"  # the last page of the group, which is shorter
    if layout.sliced and layout.members & 7:
        last = whole[:, layout.row_bytes - 1 :: layout.row_stride][:, :BLOCK_BITS] >> (layout.members & 7)
        for number in np.flatnonzero(last.any(axis=1)):
            yield f"region {first + number}: padding bits that are not 0"


def _bad_rows(group: StoredGroup, place: Place, first: int, regions: npt.NDArray[np.uint8]) -> Iterator[str]:
    contexts = contexts_of(group.rule.row, BLOCK_BITS, place, group.ordinal)
    contexts["row"] = np.arange(BLOCK_BITS)
    for number, region in enumerate(regions, first):
        contexts["position"] = number
        for row in wrong_seals(region.reshape(BLOCK_BITS, -1), contexts):
            yield f"region {number}, row {row}"


def read_tails(group: StoredGroup, place: Place, read_ranges: ReadRanges) -> list[bytes]:
    """The odd bytes of each member's filter, by position; empty ones if the group has none."""
    layout = group.layout
    if not layout.tail:
        return [b""] * layout.members
    data = _read_sealed(group, place, read_ranges, Kind.TAIL, layout.tail_offset, layout.tail_length)
    return [data[at : at + layout.tail] for at in range(0, len(data), layout.tail)]


def read_own_blocks(
    group: StoredGroup, place: Place, read_ranges: ReadRanges
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """int64[N]: number of blocks of each member's own filter, by position."""
    layout = group.layout
    if not layout.widened:
        return np.full(layout.members, layout.blocks, np.int64)
    data = _read_sealed(group, place, read_ranges, Kind.OWN_BLOCKS, layout.own_offset, layout.own_length)
    own = np.frombuffer(data, "<u4").astype(np.int64)
    if (own < 1).any() or (layout.blocks % np.maximum(own, 1)).any():
        raise DamagedFileError("a member's own number of blocks does not divide that of its group")
    return own


def _read_sealed(
    group: StoredGroup, place: Place, read_ranges: ReadRanges, kind: Kind, offset: int, length: int
) -> bytes:
    (piece,) = read_ranges([(group.offset + offset, length)])
    if not is_sealed(place.context(kind, group=group.ordinal), piece):
        raise DamagedFileError(
            f"group {group.ordinal}: the piece {kind.name} has a wrong checksum", offset=group.offset + offset
        )
    return piece[:-SEAL_BYTES]
