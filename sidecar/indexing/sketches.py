"""Collects theta sketches of column chunks and tasks, with thresholds that tasks share.

A sketch keeps the 4,096 smallest hashes of all values of a group of files. Once some values are known, a
hash that is not below their theta can never be in the group's sketch, so it need not be collected at all. Nearly all
hashes are dropped this way, and the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sidecar.filters.theta import MAX_THETA, ThetaSketch, hashes_below

Thresholds = dict[int, int]
"""The lowest known theta of a group of files by field id; the tasks of one process that count the same files share it.
A stale value is larger, so it is safe."""


class ChunkSketch:
    """The sketch of one column chunk. It can be dropped without effect if the chunk is damaged."""

    def __init__(self, theta: int) -> None:
        self._sketch = ThetaSketch()
        self._sketch.theta = theta
        self._pending: list[npt.NDArray[np.uint64]] = []
        self._waiting = 0

    def update(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Add ``hashes``, uint64[n] below 2**63."""
        found = hashes_below(self._sketch.theta, hashes)
        self._pending.append(found)
        self._waiting += len(found)
        if self._waiting > 1 << self._sketch.lg_k:
            self._sketch.absorb(self._pending)
            self._pending, self._waiting = [], 0

    def add_to(self, united: ThetaSketch) -> None:
        """Add all hashes to the sketch of more chunks. This one stays as it is."""
        united.theta = min(united.theta, self._sketch.theta)
        united.absorb([self._sketch.retained, *self._pending])


@dataclass
class TaskSketches:
    """The united sketches of the files of one group in a task, by field id."""

    thresholds: Thresholds = field(default_factory=dict)
    united: dict[int, ThetaSketch] = field(default_factory=dict)

    def begin(self, field_id: int) -> ChunkSketch:
        """Return a new sketch for a chunk of the field."""
        return ChunkSketch(self.thresholds.get(field_id, MAX_THETA))

    def add(self, field_id: int, sketch: ChunkSketch) -> None:
        """Add the sketch of a chunk that was read to its end."""
        united = self.united.setdefault(field_id, ThetaSketch())
        sketch.add_to(united)
        self.thresholds[field_id] = min(united.theta, self.thresholds.get(field_id, MAX_THETA))
