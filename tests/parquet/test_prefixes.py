"""Small files that unfold into a great deal: prefixes of strings over many pages, paths of many leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import UnsupportedFeatureError
from sidecar.parquet import stored_values, value_bounds
from sidecar.parquet.arrow_values import check_pages
from sidecar.parquet.decoded_size import bytes_a_value
from sidecar.parquet.footer import read_footer
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.schema import decode_leaves
from sidecar.parquet.stored_values import StoredValues
from sidecar.parquet.thrift import BINARY, I32, Struct
from sidecar.parquet.value_bounds import check_size
from sidecar.storage.source import BytesSource

DELTA_BYTE_ARRAY = 7
LONG = 8000
"""Bytes that every value begins with."""


@pytest.fixture(scope="module")
def prefixed() -> BytesSource:
    """12,000 values of 8,004 bytes in pages of 1,000: 60 KB of file for 96 MB of values."""
    sink = pa.BufferOutputStream()
    values = [b"a" * LONG + b"%04d" % (number % 1000) for number in range(12_000)]
    pq.write_table(
        pa.table({"k": pa.array(values, pa.binary())}),
        sink,
        use_dictionary=False,
        column_encoding={"k": "DELTA_BYTE_ARRAY"},
        write_batch_size=1000,
        data_page_size=1,
        write_statistics=False,
    )
    return BytesSource(sink.getvalue().to_pybytes())


def test_prefixes_count_as_bytes_of_values(prefixed: BytesSource) -> None:
    footer = read_footer(prefixed)
    (chunk,) = footer.row_groups[0].columns
    pages = [
        (page, prefixed.read(page.offset, page.header_length + page.compressed_size))
        for page in walk_pages(prefixed, chunk)
    ]
    assert len(pages) == 12
    assert bytes_a_value(chunk, b"", pages) > LONG * 0.99


def test_batches_of_long_prefixes_are_not_handed_to_pyarrow(prefixed: BytesSource) -> None:
    (chunk,) = read_footer(prefixed).row_groups[0].columns
    with pytest.raises(UnsupportedFeatureError, match="too large to decode in batches"):
        check_pages(prefixed, chunk)


def test_pages_of_long_prefixes_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is decoded once its values are many bytes, however few it has itself."""
    (leaf,) = decode_leaves([Struct({4: (BINARY, b"r"), 5: (I32, 1)}), Struct({1: (I32, 6), 4: (BINARY, b"k")})])
    page = _page(1000)
    assert check_size(leaf, DELTA_BYTE_ARRAY, 1000, page) > 1000 * LONG - LONG
    together: list[int] = []
    decode = stored_values.decode_pages

    def counted(leaf: Any, pages: Any) -> Any:
        together.append(len(pages))
        return decode(leaf, pages)

    monkeypatch.setattr(stored_values, "decode_pages", counted)
    values = StoredValues(leaf, lambda found: None)
    for _ in range(5):
        values.add(DELTA_BYTE_ARRAY, 1000, page)
    values.finish()
    assert together == [1] * 5
    assert value_bounds.BATCH_BYTES < 1000 * LONG


def _page(count: int) -> Any:
    """The values of a page, as pyarrow encodes them."""
    sink = pa.BufferOutputStream()
    values = pa.array([b"a" * LONG + b"%04d" % number for number in range(count)], pa.binary())
    schema = pa.schema([pa.field("k", pa.binary(), nullable=False)])
    pq.write_table(
        pa.table([values], schema),
        sink,
        use_dictionary=False,
        compression="none",
        column_encoding={"k": "DELTA_BYTE_ARRAY"},
        write_statistics=False,
    )
    source = BytesSource(sink.getvalue().to_pybytes())
    (page,) = walk_pages(source, read_footer(source).row_groups[0].columns[0])
    data = source.read(page.offset + page.header_length, page.compressed_size)
    return np.frombuffer(data, np.uint8)


def test_paths_of_leaves_are_bounded() -> None:
    """A long name above many leaves is in the path of each."""

    def elements(name: bytes) -> list[Struct]:
        above = [Struct({4: (BINARY, b"root"), 5: (I32, 1)}), Struct({4: (BINARY, name), 5: (I32, 100)})]
        return above + [Struct({1: (I32, 2), 4: (BINARY, b"%d" % number)}) for number in range(100)]

    assert len(decode_leaves(elements(b"n" * 1000))) == 100
    with pytest.raises(UnsupportedFeatureError, match="paths of the leaves are too long"):
        decode_leaves(elements(b"n" * 1_000_000))
