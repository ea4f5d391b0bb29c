"""Decodes the Bloom filter streams of an ORC stripe: a BloomFilterIndex with one BloomFilter for each row group.

| message | fields |
| --- | --- |
| BloomFilterIndex | 1 bloomFilter (repeated) |
| BloomFilter | 1 numHashFunctions; 2 bitset (fixed64, one field a word); 3 utf8bitset (bytes, words little-endian) |

The stream BLOOM_FILTER uses field 2, BLOOM_FILTER_UTF8 uses field 3. Writers give all row groups of a file filters of
the same size. So the messages of a stream usually differ only in their bits, and are decoded together as one table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.orc.bloom import MAX_HASHES, OrcBloomFilter
from sidecar.filters.sizing import MAX_BYTES
from sidecar.orc.protobuf import BYTES, FIXED64, MAX_FIELDS, VARINT, fields_of, varint_at, wrong_type

PRE_RELEASE = "has a pre-release form (words as varints), whose hash is unknown"

_FILTER_TAG = 1 << 3 | BYTES
_K_TAG = 1 << 3 | VARINT
_UTF8_TAG = 3 << 3 | BYTES
_WORD_TAG = 2 << 3 | FIXED64
_WORD = 9  # a tag and eight bytes
_TOO_MANY = DamagedFileError("the stream has more filters than the stripe has row groups")


def decode_filters(data: bytes | memoryview, most: int = MAX_FIELDS) -> list[OrcBloomFilter | SidecarError]:
    """Return the filters of a decompressed stream of either kind, with an error in place of each damaged filter.

    No filter is decoded after the first ``most``. Filters that differ only in their bits are not copied: ``data`` stays
    their memory, and their words need not be aligned in it. Raises :class:`DamagedFileError` if the stream is not a
    BloomFilterIndex.
    """
    table = _table(data)
    if table is not None:
        k, bits = table
        return [*OrcBloomFilter.rows_of(bits[:most], k), *(_TOO_MANY,) * (len(bits) - most)]
    found: list[OrcBloomFilter | SidecarError] = []
    errors: dict[str, SidecarError] = {}  # a few bytes of a stream make one, so equal ones are kept once
    for number, kind, part in fields_of(memoryview(data)):  # without a copy of each filter, which may be large
        if number != 1:
            continue
        if isinstance(part, int):
            raise wrong_type(number, BYTES, kind)
        if len(found) >= most:
            found.append(_TOO_MANY)
            continue
        try:
            found.append(decode_filter(part))
        except SidecarError as error:
            found.append(errors.setdefault(str(error), error.with_traceback(None)))
    return found


def _table(data: bytes | memoryview) -> tuple[int, NDArray[np.uint64]] | None:
    """Return k and the words, uint64 [filters, words], of UTF-8 filters that differ only in their bits; or ``None``."""
    try:
        length, inner = varint_at(data, 1)
        k, at = varint_at(data, inner + 1)
        size, start = varint_at(data, at + 1)
        tags = data[0], data[inner], data[at]
    except (IndexError, DamagedFileError):
        return None
    period = start + size
    alike = tags == (_FILTER_TAG, _K_TAG, _UTF8_TAG) and inner + length == period and len(data) % period == 0
    if not alike or not size or size % 8 or size > MAX_BYTES or not 1 <= k <= MAX_HASHES:
        return None
    table = np.frombuffer(data, np.uint8).reshape(-1, period)
    if (table[:, :start] != table[0, :start]).any():
        return None
    words: NDArray[Any] = np.ndarray((len(table), size // 8), "<u8", data, start, (period, 8))
    return k, words.astype(np.uint64, copy=False)


def decode_filter(data: bytes | memoryview) -> OrcBloomFilter:
    """Decode a BloomFilter message of either stream. Raises :class:`DamagedFileError` if it is not a filter."""
    k, bitset = _word_run(data) or _fields(data)
    return OrcBloomFilter.from_bytes(bitset, k)


def _fields(data: bytes | memoryview) -> tuple[int, bytes | memoryview]:
    k, bitset, words = 0, memoryview(b""), bytearray()
    for number, kind, value in fields_of(memoryview(data)):
        if number == 1 and kind == VARINT:
            k = int(value)
        elif number == 2 and kind == FIXED64:
            words += int(value).to_bytes(8, "little")
        elif number in (2, 3) and not isinstance(value, int):
            bitset = value
        elif number == 3:
            raise UnsupportedFeatureError(f"the filter {PRE_RELEASE}")
        elif number in (1, 2):
            raise DamagedFileError(f"field {number} of a Bloom filter has the wrong wire type")
    if words and bitset:
        raise DamagedFileError("a Bloom filter has a bitset in both forms")
    return k, bitset or bytes(words)


def _word_run(data: bytes | memoryview) -> tuple[int, bytes] | None:
    """Return k and the bitset of a filter of the older form if it is k followed only by words, else ``None``."""
    if len(data) < 2 + _WORD or data[0] != _K_TAG or data[1] >= 0x80 or (len(data) - 2) % _WORD:
        return None
    table = np.frombuffer(data, np.uint8, offset=2).reshape(-1, _WORD)
    return (data[1], table[:, 1:].tobytes()) if (table[:, 0] == _WORD_TAG).all() else None
