"""Finds the bounds of the values of data pages, for building page indexes.

A dictionary page is decoded. For the first page of indices, the entries that it refers to are compared; at the second
one all entries are ranked, and then the bounds of a page are found without unpacking its indices. PLAIN values of fixed
width and PLAIN strings are compared in place. Pages of all other encodings are collected and decoded by pyarrow, many
at a time (:mod:`sidecar.parquet.one_column_file`).

Values are compared by *keys* whose natural order is the column's order; bounds are PLAIN bytes:

| kind | key |
| --- | --- |
| boolean, signed, unsigned | the number |
| float | an integer in IEEE 754's totalOrder; NaN is beyond the infinities |
| bytes | the bytes |
| decimal, fixed length | the bytes with the sign bit flipped, compared unsigned |
| decimal, any length | the number |
| int96 | all bytes reversed (days, then nanoseconds), both sign bits flipped |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.arrays import Bytes
from sidecar.filters.leaf import Leaf
from sidecar.kernels import levels as kernels
from sidecar.kernels.rle import byte_array_spans, unaligned_words
from sidecar.parquet.bounds import Ordering
from sidecar.parquet.dictionary import DictionaryPage, check_indices, mark_indices
from sidecar.parquet.one_column_file import decode_pages
from sidecar.parquet.pages import DICTIONARY_ENCODINGS, PLAIN, RLE

BATCH_BYTES = 2 << 20
"""Decoded bytes of the pages that pyarrow decodes at once. A single page may have more."""

MAX_DECODED = 32 << 20
"""Decoded bytes that the values of a page may take. Run-length encodings store billions of values in a few bytes."""

_DELTA_BINARY_PACKED, _DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY, _BYTE_STREAM_SPLIT = 5, 6, 7, 9
KNOWN_ENCODINGS = (
    *(PLAIN, RLE, _DELTA_BINARY_PACKED, _DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY, _BYTE_STREAM_SPLIT),
    *DICTIONARY_ENCODINGS,
)


@dataclass
class PageValues:
    """Sums over a page's values, nulls left out: PLAIN bounds, number of NaN, bytes of BYTE_ARRAY values.

    Bounds are ``None`` for a page without values. They are NaN only if all values are NaN.
    """

    lower: bytes | None = None
    upper: bytes | None = None
    nan_count: int = 0
    data_bytes: int = 0


class _Numbers:
    """Integers and booleans in a numpy array."""

    nan: npt.NDArray[np.bool_] | None = None

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def bounds(self, start: int, end: int) -> tuple[bytes, bytes]:
        values = self._values[start:end]
        return values.min().tobytes(), values.max().tobytes()

    def ranks(self) -> npt.NDArray[np.int64]:
        return _inverse(np.argsort(self._values))


class _Floats:
    """Floats. They are compared as numbers; only where that does not decide (zeros, NaN), by their totalOrder keys."""

    def __init__(self, bits: npt.NDArray[Any]) -> None:
        self._bits = bits
        self._values = bits.view(f"<f{bits.dtype.itemsize}")

    @cached_property
    def nan(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.isnan(self._values)
        return found

    def bounds(self, start: int, end: int) -> tuple[bytes, bytes]:
        values = self._values[start:end]
        extremes = np.array([values.min(), values.max()])
        if np.isnan(extremes[0]) or not extremes.all():
            nan = self.nan[start:end]
            bits = self._bits[start:end]
            keys = _total_order(bits if nan.all() else bits[~nan])
            extremes = _total_order(np.array([keys.min(), keys.max()]))
        return extremes[0].tobytes(), extremes[1].tobytes()

    def ranks(self) -> npt.NDArray[np.int64]:
        return _inverse(np.argsort(_total_order(self._bits)))


def _total_order(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turn float bits into signed integers that sort as IEEE 754's totalOrder does, or back: it is its own inverse."""
    found: npt.NDArray[Any] = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return found


class _Binaries:
    """Keys in an Arrow array of binary or fixed-size binary, which Arrow compares as unsigned bytes."""

    nan: npt.NDArray[np.bool_] | None = None

    def __init__(self, keys: pa.Array[Any], plain: Callable[[bytes], bytes]) -> None:
        self._keys = keys
        self._plain = plain

    def bounds(self, start: int, end: int) -> tuple[bytes, bytes]:
        found = pc.min_max(self._keys.slice(start, end - start))
        return self._plain(found["min"].as_py()), self._plain(found["max"].as_py())

    def ranks(self) -> npt.NDArray[np.int64]:
        return _inverse(pc.array_sort_indices(self._keys).to_numpy(zero_copy_only=False))


class _Decimals:
    """Decimals of any length. A key is the Python integer with the bytes that are stored."""

    nan: npt.NDArray[np.bool_] | None = None

    def __init__(self, values: pa.Array[Any]) -> None:
        stored: list[Any] = values.to_pylist()
        if not all(stored):
            raise DamagedFileError("a DECIMAL has no bytes")
        self._keys = [(int.from_bytes(value, "big", signed=True), value) for value in stored]

    def bounds(self, start: int, end: int) -> tuple[bytes, bytes]:
        keys = self._keys[start:end]
        return min(keys)[1], max(keys)[1]

    def ranks(self) -> npt.NDArray[np.int64]:
        return _inverse(np.array(sorted(range(len(self._keys)), key=self._keys.__getitem__), np.int64))


_Keys = _Numbers | _Floats | _Binaries | _Decimals
"""An array of values that are compared by their keys.

``bounds`` are the PLAIN bytes of the lowest and the highest value in the non-empty range ``[start, end)``, ``ranks``
the rank of each value, counted from 0, and ``nan`` says which values are NaN (``None`` for types without NaN).
"""


def _inverse(order: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _keys(values: pa.Array[Any], ordering: Ordering) -> _Keys:
    """Return the keys of an array that :func:`decode_pages` returned."""
    kind, width = ordering.kind, ordering.width
    if kind == "boolean":
        return _Numbers(values.to_numpy(zero_copy_only=False).astype(np.uint8))
    if kind in ("signed", "unsigned", "float"):
        bits = _fixed(values, width or 0).view(f"<{'u' if kind == 'unsigned' else 'i'}{width}")
        return _Floats(bits) if kind == "float" else _Numbers(bits)
    if kind == "bytes":
        return _Binaries(values, lambda key: key)
    if width is None:
        return _Decimals(values)
    if kind == "int96":
        turn = np.array([0x80, 0, 0, 0, 0x80] + [0] * 7, np.uint8)
        table = _fixed(values, 12).reshape(-1, 12)[:, ::-1] ^ turn
        return _Binaries(_binary(table), lambda key: _xor(key, turn)[::-1])
    turn = np.array([0x80] + [0] * (width - 1), np.uint8)
    table = _fixed(values, width).reshape(-1, width) ^ turn
    return _Binaries(_binary(table), lambda key: _xor(key, turn))


def _fixed(values: pa.Array[Any], width: int) -> Bytes:
    """Return the bytes of an array of fixed width, uint8[n * width], without a copy."""
    data = _buffer(values, np.dtype(np.uint8))
    return data[values.offset * width : (values.offset + len(values)) * width]


def _binary(table: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    count, width = table.shape
    buffer = pa.py_buffer(np.ascontiguousarray(table).data)
    return pa.Array.from_buffers(pa.binary(width), count, [None, buffer])


def _xor(key: bytes, turn: npt.NDArray[np.uint8]) -> bytes:
    return (np.frombuffer(key, np.uint8) ^ turn).tobytes()


class _Dictionary:
    """A dictionary. ``sizes`` (int64[n]) are the bytes of its entries, ``nan`` (bool[n]) says which are NaN."""

    def __init__(self, page: DictionaryPage, leaf: Leaf, ordering: Ordering) -> None:
        self._page = page
        self._leaf = leaf
        self._ordering = ordering
        self.sizes = page.spans.lengths if page.width is None else np.zeros(page.num_values, np.int64)
        nan = self.keys.nan if ordering.kind == "float" else None
        self.nan = np.zeros(page.num_values, np.bool_) if nan is None else nan
        self.is_in_use = False
        """Whether a page has referred to it. Ranking pays from the second page on."""

    @cached_property
    def keys(self) -> _Keys:
        """All entries. The first page needs only some, and making keys of all takes longer than decoding a page."""
        return _keys(_dictionary_array(self._page, self._leaf), self._ordering)

    @cached_property
    def ranks(self) -> npt.NDArray[np.int64]:
        """The rank of each entry, int64[n]."""
        return self.keys.ranks()

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """The entry at each rank, int64[n]."""
        return _inverse(self.ranks)

    def bounds(self, count: int, data: Bytes) -> tuple[bytes, bytes]:
        """Return the PLAIN bounds of the entries that ``count`` indices refer to; NaN only if all of them are NaN."""
        page, ordering, used = self._page, self._ordering, np.zeros(len(self.sizes), np.bool_)
        mark_indices(data, count, used)
        entries = np.flatnonzero(used)
        if page.width is not None:
            rows = page.data.reshape(-1, page.width).take(entries, axis=0).reshape(-1)
            if ordering.kind in ("bytes", "decimal"):
                return _row_bounds(rows, len(entries), page.width, signed=ordering.kind == "decimal")
            keys = _keys(_plain_array(rows, len(entries), page.width), ordering)
        elif ordering.kind == "bytes":
            return _span_bounds(page.data, page.spans.starts[entries], page.spans.lengths[entries])
        else:
            keys = _keys(_dictionary_array(page, self._leaf).take(entries), ordering)
        return keys.bounds(0, len(entries))


@dataclass
class PageFolder:
    """Sums up the values of one chunk's data pages. Their encodings may change from page to page.

    ``add`` may only collect a page. Its :class:`PageValues` is complete after ``finish``.
    """

    leaf: Leaf
    ordering: Ordering
    _dictionary: _Dictionary | None = None
    _pending: list[tuple[PageValues, int, int, Bytes]] = field(default_factory=list)
    _bytes: int = 0

    def set_dictionary(self, page: DictionaryPage) -> None:
        """Set the chunk's dictionary. Must come before the first data page is added."""
        self._dictionary = _Dictionary(page, self.leaf, self.ordering)

    def add(self, encoding: int, count: int, data: Bytes) -> PageValues:
        """Add a page of ``count`` values, nulls not counted; ``data`` (uint8[n]) has only the encoded values.

        Raises :class:`DamagedFileError` and :class:`UnsupportedFeatureError` as :func:`decode_pages` does.
        """
        check_encoding(encoding)
        page = PageValues()
        if count and encoding in DICTIONARY_ENCODINGS:
            self._fold(page, count, data)
        elif count:
            decoded = check_size(self.leaf, encoding, count, data)
            if encoding == PLAIN and self.leaf.width is not None:
                if self.ordering.kind in ("bytes", "decimal"):
                    signed = self.ordering.kind == "decimal"
                    page.lower, page.upper = _row_bounds(data, count, self.leaf.width, signed=signed)
                    return page
                self._sum_up(_plain_array(data, count, self.leaf.width), [(page, count)])
                return page
            if encoding == PLAIN and self.ordering.kind == "bytes":
                _sum_up_strings(page, count, data)
                return page
            if self._pending and self._bytes + decoded > BATCH_BYTES:
                self.finish()
            self._pending.append((page, encoding, count, data))
            self._bytes += decoded
        return page

    def finish(self) -> None:
        """Decode the pages that are still collected, and fill in their :class:`PageValues`."""
        if not self._pending:
            return
        pending, self._pending, self._bytes = self._pending, [], 0
        values = decode_pages(self.leaf, [(encoding, n, data.data) for _, encoding, n, data in pending])
        self._sum_up(values, [(page, count) for page, _, count, _ in pending])

    def _sum_up(self, values: pa.Array[Any], pages: list[tuple[PageValues, int]]) -> None:
        """Fill in pages from an array that has their values one page after the other."""
        keys = _keys(values, self.ordering)
        offsets = _offsets(values) if self.leaf.physical == "BYTE_ARRAY" else None
        start = 0
        for page, count in pages:
            end = start + count
            page.lower, page.upper = keys.bounds(start, end)
            page.nan_count = 0 if keys.nan is None else int(keys.nan[start:end].sum())
            page.data_bytes = 0 if offsets is None else int(offsets[end] - offsets[start])
            start = end

    def _fold(self, page: PageValues, count: int, data: Bytes) -> None:
        dictionary = self._dictionary
        if dictionary is None:
            raise DamagedFileError("a data page refers to a dictionary, but the chunk has none")
        if not len(data) or data[0] > 32:
            raise DamagedFileError("a data page has no dictionary indices, or their bit width is above 32")
        most = np.iinfo(np.int64).max
        out = np.array([most, -1, most, -1, 0, 0], np.int64)
        is_first, dictionary.is_in_use = not dictionary.is_in_use, True
        ranks = np.zeros(len(dictionary.sizes), np.int64) if is_first else dictionary.ranks
        tables = (ranks, dictionary.sizes, dictionary.nan, out)
        width = int(data[0])
        if width == 0:  # every index is 0, and some writers write no runs then: make one of ``count`` zeros
            zeros = np.frombuffer(_varint(count << 1), np.uint8)
            status = kernels.fold_indices(zeros, unaligned_words(zeros), 0, len(zeros), 0, count, *tables)
        else:
            status = kernels.fold_indices(data, unaligned_words(data), 1, len(data), width, count, *tables)
        check_indices(status, len(ranks), count)
        page.nan_count, page.data_bytes = int(out[kernels.NAN_COUNT]), int(out[kernels.BYTES])
        if is_first:
            page.lower, page.upper = dictionary.bounds(count, data)
            return
        low, high = (
            (out[kernels.LOW], out[kernels.HIGH])
            if out[kernels.HIGH] >= 0
            else (out[kernels.NAN_LOW], out[kernels.NAN_HIGH])
        )
        entries = (int(dictionary.order[rank]) for rank in (low, high))
        page.lower, page.upper = (dictionary.keys.bounds(at, at + 1)[0] for at in entries)


def _sum_up_strings(page: PageValues, count: int, data: Bytes) -> None:
    """Sum up PLAIN byte arrays, compared in place."""
    starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
    if not byte_array_spans(data, count, starts, lengths):
        raise DamagedFileError("a value is longer than the rest of its page")
    page.lower, page.upper = _span_bounds(data, starts, lengths)
    page.data_bytes = int(lengths.sum())


def _span_bounds(data: Bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> tuple[bytes, bytes]:
    """Return the lowest and the highest of the byte strings at ``starts``, compared in place."""
    low, high = (
        data[starts[at] : starts[at] + lengths[at]].tobytes() for at in kernels.span_extremes(data, starts, lengths)
    )
    return low, high


def _row_bounds(data: Bytes, count: int, width: int, *, signed: bool) -> tuple[bytes, bytes]:
    """Return the lowest and the highest of ``count`` PLAIN values of fixed length, compared in place."""
    low, high = (int(row) * width for row in kernels.row_extremes(data, width, count, signed))
    return data[low : low + width].tobytes(), data[high : high + width].tobytes()


def check_encoding(encoding: int) -> None:
    """Raise :class:`UnsupportedFeatureError` for an encoding of data pages that is not in :data:`KNOWN_ENCODINGS`."""
    if encoding not in KNOWN_ENCODINGS:
        raise UnsupportedFeatureError("values of this encoding are not supported", found=encoding)


def check_size(leaf: Leaf, encoding: int, count: int, data: Bytes) -> int:
    """Return roughly how many bytes the values of a page take, encoded and decoded together.

    Raises :class:`DamagedFileError` for more values than the bytes can hold, and :class:`UnsupportedFeatureError` for
    a page whose values would take more than :data:`MAX_DECODED` bytes.
    """
    bits = {"BOOLEAN": 1, "BYTE_ARRAY": 32}.get(leaf.physical, 8 * (leaf.width or 0))
    if encoding not in (PLAIN, _BYTE_STREAM_SPLIT):
        if count * max(bits // 8, 1) > MAX_DECODED:
            raise UnsupportedFeatureError("a page has too many values to decode", found=count)
        if encoding == DELTA_BYTE_ARRAY:
            from sidecar.parquet.decoded_size import check_prefixes

            return check_prefixes(count, data) + len(data) + 8 * count
    elif count * bits > 8 * len(data):
        raise DamagedFileError(
            "a page is too short for its values",
            expected=f"{count} values of at least {bits} bits",
            found=f"{len(data)} bytes",
        )
    return len(data) + 8 * count


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def _offsets(values: pa.Array[Any]) -> npt.NDArray[np.int32]:
    return _buffer(values, np.dtype(np.int32))[values.offset :]


def _buffer(values: pa.Array[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the first buffer of an array after its validity bitmap."""
    buffer: Any = values.buffers()[1]
    return np.frombuffer(b"" if buffer is None else buffer, dtype)


def _dictionary_array(page: DictionaryPage, leaf: Leaf) -> pa.Array[Any]:
    """Return the entries of a dictionary as an Arrow array like those of :func:`decode_pages`."""
    if page.width is None:
        return page.binaries(pa.binary())
    return _plain_array(page.data, page.num_values, leaf.width or 0)


def _plain_array(data: Bytes, count: int, width: int) -> pa.Array[Any]:
    """Return PLAIN values of fixed width as an Arrow array, without a copy."""
    buffer = pa.py_buffer(data[: count * width].data)
    return pa.Array.from_buffers(pa.binary(width), count, [None, buffer])
