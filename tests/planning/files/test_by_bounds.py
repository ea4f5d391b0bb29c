"""Columns of bounds: what is read of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sidecar.bundle.units.reader import UnitsReader
from sidecar.planning.planner import plan
from tests.planning.listed_cases import way
from tests.tables import create_with_rows


def test_the_bounds_of_a_column_are_read_once_for_all_comparisons(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [pa.table({"k": range(n, n + 10), "v": range(n, n + 10)}) for n in range(0, 40, 10)]
    table = create_with_rows(catalog, "db.by_bounds", parts, columns=["k"])
    right, asked = UnitsReader.bounds, list[int]()
    monkeypatch.setattr(UnitsReader, "bounds", lambda self, field_id: asked.append(field_id) or right(self, field_id))
    with way(FEW=0, BROAD=0):
        planned = plan(table, "k >= 10 and k < 30 and (v > 12 or v < 3) and k != 25")
    assert planned.funnel.dropped_by_metadata == 2
    assert asked == [1, 2]
