"""Fingerprints: 24 bytes that find a live data file in a segment without decoding its entry.

    offset  size  content (little-endian)
    0       8     u64 XXH64, seed 0, of the path as the manifest spells it (UTF-8), u64 file size, u64 record count
    8       8     u64 XXH64, seed 1, of the same bytes and i64 id of the adding snapshot; 0 if that is unknown
    16      8     i64 file sequence number, 0 if the file has none

The first number names a file. The second also identifies its content (:mod:`sidecar.bundle.file_identity`).
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
"""Array with dtype :data:`FINGERPRINT`, one item for each file."""


def fingerprint(file: DataFileIdentity) -> bytes:
    """Return the 24 bytes of a file. Raises ValueError for numbers that do not fit and paths that are not Unicode."""
    try:
        named = file.path.encode("utf-8") + _NUMBERS.pack(file.file_size, file.record_count)
        added = 0
        if file.is_certain:
            added = xxhash.xxh64_intdigest(named + _ADDED.pack(file.added_snapshot_id), 1)
        return _FINGERPRINT.pack(xxhash.xxh64_intdigest(named, 0), added, file.file_sequence_number)
    except struct.error as error:
        raise ValueError(str(error)) from error


class FingerprintIndex:
    """Finds files by their fingerprints. A fingerprint that occurs twice in a segment is ambiguous and never found."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._sequences = fingerprints["sequence"]
        self._names = fingerprints["name"]
        self._ordinals = _unique(_keys(fingerprints))

    @property
    def repeated(self) -> list[int]:
        """The ordinals of the files that are never found."""
        if len(self._ordinals) == len(self._names):  # nearly always
            return []
        return sorted(set(range(len(self._names))).difference(self._ordinals.values()))

    def find(self, file: DataFileIdentity) -> int | None:
        """Return the ordinal of the same file; ``None`` if it is not listed or not certain to be the same."""
        try:
            ordinal = self._ordinals.get(fingerprint(file)[:_KEY_BYTES]) if file.is_certain else None
        except ValueError:
            return None
        if ordinal is None or not sequences_agree(int(self._sequences[ordinal]), file.file_sequence_number):
            return None
        return ordinal

    def find_all(self, fingerprints: Fingerprints) -> npt.NDArray[np.int64]:
        """Return int64[n]: the ordinal of each file in this segment; -1 where :meth:`find` would return ``None``."""
        ordinals = np.array([self._ordinals.get(key, -1) for key in _keys(fingerprints)], np.int64)
        known = (ordinals >= 0) & (fingerprints["added"] != 0)
        known[known] = sequences_agree(self._sequences[ordinals[known]], fingerprints["sequence"][known])
        ordinals[~known] = -1
        return ordinals

    def find_named(self, path: str, file_size: int, record_count: int) -> int | None:
        """Return the ordinal of the only file with this path, size and record count, whose content may differ."""
        try:
            name, _, _ = _FINGERPRINT.unpack(fingerprint(DataFileIdentity(path, file_size, record_count)))
        except ValueError:
            return None
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[int, int]:
        return _unique(self._names.tolist())


def _keys(fingerprints: Fingerprints) -> list[bytes]:
    """Return the first two numbers of each fingerprint, as bytes."""
    rows = np.ascontiguousarray(fingerprints).view(np.uint8).reshape(-1, FINGERPRINT_BYTES)
    keys: list[bytes] = np.ascontiguousarray(rows[:, :_KEY_BYTES]).view(f"V{_KEY_BYTES}").ravel().tolist()
    return keys


def _unique(keys: Iterable[K]) -> dict[K, int]:
    """Return the index of each key. Keys that occur twice are left out."""
    places: dict[K, int] = {}
    twice: set[K] = set()
    for place, key in enumerate(keys):
        if places.setdefault(key, place) != place:
            twice.add(key)
    for key in twice:
        del places[key]
    return places
