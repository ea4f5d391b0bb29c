"""Frames of Spark: rows are dealt evenly, sizes are added up, and rows come in order from any number of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sidecar.spark import frames
from sidecar.spark.frames import in_order, one_each, rows_of_tasks, sizes_by


@pytest.mark.jvm
def test_each_row_has_a_partition_of_its_own(spark: Any) -> None:
    """Spark's ``repartition`` deals rows unevenly, so that some tasks would have two and others none."""
    frame = one_each(spark, [b"x" * n for n in range(12)])
    found = frame.selectExpr("id", "spark_partition_id() as place", "length(item) as size").toArrow().to_pylist()
    assert Counter(row["place"] for row in found) == dict.fromkeys(range(12), 1)
    assert sorted((row["id"], row["size"]) for row in found) == [(n, n) for n in range(12)]
    assert sizes_by(frame, "id", "item", "item") == {n: 2 * n for n in range(12)}
    assert sizes_by(frame.where("id < 0"), "id", "item") == {}
    for partitions in (1, 3):
        assert [row["id"] for row in in_order(frame, partitions, "id")] == list(range(12))


class Recording:
    """A frame that notes how its rows are divided, and gives one row."""

    def __init__(self) -> None:
        self.divided: list[Any] = []

    def toArrow(self) -> pa.Table:  # noqa: N802 Spark's name
        self.divided.append("whole")
        return pa.table({"task": [1]})

    def coalesce(self, partitions: int) -> Recording:
        self.divided.append(("coalesce", partitions))
        return self

    def repartition(self, partitions: int, *keys: str) -> Recording:
        self.divided.append(("repartition", partitions, *keys))
        return self

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[dict[str, int]]:  # noqa: N802, N803
        return iter([{"task": 1}])


@pytest.mark.parametrize(
    ("sizes", "divided"),
    [
        ([], "whole"),
        ([3, 4, 3], "whole"),
        ([9, 9, 9], ("coalesce", 3)),
        ([1, 40], ("coalesce", 5)),
        ([1, 41], ("repartition", 5, "task", "part")),
    ],
)
def test_rows_go_to_the_driver_in_partitions_that_it_can_hold(
    sizes: list[int], divided: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PARTITION_BYTES", 10)
    monkeypatch.setattr(frames, "MOST_OF_A_TASK", 40)
    frame = Recording()
    assert list(rows_of_tasks(frame, sizes, "task", "part")) == [{"task": 1}]
    assert frame.divided == [divided]
