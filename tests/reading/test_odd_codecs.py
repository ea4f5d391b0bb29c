"""Pages compressed as codecs allow and pyarrow's writer never does: rows come back as they were written."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import lz4.block
import pyarrow as pa
import pytest
import zstandard
from pyiceberg.expressions import AlwaysTrue

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.arrow_values import check_pages
from sidecar.parquet.footer import read_footer
from sidecar.storage.source import BytesSource
from tests.parquet.page_files import rewrite, write

ROWS = pa.table(
    {
        "id": pa.array(range(500), pa.int64()),
        "text": [None if n % 7 == 3 else f"text {n % 19}" for n in range(500)],
        "list": [None if n % 5 == 2 else [n, None, n * 3][: n % 4] for n in range(500)],
    }
)


def parts(data: bytes, count: int = 3) -> list[bytes]:
    size = max(-(-len(data) // count), 1)
    return [data[at : at + size] for at in range(0, len(data), size)]


def lz4_frame(data: bytes) -> bytes:
    """One Hadoop frame of several blocks."""
    blocks = [lz4.block.compress(part, store_size=False) for part in parts(data)]
    return struct.pack(">I", len(data)) + b"".join(struct.pack(">I", len(block)) + block for block in blocks)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "lz4 blocks in a frame": (5, lz4_frame),
    "lz4 frames of blocks": (5, lambda data: b"".join(map(lz4_frame, parts(data, 2)))),
    "lz4 without a frame": (5, lambda data: lz4.block.compress(data, store_size=False)),
    "zstd frames": (6, lambda data: b"".join(map(zstandard.compress, parts(data)))),
    "zstd without a size": (6, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
    "zstd and a skippable frame": (6, lambda data: zstandard.compress(data) + struct.pack("<II", 0x184D2A50, 1) + b"x"),
    "gzip members": (2, lambda data: b"".join(map(gzip.compress, parts(data)))),
}


@pytest.mark.parametrize("pages", [{}, {"use_dictionary": True}, {"data_page_version": "2.0"}], ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_odd_compressions(codec: str, pages: dict[str, object]) -> None:
    data = rewrite(write(ROWS, row_group_size=200, store_schema=False, **pages), CODECS[codec])
    expected = ROWS.cast(sidecar.scan(BytesSource(data), "id < 0").schema)
    assert sidecar.scan(BytesSource(data), AlwaysTrue()).equals(expected)
    assert sidecar.scan(BytesSource(data), "id = 333 or text = 'text 5'").num_rows > 1


def test_values_through_pyarrow_are_unsupported_and_not_damaged() -> None:
    data = BytesSource(rewrite(write(ROWS), CODECS["lz4 blocks in a frame"]))
    chunk = read_footer(data).row_groups[0].columns[0]
    with pytest.raises(UnsupportedFeatureError, match="several blocks"):
        check_pages(data, chunk)


def test_a_block_that_is_cut_is_damaged() -> None:
    data = rewrite(write(ROWS), (5, lambda data: lz4_frame(data)[:-1]))
    with pytest.raises(DamagedFileError):
        sidecar.scan(BytesSource(data), AlwaysTrue())
