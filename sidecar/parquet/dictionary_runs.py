"""Reads many data pages of dictionary indices at once, with compiled loops over headers, levels and indices.

A chunk of a million rows has some fifty pages, and the full decoder takes longer for a page than for its indices. So
all ordinary pages in the current window are read together. The first page that is not ordinary (an unknown field, a
rare encoding, a wrong checksum, an index beyond the dictionary) is left to the full decoder, which reports what is
wrong.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from sidecar.errors import SidecarError
from sidecar.filters.arrays import Bytes
from sidecar.filters.leaf import Leaf
from sidecar.kernels import page_headers as columns
from sidecar.kernels import rle
from sidecar.kernels.levels import histogram
from sidecar.kernels.rle import unaligned_words
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.pages import DATA_PAGE_V2, ChunkReader

MAX_BYTES = 8 << 20
"""Decompressed bytes of the pages that are read together, at most."""

WordTable = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Marks = npt.NDArray[np.bool_]


def mark_index_pages(
    reader: ChunkReader, offset: int, chunk: ColumnChunk, used: npt.NDArray[np.bool_], most: int
) -> tuple[int, int]:
    """Mark in ``used`` the entries that the next pages use, at most ``most`` pages from ``offset`` in the file.

    Returns the number of the pages' values, nulls included, and the offset after them. It is ``(0, offset)`` if the
    first page needs the full decoder.
    """
    data = reader.window(offset)
    leaf = chunk.leaf
    table = np.empty((most, columns.WIDTH), np.int64)
    bytes_ = np.frombuffer(data, np.uint8)
    table = table[: columns.walk_headers(bytes_, 0, leaf.max_def, leaf.max_rep, MAX_BYTES, table)]
    parts = _decompressed(data, table, chunk.codec)
    marks = used.copy()
    sound = _mark_all(parts, table, leaf, marks)
    if sound < len(parts):  # start over, to undo the marks of the page that is not sound
        marks = used.copy()
        _mark_all(parts[:sound], table, leaf, marks)
    if not sound:
        return 0, offset
    used[:] = marks
    end = table[sound - 1, columns.BODY] + table[sound - 1, columns.COMPRESSED]
    return int(table[:sound, columns.NUM_VALUES].sum()), offset + int(end)


def _decompressed(data: memoryview, table: WordTable, codec: str) -> list[bytes]:
    """Decompress the bodies of the pages, levels first, up to the first page that fails."""
    parts: list[bytes] = []
    for row in table.tolist():
        start, size = row[columns.BODY], row[columns.UNCOMPRESSED]
        body = data[start : start + row[columns.COMPRESSED]]
        if row[columns.CRC] != columns.ABSENT and zlib.crc32(body) != row[columns.CRC]:
            break
        try:
            if row[columns.TYPE] != DATA_PAGE_V2:
                parts.append(decompress(codec, body, size))
                continue
            levels = row[columns.DEF_LENGTH] + row[columns.REP_LENGTH]
            codec_of_page = codec if row[columns.IS_COMPRESSED] != 0 else "UNCOMPRESSED"
            parts.append(bytes(body[:levels]) + decompress(codec_of_page, body[levels:], size - levels))
        except SidecarError:
            break
    return parts


def _mark_all(parts: list[bytes], table: WordTable, leaf: Leaf, used: Marks) -> int:
    """Set ``used`` for each index in the decompressed pages. Returns how many pages are sound before a bad one.

    A bad page may have marked some indices.
    """
    for number, (part, row) in enumerate(zip(parts, table.tolist(), strict=False)):
        if not _mark_page(np.frombuffer(part, np.uint8), row, leaf, used):
            return number
    return len(parts)


def _mark_page(data: Bytes, row: list[int], leaf: Leaf, used: Marks) -> bool:
    """Set ``used`` for each index in a page, whose levels come first. Returns False for a bad page."""
    words = unaligned_words(data)
    at, count = (_levels_v2 if row[columns.TYPE] == DATA_PAGE_V2 else _levels_v1)(data, words, row, leaf)
    if count == 0:
        return True
    if count < 0 or at >= len(data) or data[at] > 32 or not len(used):
        return False
    width = int(data[at])
    if width == 0:
        used[0] = True
        return True
    return rle.mark_used(data, words, at + 1, len(data), width, count, used) >= 0


def _levels_v1(data: Bytes, words: Words, row: list[int], leaf: Leaf) -> tuple[int, int]:
    """Return where the levels end, and how many values are not null; -1 if the levels are damaged."""
    at, entries = 0, row[columns.NUM_VALUES]
    count = entries
    for highest in (leaf.max_rep, leaf.max_def):
        if highest == 0:
            continue
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin].tobytes(), "little")
        count = _count_highest(data, words, begin, at, highest, entries) if at <= len(data) else -1
        if count < 0:
            break
    return at, count


def _levels_v2(data: Bytes, words: Words, row: list[int], leaf: Leaf) -> tuple[int, int]:
    """Return where the levels end, and how many values are not null; -1 if the levels are damaged."""
    begin, entries = row[columns.REP_LENGTH], row[columns.NUM_VALUES]
    at = begin + row[columns.DEF_LENGTH]
    if _count_highest(data, words, 0, begin, leaf.max_rep, entries) < 0:
        return at, -1
    return at, _count_highest(data, words, begin, at, leaf.max_def, entries)


def _count_highest(data: Bytes, words: Words, at: int, end: int, highest: int, count: int) -> int:
    """Return how many of ``count`` levels equal ``highest``; negative if they end early or one is too high."""
    if highest == 0:
        return count
    width = highest.bit_length()
    if highest == (1 << width) - 1:  # no level of that width can be too high
        return rle.count_level(data, at, end, width, count, highest)
    out = np.zeros(highest + 1, np.int64)
    status = histogram(data, words, at, end, width, count, out)
    return status if status < 0 else int(out[highest])
