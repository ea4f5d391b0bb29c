"""Which delete files apply to a data file, by the rules of Iceberg's scan planning."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from sidecar.iceberg.manifests import LatestFields
from sidecar.serving.planning.delete_files import DeleteFile, SnapshotDeletes, partition_of
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.iceberg.table_cases import commit_deletes
from tests.serving.planning.asking import ask

PATH_FIELD = 2147483546
NAN = float("nan")


def delete(
    name: str,
    sequence: int,
    *,
    equality: bool = False,
    vector: bool = False,
    target: str | None = None,
    bounds: tuple[str, str] | None = None,
    partition: tuple[Any, ...] = (),
    spec_id: int = 0,
) -> DeleteFile:
    lower, upper = ({PATH_FIELD: one.encode()} for one in bounds) if bounds else ({}, {})
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if equality else DataFileContent.POSITION_DELETES,
        file_path=name,
        file_format=FileFormat.PUFFIN if vector else FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=100,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    return DeleteFile(file, LatestFields(None, target, 4, 44), sequence, spec_id, partition_of(file))


DELETES = [
    delete("vector", 5, vector=True, target="v.parquet"),
    delete("replaced vector", 4, vector=True, target="v.parquet"),
    delete("by reference", 5, target="a.parquet"),
    delete("by equal bounds", 5, bounds=("a.parquet", "a.parquet")),
    delete("by bounds", 5, bounds=("a.parquet", "m")),
    delete("by cut bounds", 5, bounds=("y", "z.par")),
    delete("older", 3),
    delete("of partition 1", 5, partition=(1,), spec_id=1),
    delete("of partition 1, equality", 5, partition=(1,), spec_id=1, equality=True),
    delete("of partition NaN", 5, partition=(NAN,), spec_id=1),
    delete("equality", 6, equality=True),
]


@pytest.mark.parametrize(
    ("path", "sequence", "spec_id", "partition", "wanted"),
    [
        ("a.parquet", 4, 0, (), {"by reference", "by equal bounds", "by bounds", "equality"}),
        ("a.parquet", 5, 0, (), {"by reference", "by equal bounds", "by bounds", "equality"}),
        ("a.parquet", 6, 0, (), set()),  # equality deletes apply to older files only
        ("b.parquet", 3, 0, (), {"by bounds", "older", "equality"}),
        ("z.parquet", 4, 0, (), {"by cut bounds", "equality"}),
        ("v.parquet", 3, 0, (), {"vector", "equality"}),  # nothing else deletes by position where there is a vector
        ("v.parquet", 6, 0, (), set()),
        ("p.parquet", 4, 1, (1,), {"of partition 1", "of partition 1, equality", "equality"}),
        ("p.parquet", 5, 1, (1,), {"of partition 1", "equality"}),
        ("p.parquet", 4, 1, (2,), {"equality"}),
        ("p.parquet", 4, 2, (1,), {"equality"}),  # of another spec
        ("p.parquet", 4, 1, ("NaN",), {"of partition NaN", "equality"}),
    ],
)
def test_deletes_of_a_file(path: str, sequence: int, spec_id: int, partition: Any, wanted: set[str]) -> None:
    found = SnapshotDeletes(DELETES).applying_to(path, sequence, spec_id, partition)
    assert {one.file.file_path for one in found} == wanted
    assert len(found) == len(wanted)


def test_a_vector_says_where_it_is() -> None:
    encoded = SnapshotDeletes(DELETES).encoded(DELETES[0], [], False)
    assert b'"referenced-data-file":"v.parquet","content-offset":4,"content-size-in-bytes":44' in encoded


def test_equality_deletes_of_a_spec_without_partitions_apply_everywhere(catalog: Any) -> None:
    """A spec of which all fields were dropped in version 1 still has them, with the transform void."""
    schema = Schema(NestedField(1, "p", LongType()), NestedField(2, "s", StringType()))
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "p"))
    table: Table = catalog.create_table("db.served_void", schema, partition_spec=void)
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "by_s")
    table.append(pa.table({"p": pa.array([1, 2], pa.int64()), "s": ["a", "b"]}))
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(None),
        record_count=1,
        file_size_in_bytes=100,
        equality_ids=[2],
    )
    commit_deletes(table, file, table.specs()[0], 7)
    tasks = ask(ScanPlanner(), table)["file-scan-tasks"]
    assert [task["delete-file-references"] for task in tasks] == [[0], [0]]
