"""Transpose bit matrices between filters and bit rows.

``slice_regions`` turns blocks [N, r, 4] (64-bit words of a split-block filter) into r regions of 256 bit rows:
row b of region i has, at bit u, bit b of block i of filter u. ``unslice_regions`` is its inverse.

512 filters at a time go through four tiles, one for each word, of 64 x 8 words (16 KiB, the first-level cache). Lane s
of a tile has filters 64 s to 64 s + 63. If few filters are left, two or four words share a tile. The
recursive 64 x 64 transposition of Hacker's Delight (7-3) runs in all eight lanes at once, with three of its six steps
at a time in registers. So its loops are plain vector code, and each bit row is written 64 bytes at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sidecar.kernels._jit import kernel

LANES = 8
MEMBERS = 64 * LANES
TILE = 64 * LANES
"""64-bit words in a tile."""
ROW = LANES
BAND = 8 * LANES
WORDS = 4
"""64-bit words in a block."""
CHUNK = 8
"""Regions that are processed together, so that their rows stay in the second-level cache from tile to tile."""

_S32, _S16, _S8, _S4, _S2, _S1 = (np.uint64(1 << k) for k in (5, 4, 3, 2, 1, 0))
_M32, _M16, _M8, _M4, _M2, _M1 = (
    np.uint64(mask)
    for mask in (
        0x00000000FFFFFFFF,
        0x0000FFFF0000FFFF,
        0x00FF00FF00FF00FF,
        0x0F0F0F0F0F0F0F0F,
        0x3333333333333333,
        0x5555555555555555,
    )
)


def _memcpy(typing_context: Any, to: Any, to_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    """Emit ``memcpy`` of ``length`` bytes between two arrays at byte offsets, which numba does not offer.

    A byte loop costs ten times as much here, because LLVM does not know that the arrays do not overlap.
    """
    copy: Any = cgutils.raw_memcpy
    signature = types.void(to, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()

        def at(index: int) -> Any:
            array = context.make_array(signature.args[index])(context, builder, arguments[index])
            return builder.gep(builder.bitcast(array.data, byte_pointer), [arguments[index + 1]])

        copy(builder, at(0), at(2), arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


_copy: Any = intrinsic(_memcpy)


@kernel
def _swap(low: Any, high: Any, shift: Any, mask: Any) -> Any:
    """Exchange the upper bits of ``low`` with the lower bits of ``high``."""
    moved = ((low >> shift) ^ high) & mask
    return low ^ (moved << shift), high ^ moved


@kernel
def _transpose(tile: Any) -> None:
    """Transpose the 64 x 64 bit matrix in each of the eight lanes of ``tile`` (uint64[64 * 8]) in place.

    It is unrolled, because LLVM vectorises it only in this form. One function for both halves is nine times
    slower.
    """
    for at in range(BAND):
        a0 = tile[at]
        a1 = tile[at + BAND]
        a2 = tile[at + 2 * BAND]
        a3 = tile[at + 3 * BAND]
        a4 = tile[at + 4 * BAND]
        a5 = tile[at + 5 * BAND]
        a6 = tile[at + 6 * BAND]
        a7 = tile[at + 7 * BAND]
        a0, a4 = _swap(a0, a4, _S32, _M32)
        a1, a5 = _swap(a1, a5, _S32, _M32)
        a2, a6 = _swap(a2, a6, _S32, _M32)
        a3, a7 = _swap(a3, a7, _S32, _M32)
        a0, a2 = _swap(a0, a2, _S16, _M16)
        a1, a3 = _swap(a1, a3, _S16, _M16)
        a4, a6 = _swap(a4, a6, _S16, _M16)
        a5, a7 = _swap(a5, a7, _S16, _M16)
        a0, a1 = _swap(a0, a1, _S8, _M8)
        a2, a3 = _swap(a2, a3, _S8, _M8)
        a4, a5 = _swap(a4, a5, _S8, _M8)
        a6, a7 = _swap(a6, a7, _S8, _M8)
        tile[at] = a0
        tile[at + BAND] = a1
        tile[at + 2 * BAND] = a2
        tile[at + 3 * BAND] = a3
        tile[at + 4 * BAND] = a4
        tile[at + 5 * BAND] = a5
        tile[at + 6 * BAND] = a6
        tile[at + 7 * BAND] = a7
    for band in range(0, TILE, BAND):
        for at in range(band, band + ROW):
            a0 = tile[at]
            a1 = tile[at + ROW]
            a2 = tile[at + 2 * ROW]
            a3 = tile[at + 3 * ROW]
            a4 = tile[at + 4 * ROW]
            a5 = tile[at + 5 * ROW]
            a6 = tile[at + 6 * ROW]
            a7 = tile[at + 7 * ROW]
            a0, a4 = _swap(a0, a4, _S4, _M4)
            a1, a5 = _swap(a1, a5, _S4, _M4)
            a2, a6 = _swap(a2, a6, _S4, _M4)
            a3, a7 = _swap(a3, a7, _S4, _M4)
            a0, a2 = _swap(a0, a2, _S2, _M2)
            a1, a3 = _swap(a1, a3, _S2, _M2)
            a4, a6 = _swap(a4, a6, _S2, _M2)
            a5, a7 = _swap(a5, a7, _S2, _M2)
            a0, a1 = _swap(a0, a1, _S1, _M1)
            a2, a3 = _swap(a2, a3, _S1, _M1)
            a4, a5 = _swap(a4, a5, _S1, _M1)
            a6, a7 = _swap(a6, a7, _S1, _M1)
            tile[at] = a0
            tile[at + ROW] = a1
            tile[at + 2 * ROW] = a2
            tile[at + 3 * ROW] = a3
            tile[at + 4 * ROW] = a4
            tile[at + 5 * ROW] = a5
            tile[at + 6 * ROW] = a6
            tile[at + 7 * ROW] = a7


@kernel
def _copy_row(to: Any, to_at: int, source: Any, source_at: int, width: int) -> None:
    """Copy 1 to 64 bytes with two overlapping copies of a fixed length: a few instructions and no call."""
    if width >= 32:
        _copy(to, to_at, source, source_at, 32)
        _copy(to, to_at + width - 32, source, source_at + width - 32, 32)
    elif width >= 16:
        _copy(to, to_at, source, source_at, 16)
        _copy(to, to_at + width - 16, source, source_at + width - 16, 16)
    elif width >= 8:
        _copy(to, to_at, source, source_at, 8)
        _copy(to, to_at + width - 8, source, source_at + width - 8, 8)
    elif width >= 4:
        _copy(to, to_at, source, source_at, 4)
        _copy(to, to_at + width - 4, source, source_at + width - 4, 4)
    elif width >= 2:
        _copy(to, to_at, source, source_at, 2)
        _copy(to, to_at + width - 2, source, source_at + width - 2, 2)
    else:
        _copy(to, to_at, source, source_at, 1)


@kernel
def _place_of(word: int, lanes: int) -> int:
    """Return where a word's first lane begins in the tiles, if the word's filters take ``lanes`` of eight lanes."""
    return word * lanes // LANES * TILE + word * lanes % LANES


@kernel
def _lanes_of(count: int) -> int:
    """Return the lanes for each word of ``count`` filters. With 2 or 4 lanes, several words share a tile."""
    return 8 if count > 256 else (4 if count > 128 else 2)


@kernel
def slice_regions(words: Any, members: int, regions: int, out: Any, row_bytes: int, row_stride: int) -> None:
    """Write the bit rows of ``words`` (uint64[N * r * 4]) to ``out`` (uint8[r, >= 256 * row_stride]).

    Row b of region i starts at ``out[i, b * row_stride]`` and has ``row_bytes`` = ceil(N / 8) bytes. Bytes between
    rows are not written. Bits beyond N are 0.
    """
    tiles = np.zeros(WORDS * TILE, np.uint64)
    region_stride = out.shape[1]
    for chunk in range(0, regions, CHUNK):
        for first in range(0, members, MEMBERS):
            count = min(MEMBERS, members - first)
            width = min(MEMBERS >> 3, row_bytes - (first >> 3))
            lanes = _lanes_of(count)
            second, third, fourth = _place_of(1, lanes), _place_of(2, lanes), _place_of(3, lanes)
            for region in range(chunk, min(regions, chunk + CHUNK)):
                if count < MEMBERS:
                    tiles[:] = np.uint64(0)
                for member in range(count):
                    source = ((first + member) * regions + region) * WORDS
                    at = (member & 63) * LANES + (member >> 6)
                    tiles[at] = words[source]
                    tiles[second + at] = words[source + 1]
                    tiles[third + at] = words[source + 2]
                    tiles[fourth + at] = words[source + 3]
                for tile in range(0, fourth + 1, TILE):
                    _transpose(tiles[tile : tile + TILE])
                target = region * region_stride + (first >> 3)
                for word in range(WORDS):
                    source = _place_of(word, lanes) * 8
                    for row in range(64):
                        _copy_row(out, target, tiles, source + row * 64, width)
                        target += row_stride


@kernel
def unslice_regions(
    out: Any, members: int, regions: int, words: Any, row_bytes: int, row_stride: int
) -> None:
    """Fill ``words`` (uint64[N * r * 4]) from ``out`` (uint8[r, ...]), the inverse of :func:`slice_regions`."""
    tiles = np.zeros(WORDS * TILE, np.uint64)
    region_stride = out.shape[1]
    for chunk in range(0, regions, CHUNK):
        for first in range(0, members, MEMBERS):
            count = min(MEMBERS, members - first)
            width = min(MEMBERS >> 3, row_bytes - (first >> 3))
            lanes = _lanes_of(count)
            second, third, fourth = _place_of(1, lanes), _place_of(2, lanes), _place_of(3, lanes)
            for region in range(chunk, min(regions, chunk + CHUNK)):
                source = region * region_stride + (first >> 3)
                for word in range(WORDS):
                    target = _place_of(word, lanes) * 8
                    for row in range(64):
                        _copy_row(tiles, target + row * 64, out, source, width)
                        source += row_stride
                for tile in range(0, fourth + 1, TILE):
                    _transpose(tiles[tile : tile + TILE])
                for member in range(count):
                    target = ((first + member) * regions + region) * WORDS
                    at = (member & 63) * LANES + (member >> 6)
                    words[target] = tiles[at]
                    words[target + 1] = tiles[second + at]
                    words[target + 2] = tiles[third + at]
                    words[target + 3] = tiles[fourth + at]


def regions_from_blocks(
    blocks: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8], row_bytes: int, row_stride: int
) -> None:
    """Slice ``blocks`` (uint32[N, r, 8], contiguous) into ``out`` (uint8[r, >= 256 * row_stride], contiguous)."""
    members, regions = blocks.shape[:2]
    slice_regions(blocks.reshape(-1).view(np.uint64), members, regions, out, row_bytes, row_stride)


def blocks_from_regions(
    regions: npt.NDArray[np.uint8], members: int, row_bytes: int, row_stride: int
) -> npt.NDArray[np.uint32]:
    """Return the blocks uint32[N, r, 8] of ``regions`` (uint8[r, >= 256 * row_stride], contiguous)."""
    blocks = np.empty((members, regions.shape[0], 8), np.uint32)
    words = blocks.reshape(-1).view(np.uint64)
    unslice_regions(regions, members, regions.shape[0], words, row_bytes, row_stride)
    return blocks
