"""Read the page headers of ordinary dictionary-encoded data pages, and mark the indices that the pages use.

A page header is a Thrift structure (compact protocol): 1 type, 2 uncompressed_page_size, 3 compressed_page_size,
4 crc, and 5 DataPageHeader (1 num_values, 2 encoding, 3 and 4 encodings of definition and repetition levels, 5
statistics) or 8 DataPageHeaderV2 (1 num_values, 2 num_nulls, 3 num_rows, 4 encoding, 5 and 6 bytes of definition
and repetition levels, 7 is_compressed, 8 statistics).

Only the form that all writers use is understood: these fields, in rising order, 32-bit integers. Any other header ends
the walk before its page, and the caller decodes that page with the complete decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sidecar.kernels._jit import kernel
from sidecar.kernels.levels import histogram
from sidecar.kernels.rle import _little_endian, count_level, mark_used

# fmt: off
(TYPE, UNCOMPRESSED, COMPRESSED, CRC, NUM_VALUES, ENCODING, DEF_ENCODING, REP_ENCODING, DEF_LENGTH, REP_LENGTH,
 IS_COMPRESSED, BODY, WIDTH) = range(13)
# fmt: on
"""Columns of the table that :func:`walk_headers` fills. ``WIDTH`` is their number. ``BODY`` is an offset in
the data. A CRC is unsigned. Missing fields are ``ABSENT``."""

ABSENT = np.int64(-(1 << 40))

_RLE = 3
_INT32, _INT64, _BINARY, _STRUCT = 5, 6, 8, 12


@kernel
def _varint(data: Any, at: int, end: int, most: int) -> tuple[int, int]:
    """Return an unsigned varint of at most ``most`` bytes, and the offset after it (-1 if broken or longer)."""
    value = 0
    for i in range(most):
        if at + i >= end:
            return 0, -1
        byte = np.int64(data[at + i])
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    return 0, -1


@kernel
def _int32(data: Any, at: int, end: int) -> tuple[int, int]:
    raw, at = _varint(data, at, end, 5)
    if at < 0 or raw >> 32:
        return 0, -1
    return (raw >> 1) ^ -(raw & 1), at


@kernel
def _skip_statistics(data: Any, at: int, end: int) -> int:
    """Return the offset after a structure of booleans, integers and bytes; -1 for other structures."""
    while at < end:
        header = np.int64(data[at])
        at += 1
        if header == 0:
            return at
        kind = header & 15
        if header >> 4 == 0 or kind not in (1, 2, _INT32, _INT64, _BINARY):
            return -1
        if kind > 2:
            value, at = _varint(data, at, end, 9)
            if at < 0:
                return -1
            if kind == _BINARY:
                if value > end - at:
                    return -1
                at += value
    return -1


@kernel
def _data_header(data: Any, at: int, end: int, is_v2: bool, row: Any) -> int:
    """Fill ``row`` from a DataPageHeader or DataPageHeaderV2. Returns the offset after it, or -1."""
    field = 0
    while at < end:
        header = np.int64(data[at])
        at += 1
        if header == 0:
            return at
        kind = header & 15
        if header >> 4 == 0:
            return -1
        field += header >> 4
        if field == (8 if is_v2 else 5) and kind == _STRUCT:
            at = _skip_statistics(data, at, end)
            if at < 0:
                return -1
        elif is_v2 and field == 7 and kind in (1, 2):
            row[IS_COMPRESSED] = 1 if kind == 1 else 0
        elif kind == _INT32 and field <= (6 if is_v2 else 4):
            value, at = _int32(data, at, end)
            if at < 0:
                return -1
            if field == 1:
                row[NUM_VALUES] = value
            elif not is_v2:
                row[ENCODING if field == 2 else DEF_ENCODING if field == 3 else REP_ENCODING] = value
            elif field >= 4:
                row[ENCODING if field == 4 else DEF_LENGTH if field == 5 else REP_LENGTH] = value
        else:
            return -1
    return -1


@kernel
def _page_header(data: Any, at: int, end: int, row: Any) -> int:
    """Fill ``row`` from the page header at ``at``. Returns the offset after it, or -1 if it is not ordinary."""
    row[:] = ABSENT
    field = 0
    detail = 0
    while True:
        if at >= end:
            return -1
        header = np.int64(data[at])
        at += 1
        if header == 0:
            break
        kind = header & 15
        if header >> 4 == 0:
            return -1
        field += header >> 4
        if kind == _INT32 and field <= 4:
            value, at = _int32(data, at, end)
            row[field - 1 if field in (1, 2) else COMPRESSED if field == 3 else CRC] = value
        elif kind == _STRUCT and field in (5, 8) and detail == 0:
            detail = field
            at = _data_header(data, at, end, field == 8, row)
        else:
            return -1
        if at < 0:
            return -1
    if row[CRC] != ABSENT:
        row[CRC] &= 0xFFFFFFFF
    row[BODY] = at
    return at if detail == (8 if row[TYPE] == 3 else 5) and row[TYPE] in (0, 3) else -1


@kernel
def _is_ordinary(row: Any, max_def: int, max_rep: int) -> bool:
    """Return whether a data page's numbers are present and possible, and its encodings need no rare decoder."""
    if min(row[UNCOMPRESSED], row[COMPRESSED]) < 0 or row[NUM_VALUES] <= 0:
        return False
    if row[ENCODING] != 2 and row[ENCODING] != 8:
        return False
    if row[TYPE] == 3:
        levels = row[DEF_LENGTH] + row[REP_LENGTH]
        if min(row[DEF_LENGTH], row[REP_LENGTH]) < 0:
            return False
        return bool(levels <= min(row[UNCOMPRESSED], row[COMPRESSED]))
    if min(row[DEF_ENCODING], row[REP_ENCODING]) < 0:
        return False
    return bool((max_def == 0 or row[DEF_ENCODING] == _RLE) and (max_rep == 0 or row[REP_ENCODING] == _RLE))


@kernel
def walk_headers(data: Any, at: int, max_def: int, max_rep: int, budget: int, table: Any) -> int:
    """Fill ``table`` (int64[n, WIDTH]) with the pages from ``at`` that are completely in ``data``. Returns how many.

    Ends at the first page that is not an ordinary page of indices, and before the uncompressed sizes of the pages
    exceed ``budget`` bytes.
    """
    end = len(data)
    for page in range(len(table)):
        row = table[page]
        body = _page_header(data, at, end, row)
        if body < 0 or not _is_ordinary(row, max_def, max_rep):
            return page
        budget -= row[UNCOMPRESSED]
        at = body + row[COMPRESSED]
        if at > end or budget < 0:
            return page
    return len(table)


@kernel
def _count_highest(data: Any, words: Any, at: int, end: int, highest: int, count: int) -> int:
    """Return how many of ``count`` levels equal ``highest``; negative if they end early or one is too high."""
    if highest == 0:
        return count
    width = 0
    while highest >> width:
        width += 1
    if highest == (1 << width) - 1:  # no level of that width can be too high
        return count_level(data, at, end, width, count, highest)
    out = np.zeros(highest + 1, np.int64)
    status = histogram(data, words, at, end, width, count, out)
    return status if status < 0 else out[highest]


@kernel
def mark_pages(data: Any, words: Any, starts: Any, table: Any, max_def: int, max_rep: int, used: Any) -> int:
    """Set ``used[i]`` (bool[n]) for each index i in the pages. Returns how many pages are sound before a bad one.

    Page p is ``data[starts[p] : starts[p + 1]]``, decompressed, with its levels first. ``words`` is
    :func:`sidecar.kernels.rle.unaligned_words` of ``data``. A bad page may have marked some indices.
    """
    for page in range(len(starts) - 1):
        row = table[page]
        at, end, count = starts[page], starts[page + 1], row[NUM_VALUES]
        if row[TYPE] == 3:
            levels = at + row[REP_LENGTH]
            sound = _count_highest(data, words, at, levels, max_rep, count) >= 0
            at = levels + row[DEF_LENGTH]
            count = _count_highest(data, words, levels, at, max_def, count) if sound else -1
        else:
            entries = count
            for highest in (max_rep, max_def):
                if highest == 0:
                    continue
                if at + 4 > end:
                    return page
                levels = at + 4
                at = levels + _little_endian(data, at, 4)
                if at > end:
                    return page
                count = _count_highest(data, words, levels, at, highest, entries)
                if count < 0:
                    return page
        if count == 0:
            continue
        if count < 0 or at >= end or data[at] > 32 or len(used) == 0:
            return page
        width = np.int64(data[at])
        if width == 0:
            used[0] = True
        elif mark_used(data, words, at + 1, end, width, count, used) < 0:
            return page
    return len(starts) - 1
