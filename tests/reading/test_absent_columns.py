"""Rows of files that have none of the columns that are asked for: they are counted, though nothing is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType

from sidecar.planning.planner import plan
from sidecar.reading import arrow_reader
from sidecar.reading.scanning import read
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows, iceberg_schema


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
@pytest.mark.parametrize("most", [arrow_reader.SMALL, 0])
def test_rows_without_any_column_are_not_lost(
    table: Table, text: str, columns: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of files that are not small, which Arrow filters, unless floats are asked for."""
    monkeypatch.setattr(arrow_reader, "SMALL", most)
    theirs = table.scan(row_filter=text, selected_fields=tuple(columns)).to_arrow()
    assert read(plan(table, text), columns).equals(theirs)
    assert theirs.num_rows == {"n = 4": 1, "x is not null": 10, "true": 18, "n != 4": 17}.get(text, 8)


@pytest.fixture(scope="module")
def imported(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two files of a hundred rows in partitions of ``p``, which only the manifest has."""
    schema = iceberg_schema("k long, p long")
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    made: Table = catalog.create_table("db.absent_partitions", schema, partition_spec=spec)
    folder = tmp_path_factory.mktemp("imported")
    paths = [folder / f"{n}.parquet" for n in range(2)]
    for n, path in enumerate(paths):  # with the column first: pyiceberg takes the partition from its bounds
        pq.write_table(pa.table({"k": range(n * 100, n * 100 + 100), "p": [n] * 100}), path)
    made.add_files([f"file:{path}" for path in paths])
    for n, path in enumerate(paths):
        pq.write_table(pa.table({"k": range(n * 100, n * 100 + 100)}), path, row_group_size=25)
    return made


@pytest.mark.parametrize("most", [arrow_reader.SMALL, 0])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p = 1", range(100, 200)),
        ("p = 1 and k = 160", [160]),
        ("p in (0, 5) and k < 3", range(3)),
        ("p is null", []),
        ("p != 1 and k > 97", [98, 99]),
        ("k = 3 or p = 1", [3, *range(100, 200)]),
    ],
)
def test_a_partition_column_that_is_asked_for_and_not_read_has_its_value(
    imported: Table, text: str, found: Sequence[int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg takes it for NULL in these files, and finds none of these rows but that of ``k = 3``."""
    monkeypatch.setattr(arrow_reader, "SMALL", most)
    assert read(plan(imported, text), ["k"])["k"].to_pylist() == [*found]
