"""Sketches of chunks, united in a task: whatever their order, sizes and thresholds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa

from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.theta import MAX_THETA, ThetaSketch
from sidecar.indexing.sketches import ChunkSketch, TaskSketches

RANGES = [(0, 20_000), (10_000, 100), (70_000, 400), (50_000, 3_000), (0, 0)]
"""The first value of each chunk, and how many follow each other. Chunks of few values keep all their hashes."""


def sketch(first: int, count: int) -> ChunkSketch:
    chunk = ChunkSketch(MAX_THETA)
    for part in np.array_split(np.arange(first, first + count), 3):
        chunk.update(theta_hashes(pa.array(part), "long"))
    return chunk


def test_chunks_of_any_size_are_united_in_any_order() -> None:
    parts = [sketch(*part) for part in RANGES]
    alone = [ThetaSketch.from_arrow(pa.array(np.arange(at, at + count)), "long") for at, count in RANGES]
    whole = ThetaSketch.union(alone).to_bytes()
    for part, one in zip(parts, alone, strict=True):
        task = TaskSketches()
        task.add(1, part)
        assert task.united[1].to_bytes() == one.to_bytes()
    for order in permutations(parts):
        task = TaskSketches()
        for part in order:
            task.add(1, part)
        assert task.united[1].to_bytes() == whole
        assert task.thresholds[1] == task.united[1].theta


def test_a_chunk_that_begins_below_the_others_threshold_loses_nothing() -> None:
    task = TaskSketches()
    task.add(1, sketch(0, 20_000))
    for _ in range(2):  # the second time everything is known
        late = task.begin(1)
        for part in np.array_split(np.arange(15_000, 40_000), 7):
            late.update(theta_hashes(pa.array(part), "long"))
        task.add(1, late)
    every = np.unique(theta_hashes(pa.array(np.arange(40_000)), "long"))
    found = task.united[1]
    assert found.retained.tolist() == every[every < found.theta].tolist()
    assert len(found.retained) > 256
