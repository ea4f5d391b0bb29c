"""Reads the page headers of ordinary dictionary-encoded data pages, and marks the indices that the pages use.

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
import numpy.typing as npt
from numba import types

from sidecar.kernels._jit import INTEGER, kernel, readable, writable
from sidecar.kernels.rle import DATA

# fmt: off
(TYPE, UNCOMPRESSED, COMPRESSED, CRC, NUM_VALUES, ENCODING, DEF_ENCODING, REP_ENCODING, DEF_LENGTH, REP_LENGTH,
 IS_COMPRESSED, BODY, UNUSED, WIDTH) = range(14)
# fmt: on
"""Columns of the table that :func:`walk_headers` fills. ``WIDTH`` is their number. ``BODY`` is an offset in
the data. A CRC is unsigned. Missing fields are ``ABSENT``."""

ABSENT = np.int64(-(1 << 40))

_RLE, _DICTIONARIES = 3, (2, 8)
_NO_COLUMN = -1
_PAGE, _V1, _V2, _STATISTICS = range(4)
_FALSE, _INT32, _INT64, _BINARY, _STRUCT = 2, 5, 6, 8, 12
_NUMBERS = 1 << _INT32 | 1 << _INT64 | 1 << _BINARY
"""Bits of the kinds of fields that begin with a number."""
_IN_V1, _IN_V2, _STATISTICS_V1, _STATISTICS_V2, _V2_COMPRESSED = 5, 8, 5, 8, 7


def _columns() -> npt.NDArray[np.int64]:
    """Return the column of each 32-bit integer, by structure and field: int64[3, 9]."""
    columns = np.full((3, 9), _NO_COLUMN, np.int64)
    columns[_PAGE, 1:5] = TYPE, UNCOMPRESSED, COMPRESSED, CRC
    columns[_V1, 1:5] = NUM_VALUES, ENCODING, DEF_ENCODING, REP_ENCODING
    columns[_V2, 1:7] = NUM_VALUES, UNUSED, UNUSED, ENCODING, DEF_LENGTH, REP_LENGTH
    return columns


_COLUMNS = _columns()


@kernel(DATA, INTEGER, INTEGER, readable(types.int64, 2), writable(types.int64, 2))
def _walk(data: Any, at: int, budget: int, columns: Any, table: Any) -> int:
    """Fill ``table`` as :func:`walk_headers` does, with pages of any encoding."""
    end = len(data)
    for page in range(len(table)):
        for column in range(table.shape[1]):
            table[page, column] = ABSENT
        part = _PAGE  # the structure at hand
        body = _PAGE  # the page's own structure, once it has begun
        field = 0
        while True:
            if at >= end:
                return page
            header = np.int64(data[at])
            at += 1
            if header == 0:  # a structure ends: the one around it goes on
                if part == _PAGE:
                    break
                if part == _STATISTICS:
                    part = body
                    field = _STATISTICS_V1 if part == _V1 else _STATISTICS_V2
                else:
                    field = _IN_V1 if part == _V1 else _IN_V2
                    part = _PAGE
                continue
            kind = header & 15
            field += header >> 4
            if header < 16:
                return page
            if kind == _STRUCT:
                if part == _PAGE and body == _PAGE and field == _IN_V1:
                    part = body = _V1
                elif part == _PAGE and body == _PAGE and field == _IN_V2:
                    part = body = _V2
                elif (part == _V1 and field == _STATISTICS_V1) or (part == _V2 and field == _STATISTICS_V2):
                    part = _STATISTICS  # a structure in it, which no writer has, is not ordinary
                else:
                    return page
                field = 0
                continue
            if kind == 1 or kind == 2:  # true, false
                if part == _V2 and field == _V2_COMPRESSED:
                    table[page, IS_COMPRESSED] = _FALSE - kind
                elif part != _STATISTICS:
                    return page
                continue
            if not (_NUMBERS >> kind) & 1 or (part != _STATISTICS and kind != _INT32):
                return page
            value = 0
            shift = 0
            most = 63 if part == _STATISTICS else 35
            while True:
                if at >= end or shift == most:
                    return page
                byte = np.int64(data[at])
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            if part == _STATISTICS:
                if kind == _BINARY:
                    if value > end - at:
                        return page
                    at += value
                continue
            if field >= columns.shape[1] or value >> 32:
                return page
            column = columns[part, field]
            if column < 0:
                return page
            table[page, column] = (value >> 1) ^ -(value & 1)
        if table[page, CRC] != ABSENT:
            table[page, CRC] &= 0xFFFFFFFF
        table[page, BODY] = at
        uncompressed, compressed = table[page, UNCOMPRESSED], table[page, COMPRESSED]
        if uncompressed < 0 or compressed < 0 or body != (_V2 if table[page, TYPE] == 3 else _V1):
            return page
        budget -= uncompressed
        at += compressed
        if at > end or budget < 0:
            return page
    return len(table)


def walk_headers(
    data: npt.NDArray[np.uint8],
    at: int,
    max_def: int,
    max_rep: int,
    budget: int,
    table: npt.NDArray[np.int64],
) -> int:
    """Fill ``table`` (int64[n, WIDTH]) with the pages from ``at`` that are completely in ``data``. Returns how many.

    Ends at the first page that is not an ordinary page of indices, and before the uncompressed sizes of the pages
    exceed ``budget`` bytes.
    """
    count: int = _walk(data, at, budget, _COLUMNS, table)
    for page, row in enumerate(table[:count].tolist()):
        if not _is_ordinary(row, max_def, max_rep):
            return page
    return count


def _is_ordinary(row: list[int], max_def: int, max_rep: int) -> bool:
    """Return whether a data page's numbers are present and possible, and its encodings need no rare decoder."""
    if row[TYPE] not in (0, 3) or row[NUM_VALUES] <= 0 or row[ENCODING] not in _DICTIONARIES:
        return False
    if row[TYPE] == 3:
        lengths = row[DEF_LENGTH], row[REP_LENGTH]
        return min(lengths) >= 0 and sum(lengths) <= min(row[UNCOMPRESSED], row[COMPRESSED])
    if min(row[DEF_ENCODING], row[REP_ENCODING]) < 0:
        return False
    return (max_def == 0 or row[DEF_ENCODING] == _RLE) and (max_rep == 0 or row[REP_ENCODING] == _RLE)
