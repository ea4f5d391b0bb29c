"""Looks up many keys at once, where each unit needs only a run of the sorted keys.

The keys of a join are sorted, and a unit needs only those within its bounds, which are a run of them. Every piece of a
bundle is read and verified once, no matter how many keys test its rows. Many keys test pieces all over a bundle, so
neighbouring pieces are read together with the gap between them, smallest gaps first. A gap is read only if it is at
most :data:`READ_COST` long, and all gaps together are at most as long as the pieces. So at most twice the bytes are
read, with a fraction of the reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.filter_bundle import (
    Bits,
    BundlePiece,
    FilterBundle,
    members_in_all,
    piece_of,
    rows_of,
)
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.errors import SidecarError
from sidecar.filters.probes import FieldQuestion
from sidecar.questions.bounds import Unknown

UNKNOWN_RATE = 0.01
"""The assumed false positive rate of filters whose build recorded none."""

READ_COST = 64 * 1024
"""Bytes that may be read in vain to save a read. A local disk delivers them in 10 to 20 microseconds, the fixed cost of
a read. Remote files join near ranges in any case (:data:`sidecar.storage.costs.REMOTE_GAP`)."""

RowsOfPieces = Mapping[BundlePiece, list[tuple[int, int]]]


@dataclass(frozen=True)
class KeyRuns:
    """The keys that each unit needs: positions ``[first, end)``, int64[units]; empty for units without a lookup."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    @property
    def asks(self) -> Bits:
        """bool[units]: which units need a lookup of some key."""
        return self.first < self.end

    def covered(self) -> npt.NDArray[np.int64]:
        """Return the positions of all keys that some unit needs, rising."""
        nothing: npt.NDArray[np.int64] = np.empty(0, np.int64)
        first, end = self.first[self.asks], self.end[self.asks]
        if not len(first):
            return nothing
        order = np.argsort(first, kind="stable")
        first, end = first[order], np.maximum.accumulate(end[order])
        starts = np.flatnonzero(np.concatenate(([True], first[1:] > end[:-1])))
        stops = np.concatenate((starts[1:], [len(first)])) - 1
        return np.concatenate(
            [np.arange(first[a], end[b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        ).astype(np.int64)

    def count_covered(self) -> int:
        """Return ``len(covered())`` without building the array."""
        first, end = self.first[self.asks], self.end[self.asks]
        if not len(first):
            return 0
        order = np.argsort(first, kind="stable")
        first, end = first[order], np.maximum.accumulate(end[order])
        before = np.concatenate(([first[0]], end[:-1]))
        return int((end - np.maximum(first, before)).sum())


def rate_of(bundle: FilterBundle) -> float:
    """Return the share of absent values for which a filter of the bundle says "maybe", as its build expected."""
    members, toc = sum(group.layout.members for group in bundle.toc.groups), bundle.toc
    if toc.expected_false_units is not None and members:
        return toc.expected_false_units / members
    return UNKNOWN_RATE if toc.fpp is None else toc.fpp


def units_with_some_key(
    bundle: FilterBundle, question: FieldQuestion, keys: npt.NDArray[np.int64], runs: KeyRuns, max_bytes: int
) -> Bits | Unknown:
    """Return bool[units]: False where filters exclude every key of a unit's run.

    It is unknown if more than ``max_bytes`` would be read. ``keys`` are positions of keys; ``question`` has one probe
    for each of them. Never raises for the content of the file: in doubt, a unit is kept.
    """
    bundle.report_skipped_groups()
    keep = np.ones(bundle.toc.num_units, np.bool_)
    place = bundle.usable_place()
    if place is None:
        return keep
    lookups: list[_Group] = []
    for group in bundle.toc.groups:
        lookup = _located(bundle, place, group, question, keys, runs)
        if lookup is not None:
            lookups.append(lookup)
    pieces = list(dict.fromkeys(piece for group in lookups for _, rows in group.lookups for piece in rows))
    num_bytes = sum(piece.length for piece in pieces)
    if num_bytes > max_bytes:
        return Unknown(f"{num_bytes:,} bytes would be read")
    try:
        read = _read(bundle, pieces)
    except SidecarError as error:
        bundle.report(error)
        return keep
    opened = {piece: place.open(piece.context, held) for piece, held in zip(pieces, read, strict=True)}
    data = {piece: held for piece, held in opened.items() if held is not None}
    damaged = opened.keys() - data.keys()
    for piece in damaged:
        bundle.report_damage(piece)
    for lookup in lookups:
        keep[lookup.group.units] &= lookup.may_hold(data, damaged)
    return keep


def _read(bundle: FilterBundle, pieces: Sequence[BundlePiece]) -> list[bytes]:
    """Return the bytes of each piece. Neighbours share a read."""
    if not pieces:
        return []
    order = sorted(pieces, key=lambda piece: piece.offset)
    starts = np.array([piece.offset for piece in order], np.int64)
    ends = starts + np.array([piece.length for piece in order], np.int64)
    gaps = starts[1:] - ends[:-1]  # pieces do not overlap
    smallest = np.argsort(gaps, kind="stable")
    gap_bytes = np.cumsum(gaps[smallest])
    apart = np.ones(len(gaps), np.bool_)
    apart[smallest[(gaps[smallest] <= READ_COST) & (gap_bytes <= int((ends - starts).sum()))]] = False
    first = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.concatenate((first[1:], [len(order)])) - 1
    runs = list(zip(starts[first].tolist(), (ends[last] - starts[first]).tolist(), strict=True))
    read = dict(zip((start for start, _ in runs), bundle.read_ranges(runs), strict=True))
    run_of = np.searchsorted(starts[first], [piece.offset for piece in pieces], side="right") - 1
    contents = []
    for piece, run in zip(pieces, run_of.tolist(), strict=True):
        start = runs[run][0]
        contents.append(read[start][piece.offset - start : piece.offset - start + piece.length])
    return contents


@dataclass(frozen=True)
class _Group:
    """The lookups in one group: (key, the rows that it tests), and each member's run of keys."""

    group: StoredGroup
    lookups: list[tuple[int, RowsOfPieces]]
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    unknown: Bits
    """Members without a lookup, and members whose run has a key that cannot be looked up. They are kept."""

    def may_hold(self, data: Mapping[BundlePiece, bytes | memoryview], damaged: set[BundlePiece]) -> Bits:
        """Return bool[N]: which members may contain a key of their run. Damaged pieces count as "maybe"."""
        kept: Bits = self.unknown.copy()
        for key, rows in self.lookups:
            inside = (self.first <= key) & (key < self.end)
            if not damaged.isdisjoint(rows):  # a damaged piece excludes nothing
                kept |= inside
                continue
            tested = [rows_of(self.group, data[piece], places) for piece, places in rows.items()]
            kept |= members_in_all(self.group, tested) & inside
        return kept


def _located(
    bundle: FilterBundle,
    place: BlobContext,
    group: StoredGroup,
    question: FieldQuestion,
    keys: npt.NDArray[np.int64],
    runs: KeyRuns,
) -> _Group | None:
    """Return the lookups in a group, ``None`` if it cannot answer or none of its members needs a lookup."""
    first, end = runs.first[group.units], runs.end[group.units]
    answers = bundle.probes_for(group, question) if (first < end).any() else None
    if answers is None:
        return None
    pieces: dict[tuple[int, int], BundlePiece] = {}
    by_row = group.layout.sliced and group.layout.rows_sealed
    needed = np.isin(keys, KeyRuns(first, end).covered())
    lookups: list[tuple[int, RowsOfPieces]] = []
    unknown: list[int] = []
    for at in np.flatnonzero(needed).tolist():
        key, answer = int(keys[at]), answers[at]
        if not answer.is_certain:
            unknown.append(key)
            continue
        for value in answer.hashes:
            rows: dict[BundlePiece, list[tuple[int, int]]] = defaultdict(list)
            for region, row in group.rule.rows(value, group.layout.blocks):
                name = (region, row if by_row else 0)
                if name not in pieces:
                    pieces[name] = piece_of(group, place, region, row)
                rows[pieces[name]].append((region, row))
            lookups.append((key, rows))
    at_first, at_end = np.searchsorted(unknown, first), np.searchsorted(unknown, end)
    return _Group(group, lookups, first, end, (at_first < at_end) | (first >= end))
