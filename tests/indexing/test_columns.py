"""A column of a unit gets a complete filter or none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.indexing.columns import ColumnWork, FilterBuilder, Options, OrcFilterBuilder, SplitBlockBuilder
from sidecar.indexing.sketches import TaskSketches

OPTIONS = Options(kinds=frozenset({"bloom", "theta"}), fpp=0.01, max_bits=None, reuse="never")
VALUES = pa.array([1, 2, 3], pa.int64())
REFUSED = pa.array([0.5], pa.float64())
"""No integers, so that neither maker has certain bytes for them."""


def makers() -> list[FilterBuilder]:
    return [
        SplitBlockBuilder(Encoding.parse("int64"), 10, OPTIONS),
        OrcFilterBuilder(OrcEncoding.parse("orc/long"), 10, OPTIONS),
    ]


@pytest.mark.parametrize("maker", makers(), ids=["split-block", "orc"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "half-way", "last"])
def test_a_filter_that_refused_some_values_is_no_filter(maker: FilterBuilder, place: int) -> None:
    """Whatever comes after the refusal: a filter that lacks the refused values would deny them."""
    batches: list[Any] = [VALUES, VALUES]
    batches.insert(place, REFUSED)
    work = ColumnWork(("k.parquet", 0, "k", "bloom"), 1, "long", "int64", OPTIONS)
    work.start(maker, TaskSketches())
    for batch in batches:
        work.add(batch)
    work.finish("values")
    assert (work.result.bitset, work.result.outcome.way) == (None, "none")
    assert "double" in work.result.outcome.reason
    assert work.result.sketch is None
    assert work.result.theta_reason


def test_a_filter_that_refused_nothing_is_handed_over() -> None:
    for maker in makers():
        work = ColumnWork(("k.parquet", 0, "k", "bloom"), 1, "long", "int64", OPTIONS)
        work.start(maker, TaskSketches())
        work.add(VALUES)
        work.finish("values")
        outcome = work.result.outcome
        assert (work.result.bitset is not None, outcome.way, outcome.reason) == (True, "values", "")
