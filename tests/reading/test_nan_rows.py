"""NaN and both zeros are found beside equal numbers, although Arrow takes a column with equal bounds as constant."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import FileScanTask, Table

import sidecar
from sidecar.access import Access
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.file_question import FileQuestion
from sidecar.reading import arrow_reader
from sidecar.reading.arrow_reader import SMALL, TableReader
from sidecar.storage.locations import local_path

SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float32()), ("d", pa.float64())])
CELLS = [1.0, math.nan, None, 5.0, 5.0, 5.0, math.inf, math.nan, math.inf, math.nan, math.nan, None, 0.0, -0.0, None]
"""In row groups of three."""
PREDICATES = [
    *(
        f"{name} {rest}"
        for name in "fd"
        for rest in (
            "is nan",
            "is not nan",
            "!= 1",
            "!= 5",
            "= 5",
            "> 0",
            "not in (1, inf)",
            "in (1, inf)",
            "in (0.0, 7)",
            "not in (0.0, 7)",
        )
    ),
    "not (d = 1)",
    "not (f > 0 and d > 0) or id = 4",
    "f is nan and id < 5",
    "f is nan or id = 3",
]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made: Table = catalog.create_table("db.nan_rows", SCHEMA, properties={"write.parquet.row-group-limit": "3"})
    made.append(pa.table([range(len(CELLS)), CELLS, CELLS], schema=SCHEMA))
    return made


@pytest.mark.parametrize(("with_sidecar", "small"), [(False, 0), (False, SMALL), (True, SMALL)])
def test_rows_are_those_that_arrow_finds_in_memory(
    table: Table, with_sidecar: bool, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_reader, "SMALL", small)  # with 0, Arrow's scanner reads the file
    if with_sidecar:
        sidecar.build(table, ["f", "d"], kinds=["bloom", "page-index"], engine="local")
        table.refresh()
    everything, schema = table.scan().to_arrow(), table.schema()
    for text in PREDICATES:
        bound = bind(schema, parse_predicate(text, schema), case_sensitive=True)
        expected = everything.filter(expression_to_pyarrow(bound))["id"].to_pylist()
        assert sidecar.scan(table, text)["id"].to_pylist() == expected, text


@pytest.mark.parametrize(
    ("text", "scanned"),
    [
        ("d is nan", {0, 1, 2, 3, 4}),
        ("d is nan and id >= 9", {3, 4}),
        ("d > 9 and f != 5", {2, 3}),
        ("not (id < 9)", {3, 4}),
    ],
)
def test_arrow_is_asked_the_parts_that_nan_does_not_meet(table: Table, text: str, scanned: set[int]) -> None:
    [task] = table.scan().plan_files()
    reader = TableReader(
        table, table.schema(), FileQuestion(parse_predicate(text, table.schema()), table.schema()), Access(table.io)
    )
    fragment = parquet_fragment(task)
    assert reader.view_of(task, fragment).scanned_row_groups(fragment) == scanned


def parquet_fragment(task: FileScanTask) -> Any:
    return ds.ParquetFileFormat().make_fragment(pa.memory_map(local_path(task.file.file_path)))
