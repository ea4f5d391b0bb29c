"""Manifests of other writers (fields in another order, unknown fields, blocks with lengths): plans are pyiceberg's."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from sidecar.iceberg.manifests import read_manifest, read_manifests
from sidecar.iceberg.records.entries import ListedDataFile
from tests.iceberg.cases import local
from tests.iceberg.records.random_manifests import RandomManifest
from tests.planning.listed_cases import assert_same_tasks, build

PREDICATES = ("k >= 0", "k > 8 and part = 'b'", "k = 7")


def rows(start: int) -> pa.Table:
    numbers = range(start, start + 12)
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "part": ["abc"[k % 3] for k in numbers],
            "v": [None if k % 5 == 0 else k / 2 for k in numbers],
        }
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_plans_are_those_of_pyiceberg(catalog: Any, version: str) -> None:
    table = catalog.create_table(
        f"db.foreign_manifests_{version}", rows(0).schema, properties={"format-version": version}
    )
    with table.update_spec() as spec:
        spec.add_identity("part")
    for start in (0, 12):
        table.append(rows(start))
    table.delete("k >= 2 and k <= 4")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    rng = random.Random(version)
    for line in read_manifests(table.io, snapshot.manifest_list):
        contents = read_manifest(table.io, line)
        local(line.manifest_path).write_bytes(RandomManifest(rng, int(version)).written_anew(contents))
    table = build(table.refresh(), ["k"])
    walked = 0
    for text in PREDICATES:
        plans = assert_same_tasks(table, text)
        walked += sum(isinstance(task.file, ListedDataFile) for task in plans[3].tasks)
    assert walked > 5
