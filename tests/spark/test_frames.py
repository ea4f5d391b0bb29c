"""Frames of Spark: rows are dealt evenly, sizes are added up, and rows come in order from any number of partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sidecar.spark.frames import in_order, one_each, size_of


@pytest.mark.jvm
def test_each_row_has_a_partition_of_its_own(spark: Any) -> None:
    """Spark's ``repartition`` deals rows unevenly, so that some tasks would have two and others none."""
    frame = one_each(spark, [b"x" * n for n in range(12)])
    found = frame.selectExpr("id", "spark_partition_id() as place", "length(item) as size").toArrow().to_pylist()
    assert Counter(row["place"] for row in found) == dict.fromkeys(range(12), 1)
    assert sorted((row["id"], row["size"]) for row in found) == [(n, n) for n in range(12)]
    assert size_of(frame, "item", "item") == 2 * sum(range(12))
    assert size_of(frame.where("id < 0"), "item") == 0
    for partitions in (1, 3):
        assert [row["id"] for row in in_order(frame, partitions, "id")] == list(range(12))
