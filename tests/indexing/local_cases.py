"""A table to build indexes of, and what must hold of every build of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.storage.locations import local_path
from tests.indexing.cases import file_values, filters_of, misses
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("c", pa.int64()), ("s", pa.string()), ("f", pa.float64())])
ABSENT = 2**59 + 1
"""A key within the bounds of every file that none of them has."""
KINDS = {"k": (1, "long"), "c": (2, "long"), "s": (3, "string"), "f": (4, "double")}


def some_rows(number: int, count: int = 3000) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "k": random.integers(0, 2**60, count),
            "c": np.arange(count) // 10 + number * count,
            "s": [None if i % 7 == 0 else f"row {i} {number}" for i in range(count)],
            "f": random.choice([0.0, -0.0, float("nan"), 1.5, 2.5], count),
        },
        schema=SCHEMA,
    )


def some_table(catalog: Any, name: str, files: int = 4, **properties: str) -> Any:
    return create_with_rows(catalog, f"db.{name}", map(some_rows, range(files)), SCHEMA, **properties)


def assert_nothing_is_denied(table: Any) -> int:
    """Every value of every column of every row group is kept by its filter; returns how many filters there
    are."""
    names = {field_id: (name, kind) for name, (field_id, kind) in KINDS.items()}
    filters = filters_of(table)
    for (path, row_group, field_id), (encoding, bitset) in filters.items():
        name, kind = names[field_id]
        values = set(file_values(local_path(path) or "", row_group, name, kind))
        assert misses(SplitBlockBloomFilter.from_bytes(bitset), encoding, kind, values) == []
    return len(filters)
