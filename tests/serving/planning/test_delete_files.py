"""Delete files in answers to plan requests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record

from sidecar.iceberg.deletes.delete_files import DeleteFile
from sidecar.iceberg.manifests import LatestFields
from sidecar.serving.planning.live_snapshot import ServedDeletes
from sidecar.serving.planning.scan_planner import ScanPlanner
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.table_cases import commit_files
from tests.serving.planning.asking import ask
from tests.tables import iceberg_schema


def test_a_vector_says_where_it_is() -> None:
    file = file_in_manifest("vector", 1, 100, content=DataFileContent.POSITION_DELETES, file_format=FileFormat.PUFFIN)
    vector = DeleteFile(file, LatestFields(None, "v.parquet", 4, 44), 5, 0, ())
    encoded = ServedDeletes([vector]).encoded(vector, [], False)
    assert b'"referenced-data-file":"v.parquet","content-offset":4,"content-size-in-bytes":44' in encoded


def test_equality_deletes_of_a_spec_without_partitions_apply_everywhere(catalog: Any) -> None:
    """A spec of which all fields were dropped in version 1 still has them, with the transform void."""
    schema = iceberg_schema("p long, s string")
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "p"))
    table: Table = catalog.create_table("db.served_void", schema, partition_spec=void)
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "by_s")
    table.append(pa.table({"p": pa.array([1, 2], pa.int64()), "s": ["a", "b"]}))
    file = file_in_manifest(
        f"{table.location()}/data/deletes.parquet",
        1,
        100,
        content=DataFileContent.EQUALITY_DELETES,
        partition=Record(None),
        equality_ids=[2],
    )
    commit_files(table, file, table.specs()[0], 7)
    tasks = ask(ScanPlanner(), table)["file-scan-tasks"]
    assert [task["delete-file-references"] for task in tasks] == [[0], [0]]
