"""Estimates how large the values of pages become, before they are decoded.

A few bytes of runs, of dictionary indices or of prefixes can encode any number of values. The estimate uses the width
of fixed types, the longest entry of a dictionary, and the prefix lengths at the start of a DELTA_BYTE_ARRAY page. In
other encodings, values take at most the bytes of their page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.parquet.compression import decompress
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.pages import (
    DICTIONARY_ENCODINGS,
    MAX_HEADER,
    PageHeader,
    decode_page_header,
)

DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY = 5, 7

MAX_PREFIXED = 128 << 20
"""Bytes that the prefixes of a DELTA_BYTE_ARRAY page may take when decoded."""

_MOST_ENTRIES = 1 << 18
"""Entries of a dictionary up to which its longest entry is searched for."""

_LENGTHS = Leaf(0, ("lengths",), None, "INT32", None, Annotation(), Encoding.parse("int32"), 0, 0)

PageWithHeader = tuple[PageHeader, bytes | memoryview]
"""A page: its decoded header, and its stored bytes, which begin with the header."""


def bytes_a_value(chunk: ColumnChunk, dictionary: bytes | memoryview, pages: Sequence[PageWithHeader]) -> int:
    """Return the bytes that a decoded value of these pages may take, besides the bytes that it has in its page.

    ``dictionary`` is the dictionary page with its header, or empty. Raises :class:`UnsupportedFeatureError` if prefixes
    would become too large, and :class:`DamagedFileError` for broken pages.
    """
    leaf, longest = chunk.leaf, 0
    if leaf.physical != "BYTE_ARRAY":
        return max(leaf.width or 1, 1)
    for header, raw in pages:
        if header.encoding == DELTA_BYTE_ARRAY:
            longest = max(longest, prefix_bytes_a_value(chunk, header, raw))
    if dictionary and any(header.encoding in DICTIONARY_ENCODINGS for header, _ in pages):
        longest = max(longest, _longest_entry(chunk, dictionary))
    return 4 + longest


def prefix_bytes_a_value(chunk: ColumnChunk, header: PageHeader, raw: bytes | memoryview) -> int:
    """Return the average bytes of a value's prefix in a DELTA_BYTE_ARRAY page. Raises as :func:`check_prefixes`."""
    count, data = _present(chunk, header, raw)
    return -(-check_prefixes(count, data) // max(count, 1))


def check_prefixes(count: int, data: npt.NDArray[np.uint8]) -> int:
    """Return the bytes that the prefixes of a DELTA_BYTE_ARRAY page with ``count`` values take when decoded.

    Raises :class:`UnsupportedFeatureError` if they are too large, and :class:`DamagedFileError` for negative lengths.
    """
    if not count:
        return 0
    if 4 * count > MAX_PREFIXED:
        raise UnsupportedFeatureError(
            "a page has too many values to decode", expected=f"at most {MAX_PREFIXED // 4}", found=count
        )
    lengths = decode_pages(_LENGTHS, [(DELTA_BINARY_PACKED, count, data.data)]).to_numpy()
    size = int(lengths.sum(dtype=np.int64))
    if lengths.min() < 0:
        raise DamagedFileError("a prefix has a negative length")
    if size > MAX_PREFIXED:
        raise UnsupportedFeatureError(
            "the values of a page are too large", expected=f"at most {MAX_PREFIXED} bytes", found=size
        )
    return size


def _present(chunk: ColumnChunk, header: PageHeader, raw: bytes | memoryview) -> tuple[int, npt.NDArray[np.uint8]]:
    from sidecar.parquet.levels import open_page  # loads compiled code, which few scans need

    body = bytes(raw[header.header_length : header.header_length + header.compressed_size])
    levels, data = open_page(chunk.codec, header, body, chunk.leaf)
    return levels.num_present, data


def _longest_entry(chunk: ColumnChunk, raw: bytes | memoryview) -> int:
    """Return the bytes of the longest entry of a dictionary; of the whole dictionary if it is damaged or large."""
    header = decode_page_header(bytes(raw[:MAX_HEADER]), chunk.start)
    body = bytes(raw[header.header_length : header.header_length + header.compressed_size])
    if header.num_values > _MOST_ENTRIES:
        return header.uncompressed_size
    try:
        plain = decompress(chunk.codec, body, header.uncompressed_size)
    except SidecarError:  # pyarrow decodes the page later, and reports the error then
        return header.uncompressed_size
    longest = at = 0
    for _ in range(header.num_values):
        length = int.from_bytes(plain[at : at + 4], "little")
        longest, at = max(longest, length), at + 4 + length
        if at > len(plain):
            return header.uncompressed_size
    return longest
