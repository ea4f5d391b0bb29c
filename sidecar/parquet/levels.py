"""Counts the repetition and definition levels of data pages, without unpacking them.

A repetition level of 0 begins a row. An entry whose definition level is below the highest has no value: it is a null,
an empty list or an absent parent.

- DATA_PAGE: levels and values are compressed together. Each kind of levels is present if its highest level is above
  0. RLE levels follow their length in 4 bytes (little-endian); BIT_PACKED levels have no length.
- DATA_PAGE_V2: levels are before the values, RLE-encoded and uncompressed. The page header has their lengths.

A column of 1,000 nulls has one run of definition levels and no value bytes.
Specification: "Data Pages", "Nulls", "Run Length Encoding / Bit-Packing Hybrid".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.leaf import Leaf
from sidecar.kernels import levels as kernels
from sidecar.kernels.rle import BAD_INDEX, unaligned_words
from sidecar.parquet.compression import decompress
from sidecar.parquet.pages import BIT_PACKED, DATA_PAGE_V2, RLE, PageHeader

Histogram = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PageLevels:
    """Counts of a data page's levels. Each histogram is int64[highest level + 1]."""

    rows: int
    """Rows that begin in the page."""
    starts_row: bool
    """Whether the first entry begins a row; true for an empty page."""
    repetition: Histogram
    definition: Histogram

    @property
    def num_present(self) -> int:
        """Number of values that are not null."""
        return int(self.definition[-1])

    @property
    def num_nulls(self) -> int:
        """Number of entries without a value."""
        return int(self.definition[:-1].sum())


class DataPage(NamedTuple):
    """An opened data page: counts of its levels, and its values (uint8[n]), decompressed but still encoded."""

    levels: PageLevels
    values: npt.NDArray[np.uint8]


def open_page(codec: str, page: PageHeader, body: bytes | memoryview, leaf: Leaf) -> DataPage:
    """Decompress a data page and count its levels.

    Raises :class:`DamagedFileError` if levels end early, are too high or longer than the page, and
    :class:`UnsupportedFeatureError` for unknown codecs and level encodings.
    """
    if page.type == DATA_PAGE_V2:
        return _open_v2(codec, page, body, leaf)
    data = np.frombuffer(decompress(codec, body, page.uncompressed_size), np.uint8)
    repetition, at = _levels_v1(data, 0, page, page.rep_encoding, leaf.max_rep)
    definition, at = _levels_v1(data, at, page, page.def_encoding, leaf.max_def)
    return _page(repetition, definition, data[at:])


def _open_v2(codec: str, page: PageHeader, body: bytes | memoryview, leaf: Leaf) -> DataPage:
    length = page.rep_length + page.def_length
    if length > len(body) or length > page.uncompressed_size:
        raise DamagedFileError("the levels of a page are longer than the page", found=length)
    data = np.frombuffer(body, np.uint8, length)
    repetition = _levels(data, 0, page.rep_length, RLE, page.num_values, leaf.max_rep)
    definition = _levels(data, page.rep_length, length, RLE, page.num_values, leaf.max_def)
    plain = decompress(codec if page.is_compressed else "UNCOMPRESSED", body[length:], page.uncompressed_size - length)
    return _page(repetition, definition, np.frombuffer(plain, np.uint8))


_Counted = tuple[Histogram, bool]  # the histogram, and whether the first level is 0


def _page(repetition: _Counted, definition: _Counted, values: npt.NDArray[np.uint8]) -> DataPage:
    return DataPage(
        PageLevels(int(repetition[0][0]), repetition[1], repetition[0], definition[0]),
        values,
    )


def _levels_v1(
    data: npt.NDArray[np.uint8], at: int, page: PageHeader, encoding: int, highest: int
) -> tuple[_Counted, int]:
    """Count the levels at ``at``. Returns the counts and the offset after the levels."""
    count = page.num_values
    if not highest or (not count and at + 4 > len(data)):
        return _levels(data, at, at, RLE, count, highest), at
    if encoding == RLE:
        begin = at + 4
        end = begin + int.from_bytes(data[at:begin].tobytes(), "little")
    elif encoding == BIT_PACKED:
        begin = at
        end = at + (count * highest.bit_length() + 7) // 8
    else:
        raise UnsupportedFeatureError("levels of this encoding are not supported", found=encoding)
    if end > len(data) or begin > len(data):
        raise DamagedFileError("the levels of a page are longer than the page", found=end - begin)
    return _levels(data, begin, end, encoding, count, highest), end


def _levels(data: npt.NDArray[np.uint8], at: int, end: int, encoding: int, count: int, highest: int) -> _Counted:
    out = np.zeros(highest + 1, np.int64)
    if not highest:
        out[0] = count
        return out, True
    width = highest.bit_length()
    first = np.zeros(highest + 1, np.int64)
    for number, into in ((min(count, 1), first), (count, out)):
        if encoding == BIT_PACKED:
            status = kernels.histogram_bit_packed(data, at, end, width, number, into)
        else:
            status = kernels.histogram(data, unaligned_words(data), at, end, width, number, into)
        if status == BAD_INDEX:
            raise DamagedFileError("a level of a page is too high", expected=f"at most {highest}")
        if status < 0:
            raise DamagedFileError("the levels of a page end early", expected=f"{count} levels")
    return out, bool(first[0]) or not count
