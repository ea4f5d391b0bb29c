"""Looking up many keys at once, of which each unit is asked its own run.

A join's keys are sorted, and a unit has to be asked only for those within its bounds: a run of them. Every piece of a
bundle is read and verified once, however many keys test rows of it. Many keys test pieces all over a bundle, so these
are read with what lies between them, the smallest gaps first, while no gap is longer than :data:`READ_COST` and all of
them together no longer than the pieces: at most twice the bytes for a fraction of the reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.filter_bundle import Bits, BundlePiece, FilterBundle, members_in_all, piece_of, rows_of
from sidecar.bundle.filter_toc import StoredGroup
from sidecar.errors import SidecarError
from sidecar.filters.probes import AnyEncoding
from sidecar.filters.values import Probe

UNKNOWN_RATE = 0.01
"""The rate of filters of which the build recorded none."""

READ_COST = 64 * 1024
"""Bytes that may be read in vain to save a read. A local file gives them in 10 to 20 microseconds, which is what a read
costs beside its bytes; of remote files near ranges are one request in any case (:data:`sidecar.source.REMOTE_GAP`)."""

Rows = Mapping[BundlePiece, list[tuple[int, int]]]


@dataclass(frozen=True)
class KeyRuns:
    """Which keys each unit is asked: those at ``[first, end)``, int64[units]; empty where it is not asked."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    @property
    def asks(self) -> Bits:
        """bool[units]"""
        return self.first < self.end

    def covered(self) -> npt.NDArray[np.int64]:
        """Positions of all keys that some unit is asked, rising."""
        found: npt.NDArray[np.int64] = np.empty(0, np.int64)
        first, end = self.first[self.asks], self.end[self.asks]
        if not len(first):
            return found
        order = np.argsort(first, kind="stable")
        first, end = first[order], np.maximum.accumulate(end[order])
        starts = np.flatnonzero(np.concatenate(([True], first[1:] > end[:-1])))
        stops = np.concatenate((starts[1:], [len(first)])) - 1
        return np.concatenate(
            [np.arange(first[a], end[b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        ).astype(np.int64)

    def count_covered(self) -> int:
        """``len(covered())`` without making them."""
        first, end = self.first[self.asks], self.end[self.asks]
        if not len(first):
            return 0
        order = np.argsort(first, kind="stable")
        first, end = first[order], np.maximum.accumulate(end[order])
        before = np.concatenate(([first[0]], end[:-1]))
        return int((end - np.maximum(first, before)).sum())


def rate_of(bundle: FilterBundle) -> float:
    """How often a filter of the bundle says "maybe" of an absent value, as its build expected."""
    members, toc = sum(group.layout.members for group in bundle.toc.groups), bundle.toc
    if toc.expected_false_units is not None and members:
        return toc.expected_false_units / members
    return UNKNOWN_RATE if toc.fpp is None else toc.fpp


def units_with_some_key(
    bundle: FilterBundle,
    keys: npt.NDArray[np.int64],
    probes: Callable[[AnyEncoding], Sequence[Probe]],
    runs: KeyRuns,
    resolution_holds: Callable[[str], bool],
    max_bytes: int,
) -> Bits | int:
    """bool[units]: False where filters deny every key of a unit's run; or the bytes to be read, if too many.

    ``keys`` are the positions that are asked, ``probes`` one answer for each of them in an encoding. Never raises for
    what the file holds: in doubt a unit may hold a key.
    """
    bundle.tell_doubts()
    keep = np.ones(bundle.toc.num_units, np.bool_)
    place = bundle.usable_place()
    if place is None:
        return keep
    wanted: list[_Group] = []
    for group in bundle.toc.groups:
        asked = _located(bundle, place, group, keys, probes, runs, resolution_holds)
        if asked is not None:
            wanted.append(asked)
    pieces = list(dict.fromkeys(piece for group in wanted for _, rows in group.lookups for piece in rows))
    num_bytes = sum(piece.length for piece in pieces)
    if num_bytes > max_bytes:
        return num_bytes
    try:
        read = _read(bundle, pieces)
    except SidecarError as error:
        bundle.doubt(error)
        return keep
    opened = {piece: place.open(piece.context, held) for piece, held in zip(pieces, read, strict=True)}
    data = {piece: held for piece, held in opened.items() if held is not None}
    damaged = opened.keys() - data.keys()
    for piece in damaged:
        bundle.tell_damage(piece)
    for asked in wanted:
        keep[asked.group.units] &= asked.may_hold(data, damaged)
    return keep


def _read(bundle: FilterBundle, pieces: Sequence[BundlePiece]) -> list[bytes]:
    """The bytes of each piece, neighbours in one read."""
    if not pieces:
        return []
    order = sorted(pieces, key=lambda piece: piece.offset)
    starts = np.array([piece.offset for piece in order], np.int64)
    ends = starts + np.array([piece.length for piece in order], np.int64)
    gaps = starts[1:] - ends[:-1]  # pieces do not overlap
    smallest = np.argsort(gaps, kind="stable")
    in_vain = np.cumsum(gaps[smallest])
    apart = np.ones(len(gaps), np.bool_)
    apart[smallest[(gaps[smallest] <= READ_COST) & (in_vain <= int((ends - starts).sum()))]] = False
    first = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.concatenate((first[1:], [len(order)])) - 1
    runs = list(zip(starts[first].tolist(), (ends[last] - starts[first]).tolist(), strict=True))
    read = dict(zip((start for start, _ in runs), bundle.read_ranges(runs), strict=True))
    run_of = np.searchsorted(starts[first], [piece.offset for piece in pieces], side="right") - 1
    found = []
    for piece, run in zip(pieces, run_of.tolist(), strict=True):
        start = runs[run][0]
        found.append(read[start][piece.offset - start : piece.offset - start + piece.length])
    return found


@dataclass(frozen=True)
class _Group:
    """What one group is asked: (key, the rows that it tests), and runs of keys of its members."""

    group: StoredGroup
    lookups: list[tuple[int, Rows]]
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    unknown: Bits
    """Members that a key of the run cannot be looked up in, and those that are asked nothing."""

    def may_hold(self, data: Mapping[BundlePiece, bytes | memoryview], damaged: set[BundlePiece]) -> Bits:
        """bool[N]"""
        found: Bits = self.unknown.copy()
        for key, rows in self.lookups:
            inside = (self.first <= key) & (key < self.end)
            if not damaged.isdisjoint(rows):
                found |= inside
                continue
            held = [rows_of(self.group, data[piece], places) for piece, places in rows.items()]
            found |= members_in_all(self.group, held) & inside
        return found


def _located(
    bundle: FilterBundle,
    place: BlobContext,
    group: StoredGroup,
    keys: npt.NDArray[np.int64],
    probes: Callable[[AnyEncoding], Sequence[Probe]],
    runs: KeyRuns,
    resolution_holds: Callable[[str], bool],
) -> _Group | None:
    """What the group is asked; ``None`` if it cannot answer, or nobody in it is asked."""
    first, end = runs.first[group.units], runs.end[group.units]
    try:
        if not (first < end).any() or not resolution_holds(group.resolution):
            return None
        answers = probes(group.rule.parse_encoding(group.encoding))
    except SidecarError as error:
        bundle.doubt(error)
        return None
    pieces: dict[tuple[int, int], BundlePiece] = {}
    by_row = group.layout.sliced and group.layout.rows_sealed
    own = np.isin(keys, KeyRuns(first, end).covered())
    lookups: list[tuple[int, Rows]] = []
    unknown: list[int] = []
    for at in np.flatnonzero(own).tolist():
        key, found = int(keys[at]), answers[at]
        if found.verdict == "cannot-exist":
            continue
        if found.verdict != "probe" or not found.hashes:
            unknown.append(key)
            continue
        for value in found.hashes:
            rows: dict[BundlePiece, list[tuple[int, int]]] = defaultdict(list)
            for region, row in group.rule.rows(value, group.layout.blocks):
                name = (region, row if by_row else 0)
                if name not in pieces:
                    pieces[name] = piece_of(group, place, region, row)
                rows[pieces[name]].append((region, row))
            lookups.append((key, rows))
    at_first, at_end = np.searchsorted(unknown, first), np.searchsorted(unknown, end)
    return _Group(group, lookups, first, end, (at_first < at_end) | (first >= end))
