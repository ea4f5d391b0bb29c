"""Decides which segments of a sidecar are merged when it is written: one base and one delta.

Each segment costs a lookup about four reads, so there are two: a base and a delta. A build that adds a segment merges
the delta with it. If the delta were then larger than an eighth of the base, base and delta are merged into a new base
instead, and the new segment becomes the delta. So the new segment is merged at once only while it is small.

Write amplification, counted in bytes of filters and indexes that pass through a merge for each byte that is added: a
byte is rewritten with its delta until the delta has an eighth of the base B, which on average is half of the B / (8 n)
builds that add n bytes each; and each fold rewrites 9/8 B for B / 8 bytes. That is B / (16 n) + 9 for each byte added.

A segment of which more than a third of the files are gone is rewritten without them, so that a lookup never reads
much more than the filters of live files.

A refresh merges base, delta and new segment into one where that costs little (:mod:`sidecar.maintenance.costs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FOLD_SHARE = 8
"""The base is at least this many times as large as the delta."""
GONE_SHARE = 3
"""A segment is rewritten if more than one in this many of its files are gone."""


@dataclass(frozen=True)
class StoredSize:
    """The bytes of a carried segment, its files, and how many of them are live."""

    size: int
    files: int
    live: int

    @property
    def is_worn(self) -> bool:
        """Whether the segment is rewritten because many of its files are gone."""
        return (self.files - self.live) * GONE_SHARE > self.files


@dataclass(frozen=True)
class SegmentRun:
    """Carried segments that become one, by number. ``rewritten``: they are merged, not copied as bytes."""

    members: tuple[int, ...]
    rewritten: bool


@dataclass(frozen=True)
class Arrangement:
    """The segments of the new file, in order. ``with_new``: the new segment is merged with the last of them."""

    runs: tuple[SegmentRun, ...]
    with_new: bool = False


def arrange(carried: Sequence[StoredSize], new_size: int | None, into_one: bool = False) -> Arrangement:
    """Arrange carried segments, oldest first, and a new one of ``new_size`` bytes (``None``: there is none).

    ``into_one``: all of them become one segment.
    """
    everything = tuple(range(len(carried)))
    if into_one and carried:
        return Arrangement((_segment_run(carried, everything),), with_new=new_size is not None)
    if len(carried) < 2 or carried[0].is_worn:
        return Arrangement((_segment_run(carried, everything),) if carried else ())
    base, delta = everything[:1], everything[1:]
    if new_size is None and len(delta) == 1:
        return Arrangement((_segment_run(carried, base), _segment_run(carried, delta)))
    delta_size = sum(carried[number].size for number in delta) + (new_size or 0)
    if delta_size * FOLD_SHARE <= carried[0].size:
        runs = (_segment_run(carried, base), _segment_run(carried, delta))
        return Arrangement(runs, with_new=new_size is not None)
    return Arrangement((_segment_run(carried, everything),))


def _segment_run(carried: Sequence[StoredSize], members: tuple[int, ...]) -> SegmentRun:
    return SegmentRun(members, len(members) > 1 or carried[members[0]].is_worn)
