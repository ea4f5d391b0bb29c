"""Reads and verifies all pages of a group in order, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BARE, BlobContext, PieceKind
from sidecar.bundle.envelopes.seals import contexts_of, open_pieces
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.layout import BLOCK_BITS, BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.sections import ReadRanges
from sidecar.errors import DamagedFileError

PIECE_BYTES = 4 << 20
"""Pages are read in pieces of about this many bytes, at least one page each."""


class GroupPages(NamedTuple):
    """The pages of a range of blocks of a group, with checksums or (after :func:`open_pages`) without."""

    first_block: int
    blocks: int
    data: bytes


def walk_pages(group: StoredGroup, read_ranges: ReadRanges, piece_bytes: int = PIECE_BYTES) -> Iterator[GroupPages]:
    """Yield all pages of a group, in order."""
    layout = group.layout
    count = pages_step(group, piece_bytes)
    for first in range(0, layout.blocks, count):
        yield read_pages(group, read_ranges, first, min(count, layout.blocks - first))


def pages_step(group: StoredGroup, piece_bytes: int = PIECE_BYTES) -> int:
    """Return the blocks of a group in whole pages of about ``piece_bytes``, at least one page."""
    step = group.layout.page_regions
    return max(step, piece_bytes // (group.layout.members * BLOCK_BYTES) // step * step)


def read_pages(group: StoredGroup, read_ranges: ReadRanges, first_block: int, blocks: int) -> GroupPages:
    """Read the pages of a range of blocks. It begins at a page, and ends at one or at the group's last block."""
    layout = group.layout
    offset = group.offset + layout.page_offset(first_block // layout.page_regions)
    (data,) = read_ranges([(offset, layout.body_bytes(first_block, blocks))])
    return GroupPages(first_block, blocks, data)


def open_pages(group: StoredGroup, place: BlobContext, pages: GroupPages) -> tuple[GroupPages, list[str]]:
    """Verify and decrypt the pages of a range of blocks. Returns them without checksums, and names of bad parts.

    These are pages, regions or rows that are damaged or have padding bits set. They must not be used.
    """
    layout = group.layout
    data = np.frombuffer(pages.data, np.uint8)
    first = pages.first_block // layout.page_regions
    full, left = divmod(pages.blocks, layout.page_regions)
    length = layout.page_length(first) if full else 0
    whole = data[: full * length].reshape(full, length)
    bad: list[str] = []
    if layout.rows_sealed and layout.sliced:
        bare = _open_rows(group, place, first, whole, bad)
    else:
        name, kind = ("region", group.rule.region) if layout.sliced else ("page", group.rule.page)
        contexts = contexts_of(kind, full, place, group.ordinal)
        contexts["position"] = np.arange(first, first + full)
        bare, wrong = open_pieces(whole, contexts, place) if full else (whole, [])
        bad += (f"{name} {first + number}" for number in wrong)
    opened = bare.tobytes()
    if left:  # the last page of the group is shorter
        rest = place.open(place.context(group.rule.page, first + full, group.ordinal), data[whole.size :].data)
        if rest is None:
            bad.append(f"page {first + full}")
        opened += bytes(rest or b"")
    if layout.sliced and layout.members & 7:
        last = bare.reshape(full, BLOCK_BITS, layout.row_bytes)[:, :, -1] >> (layout.members & 7)
        for number in np.flatnonzero(last.any(axis=1)):
            bad.append(f"region {first + number}: padding bits that are not 0")
    return GroupPages(pages.first_block, pages.blocks, opened), bad


def bare_group(group: StoredGroup) -> BundleGroup:
    """Return the group in the form that ``unslice_pages`` needs for opened pages, with widened filters as stored."""
    whole = group.with_own_blocks(np.full(group.layout.members, group.layout.blocks, np.int64))
    return replace(whole, sealing=BARE)


def _open_rows(
    group: StoredGroup, place: BlobContext, first: int, regions: npt.NDArray[np.uint8], bad: list[str]
) -> npt.NDArray[np.uint8]:
    contexts = contexts_of(group.rule.row, BLOCK_BITS, place, group.ordinal)
    contexts["row"] = np.arange(BLOCK_BITS)
    bare = np.empty((len(regions), BLOCK_BITS, group.layout.row_bytes), np.uint8)
    for at, region in enumerate(regions):
        contexts["position"] = first + at
        bare[at], wrong = open_pieces(region.reshape(BLOCK_BITS, -1), contexts, place)
        bad += (f"region {first + at}, row {row}" for row in wrong)
    return bare


def read_tails(group: StoredGroup, place: BlobContext, read_ranges: ReadRanges) -> list[bytes]:
    """Return the odd bytes of each member's filter, by position; empty bytes if the group has no tails."""
    layout = group.layout
    if not layout.tail:
        return [b""] * layout.members
    data = _read_sealed(group, place, read_ranges, PieceKind.TAIL, layout.tail_offset, layout.tail_length)
    return [data[at : at + layout.tail] for at in range(0, len(data), layout.tail)]


def read_own_blocks(
    group: StoredGroup, place: BlobContext, read_ranges: ReadRanges
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return int64[N]: the number of blocks of each member's own filter, by position."""
    layout = group.layout
    if not layout.widened:
        return np.full(layout.members, layout.blocks, np.int64)
    data = _read_sealed(group, place, read_ranges, PieceKind.OWN_BLOCKS, layout.own_offset, layout.own_length)
    own_blocks = np.frombuffer(data, "<u4").astype(np.int64)
    if (own_blocks < 1).any() or (layout.blocks % np.maximum(own_blocks, 1)).any():
        raise DamagedFileError("a member's own number of blocks does not divide its group's")
    return own_blocks


def _read_sealed(
    group: StoredGroup, place: BlobContext, read_ranges: ReadRanges, kind: PieceKind, offset: int, length: int
) -> bytes:
    (piece,) = read_ranges([(group.offset + offset, length)])
    data = place.open(place.context(kind, group=group.ordinal), piece)
    if data is None:
        raise DamagedFileError(
            f"the piece {kind.name} of group {group.ordinal} has a wrong checksum",
            offset=group.offset + offset,
        )
    return bytes(data)
