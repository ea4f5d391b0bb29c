"""How large the values of pages become, before they are decoded.

A few bytes of runs, of indices in a dictionary or of prefixes can state any number of values. What is known without
decoding them: the width of fixed types, the longest entry of a dictionary, the lengths of prefixes in front of a
DELTA_BYTE_ARRAY page. Pages in other encodings hold at most their own bytes.
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
"""Bytes that the values of a DELTA_BYTE_ARRAY page may take."""

_MOST_ENTRIES = 1 << 18
"""Entries of the largest dictionary whose longest one is looked for."""

_LENGTHS = Leaf(0, ("lengths",), None, "INT32", None, Annotation(), Encoding.parse("int32"), 0, 0)

Page = tuple[PageHeader, bytes | memoryview]
"""A page: its header, and its bytes as stored with the header in front."""


def bytes_a_value(chunk: ColumnChunk, dictionary: bytes | memoryview, pages: Sequence[Page]) -> int:
    """Bytes that a value of these pages may take decoded, besides bytes that it has in its page.

    ``dictionary`` is the dictionary page, header included, or empty. Raises :class:`UnsupportedFeatureError` for pages
    of prefixes that would become too large, and :class:`DamagedFileError`.
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
    """Bytes of the prefix of a value in a DELTA_BYTE_ARRAY page, on average; raises as :func:`check_prefixes`."""
    count, data = _present(chunk, header, raw)
    return -(-check_prefixes(count, data) // max(count, 1))


def check_prefixes(count: int, data: npt.NDArray[np.uint8]) -> int:
    """Bytes of the prefixes of the ``count`` values of a DELTA_BYTE_ARRAY page, which its own bytes do not have.

    Raises :class:`UnsupportedFeatureError` where the values become too large.
    """
    if not count:
        return 0
    if 4 * count > MAX_PREFIXED:
        raise UnsupportedFeatureError(
            "a page has too many values to be decoded", expected=f"at most {MAX_PREFIXED // 4}", found=count
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


def _present(
    chunk: ColumnChunk, header: PageHeader, raw: bytes | memoryview
) -> tuple[int, npt.NDArray[np.uint8]]:
    from sidecar.parquet.levels import open_page  # loads compiled code, which few scans need

    body = bytes(raw[header.header_length : header.header_length + header.compressed_size])
    levels, data = open_page(chunk.codec, header, body, chunk.leaf)
    return levels.num_present, data


def _longest_entry(chunk: ColumnChunk, raw: bytes | memoryview) -> int:
    """Bytes of the longest entry of a dictionary; of the whole dictionary where it is damaged or has many entries."""
    header = decode_page_header(bytes(raw[:MAX_HEADER]), chunk.start)
    body = bytes(raw[header.header_length : header.header_length + header.compressed_size])
    if header.num_values > _MOST_ENTRIES:
        return header.uncompressed_size
    try:
        plain = decompress(chunk.codec, body, header.uncompressed_size)
    except SidecarError:  # pyarrow will say what is wrong, or read it all the same
        return header.uncompressed_size
    longest = at = 0
    for _ in range(header.num_values):
        length = int.from_bytes(plain[at : at + 4], "little")
        longest, at = max(longest, length), at + 4 + length
        if at > len(plain):
            return header.uncompressed_size
    return longest
