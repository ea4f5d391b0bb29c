"""Reads many data pages of dictionary indices at once, with compiled loops over headers and indices.

A chunk of a million rows has some fifty pages, and in Python a page costs more than its indices. So all ordinary pages
in the current window are read together. The first page that is not ordinary (an unknown field, a rare encoding, a
wrong checksum, an index beyond the dictionary) is left to the full decoder, which reports what is wrong.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from sidecar.errors import SidecarError
from sidecar.kernels import page_headers as columns
from sidecar.kernels.rle import unaligned_words
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.pages import DATA_PAGE_V2, ChunkReader

MAX_BYTES = 8 << 20
"""Decompressed bytes of the pages that are read together, at most."""

Table = npt.NDArray[np.int64]


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
    table = table[: len(parts)]
    if not parts:
        return 0, offset
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    joined = np.frombuffer(b"".join(parts), np.uint8)
    words = unaligned_words(joined)
    marks = used.copy()
    sound = columns.mark_pages(joined, words, starts, table, leaf.max_def, leaf.max_rep, marks)
    if sound < len(parts):  # start over, to undo the marks of the page that is not sound
        marks = used.copy()
        columns.mark_pages(joined, words, starts[: sound + 1], table, leaf.max_def, leaf.max_rep, marks)
    if not sound:
        return 0, offset
    used[:] = marks
    end = table[sound - 1, columns.BODY] + table[sound - 1, columns.COMPRESSED]
    return int(table[:sound, columns.NUM_VALUES].sum()), offset + int(end)


def _decompressed(data: memoryview, table: Table, codec: str) -> list[bytes]:
    """Decompress the bodies of the pages, levels first, up to the first page that fails."""
    parts: list[bytes] = []
    for row in table.tolist():
        start, size = row[columns.BODY], row[columns.UNCOMPRESSED]
        body = data[start : start + row[columns.COMPRESSED]]
        if row[columns.CRC] != columns.ABSENT and zlib.crc32(body) != row[columns.CRC]:
            break
        try:
            if row[columns.TYPE] != DATA_PAGE_V2:
                parts.append(decompress(codec, bytes(body), size))
                continue
            levels = row[columns.DEF_LENGTH] + row[columns.REP_LENGTH]
            codec_of_page = codec if row[columns.IS_COMPRESSED] != 0 else "UNCOMPRESSED"
            parts.append(
                bytes(body[:levels]) + decompress(codec_of_page, bytes(body[levels:]), size - levels)
            )
        except SidecarError:
            break
    return parts
