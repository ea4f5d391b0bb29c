"""Decodes the values of data pages with pyarrow, from a Parquet file of one column that is made in memory.

The column is REQUIRED and has only a physical type. So the file has no levels, nulls, nesting or logical types, and
pyarrow decodes the values as they are stored. Each page is an uncompressed DATA_PAGE with its original encoding. INT96
is declared as FIXED_LEN_BYTE_ARRAY(12), whose PLAIN bytes are the same, because pyarrow would turn it into timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, undecodable
from sidecar.filters.leaf import Leaf
from sidecar.parquet.pages import DATA_PAGE, RLE
from sidecar.parquet.schema import PHYSICAL
from sidecar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, encode_struct

_MAGIC = b"PAR1"
_MOST = 1 << 30  # bytes of all values; an Arrow array of binary has 32-bit offsets


def decode_pages(leaf: Leaf, pages: Sequence[tuple[int, int, bytes | memoryview]]) -> pa.Array[Any]:
    """Decode pages, given as (encoding, number of values, encoded bytes), into one array without nulls.

    Its type is bool, int32, int64, float, double, binary or fixed-size binary. Raises :class:`DamagedFileError` if
    pyarrow cannot decode the pages, and :class:`UnsupportedFeatureError` if it does not support the encoding.
    """
    expected = sum(count for _, count, _ in pages)
    try:
        with pq.ParquetFile(pa.BufferReader(encode_file(leaf, pages))) as file:
            column = file.read(use_threads=False).column(0)
        if column.nbytes > _MOST:
            raise UnsupportedFeatureError("the values of the pages are too large", found=column.nbytes)
        values: pa.Array[Any] = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise undecodable("pyarrow cannot decode the values", error) from error
    if len(values) != expected:
        raise DamagedFileError("a page has too few values", expected=expected, found=len(values))
    return values


def encode_file(leaf: Leaf, pages: Sequence[tuple[int, int, bytes | memoryview]]) -> bytes:
    """Return the bytes of a Parquet file that has the pages as its only column chunk."""
    parts: list[bytes | memoryview] = [_MAGIC]
    for encoding, count, data in pages:
        parts += [encode_struct(_page_header(encoding, count, len(data))), data]
    length = sum(map(len, parts)) - len(_MAGIC)
    footer = encode_struct(_footer(leaf, {p[0] for p in pages}, sum(p[1] for p in pages), length))
    return b"".join([*parts, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _page_header(encoding: int, count: int, length: int) -> Struct:
    data = Struct({1: (I32, count), 2: (I32, encoding), 3: (I32, RLE), 4: (I32, RLE)})
    return Struct({1: (I32, DATA_PAGE), 2: (I32, length), 3: (I32, length), 5: (STRUCT, data)})


def _footer(leaf: Leaf, encodings: set[int], count: int, length: int) -> Struct:
    physical, width = leaf.physical, leaf.type_length
    if physical == "INT96":
        physical, width = "FIXED_LEN_BYTE_ARRAY", 12
    number = (I32, PHYSICAL.index(physical))
    column = Struct({1: number, 3: (I32, 0), 4: (BINARY, b"v")})
    if width is not None:
        column = Struct({1: number, 2: (I32, width), 3: (I32, 0), 4: (BINARY, b"v")})
    root = Struct({4: (BINARY, b"root"), 5: (I32, 1)})
    meta = Struct(
        {
            1: number,
            2: (LIST, Items(I32, sorted(encodings))),
            3: (LIST, Items(BINARY, [b"v"])),
            4: (I32, 0),
            5: (I64, count),
            6: (I64, length),
            7: (I64, length),
            9: (I64, len(_MAGIC)),
        }
    )
    chunk = Struct({2: (I64, 0), 3: (STRUCT, meta)})
    group = Struct({1: (LIST, Items(STRUCT, [chunk])), 2: (I64, length), 3: (I64, count)})
    return Struct(
        {
            1: (I32, 1),
            2: (LIST, Items(STRUCT, [root, column])),
            3: (I64, count),
            4: (LIST, Items(STRUCT, [group])),
        }
    )
