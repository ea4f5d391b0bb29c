"""Rewrites pages whose levels are BIT_PACKED, an old encoding that pyarrow decodes to wrong levels.

Such a page becomes a DATA_PAGE_V2 with the same levels as one bit-packed run of the RLE hybrid, and with the same
values, uncompressed. BIT_PACKED fills bytes from their highest bit on, the RLE hybrid from their lowest. Specification:
"Bit-packed (Deprecated)" and "Run Length Encoding / Bit-Packing Hybrid".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.pages import BIT_PACKED, DATA_PAGE_V2, PageHeader, has_bit_packed_levels
from sidecar.parquet.thrift import BOOL, I32, STRUCT, Struct, encode_struct

Levels = npt.NDArray[np.uint8]
"""The bits of levels, one level a row, the highest bit first: uint8[n, width]."""


def with_rle_levels(chunk: ColumnChunk, page: PageHeader, raw: bytes | memoryview) -> bytes | memoryview:
    """Return a page of ``chunk``, header included, that pyarrow decodes; ``raw`` itself if its levels are not packed.

    Raises :class:`DamagedFileError` if the levels are longer than the page.
    """
    leaf = chunk.leaf
    if not has_bit_packed_levels(leaf, page):
        return raw
    stored = bytes(raw[page.header_length : page.header_length + page.compressed_size])
    body = decompress(chunk.codec, stored, page.uncompressed_size)
    repetition, at = _levels(body, 0, page.num_values, page.rep_encoding, leaf.max_rep)
    definition, at = _levels(body, at, page.num_values, page.def_encoding, leaf.max_def)
    packed = [levels if isinstance(levels, bytes) else _rle(levels) for levels in (repetition, definition)]
    return _page_v2(page, *_counts(chunk, page, stored), packed, bytes(body[at:]))


def _counts(chunk: ColumnChunk, page: PageHeader, stored: bytes) -> tuple[int, int]:
    """Return the nulls and the rows of a page."""
    from sidecar.parquet.levels import open_page  # loads compiled code, which few scans need

    levels, _ = open_page(chunk.codec, page, stored, chunk.leaf)
    return levels.num_nulls, levels.rows


def _levels(body: bytes | memoryview, at: int, count: int, encoding: int, highest: int) -> tuple[Levels | bytes, int]:
    """Return the levels at ``at`` and the offset after them: bits, or the bytes of levels that are RLE already."""
    if not highest:
        return b"", at
    if encoding != BIT_PACKED:
        start = at + 4
        end = start + int.from_bytes(body[at:start], "little")
        levels: Levels | bytes = bytes(body[start:end])
    else:
        width = highest.bit_length()
        end = at + (count * width + 7) // 8
        bits = np.unpackbits(np.frombuffer(bytes(body[at:end]), np.uint8))[: count * width]
        levels = bits.reshape(-1, width) if len(bits) == count * width else bits
    if end > len(body):
        raise DamagedFileError("the levels of a page are longer than the page", found=end - at)
    return levels, end


def _page_v2(page: PageHeader, nulls: int, rows: int, levels: Sequence[bytes], values: bytes) -> bytes:
    body = b"".join((*levels, values))
    detail = Struct(
        {
            1: (I32, page.num_values),
            2: (I32, nulls),
            3: (I32, rows),
            4: (I32, page.encoding),
            5: (I32, len(levels[1])),
            6: (I32, len(levels[0])),
            7: (BOOL, False),
        }
    )
    header = Struct({1: (I32, DATA_PAGE_V2), 2: (I32, len(body)), 3: (I32, len(body)), 8: (STRUCT, detail)})
    return encode_struct(header) + body


def _rle(levels: Levels) -> bytes:
    """Return levels as one bit-packed run: the number of groups of eight levels, then the groups, lowest bit first."""
    groups = -(-len(levels) // 8)
    padded = np.zeros((groups * 8, levels.shape[1]), np.uint8)
    padded[: len(levels)] = levels[:, ::-1]
    return _varint(groups << 1 | 1) + np.packbits(padded.reshape(-1), bitorder="little").tobytes()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
