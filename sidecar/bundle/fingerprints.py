"""Fingerprints: 16 bytes that find a live data file in a segment without reading its entry.

XXH64 with seed 0, then XXH64 with seed 1, both little-endian, over the path as the manifest spells it (UTF-8), the
file size and the record count (u64 little-endian each). Size and count are part of it because they tell a file that
was overwritten in place from the one that was indexed.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import xxhash

FINGERPRINT_BYTES = 16
_NUMBERS = struct.Struct("<QQ")
_DIGESTS = struct.Struct("<QQ")


def fingerprint(path: str, file_size: int, record_count: int) -> bytes:
    """The 16 bytes; ValueError for numbers below 0 or beyond 64 bits and for text that is no Unicode."""
    try:
        data = path.encode("utf-8") + _NUMBERS.pack(file_size, record_count)
    except struct.error as error:
        raise ValueError(str(error)) from error
    return _DIGESTS.pack(xxhash.xxh64_intdigest(data, 0), xxhash.xxh64_intdigest(data, 1))


def ordinals(fingerprints: npt.NDArray[np.void]) -> dict[bytes, int]:
    """Ordinal of each fingerprint; one that stands twice is left out, as it says nothing."""
    found: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for ordinal, key in enumerate(fingerprints.tolist()):
        if found.setdefault(key, ordinal) != ordinal:
            twice.add(key)
    for key in twice:
        del found[key]
    return found
