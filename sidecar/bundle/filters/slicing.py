"""Converts filters to the bytes of a group and back, for builds. Uses numba through the kernels.

The bytes are described in :mod:`sidecar.bundle.filters.layout`, the checksums in
:mod:`sidecar.bundle.envelopes.checksum`.

    plan_groups(members)                            positions, fixed before the first byte
    slice_blocks(group, first_block, blocks, place) finished pages of a range of blocks, with checksums
    tail_piece(group, tails, place)                 after the last page, if the group's filters have odd tails
    own_blocks_piece(group, place)                  after that, if a filter was widened (write_segment does it)

Slicing loses nothing: ``unslice_pages`` of ``slice_blocks`` is the identity, for any number of members.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext, PieceKind
from sidecar.bundle.envelopes.seals import contexts_of, seal_pieces
from sidecar.bundle.filters.layout import BLOCK_BITS, BLOCK_BYTES
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.errors import UsageError
from sidecar.filters.arrays import Blocks
from sidecar.kernels.transpose import blocks_from_regions, regions_from_blocks

PIECE_BYTES = 4 << 20
"""Bytes of filters that :func:`group_pages` loads and slices at a time, unless one step needs more."""

_BLOCK = np.dtype((np.void, BLOCK_BYTES))
"""A block as one element: it is copied in half the time of its eight words."""

_thread = threading.local()

ALL_ONES = np.uint32(0xFFFFFFFF)


def slice_blocks(group: BundleGroup, first_block: int, blocks: Blocks, place: BlobContext) -> bytes:
    """Return the finished pages of the blocks from ``first_block``, sealed as ``place`` says.

    ``blocks`` is uint32[N, r, 8], C-contiguous. ``blocks[p, j]`` is block ``first_block + j`` of the filter at
    position p, widened to the group's z, and all ones if the filter is missing. ``first_block`` must be a multiple of
    ``group.block_step``, and so must r unless the range ends at the group's last block. Raises :class:`UsageError`.
    """
    members, count = blocks.shape[:2]
    layout = group.layout
    _check_range(group, first_block, members, count)
    if group.sealing != place.sealing:
        raise UsageError("the group was planned for pieces with another overhead", expected=place.sealing)
    if blocks.dtype != np.uint32 or blocks.shape[2:] != (8,) or not blocks.flags.c_contiguous:
        raise UsageError("blocks must be uint32[N, r, 8], contiguous", found=f"{blocks.dtype}{blocks.shape}")
    out = _buffer(layout.body_bytes(first_block, count))
    if layout.sliced:
        regions = out.reshape(count, layout.region_stride)
        _slice_regions(regions, blocks, group)
        seal_regions = _seal_rows if layout.rows_sealed else _seal_regions
        seal_regions(regions, first_block, group, place)
    else:
        _fill_pages(out, first_block, blocks, group, place)
    return out.tobytes()


def unslice_pages(group: BundleGroup, first_block: int, count: int, pages: bytes | memoryview) -> Blocks:
    """Return blocks uint32[N, count, 8], the inverse of :func:`slice_blocks`. Checksums are not checked.

    Encrypted pages must have been opened before, and ``group`` must then describe bare pieces.
    """
    layout = group.layout
    data = np.frombuffer(pages, np.uint8)
    members = len(group.units)
    _check_range(group, first_block, members, count)
    if len(data) != layout.body_bytes(first_block, count):
        raise UsageError(
            "the pages do not have the length of this range of blocks",
            expected=layout.body_bytes(first_block, count),
        )
    if layout.sliced:
        regions = data.reshape(count, layout.region_stride)
        return blocks_from_regions(regions, members, layout.row_bytes, layout.row_stride)
    blocks = np.empty((members, count, 8), np.uint32)
    step, stride = layout.page_regions, layout.page_offset(1)
    full = count // step
    shape, strides = (full, step, members, 8), (stride, members * BLOCK_BYTES, BLOCK_BYTES, 4)
    whole = np.ndarray(shape, np.uint32, pages, 0, strides)  # a view that leaves out the checksums
    blocks[:, : full * step].reshape(members, full, step, 8)[:] = whole.transpose(2, 0, 1, 3)
    if count % step:
        rest = np.frombuffer(pages, np.uint32, (count % step) * members * 8, full * stride)
        blocks[:, full * step :] = rest.reshape(-1, members, 8).transpose(1, 0, 2)
    return blocks


def tail_piece(group: BundleGroup, tails: Sequence[bytes | None], place: BlobContext) -> bytes:
    """Return the odd bytes of each member's filter (ones for missing filters), with checksum."""
    parts = [b"\xff" * group.tail if tail is None else tail for tail in tails]
    if len(parts) != len(group.units) or any(len(part) != group.tail for part in parts):
        raise UsageError("tails must be one for each member, with the group's tail length", expected=group.tail)
    data = b"".join(parts)
    return place.seal(place.context(PieceKind.TAIL, group=group.ordinal), data)


def own_blocks_piece(group: BundleGroup, place: BlobContext) -> bytes:
    """Return the members' own numbers of blocks with checksum; empty if no member was widened."""
    if not group.widened:
        return b""
    data = group.own_blocks.astype("<u4").tobytes()
    return place.seal(place.context(PieceKind.OWN_BLOCKS, group=group.ordinal), data)


def gather_blocks(group: BundleGroup, filters: Sequence[Blocks | None], first_block: int, count: int) -> Blocks:
    """Return a range of blocks [N, count, 8] of filters (uint32[own z, 8]) by position, widened; ones for ``None``."""
    out = np.empty((len(group.units), count, 8), np.uint32)
    for position, own in enumerate(filters):
        if own is None:
            out[position] = ALL_ONES
        else:
            out[position] = widen_range(own, group.blocks, first_block, count)
    return out


def widen_range(own: Blocks, blocks: int, first_block: int, count: int) -> Blocks:
    """Return blocks ``first_block`` to ``first_block + count`` of ``own`` (uint32[z, 8]), widened to ``blocks``."""
    factor, rest = divmod(blocks, len(own))
    if rest or not factor:
        raise UsageError("only integer factors widen a filter", expected=f"{blocks} blocks", found=len(own))
    if factor == 1:
        return own[first_block : first_block + count]
    return own[np.arange(first_block, first_block + count) // factor]


def group_pages(
    group: BundleGroup,
    place: BlobContext,
    load: Callable[[int, int], Blocks],
    tails: Sequence[bytes | None] | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[bytes]:
    """Yield a group's pages in order, then its tail piece. ``load(first_block, count)`` returns blocks[N, count, 8]."""
    step = group.block_step
    count = max(step, piece_bytes // (len(group.units) * BLOCK_BYTES) // step * step)
    for first in range(0, group.blocks, count):
        blocks = min(count, group.blocks - first)
        yield slice_blocks(group, first, load(first, blocks), place)
    if group.tail:
        yield tail_piece(group, tails or [], place)


def _buffer(length: int) -> npt.NDArray[np.uint8]:
    """Return the calling thread's buffer, which the next call overwrites.

    Without it, each call would allocate and free large arrays. The C library would return their pages to the system
    and fault them in again, which costs three times as much as slicing.
    """
    buffer: npt.NDArray[np.uint8] | None = getattr(_thread, "buffer", None)
    if buffer is None or not length <= len(buffer) <= 4 * max(length, PIECE_BYTES):
        buffer = _thread.buffer = np.empty(length, np.uint8)
    return buffer[:length]


def _check_range(group: BundleGroup, first_block: int, members: int, count: int) -> None:
    end = first_block + count
    aligned = first_block % group.block_step == 0 and (end % group.block_step == 0 or end == group.blocks)
    if members != len(group.units) or count < 1 or first_block < 0 or end > group.blocks or not aligned:
        raise UsageError(
            "this range of blocks does not fit the group",
            expected=f"{len(group.units)} members, {group.blocks} blocks, steps of {group.block_step}",
            found=f"{members} members, blocks {first_block} to {end}",
        )


def _fill_pages(
    out: npt.NDArray[np.uint8], first_block: int, blocks: Blocks, group: BundleGroup, place: BlobContext
) -> None:
    regions = blocks.transpose(1, 0, 2)
    step = group.block_step
    full, left = divmod(len(regions), step)
    stride = step * regions[0].nbytes + place.sealing.overhead
    if full:
        _fill_equal_pages(out[: full * stride].reshape(full, stride), first_block // step, regions, group, place)
    if left:  # the last page of the group
        last = out[full * stride :].reshape(1, -1)
        _fill_equal_pages(last, first_block // step + full, regions[full * step :], group, place)


def _fill_equal_pages(
    pages: npt.NDArray[np.uint8], first_page: int, regions: Blocks, group: BundleGroup, place: BlobContext
) -> None:
    """Write and seal pages uint8[n, length] that all have equally many ``regions`` [r, N, 8]."""
    before, after = place.sealing
    row = regions[0].nbytes
    shape = len(pages), (pages.shape[1] - before - after) // row, regions.shape[1]
    blocks = regions[: shape[0] * shape[1]].view(_BLOCK).reshape(shape)
    # One copy for all pages: a loop over them takes four times as long, with the lock that the other threads wait for.
    np.ndarray(shape, _BLOCK, pages, before, (pages.strides[0], row, BLOCK_BYTES))[:] = blocks
    contexts = contexts_of(group.rule.page, len(pages), place, group.ordinal)
    contexts["position"] = np.arange(first_page, first_page + len(pages))
    seal_pieces(pages, contexts, place)


def _slice_regions(regions: npt.NDArray[np.uint8], blocks: Blocks, group: BundleGroup) -> None:
    """Write the bit rows of ``blocks`` to their places in ``regions``, and leave room for seals around them."""
    layout = group.layout
    before = layout.sealing.before
    if not before:
        regions_from_blocks(blocks, regions, layout.row_bytes, layout.row_stride)
        return
    bare = np.empty((len(regions), BLOCK_BITS * layout.row_bytes), np.uint8)
    regions_from_blocks(blocks, bare, layout.row_bytes, layout.row_bytes)
    if layout.rows_sealed:
        rows = regions.reshape(len(regions), BLOCK_BITS, layout.row_stride)
        rows[:, :, before : before + layout.row_bytes] = bare.reshape(len(bare), BLOCK_BITS, -1)
    else:
        regions[:, before : before + bare.shape[1]] = bare


def _seal_regions(regions: npt.NDArray[np.uint8], first_block: int, group: BundleGroup, place: BlobContext) -> None:
    contexts = contexts_of(group.rule.region, len(regions), place, group.ordinal)
    contexts["position"] = np.arange(first_block, first_block + len(regions))
    seal_pieces(regions, contexts, place)


def _seal_rows(regions: npt.NDArray[np.uint8], first_block: int, group: BundleGroup, place: BlobContext) -> None:
    contexts = contexts_of(group.rule.row, BLOCK_BITS, place, group.ordinal)
    contexts["row"] = np.arange(BLOCK_BITS)
    for number, region in enumerate(regions, first_block):
        contexts["position"] = number
        seal_pieces(region.reshape(BLOCK_BITS, -1), contexts, place)
