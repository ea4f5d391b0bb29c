"""Parquet files whose levels are BIT_PACKED, as no present writer writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.parquet.footer import read_footer
from sidecar.parquet.pages import BIT_PACKED, walk_pages
from sidecar.parquet.thrift import I32, STRUCT, Struct
from sidecar.storage.source import BytesSource
from tests.parquet.false_statements import written
from tests.parquet.page_files import CODECS, rewrite

ROWS = 1500


def rows() -> pa.Table:
    lists = [None if n % 7 == 0 else [None if j == 2 else n + j for j in range(n % 5)] for n in range(ROWS)]
    return pa.table(
        {
            "a": pa.array([None if n * 7919 % 10 < 3 else n for n in range(ROWS)], pa.int64()),
            "s": [None if n % 3 == 0 else f"word {n % 50}" for n in range(ROWS)],
            "l": pa.array(lists, pa.list_(pa.int64())),
            "t": [None if n % 4 == 0 else {"x": None if n % 3 else n} for n in range(ROWS)],
        }
    )


def unpacked(data: bytes, width: int, count: int) -> list[int]:
    """Levels of the RLE hybrid."""
    found: list[int] = []
    at = 0
    while len(found) < count:
        head = shift = 0
        while True:
            byte, at = data[at], at + 1
            head, shift = head | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        if head & 1:
            size = (head >> 1) * width
            bits = np.unpackbits(np.frombuffer(data[at : at + size], np.uint8), bitorder="little").reshape(-1, width)
            found += (bits.astype(int) @ (1 << np.arange(width))).tolist()
            at += size
        else:
            found += [data[at]] * (head >> 1)
            at += 1
    return found[:count]


def packed(levels: list[int], width: int) -> bytes:
    bits = (np.array(levels)[:, None] >> np.arange(width)[::-1]) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1)).tobytes()


def bit_packed(data: bytes, codec: str = "none") -> bytes:
    """The file with its levels in BIT_PACKED, and no page index."""
    footer = read_footer(BytesSource(data))
    leaves = iter(
        chunk.leaf
        for group in footer.row_groups
        for chunk in group.columns
        for page in walk_pages(BytesSource(data), chunk)
        if page.is_data
    )

    def change(header: Struct, body: bytes) -> tuple[Struct, bytes]:
        detail = header.struct(5)
        if detail is None:
            return header, body
        leaf, levels = next(leaves), b""
        count = detail.integer(1) or 0
        for highest, field_id in ((leaf.max_rep, 4), (leaf.max_def, 3)):
            if highest:
                length = int.from_bytes(body[:4], "little")
                width = highest.bit_length()
                levels += packed(unpacked(body[4 : 4 + length], width, count), width)
                detail.fields[field_id] = (I32, BIT_PACKED)
                body = body[4 + length :]
        header.fields[5] = (STRUCT, detail)
        return header, levels + body

    return rewrite(data, CODECS[codec], change)


def old_file(**options: Any) -> bytes:
    defaults: dict[str, Any] = {"row_group_size": 400, "use_dictionary": ["s"], "write_page_index": False}
    return bit_packed(written(rows(), **(defaults | options)))
