"""Fingerprints: 24 bytes that find a live data file in a segment without reading its entry.

    offset  size  content (little-endian)
    0       8     u64 XXH64, seed 0, of the path as the manifest spells it (UTF-8), u64 file size, u64 record count
    8       8     u64 XXH64, seed 1, of the same and i64 id of the snapshot that added the file; 0 if that is not known
    16      8     i64 file sequence number, 0 if there is none

The first number names a file, the second says that it is the very one (:mod:`sidecar.bundle.file_identity`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from sidecar.bundle.file_identity import DataFileIdentity, sequences_agree

FINGERPRINT = np.dtype([("name", "<u8"), ("added", "<u8"), ("sequence", "<i8")])
FINGERPRINT_BYTES = FINGERPRINT.itemsize
_KEY_BYTES = 16
_NUMBERS = struct.Struct("<QQ")
_ADDED = struct.Struct("<q")
_FINGERPRINT = struct.Struct("<QQq")

K = TypeVar("K")

Fingerprints = npt.NDArray[np.void]
"""Items of :data:`FINGERPRINT`, one a file."""


def fingerprint(file: DataFileIdentity) -> bytes:
    """The 24 bytes of a file. Raises ValueError for numbers that do not fit and a path that is not valid Unicode."""
    try:
        named = file.path.encode("utf-8") + _NUMBERS.pack(file.file_size, file.record_count)
        added = 0
        if file.is_certain:
            added = xxhash.xxh64_intdigest(named + _ADDED.pack(file.added_snapshot_id), 1)
        return _FINGERPRINT.pack(xxhash.xxh64_intdigest(named, 0), added, file.file_sequence_number)
    except struct.error as error:
        raise ValueError(str(error)) from error


class FingerprintIndex:
    """Finds files by their fingerprints, but for fingerprints that occur twice in a segment: these are ambiguous."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._sequences = fingerprints["sequence"]
        self._names = fingerprints["name"]
        self._ordinals = _unique(_keys(fingerprints))

    def find(self, file: DataFileIdentity) -> int | None:
        """The ordinal of the same file; ``None`` if it is not there, or not certain to be the same."""
        try:
            ordinal = self._ordinals.get(fingerprint(file)[:_KEY_BYTES]) if file.is_certain else None
        except ValueError:
            return None
        if ordinal is None or not sequences_agree(int(self._sequences[ordinal]), file.file_sequence_number):
            return None
        return ordinal

    def find_all(self, fingerprints: Fingerprints) -> npt.NDArray[np.int64]:
        """The ordinals of files, of another segment perhaps, int64[n]; -1 for those that :meth:`find` does not find."""
        found = np.array([self._ordinals.get(key, -1) for key in _keys(fingerprints)], np.int64)
        there = (found >= 0) & (fingerprints["added"] != 0)
        there[there] = sequences_agree(self._sequences[found[there]], fingerprints["sequence"][there])
        found[~there] = -1
        return found

    def find_named(self, path: str, file_size: int, record_count: int) -> int | None:
        """The ordinal of the one file of this path, size and record count, which may have other content."""
        try:
            name, _, _ = _FINGERPRINT.unpack(fingerprint(DataFileIdentity(path, file_size, record_count)))
        except ValueError:
            return None
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[int, int]:
        return _unique(self._names.tolist())


def _keys(fingerprints: Fingerprints) -> list[bytes]:
    """The first two numbers of each, as bytes."""
    rows = np.ascontiguousarray(fingerprints).view(np.uint8).reshape(-1, FINGERPRINT_BYTES)
    keys: list[bytes] = np.ascontiguousarray(rows[:, :_KEY_BYTES]).view(f"V{_KEY_BYTES}").ravel().tolist()
    return keys


def _unique(keys: Iterable[K]) -> dict[K, int]:
    """The place of each key; a key that occurs twice is left out."""
    found: dict[K, int] = {}
    twice: set[K] = set()
    for place, key in enumerate(keys):
        if found.setdefault(key, place) != place:
            twice.add(key)
    for key in twice:
        del found[key]
    return found
