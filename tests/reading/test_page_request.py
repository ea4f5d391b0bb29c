"""A sidecar's page index of a column is used for the right leaf of a file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.parquet.footer import read_footer
from sidecar.parquet.scan.schema_parts import read_shape
from sidecar.reading.page_request import PagePlanner
from sidecar.storage.source import BytesSource
from tests.tables import iceberg_schema


def planner(columns: list[tuple[str, int]]) -> Any:
    """Of a file with these columns: name and field id (0: none)."""
    fields = [
        pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": b"%d" % number} if number else None)
        for name, number in columns
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays([pa.array([1, 2])] * len(fields), schema=pa.schema(fields)), sink)
    footer = read_footer(BytesSource(sink.getvalue().to_pybytes()))
    schema: Any = iceberg_schema("a long")
    view: Any = SimpleNamespace(
        physical_schema=read_shape(footer).schema, projected=schema, file_schema=schema, row_filter=None
    )
    return PagePlanner(view, None, footer)


@pytest.mark.parametrize(
    ("columns", "resolution", "place"),
    [
        ([("a", 1), ("b", 2)], "id", 0),
        ([("b", 2), ("a", 1)], "id", 1),
        ([("a", 1), ("b", 1)], "id", None),
        ([("a", 2), ("b", 3)], "id", None),
        ([("a", 0), ("b", 0)], "name:a", 0),
        ([("b", 0), ("a", 0)], "name:a|c", 1),
        ([("a", 0), ("a", 0)], "name:a", None),
        ([("b", 0)], "name:a", None),
    ],
)
def test_a_leaf_is_found_only_if_it_is_the_only_one(
    columns: list[tuple[str, int]], resolution: str, place: int | None
) -> None:
    found = planner(columns)._stored_leaf(1, resolution)
    assert (None if found is None else found.index) == place
