"""Embedding into tables whose partitions, columns, format version or files changed."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from tests.embedding.table_cases import (
    FILES,
    contents,
    create,
    data_files,
    embed,
    facts,
    filters_of,
    rows,
    sequence_numbers,
    table_numbers,
)
from tests.tables import iceberg_schema

pytestmark = pytest.mark.usefixtures("no_pauses")


PARTITIONED = iceberg_schema("k long, s string, part string, day date, f float, u uuid")


def partitioned_rows(part: int) -> pa.Table:
    numbers = range(part * 10, part * 10 + 10)
    days = pa.array([19_000 + n % 2 for n in numbers], pa.int32()).cast(pa.date32())
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "s": [f"text {n}" for n in numbers],
            "part": [None if n % 3 == 0 else f"p {n % 3}" for n in numbers],
            "day": days,
            "f": pa.array([2.5 if n % 2 else 1.5 for n in numbers], pa.float32()),
            "u": pa.array([uuid.UUID(int=n % 2).bytes for n in numbers], pa.binary(16)),
        }
    ).cast(
        pa.schema(
            [
                ("k", pa.int64()),
                ("s", pa.string()),
                ("part", pa.string()),
                ("day", pa.date32()),
                ("f", pa.float32()),
                ("u", pa.binary(16)),
            ]
        )
    )


@pytest.fixture
def evolved(catalog: Any) -> Table:
    """Three specs, one of whose source columns is dropped; nulls and bytes as partition values."""
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "part"),
        PartitionField(5, 1001, IdentityTransform(), "f"),
        PartitionField(6, 1002, IdentityTransform(), "u"),
    )
    table: Table = catalog.create_table(f"db.evolved{next(table_numbers)}", PARTITIONED, partition_spec=spec)
    table.append(partitioned_rows(0))
    with table.update_spec() as update:
        update.remove_field("f")
        update.remove_field("u")
        update.add_field("day", IdentityTransform(), "day of")
    table.append(partitioned_rows(1))
    with table.update_spec() as update:
        update.remove_field("day of")
        update.add_field("s", IdentityTransform(), "s")
    table.append(partitioned_rows(2))
    with table.update_schema() as schema:
        schema.delete_column("f")
    return table


def test_partitions_and_specs_of_old_files_are_kept(evolved: Table) -> None:
    before, old = data_files(evolved), evolved.scan().to_arrow().sort_by("k")
    lines = {m.partition_spec_id: m.partitions for m in evolved.current_snapshot().manifests(evolved.io)}  # type: ignore[union-attr]
    report = embed(evolved, bloom=["k", "part"])
    after = data_files(evolved)
    assert len(report.replaced) == len(before)
    assert {file.spec_id for file in before} == {0, 1, 2}
    for was, now in zip(before, after, strict=True):
        assert facts(now) == facts(was)
        assert contents(now) == contents(was)
    assert evolved.scan().to_arrow().sort_by("k") == old
    for row_filter in ("part is null", "part = 'p 1'", "k = 17", "s = 'text 25'", "day = '2022-01-08'"):
        found = evolved.scan(row_filter=row_filter).to_arrow()
        assert found.num_rows == sum(matches(row_filter, row) for row in old.to_pylist())
    new_lines = {
        m.partition_spec_id: m.partitions
        for m in evolved.current_snapshot().manifests(evolved.io)
        if m.added_files_count  # type: ignore[union-attr]
    }
    assert new_lines == lines


def matches(row_filter: str, row: dict[str, Any]) -> bool:
    name, _, wanted = row_filter.partition(" is ") if " is " in row_filter else row_filter.partition(" = ")
    value = row[name]
    return value is None if wanted == "null" else str(value) == wanted.strip("'")


def test_a_table_upgraded_from_version_1_keeps_its_old_files(catalog: Any) -> None:
    table = create(catalog, files=2, **{"format-version": "1"})
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(rows(2))
    old = table.scan().to_arrow().sort_by("k")
    embed(table)
    assert sorted(sequence_numbers(table).values()) == [0, 0, 1]
    assert table.scan().to_arrow().sort_by("k") == old


def test_imported_files_are_not_written_beside_their_originals(catalog: Any, tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "a.parquet")
    table = create(catalog, files=1)
    table.add_files([f"file:{tmp_path}/a.parquet"])
    old = table.scan().to_arrow().sort_by("k")
    embed(table)
    assert table.scan().to_arrow().sort_by("k") == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]
    assert all(f.file_path.startswith(f"{table.location()}/data/") for f in data_files(table))
    assert all(filters_of(f) == {"k", "s"} for f in data_files(table))


def test_a_column_that_a_file_lacks_is_reported(table: Table) -> None:
    with table.update_schema() as schema:
        schema.add_column("later", LongType())
    report = embed(table, bloom=["k", "later"])
    (reason,) = [c for c in report.indexes.values() if c.column == "later"]
    assert (reason.way, reason.reason, reason.count) == ("none", "column absent from the file", FILES)


def test_a_renamed_column_is_found_by_its_id(table: Table) -> None:
    with table.update_schema() as schema:
        schema.rename_column("k", "key")
    embed(table, bloom=["key"])
    assert all(filters_of(file) == {"k"} for file in data_files(table))
