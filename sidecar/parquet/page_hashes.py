"""Hashes of a chunk's values, taken from the pages as they are stored.

A filter holds hashes of PLAIN bytes in the file's own encoding. Those bytes stand in PLAIN pages already, and
for pages of indices in the dictionary; all other encodings are decoded by pyarrow as physical types
(:mod:`sidecar.parquet.plain_file`), so no logical type is ever converted and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.hashing import hash_plain_fixed, hash_plain_spans
from sidecar.kernels import rle
from sidecar.parquet.dictionary import DictionaryPage
from sidecar.parquet.page_values import BATCH_BYTES, KNOWN_ENCODINGS, check_size
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, PLAIN
from sidecar.parquet.plain_file import decode_pages
from sidecar.parquet.schema import Leaf

Hashes = npt.NDArray[np.uint64]


class PageHasher:
    """Hands the hashes of one chunk's values to ``take``, those of zeros' and NaN's twins included.

    :attr:`complete` says whether it has seen the whole chunk: then every value's hash was handed over. A
    dictionary is handed over as a whole, entries that no row uses too.
    """

    def __init__(self, leaf: Leaf, take: Callable[[Hashes], None]) -> None:
        self.complete = False
        self._leaf = leaf
        self._take = take
        self._has_dictionary = False
        self._pending: list[tuple[int, int, npt.NDArray[np.uint8]]] = []
        self._bytes = 0

    def set_dictionary(self, page: DictionaryPage) -> None:
        """The chunk's dictionary, before its first data page."""
        self._has_dictionary = True
        self.take_dictionary(page)

    def take_dictionary(self, page: DictionaryPage) -> None:
        """Hand over all values of the dictionary."""
        self._take(page.hashes(self._leaf.encoding))

    def add_indices(self, count: int, data: npt.NDArray[np.uint8]) -> None:
        """A page of ``count`` dictionary indices: their values have been handed over with the dictionary."""

    def add(self, encoding: int, count: int, data: npt.NDArray[np.uint8]) -> None:
        """A page of ``count`` values, nulls left out; ``data`` (uint8[n]) holds nothing else.

        Raises as :meth:`sidecar.parquet.page_values.PageFolder.add`.
        """
        if encoding not in KNOWN_ENCODINGS:
            raise UnsupportedFeatureError("values of this encoding are not decoded", found=encoding)
        if not count:
            return
        if encoding in DICTIONARY_ENCODINGS:
            if not self._has_dictionary:
                raise DamagedFileError("a data page refers to a dictionary that is not there")
            self.add_indices(count, data)
            return
        check_size(self._leaf, encoding, count, data)
        if encoding == PLAIN and self._leaf.physical != "BOOLEAN":
            self._plain(count, data)
            return
        self._pending.append((encoding, count, data))
        self._bytes += len(data) + 8 * count
        if self._bytes > BATCH_BYTES:
            self._decode()

    def finish(self) -> None:
        """Hand over what is still collected; the chunk is complete."""
        self._decode()
        self.complete = True

    def _plain(self, count: int, data: npt.NDArray[np.uint8]) -> None:
        if self._leaf.width is not None:
            self.take_fixed(data, count)
            return
        starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
        if not rle.byte_array_spans(data, count, starts, lengths):
            raise DamagedFileError("a value reaches beyond its page")
        self.take_spans(data, starts, lengths)

    def take_fixed(self, data: Any, count: int) -> None:
        """Hand over ``count`` PLAIN values of fixed width."""
        self._take(hash_plain_fixed(data, count, self._leaf.encoding))

    def take_spans(self, data: Any, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Hand over the values ``data[starts[i] : starts[i] + lengths[i]]``."""
        self._take(hash_plain_spans(data, starts, lengths))

    def _decode(self) -> None:
        if not self._pending:
            return
        pages, self._pending, self._bytes = self._pending, [], 0
        values = decode_pages(self._leaf, [(encoding, count, data.data) for encoding, count, data in pages])
        if self._leaf.width is not None:
            self.take_fixed(_fixed(values, self._leaf.width), len(values))
        else:
            offsets = np.frombuffer(_buffer(values, 1), np.int32)[values.offset :][: len(values) + 1]
            wide = offsets.astype(np.int64)
            self.take_spans(_buffer(values, 2), wide[:-1], np.diff(wide))


def _fixed(values: pa.Array[Any], width: int) -> memoryview:
    return memoryview(_buffer(values, 1))[values.offset * width :]


def _buffer(values: pa.Array[Any], number: int) -> Any:
    return values.buffers()[number] or b""
