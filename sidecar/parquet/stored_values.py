"""Hands over the values of a chunk as they are stored, in PLAIN bytes, to be hashed or looked up.

PLAIN pages and dictionaries have these bytes. pyarrow decodes all other encodings as physical types
(:mod:`sidecar.parquet.one_column_file`). So logical types are never converted, and byte arrays are hashed in place,
without a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.array_hash import hash_plain_fixed, hash_plain_spans
from sidecar.filters.arrays import Bytes, Hashes
from sidecar.filters.encoding import Encoding
from sidecar.filters.layouts import Spans
from sidecar.filters.leaf import Leaf
from sidecar.filters.plain_bytes_hash import XXH64, PlainHash
from sidecar.kernels import rle
from sidecar.parquet.dictionary import DictionaryPage, mark_indices
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, PLAIN
from sidecar.parquet.trust import as_shown
from sidecar.parquet.value_bounds import BATCH_BYTES, check_encoding, check_size


@dataclass(frozen=True)
class FixedValues:
    """``count`` PLAIN values of ``width`` bytes each, one after the other at the start of ``data`` (uint8[n])."""

    count: int
    width: int
    data: Bytes

    def hashes(self, encoding: Encoding, *, twins: bool = True, function: PlainHash = XXH64) -> Hashes:
        """Return the hash of each value; with ``twins`` also those of the other forms of zeros and NaN."""
        return hash_plain_fixed(self.data, self.count, encoding, twins=twins, function=function)

    def shown(self, leaf: Leaf) -> FixedValues:
        """Return the values as readers show them; the stored values if readers show these."""
        stored = self.data[: self.count * self.width]
        data = as_shown(stored, leaf)
        return self if data is stored or np.array_equal(data, stored) else FixedValues(self.count, self.width, data)

    def typed(self, leaf: Leaf) -> pa.Array[Any]:
        """Return the values in the file's Arrow type. Raises as :meth:`DictionaryPage.to_arrow`."""
        data = self.data[: self.count * self.width]
        return DictionaryPage(self.count, data, self.width).to_arrow(leaf)


@dataclass(frozen=True)
class ByteArrays:
    """PLAIN values of any length, as spans of the page's bytes."""

    spans: Spans

    def hashes(self, encoding: Encoding, *, twins: bool = True, function: PlainHash = XXH64) -> Hashes:
        """Return the hash of each value. Byte arrays have no twins."""
        return hash_plain_spans(*self.spans, function)

    def shown(self, leaf: Leaf) -> ByteArrays:
        """Return the values. Readers show byte arrays as they are stored."""
        return self

    def typed(self, leaf: Leaf) -> Spans:
        """Return the values, which are strings or binary. Raises :class:`UnsupportedFeatureError` for decimals."""
        if leaf.encoding.is_decimal:
            raise UnsupportedFeatureError("decimals of variable length are not read from pages", column=leaf.path)
        return self.spans


Values = FixedValues | ByteArrays


def check_typed(leaf: Leaf) -> None:
    """Raise :class:`UnsupportedFeatureError` if the ``typed`` methods do not support values of this leaf."""
    nothing = np.empty(0, np.uint8)
    if leaf.width is not None:
        FixedValues(0, leaf.width, nothing).typed(leaf)
    elif leaf.physical != "BYTE_ARRAY":
        raise UnsupportedFeatureError(f"{leaf.physical} is not read from pages", column=leaf.path)
    else:
        ByteArrays(Spans(nothing, np.empty(0, np.int64), np.empty(0, np.int64))).typed(leaf)


class StoredValues:
    """Hands the values of one chunk to ``take``, page by page.

    :attr:`complete` is true after the whole chunk was handed over. A dictionary is handed over whole, before the pages;
    with ``only_used`` only the entries that some row uses, after the pages.
    """

    def __init__(self, leaf: Leaf, take: Callable[[Values], None], *, only_used: bool = False) -> None:
        self.complete = False
        self._leaf = leaf
        self._take = take
        self._only_used = only_used
        self._dictionary: DictionaryPage | None = None
        self._used = np.zeros(0, np.bool_)
        self._pending: list[tuple[int, int, Bytes]] = []
        self._bytes = 0

    def set_dictionary(self, page: DictionaryPage) -> None:
        """Set the chunk's dictionary. Must come before the first data page is added."""
        self._dictionary = page
        self._used = np.full(page.num_values, not self._only_used)
        if not self._only_used:
            self._take(entries_of(page, self._used))

    def add(self, encoding: int, count: int, data: Bytes) -> None:
        """Add a page of ``count`` values, nulls not counted; ``data`` (uint8[n]) has only the encoded values.

        Raises as :meth:`sidecar.parquet.value_bounds.PageFolder.add`.
        """
        check_encoding(encoding)
        if not count:
            return
        if encoding in DICTIONARY_ENCODINGS:
            if self._dictionary is None:
                raise DamagedFileError("a data page refers to a dictionary, but the chunk has none")
            if self._only_used:
                mark_indices(data, count, self._used)
            return
        decoded = check_size(self._leaf, encoding, count, data)
        if encoding == PLAIN and self._leaf.physical != "BOOLEAN":
            self._plain(count, data)
            return
        self._pending.append((encoding, count, data))
        self._bytes += decoded
        if self._bytes > BATCH_BYTES:
            self._decode()

    def finish(self) -> None:
        """Hand over the values that are still collected, and mark the chunk as complete."""
        self.hand_over()
        self.complete = True

    def hand_over(self) -> None:
        """Hand over the values that are still collected, after the last page that the caller wants."""
        self._decode()
        if self._dictionary is not None and self._only_used:
            self._take(entries_of(self._dictionary, self._used))

    def _plain(self, count: int, data: Bytes) -> None:
        if self._leaf.width is not None:
            self._take(FixedValues(count, self._leaf.width, data))
            return
        starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
        if not rle.byte_array_spans(data, count, starts, lengths):
            raise DamagedFileError("a value is longer than the rest of its page")
        self._take(ByteArrays(Spans(data, starts, lengths)))

    def _decode(self) -> None:
        if not self._pending:
            return
        pages, self._pending, self._bytes = self._pending, [], 0
        values = decode_pages(self._leaf, [(encoding, count, data.data) for encoding, count, data in pages])
        if self._leaf.width is not None:
            data = _buffer(values, 1)[values.offset * self._leaf.width :]
            self._take(FixedValues(len(values), self._leaf.width, data))
        else:
            offsets = _buffer(values, 1).view(np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
            self._take(ByteArrays(Spans(_buffer(values, 2), offsets[:-1], np.diff(offsets))))


class PageHasher(StoredValues):
    """Hands the hashes of one chunk's values to ``take``, also those of the other forms of zeros and NaN.

    A filter has hashes of PLAIN bytes in the file's own encoding, which are the stored bytes. Integers beyond the bits
    of their annotation are also hashed as readers show them. Entries of a dictionary that no row uses are hashed too,
    which only costs a filter a few bits.
    """

    def __init__(self, leaf: Leaf, take: Callable[[Hashes], None]) -> None:
        super().__init__(leaf, self._hash)
        self._take_hashes = take

    def _hash(self, values: Values) -> None:
        self._take_hashes(values.hashes(self._leaf.encoding))
        shown = values.shown(self._leaf)
        if shown is not values:
            self._take_hashes(shown.hashes(self._leaf.encoding))


def entries_of(page: DictionaryPage, used: npt.NDArray[np.bool_]) -> Values:
    """Return the entries of a dictionary for which ``used`` (bool[num_values]) is true."""
    whole = bool(used.all())
    if page.width is None:
        spans = page.spans
        return ByteArrays(spans if whole else Spans(spans.data, spans.starts[used], spans.lengths[used]))
    data = page.data if whole else page.data.reshape(-1, page.width)[used].reshape(-1)
    return FixedValues(page.num_values if whole else int(used.sum()), page.width, data)


def _buffer(values: pa.Array[Any], number: int) -> Bytes:
    buffer: Any = values.buffers()[number]
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)
