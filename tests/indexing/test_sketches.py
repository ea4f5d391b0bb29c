"""Sketches of chunks, united in a task: whatever their order, sizes and thresholds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa

from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.theta import ThetaSketch
from sidecar.indexing.sketches import TaskSketches


def sketch(first: int, count: int) -> ThetaSketch:
    return ThetaSketch.from_arrow(pa.array(np.arange(first, first + count)), "long", 9)


def test_chunks_of_any_size_are_united_in_any_order() -> None:
    parts = [sketch(0, 20_000), sketch(10_000, 100), sketch(50_000, 3_000), sketch(0, 0)]
    whole = ThetaSketch.union(parts, 9).to_bytes()
    for order in permutations(parts):
        task = TaskSketches(9)
        for part in order:
            task.add(1, part)
        assert task.united[1].to_bytes() == whole
        assert task.thresholds[1] == task.united[1].theta


def test_a_chunk_that_begins_below_the_others_threshold_loses_nothing() -> None:
    task = TaskSketches(9)
    task.add(1, sketch(0, 20_000))
    for _ in range(2):  # the second time everything is known
        late = task.begin(1)
        for part in np.array_split(np.arange(15_000, 40_000), 7):
            late.update(theta_hashes(pa.array(part), "long"))
        task.add(1, late.finish())
    every = np.unique(theta_hashes(pa.array(np.arange(40_000)), "long"))
    found = task.united[1]
    assert found.retained.tolist() == every[every < found.theta].tolist()
    assert len(found.retained) > 256
