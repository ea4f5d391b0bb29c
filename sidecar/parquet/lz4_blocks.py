"""Rewrites pages whose Hadoop frames of LZ4 have several blocks, which pyarrow does not read.

Hadoop cuts what it compresses into blocks of 256 KiB by default. All blocks of a frame follow one size. Here each
block becomes a frame of its own, which pyarrow reads. The blocks are copied.
"""

from __future__ import annotations

from sidecar.parquet.compression import one_block_a_frame
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.pages import DATA_PAGE_V2, PageHeader
from sidecar.parquet.thrift import I32, decode_struct, encode_struct

_COMPRESSED_SIZE, _CRC = 3, 4  # fields of PageHeader


def with_single_blocks(chunk: ColumnChunk, page: PageHeader, raw: bytes | memoryview) -> bytes | memoryview:
    """Return a page of ``chunk``, header included, that pyarrow can decompress; ``raw`` itself if it can be already."""
    if chunk.codec != "LZ4" or not page.is_compressed:
        return raw
    levels = page.def_length + page.rep_length if page.type == DATA_PAGE_V2 else 0  # these are not compressed
    stored = memoryview(raw)[page.header_length : page.header_length + page.compressed_size]
    frames = one_block_a_frame(stored[levels:], page.uncompressed_size - levels)
    if frames is None:
        return raw
    header, _ = decode_struct(bytes(raw[: page.header_length]))
    header.fields.pop(_CRC, None)  # it was verified when the page was read
    header.fields[_COMPRESSED_SIZE] = (I32, levels + len(frames))
    return b"".join((encode_struct(header), stored[:levels], frames))
