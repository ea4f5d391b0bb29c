"""Every call that takes keys takes a list, a tuple, an array and a chunked array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.reading.file_scanning import open_scan

ROWS = pa.table({"k": pa.array(range(100), pa.int64()), "s": [f"s{n}" for n in range(100)]})
FORMS = [[7, 42], (7, 42), pa.array([7, 42]), pa.chunked_array([[7], [42]])]


@pytest.mark.parametrize("keys", FORMS, ids=["list", "tuple", "array", "chunks"])
def test_keys_of_a_file(tmp_path: Path, keys: Any) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(ROWS, path)
    assert sidecar.scan(path, "true", keys={"k": keys})["k"].to_pylist() == [7, 42]
    with open_scan(path, "true", ["k"], keys={"k": keys}) as scan:
        assert scan.to_table()["k"].to_pylist() == [7, 42]


@pytest.mark.parametrize("keys", FORMS, ids=["list", "tuple", "array", "chunks"])
def test_keys_of_a_table(catalog: Any, keys: Any) -> None:
    table = catalog.create_table_if_not_exists("db.listed_keys", ROWS.schema)
    if not table.metadata.snapshots:
        table.append(ROWS)
    assert sidecar.scan(table, "true", ["k"], keys={"k": keys})["k"].to_pylist() == [7, 42]
    batches = sidecar.scan_batches(table, "true", ["k"], keys={"k": keys})
    assert batches.read_all()["k"].to_pylist() == [7, 42]
    assert sidecar.plan(table, "true", keys={"k": keys}).to_arrow(["k"])["k"].to_pylist() == [7, 42]
