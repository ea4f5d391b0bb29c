"""Theta sketches: estimate the number of distinct values of a column in 32 KiB; sketches can be merged.

A sketch keeps every hash below a threshold *theta*. When it would keep more than k = 2^lg_k hashes, theta falls to
the (k+1)-smallest, and the k hashes below stay. Up to k values the count is exact; beyond that, the share of hashes
below theta (of 2^63) gives an estimate. Hashes are MurmurHash3 x64-128 (seed 9001) >> 1 of Iceberg's single-value
serialization. Puffin specification, ``apache-datasketches-theta-v1``.

Bytes of the compact form, as DataSketches writes them (little-endian):

    0      preamble longs: 1 empty or single, 2 exact, 3 with theta
    1      serial version 3
    2      family 3 (compact)
    3, 4   0 (lg sizes, not kept)
    5      flags: 2 read-only, 4 empty, 8 compact, 16 ordered, 32 single item
    6..8   seed hash 0x93CC of seed 9001 (0 in an empty sketch)
    8..12  count, 12..16 float 1.0           (preamble longs 2 and 3)
    16..24 theta                             (preamble longs 3)
    then   the hashes, ascending
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

MAX_THETA = (1 << 63) - 1
SEED_HASH = 0x93CC
DEFAULT_LG_K = 12
_MIN_LG_K = 7
LARGEST_LG_K = 20
"""The largest sketch that is read. A smaller limit would shrink stored sketches and change their estimates."""
_EMPTY_LENGTH = 8
_FEW = 120
"""The most hashes for which DataSketches takes bounds from a table. Our sketches that estimate have more."""
_BIG_ENDIAN, _READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 1, 2, 4, 8, 16, 32
_STEP = 16
"""One hash of so many is looked at to guess a threshold."""
_UNITED = 64
"""Sketches that a union merges at a time."""


class ThetaSketch:
    """The distinct hashes below ``theta``: ``retained`` uint64 [<= k], ascending."""

    def __init__(self, lg_k: int = DEFAULT_LG_K) -> None:
        if not _MIN_LG_K <= lg_k <= LARGEST_LG_K:
            raise UsageError("lg_k is out of range", expected=f"{_MIN_LG_K} to {LARGEST_LG_K}", found=lg_k)
        self.lg_k = lg_k
        self.theta = MAX_THETA
        self.retained: NDArray[np.uint64] = np.empty(0, np.uint64)

    @staticmethod
    def from_arrow(
        values: pa.Array[Any] | pa.ChunkedArray[Any], iceberg_type: str, lg_k: int = DEFAULT_LG_K
    ) -> ThetaSketch:
        """Return the sketch of an array of any Iceberg primitive type, given as text ("long", "decimal(9, 2)")."""
        from sidecar.filters.array_hash import theta_hashes

        sketch = ThetaSketch(lg_k)
        sketch.update(theta_hashes(values, iceberg_type))
        return sketch

    def update(self, hashes: NDArray[np.uint64]) -> None:
        """Add ``hashes``: uint64 [n] below 2**63, from :func:`sidecar.filters.array_hash.theta_hashes`."""
        self.absorb([hashes_below(self.theta, hashes)])

    def absorb(self, more: Iterable[NDArray[np.uint64]]) -> None:
        """Merge ``more`` hashes in, then lower theta until at most k hashes are left."""
        k = 1 << self.lg_k
        merged = _smallest(np.concatenate([self.retained, *more]), k)
        merged = merged[np.searchsorted(merged, np.uint64(1)) : np.searchsorted(merged, np.uint64(self.theta))]
        if len(merged) > k:
            self.theta = int(merged[k])
        self.retained = merged[:k].copy()

    @staticmethod
    def union(sketches: Iterable[ThetaSketch], lg_k: int = DEFAULT_LG_K) -> ThetaSketch:
        """Return the sketch of all values: the smallest theta, and at most ``2**lg_k`` hashes below it.

        DataSketches makes the same of them, more slowly.
        """
        united = ThetaSketch(lg_k)
        parts = list(sketches)
        united.theta = min((sketch.theta for sketch in parts), default=MAX_THETA)
        for at in range(0, len(parts), _UNITED):
            united.absorb([sketch.retained for sketch in parts[at : at + _UNITED]])
        return united

    @staticmethod
    def _trimmed(hashes: NDArray[np.uint64], theta: int, lg_k: int) -> ThetaSketch:
        """Return the sketch of the ``hashes`` below ``theta``, trimmed to ``2**lg_k`` hashes."""
        sketch = ThetaSketch(lg_k)
        sketch.theta = theta
        sketch.absorb([hashes])
        return sketch

    # --- numbers --------------------------------------------------------------------------------------------

    @property
    def is_exact(self) -> bool:
        """Whether every distinct hash is retained."""
        return self.theta == MAX_THETA

    @property
    def estimate(self) -> float:
        """Estimated number of distinct values."""
        return len(self.retained) / self._share

    @property
    def ndv(self) -> int:
        """The estimate rounded down, as in Iceberg's ``ndv`` property."""
        return int(self.estimate)

    def lower_bound(self, n_std: int = 2) -> float:
        """Return the lower end of the interval of ``n_std`` (1, 2, 3) standard deviations around the estimate."""
        n_std = _checked(n_std)
        if self.is_exact or len(self.retained) <= _FEW:
            return float(len(self.retained))
        return min(self.estimate, max(len(self.retained), self._interval_end(-1, n_std) - 0.5))

    def upper_bound(self, n_std: int = 2) -> float:
        """Return the upper end of the interval of ``n_std`` (1, 2, 3) standard deviations around the estimate."""
        n_std = _checked(n_std)
        return self.estimate if self.is_exact else max(self.estimate, self._interval_end(1, n_std) + 0.5)

    @property
    def _share(self) -> float:
        """The share of all hashes that is below theta."""
        return float(self.theta) / MAX_THETA

    def _interval_end(self, sign: int, n_std: int) -> float:
        """Return an end of the interval of a binomial share: that of DataSketches, for few hashes a wider one."""
        n_std += len(self.retained) <= _FEW
        count = (len(self.retained) + sign * 0.5) / self._share
        spread = n_std * math.sqrt((1 - self._share) / self._share)
        return count + 0.5 * spread * (spread + sign * math.sqrt(spread * spread + 4 * count))

    # --- bytes ----------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the sketch in the compact, ordered form; the module's docstring lists the bytes."""
        base = _READ_ONLY | _COMPACT | _ORDERED
        count = len(self.retained)
        body = self.retained.astype("<u8", copy=False).tobytes()
        if count == 0 and self.is_exact:
            return struct.pack("<6BH", 1, 3, 3, 0, 0, base | _EMPTY, 0)
        if count == 1 and self.is_exact:
            return struct.pack("<6BH", 1, 3, 3, 0, 0, base | _SINGLE, SEED_HASH) + body
        head = struct.pack("<6BHIf", 2 if self.is_exact else 3, 3, 3, 0, 0, base, SEED_HASH, count, 1.0)
        return head + (b"" if self.is_exact else struct.pack("<Q", self.theta)) + body

    @staticmethod
    def from_bytes(data: bytes, lg_k: int = DEFAULT_LG_K, name: str | None = None) -> ThetaSketch:
        """Read a compact sketch of any DataSketches writer, ordered or not, trimmed to ``2**lg_k`` hashes.

        ``name`` is the file, for errors. Raises :class:`UnsupportedFeatureError` for another family, version or seed,
        and :class:`DamagedFileError` for bytes that contradict themselves.
        """
        if _is_of_another_form(data):
            raise UnsupportedFeatureError(
                "the blob is not a compact theta sketch of serial version 3 and seed 9001",
                file=name,
                found=data[:8].hex(" "),
            )
        count, theta, length = _preamble(data)
        what = None
        if len(data) < length:
            what = "the theta sketch cannot be read: its bytes end early"
        elif len(data) > length > _EMPTY_LENGTH:
            what = "the length of the theta sketch does not fit its count of hashes"
        if what is not None:
            raise DamagedFileError(what, file=name, expected=f"{length} bytes", found=len(data))
        hashes = np.frombuffer(data, "<u8", count, length - 8 * count).astype(np.uint64)
        in_range = ((hashes > 0) & (hashes < np.uint64(theta))).all()
        if not 0 < theta <= MAX_THETA or not in_range:
            raise DamagedFileError(
                "the theta sketch has hashes out of range",
                file=name,
                expected=f"hashes between 0 and theta, {theta:#x}",
            )
        return ThetaSketch._trimmed(hashes, theta, lg_k)


def hashes_below(theta: int, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return those of ``hashes`` (uint64 [n]) that are below ``theta``, without zeros, which no sketch keeps."""
    from sidecar.kernels.theta import below

    found = np.empty(len(hashes), np.uint64)
    kept: NDArray[np.uint64] = found[: below(hashes, np.uint64(theta), found)].copy()
    return kept


def _smallest(hashes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """Return distinct ``hashes``, ascending: all, or all below some threshold if these are more than ``k``.

    Sorting takes longest, so a sample says below which threshold about 1.5 k of many hashes are.
    """
    if (hashes[1:] > hashes[:-1]).all():
        return hashes
    if len(hashes) > 2 * k:
        place = 3 * k // (2 * _STEP)
        threshold = np.partition(hashes[::_STEP], place)[place]
        found = _distinct(hashes_below(int(threshold), hashes))
        if len(found) > k:
            return found
    return _distinct(hashes)


def _distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    ordered = np.sort(hashes)  # ten times faster than np.unique
    return np.concatenate([ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]])


def _preamble(data: bytes) -> tuple[int, int, int]:
    """Return the count of hashes, theta, and the length in bytes that a sketch has; of cut bytes at least a length."""
    if len(data) < _EMPTY_LENGTH or data[5] & _EMPTY:
        return 0, MAX_THETA, _EMPTY_LENGTH
    longs = data[0] & 0x3F
    if longs == 1:
        return 1, MAX_THETA, 16
    head = 8 * longs
    if len(data) < head:
        return 0, MAX_THETA, head
    count, theta = int.from_bytes(data[8:12], "little"), MAX_THETA
    if longs == 3:
        theta = int.from_bytes(data[16:24], "little")
    return count, theta, head + 8 * count


def _is_of_another_form(data: bytes) -> bool:
    """Return whether the preamble is of another kind of sketch, or of a form that DataSketches reads differently."""
    if len(data) < 8:
        return False
    longs, version, family, _, _, flags, seed = struct.unpack_from("<6BH", data)
    if (version, family) != (3, 3) or not flags & _COMPACT or flags & _BIG_ENDIAN or longs & 0x3F not in (1, 2, 3):
        return True
    return not flags & _EMPTY and seed != SEED_HASH


def _checked(n_std: int) -> int:
    if n_std not in (1, 2, 3):
        raise UsageError("unknown number of standard deviations", expected="1, 2 or 3", found=n_std)
    return n_std
