"""Groups of files whose values one sketch counts: they follow partitions and commits, and keep to their limits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sketches.regrouping import MOST_BYTES, MOST_FILES
from sidecar.iceberg.listing import SnapshotFile
from sidecar.indexing.packing import make_tasks
from sidecar.indexing.sketch_groups import group_files

MB = 1 << 20


def file(ordinal: int, partition: int, commit: int, size: int = MB, spec: int = 0) -> Any:
    identity = DataFileIdentity(f"file {ordinal}", size, 100, 1000 + commit, commit)
    found = SnapshotFile.__new__(SnapshotFile)
    facts: dict[str, Any] = {
        "ordinal": ordinal,
        "spec_id": spec,
        "partition": (partition.to_bytes(4, "little"),),
        "known_as": identity,
        "data_file": _DataFile(f"file {ordinal}", size),
        "identity": {},
    }
    for name, value in facts.items():
        object.__setattr__(found, name, value)
    return found


class _DataFile:
    file_format = None

    def __init__(self, path: str, size: int) -> None:
        self.file_path, self.file_size_in_bytes, self.record_count = path, size, 100


def shapes(groups: Sequence[Sequence[Any]]) -> list[list[tuple[int, int, int]]]:
    """For each group (partition, commit, number of files)."""
    return [[(*key, count) for key, count in Counter(_key(file) for file in group).items()] for group in groups]


def _key(file: Any) -> tuple[int, int]:
    return int.from_bytes(file.partition[0], "little"), file.known_as.file_sequence_number


def test_files_of_a_partition_are_together_whatever_their_order() -> None:
    files = [file(i, partition=i % 3, commit=i // 300) for i in range(600)]
    assert shapes(group_files(files)) == [[(p, 0, 100), (p, 1, 100)] for p in range(3)]


def test_partitions_are_in_the_order_of_their_first_commit() -> None:
    """Old partitions are removed first, so neighbours in time share a group."""
    files = [file(i, partition=900 - day, commit=day) for i, day in enumerate(range(100))]
    random.Random(1).shuffle(files)
    assert [p for group in group_files(files) for p, _ in map(_key, group)] == list(range(900, 800, -1))


def test_small_partitions_share_a_group_and_larger_ones_do_not() -> None:
    """A group ends with its partition if it has a quarter of the most files, or of the most bytes."""
    quarter = MOST_FILES // 4
    small = [file(i, i // (quarter - 1), 1) for i in range(2 * (quarter - 1))]
    assert len(group_files(small)) == 1
    assert shapes(group_files([file(i, i // quarter, 1) for i in range(2 * quarter)])) == [
        [(0, 1, quarter)],
        [(1, 1, quarter)],
    ]
    heavy = [file(i, i // 2, 1, MOST_BYTES // 8) for i in range(6)]
    assert shapes(group_files(heavy)) == [[(0, 1, 2)], [(1, 1, 2)], [(2, 1, 2)]]
    assert len(group_files([file(i, 0, 1, spec=i // quarter) for i in range(2 * quarter)])) == 2


def test_small_commits_share_a_group_and_larger_ones_do_not() -> None:
    half = MOST_FILES // 2
    assert shapes(group_files([file(i, 0, i) for i in range(MOST_FILES)]))[0] == [(0, n, 1) for n in range(half)]
    files = [file(i, i // MOST_FILES, i % MOST_FILES) for i in range(2 * MOST_FILES)]
    assert [len(group) for group in group_files(files)] == 4 * [half]
    assert shapes(group_files([file(i, 0, i // half) for i in range(2 * half)])) == [[(0, 0, half)], [(0, 1, half)]]


def test_a_group_has_fewer_files_than_come_after_it_in_a_table_of_one_partition() -> None:
    """So a rollback that takes n files away leaves fewer than n that are counted again."""
    assert [len(group) for group in group_files([file(i, 0, i) for i in range(100)])] == [50, 25, 13, 6, 3, 2, 1]
    assert [len(group) for group in group_files([file(i, 0, 1) for i in range(100)])] == [100]


def test_a_file_that_is_too_large_is_alone() -> None:
    sizes = [MB, 2 * MOST_BYTES, MB, MB]
    groups = group_files([file(i, 0, 1, size) for i, size in enumerate(sizes)])
    assert [[f.ordinal for f in group] for group in groups] == [[0], [1], [2, 3]]


@pytest.mark.parametrize("seed", range(5))
def test_every_file_is_in_one_group_within_the_limits(seed: int) -> None:
    chance = random.Random(seed)
    files = [
        file(i, chance.randrange(20), chance.randrange(30), chance.choice([MB, 100 * MB, 3 << 30])) for i in range(900)
    ]
    groups = group_files(files)
    assert sorted(f.ordinal for group in groups for f in group) == list(range(900))
    for group in groups:
        assert len(group) <= MOST_FILES
        assert sum(f.file_size for f in group) <= MOST_BYTES
    assert group_files([]) == []
    tasks = make_tasks(groups, "local")
    pieces = [piece for task in tasks for piece in task.pieces]
    assert [piece.group for piece in pieces] == sorted(piece.group for piece in pieces)
    assert {piece.file: piece.group for piece in pieces} == {
        f.ordinal: number for number, group in enumerate(groups) for f in group
    }
    sketches = {(number, piece.group) for number, task in enumerate(tasks) for piece in task.pieces}
    assert len(sketches) <= len(tasks) + len(groups)


def test_tasks_of_threads_are_smaller_than_those_of_spark() -> None:
    groups = group_files([file(number, 0, 1, MB) for number in range(32)])
    assert (len(make_tasks(groups, "local")), len(make_tasks(groups, "spark"))) == (8, 2)
    assert len(make_tasks(group_files([file(0, 0, 1, 12 * MB)]), "local")) == 1
