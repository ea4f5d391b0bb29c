"""Transposes bit matrices between filters and bit rows.

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
from numba import types

from sidecar.kernels._jit import INTEGER, helper, kernel, readable, writable
from sidecar.kernels._tile import LANES as VECTOR
from sidecar.kernels._tile import copy, exchange, fetch_to_write, gathered

LANES = 8
"""64-bit lanes of a tile; each transposes a matrix of its own."""
MEMBERS = 64 * LANES
"""Filters that go through the tiles together."""
TILE = 64 * LANES
"""64-bit words in a tile."""
ROW = LANES
"""Words of one row of a tile."""
BAND = 8 * LANES
"""Words of eight rows of a tile: three steps of the transposition exchange bits between bands, three inside of one."""
WORDS = 4
"""64-bit words in a block."""
CHUNK = 8
"""Regions that are processed together, so that their rows stay in the second-level cache from tile to tile."""

AHEAD = CHUNK // 2 * WORDS
"""Words after a block that is read whose cache line is fetched."""
FAR = 256
"""Bytes between rows from which their cache lines are fetched before they are written: no stream shows them."""

TILES = writable(types.uint64)

_exchange_far: Any = exchange(BAND, 32)
_exchange_near: Any = exchange(ROW, 4)
_gather8: Any = gathered(8, AHEAD)
_gather4: Any = gathered(4, AHEAD)
_gather2: Any = gathered(2, AHEAD)


@helper
def _transpose(tiles: Any, tile: int) -> None:
    """Transpose in place the 64 x 64 bit matrix in each of the eight lanes of the tile that begins at word ``tile``."""
    for at in range(tile, tile + BAND, VECTOR):
        _exchange_far(tiles, at)
    for band in range(tile, tile + TILE, BAND):
        for at in range(band, band + ROW, VECTOR):
            _exchange_near(tiles, at)


@helper
def _copy_row(to: Any, to_at: int, source: Any, source_at: int, width: int) -> None:
    """Copy 1 to 64 bytes with two overlapping copies of a fixed length: a few instructions and no call."""
    if width >= 32:
        copy(to, to_at, source, source_at, 32)
        copy(to, to_at + width - 32, source, source_at + width - 32, 32)
    elif width >= 16:
        copy(to, to_at, source, source_at, 16)
        copy(to, to_at + width - 16, source, source_at + width - 16, 16)
    elif width >= 8:
        copy(to, to_at, source, source_at, 8)
        copy(to, to_at + width - 8, source, source_at + width - 8, 8)
    elif width >= 4:
        copy(to, to_at, source, source_at, 4)
        copy(to, to_at + width - 4, source, source_at + width - 4, 4)
    elif width >= 2:
        copy(to, to_at, source, source_at, 2)
        copy(to, to_at + width - 2, source, source_at + width - 2, 2)
    else:
        copy(to, to_at, source, source_at, 1)


@helper
def _place_of(word: int, lanes: int) -> int:
    """Return where a word's first lane begins in the tiles, if the word's filters take ``lanes`` of eight lanes."""
    return word * lanes // LANES * TILE + word * lanes % LANES


@helper
def _lanes_of(count: int) -> int:
    """Return the lanes for each word of ``count`` filters. With 2 or 4 lanes, several words share a tile."""
    return 8 if count > 256 else (4 if count > 128 else 2)


@kernel(readable(types.uint64), INTEGER, INTEGER, writable(types.uint8, 2), INTEGER, INTEGER, TILES)
def slice_regions(
    words: Any, members: int, regions: int, out: Any, row_bytes: int, row_stride: int, tiles: Any
) -> None:
    """Write the bit rows of ``words`` (uint64[N * r * 4]) to ``out`` (uint8[r, >= 256 * row_stride]).

    Row b of region i starts at ``out[i, b * row_stride]`` and has ``row_bytes`` = ceil(N / 8) bytes. Bytes between
    rows are not written. Bits beyond N are 0. ``tiles`` (uint64[WORDS * TILE]) is memory for the work.
    """
    region_stride, stride = out.shape[1], regions * WORDS
    for chunk in range(0, regions, CHUNK):
        for first in range(0, members, MEMBERS):
            count = min(MEMBERS, members - first)
            width = min(MEMBERS >> 3, row_bytes - (first >> 3))
            lanes = _lanes_of(count)
            for region in range(chunk, min(regions, chunk + CHUNK)):
                source = (first * regions + region) * WORDS
                target = region * region_stride + (first >> 3)
                for row in range(64):
                    for word in range(WORDS if row_stride >= FAR else 0):
                        fetch_to_write(out, target + (word * 64 + row) * row_stride + width - 1)
                    if lanes == 8:
                        _gather8(tiles, row * ROW, words, source, stride << 6, count - row)
                    elif lanes == 4:
                        _gather4(tiles, row * ROW, words, source, stride << 6, count - row)
                    else:
                        _gather2(tiles, row * ROW, words, source, stride << 6, count - row)
                    source += stride
                for tile in range(0, lanes // 2 * TILE, TILE):
                    _transpose(tiles, tile)
                for word in range(WORDS):
                    source = _place_of(word, lanes) * 8
                    for row in range(64):
                        _copy_row(out, target, tiles, source + row * 64, width)
                        target += row_stride


@kernel(readable(types.uint8, 2), INTEGER, INTEGER, writable(types.uint64), INTEGER, INTEGER, TILES)
def unslice_regions(
    out: Any, members: int, regions: int, words: Any, row_bytes: int, row_stride: int, tiles: Any
) -> None:
    """Fill ``words`` (uint64[N * r * 4]) from ``out`` (uint8[r, ...]), the inverse of :func:`slice_regions`."""
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
                    _transpose(tiles, tile)
                for member in range(count):
                    target = ((first + member) * regions + region) * WORDS
                    at = (member & 63) * LANES + (member >> 6)
                    words[target] = tiles[at]
                    words[target + 1] = tiles[second + at]
                    words[target + 2] = tiles[third + at]
                    words[target + 3] = tiles[fourth + at]


def _empty_tiles() -> npt.NDArray[np.uint64]:
    return np.zeros(WORDS * TILE, np.uint64)


def regions_from_blocks(
    blocks: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8], row_bytes: int, row_stride: int
) -> None:
    """Slice ``blocks`` (uint32[N, r, 8], contiguous) into ``out`` (uint8[r, >= 256 * row_stride], contiguous)."""
    members, regions = blocks.shape[:2]
    words = blocks.reshape(-1).view(np.uint64)
    slice_regions(words, members, regions, out, row_bytes, row_stride, _empty_tiles())


def blocks_from_regions(
    regions: npt.NDArray[np.uint8], members: int, row_bytes: int, row_stride: int
) -> npt.NDArray[np.uint32]:
    """Return the blocks uint32[N, r, 8] of ``regions`` (uint8[r, >= 256 * row_stride], contiguous)."""
    blocks = np.empty((members, regions.shape[0], 8), np.uint32)
    words = blocks.reshape(-1).view(np.uint64)
    unslice_regions(regions, members, regions.shape[0], words, row_bytes, row_stride, _empty_tiles())
    return blocks
