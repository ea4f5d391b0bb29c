"""A table of long keys, and what a plan of it has to keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import Table

from sidecar.planning.plan import Plan
from sidecar.reading.scanning import read
from tests.iceberg.cases import (
    comparable,
    oracle,
)
from tests.tables import create_with_rows

LONGS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def longs(seed: int, count: int = 200) -> pa.Table:
    """Random even keys, so that every odd key is absent and within bounds."""
    keys = np.random.default_rng(seed).integers(-(2**60), 2**60, count) * 2
    return pa.table({"k": keys, "v": [f"{seed}-{n}" for n in range(count)]}, schema=LONGS)


def key(seed: int, row: int = 17) -> int:
    return int(longs(seed)["k"][row].as_py())


def create_longs(catalog: Any, name: str, files: int = 5, build: bool = True) -> Table:
    return create_with_rows(catalog, name, map(longs, range(files)), LONGS, ["k"] if build else [])


def assert_right_in_memory(table: Table, planned: Plan) -> None:
    """The rows are those of a filter over all rows, for promoted columns: pyiceberg's scan loses some of theirs."""
    whole = table.scan().to_arrow()
    bound = bind(table.schema(), planned.row_filter, case_sensitive=True)
    wanted = whole.filter(expression_to_pyarrow(bound, table.schema()))
    assert comparable(read(planned)) == comparable(wanted)


def assert_right(table: Table, planned: Plan, snapshot_id: int | None = None) -> None:
    assert comparable(read(planned)) == comparable(oracle(table, planned.row_filter, snapshot_id))
