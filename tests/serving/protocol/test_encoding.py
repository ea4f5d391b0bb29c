"""Data files as JSON: types of partition values, and what the protocol cannot say."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.catalog.rest.scan_planning import PlanCompleted, RESTDataFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from sidecar.errors import UnsupportedFeatureError
from sidecar.serving.protocol.encoding import EncodedTask, encode_answer, encode_file


def file_with(value: Any, **fields: Any) -> DataFile:
    known = {
        "content": DataFileContent.DATA, "file_path": "é.parquet", "file_format": FileFormat.PARQUET,
        "record_count": 3, "file_size_in_bytes": 100, "partition": Record(value),
    }  # fmt: skip
    return DataFile.from_args(**{**known, **fields})


def encoded(kind: IcebergType, value: Any) -> Any:
    return json.loads(encode_file(file_with(value), 0, [kind], for_pyiceberg=False))["partition"]


SAID: list[tuple[IcebergType, Any, Any]] = [
    (IntegerType(), 5, 5),
    (StringType(), "ä", "ä"),
    (DateType(), 19724, "2024-01-02"),
    (TimeType(), 1_000_001, "00:00:01.000001"),
    (TimestampType(), 1704067200000001, "2024-01-01T00:00:00.000001"),
    (TimestamptzType(), 1704067200000001, "2024-01-01T00:00:00.000001+00:00"),
    (DecimalType(9, 2), Decimal("1.50"), "1.50"),
    (UUIDType(), uuid.UUID(int=255), "00000000-0000-0000-0000-0000000000ff"),
    (BinaryType(), b"\0\xff", "00ff"),
    (DoubleType(), 0.5, 0.5),
    (StringType(), None, None),
    (UnknownType(), "of a column that was dropped", None),
]
"""Partition values and how Iceberg's "JSON single-value serialization" says them."""


@pytest.mark.parametrize(("kind", "value", "said"), SAID, ids=lambda one: str(one))
def test_partition_values(kind: IcebergType, value: Any, said: Any) -> None:
    assert encoded(kind, value) == [said]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_partition_values_that_cannot_be_said(value: float) -> None:
    with pytest.raises(UnsupportedFeatureError):
        encoded(DoubleType(), value)
    assert encode_file(file_with(value), 0, [DoubleType()], for_pyiceberg=True)


def test_pyiceberg_reads_a_data_file() -> None:
    file = file_with(1, key_metadata=b"\1\2", split_offsets=[4, 90], sort_order_id=1, lower_bounds={1: b"\0\xab"})
    for for_pyiceberg in (False, True):
        read = RESTDataFile.model_validate_json(encode_file(file, 2, [IntegerType()], for_pyiceberg=for_pyiceberg))
        assert (read.spec_id, read.file_path, read.record_count) == (2, "é.parquet", 3)
        assert (read.key_metadata, read.split_offsets, read.sort_order_id) == ("0102", [4, 90], 1)
    whole = json.loads(encode_file(file, 2, [IntegerType()], for_pyiceberg=False))
    assert whole["lower-bounds"] == {"keys": [1], "values": ["00AB"]}


def test_delete_files_are_written_once() -> None:
    file = encode_file(file_with(1), 0, [IntegerType()], for_pyiceberg=True)
    delete = file.replace(b'"data"', b'"position-deletes"')
    other = delete.replace(b".parquet", b".puffin")
    tasks = [EncodedTask(file), EncodedTask(file, [delete]), EncodedTask(file, [other, delete], is_whole=True)]
    read = PlanCompleted.model_validate_json(b"".join(encode_answer(tasks, b"false", ["t"], is_plan=True)))
    assert len(read.delete_files) == 2
    assert [task.delete_file_references for task in read.file_scan_tasks] == [None, [0], [1, 0]]
    assert read.plan_tasks == ["t"]


def test_an_answer_without_files_has_its_keys() -> None:
    """Without any key for tasks clients read no rows and say nothing, so the key is always there."""
    assert json.loads(b"".join(encode_answer([], b"true", is_plan=True))) == {
        "status": "completed",
        "plan-id": "sidecar-complete",
        "file-scan-tasks": [],
    }
    assert json.loads(b"".join(encode_answer([], b"true", is_plan=False))) == {"file-scan-tasks": []}
