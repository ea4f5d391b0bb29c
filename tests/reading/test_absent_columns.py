"""Rows of files that have none of the columns that are asked for: they are counted, though nothing is read of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType

from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Ten rows from before two columns were added, of which two are deleted, and ten rows from after that."""
    made = create_with_rows(catalog, "db.absent_columns", [pa.table({"k": pa.array(range(10))})])
    [old] = made.scan().plan_files()
    with made.update_schema() as update:
        update.add_column("n", LongType())
        update.add_column("x", DoubleType())
    new = {"k": range(10, 20), "n": range(10), "x": [i / 2 for i in range(10)]}
    made.append(pa.table(new, made.schema().as_arrow()))
    delete_by_position(made, {old.file.file_path: [3, 9]})
    return made


@pytest.mark.parametrize("text", ["n is null", "n != 4", "x is null", "n = 4", "x is not null", "true"])
@pytest.mark.parametrize("columns", [["n"], ["x", "n"]])
def test_rows_without_any_column_are_not_lost(table: Table, text: str, columns: list[str]) -> None:
    """Small files are read here, and so are all files where floats are asked for."""
    theirs = table.scan(row_filter=text, selected_fields=tuple(columns)).to_arrow()
    assert read(plan(table, text), columns).equals(theirs)
    assert theirs.num_rows == {"n = 4": 1, "x is not null": 10, "true": 18, "n != 4": 17}.get(text, 8)
