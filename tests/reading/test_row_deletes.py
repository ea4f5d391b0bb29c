"""Rows that position deletes and deletion vectors delete stay away, and no others do."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyroaring import BitMap

import sidecar
from sidecar.errors import DamagedFileError, located
from sidecar.reading.row_deletes import vector_positions
from tests.iceberg.cases import file_in_manifest, local
from tests.iceberg.mixed_tables import append_files, parquet_file
from tests.iceberg.table_cases import commit_files, delete_by_values, deletion_vectors
from tests.tables import create_with_rows, iceberg_schema

SCHEMA = iceberg_schema("k long, p double, s string")
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def rows(*keys: int, p: float | None = None) -> pa.Table:
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "p": pa.array([p] * len(keys), pa.float64()), "s": [f"s{k}" for k in keys]}
    )


def three_files(catalog: Any, name: str, build: bool = True) -> tuple[Table, list[str]]:
    """Files with k of 0 to 9, 10 to 19 and 20 to 29, and their paths."""
    parts = [rows(*range(start, start + 10)) for start in (0, 10, 20)]
    table = create_with_rows(catalog, f"db.{name}", parts, SCHEMA, ["k", "s"] if build else ())
    paths = [task.file.file_path for task in table.scan().plan_files()]
    return table, sorted(paths, key=lambda path: pq.read_table(str(local(path)))["k"][0].as_py())


def left(table: Table, predicate: str = "true") -> list[int]:
    """k of all matching rows, as every door gives it."""
    found = sorted(sidecar.scan(table, predicate)["k"].to_pylist())
    with sidecar.scan_batches(table, predicate) as batches:
        assert sorted(batches.read_all()["k"].to_pylist()) == found
    keys = sidecar.scan(table, predicate, keys={"k": list(range(40))})["k"].to_pylist()
    assert sorted(keys) == found
    return found


def live(table: Table, key: int) -> int:
    """How many live rows ``find`` tells of."""
    return sum(one.rows_live for one in sidecar.find(table, {"k": key}).snapshots)


@pytest.mark.parametrize("build", [False, True])
def test_vectors_of_a_table_that_was_moved_by_its_metadata(catalog: Any, build: bool) -> None:
    """Blobs name the files by their old paths; manifests name them by their new ones."""
    table, paths = three_files(catalog, f"moved_vectors_{build}", build)
    positions = {paths[0]: [1, 3], paths[2]: [0], "file:/nowhere/gone.parquet": [0, 1, 2]}
    files = deletion_vectors(table, positions, old=table.location(), new="s3://bucket/old/place")
    commit_files(table, files, table.spec(), 5)
    table.refresh()
    assert left(table) == [k for k in range(30) if k not in (1, 3, 20)]
    assert left(table, "k in (1, 2, 3, 11, 20)") == [2, 11]
    assert left(table, "s = 's20' or s = 's21'") == [21]
    assert [live(table, k) for k in (1, 2, 20, 21)] == [0, 1, 0, 1]
    tasks = sidecar.plan(table, "true").tasks
    assert sorted(len(task.delete_files) for task in tasks) == [0, 1, 1], "each vector is that of one file"


def test_many_vectors_in_one_file_are_read_at_once(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.many_vectors", [rows(*range(n * 4, n * 4 + 4)) for n in range(8)], SCHEMA)
    paths = {
        pq.read_table(str(local(t.file.file_path)))["k"][0].as_py(): t.file.file_path
        for t in sidecar.plan(table, "true").tasks
    }
    commit_files(table, deletion_vectors(table, {path: [k // 4 % 4] for k, path in paths.items()}), table.spec(), 5)
    table.refresh()
    assert left(table) == [k for k in range(32) if k % 4 != k // 4 % 4]


@pytest.mark.parametrize("damage", ["bits", "magic", "length", "elsewhere"])
def test_a_damaged_vector_brings_no_row_back(catalog: Any, damage: str) -> None:
    table, paths = three_files(catalog, f"vector_{damage}", build=False)
    (vector,) = deletion_vectors(table, {paths[0]: [1, 3]})
    offset, size = vector[18], vector[19]
    data = bytearray(local(vector.file_path).read_bytes())
    if damage == "elsewhere":
        vector[18] += 1
    else:
        data[offset + {"bits": size - 6, "magic": 5, "length": 3}[damage]] ^= 1
        local(vector.file_path).write_bytes(data)
    commit_files(table, vector, table.spec(), 5)
    table.refresh()
    with pytest.raises(DamagedFileError, match="deletion vector") as caught:
        sidecar.scan(table, "k = 1")
    assert (caught.value.file, caught.value.offset) == (vector.file_path, vector[18])
    report = sidecar.find(table, {"k": 1})
    assert [one.rows_in_doubt for one in report.snapshots] == [1]
    assert sidecar.scan(table, "k = 15").num_rows == 1


def stored_vector(*parts: tuple[int, list[int]], count: int | None = None) -> bytes:
    bitmaps = b"".join(key.to_bytes(4, "little") + BitMap(places).serialize() for key, places in parts)
    content = bytes.fromhex("d1d33964") + (len(parts) if count is None else count).to_bytes(8, "little") + bitmaps
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def test_positions_of_a_vector() -> None:
    assert vector_positions(stored_vector()).tolist() == []
    assert vector_positions(stored_vector((0, []), (2, [0, 7]))).tolist() == [2**33, 2**33 + 7]
    many = [*range(5000), *range(70_000, 200_000, 3)]
    assert np.array_equal(vector_positions(stored_vector((0, many), (1, [9]))), [*many, 2**32 + 9])
    for wrong in (
        stored_vector((1, [1]), (1, [2])),
        stored_vector((0, [1]), count=2),
        stored_vector((0, [1]), (1, [2]), count=1),
        stored_vector(count=2**60),
    ):
        with pytest.raises(DamagedFileError, match="cannot be read") as caught, located("f", offset=4):
            vector_positions(wrong)
        assert caught.value.offset == 4


def position_file(table: Table, pairs: list[tuple[str, int]], partition: Record, **statistics: Any) -> DataFile:
    """A position delete file with its rows in any order."""
    schema = pa.schema([pa.field("file_path", pa.string(), False), pa.field("pos", pa.int64(), False)])
    path = f"{table.location()}/data/positions-{len(list(local(table.location()).glob('data/*')))}.parquet"
    columns = [list(column) for column in zip(*pairs, strict=True)]
    pq.write_table(pa.table(columns, schema=schema), str(local(path)), row_group_size=2)
    return file_in_manifest(
        path,
        len(pairs),
        Path(local(path)).stat().st_size,
        content=DataFileContent.POSITION_DELETES,
        partition=partition,
        **statistics,
    )


@pytest.mark.parametrize("p", [2.222, math.nan, -0.0, math.inf, None])
@pytest.mark.parametrize("build", [False, True])
def test_positions_of_several_files_of_a_partition(catalog: Any, p: float | None, build: bool) -> None:
    """Unsorted, repeated, of files that are gone, and beyond the end of a file."""
    table = catalog.create_table(
        f"db.positions_{p}_{build}".replace("2.222", "double").replace("-0.0", "zero"), SCHEMA, partition_spec=BY_P
    )
    append_files(table, [parquet_file(table, rows(*range(start, start + 10), p=p), Record(p)) for start in (0, 10)])
    append_files(table, [parquet_file(table, rows(*range(20, 30), p=7.5), Record(7.5))])
    if build:
        sidecar.build(table, ["k"], engine="local")
        table.refresh()
    files = {pq.read_table(str(local(t.file.file_path)))["k"][0].as_py(): t.file for t in table.scan().plan_files()}
    pairs = [(files[10].file_path, 9), (files[0].file_path, 4), ("gone", 0), (files[10].file_path, 9)]
    pairs += [(files[0].file_path, 2), (files[20].file_path, 0), (files[0].file_path, 400)]
    commit_files(table, position_file(table, pairs, Record(p)), table.spec(), 7)
    table.refresh()
    assert left(table) == [k for k in range(30) if k not in (2, 4, 19)]
    assert left(table, "k in (2, 3, 4, 19)") == [3]
    assert [live(table, k) for k in (2, 3, 19)] == [0, 1, 0]


@pytest.mark.parametrize("partition", [Record(2.222), Record(7.5)], ids=["its own", "another"])
def test_statistics_of_deleted_rows_leave_no_position_delete_out(catalog: Any, partition: Record) -> None:
    """A delete of one file belongs to it in whatever partition; its statistics of other columns say nothing."""
    table = catalog.create_table(f"db.position_statistics_{partition[0]:.0f}", SCHEMA, partition_spec=BY_P)
    append_files(table, [parquet_file(table, rows(1, 2, p=2.222), Record(2.222))])
    (task,) = table.scan().plan_files()
    ends = {2147483546: task.file.file_path.encode()}
    nulls = {"value_counts": {1: 1, 3: 1}, "null_value_counts": {1: 1, 3: 1}}
    deletes = position_file(table, [(task.file.file_path, 0)], partition, lower_bounds=ends, upper_bounds=ends, **nulls)
    commit_files(table, deletes, table.spec(), 7)
    table.refresh()
    for predicate in ("s = 's1'", "k = 1 and s is not null", "k = 1"):
        assert left(table, predicate) == [], predicate
    assert left(table, "p > 2.2 and p < 2.3") == [2] if partition[0] == 2.222 else True
    assert live(table, 1) == 0


def test_only_its_equality_columns_rule_an_equality_delete_out(catalog: Any) -> None:
    """The delete file is filled up with NULLs, as some writers do: pyiceberg and Spark find the deleted rows."""
    table, _ = three_files(catalog, "padded_deletes", build=False)
    padded = pa.table(
        {"k": [1, 2], "p": pa.array([None, None], pa.float64()), "s": pa.array([None, None], pa.string())}
    )
    counts = {"value_counts": {1: 2, 2: 2, 3: 2}, "null_value_counts": {1: 0, 2: 2, 3: 2}}
    bounds = {"lower_bounds": {1: (1).to_bytes(8, "little")}, "upper_bounds": {1: (2).to_bytes(8, "little")}}
    delete_by_values(table, padded, [1], PartitionSpec(), Record(), **counts, **bounds)
    for _ in range(2):
        for predicate in ("s = 's1'", "s is not null", "s = 's5' or k = 1", "s like 's1%' and k < 3", "not (s = 's2')"):
            with pytest.raises(sidecar.errors.UnsupportedFeatureError, match="equality deletes may apply"):
                sidecar.plan(table, predicate)
        for predicate in ("k = 5", "k > 2 and s = 's1'", "k = 5 and s is null", "s = 's5' and k = 5", "k is null"):
            assert sidecar.plan(table, predicate).equality_deletes == frozenset(), predicate
        report = sidecar.find(table, {"s": ["s1", "s9"]})
        assert [one.rows_in_doubt for one in report.snapshots] == [2]
        sidecar.build(table, ["k", "s"], kinds=["bloom", "page-index"], engine="local")
        table.refresh()
