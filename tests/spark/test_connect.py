"""A DataFrame of a scan on Spark Connect: a server beside the classic session, a client in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.spark.catalog import ConnectCatalog

pytestmark = pytest.mark.jvm

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
import sidecar

options = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
assert "connect" in type(spark).__module__
table = sidecar.open_table("db.connect", "cat", **options)
lent = sidecar.open_table("cat.db.connect", spark=spark)
assert sidecar.find_tables("cat.db.connec*", spark=spark) == ["cat.db.connect"]
refused = []
for verb in (sidecar.build, sidecar.refresh, sidecar.repair, sidecar.expire):
    try:
        verb(lent)
    except sidecar.errors.UnsupportedFeatureError as error:
        refused.append(str(error))
frame = spark.createDataFrame(sidecar.scan(table, "s = 'text 77' or k in (100, 101)"))
answer = {
    "rows": sorted(tuple(row) for row in frame.collect()),
    "again": frame.where("k = 77").count(),
    "lent": [sidecar.scan(lent, "k = 77").to_pylist(), len(sidecar.plan(lent, "k = 77").kept_files)],
    "covered": sidecar.status(lent.refresh()).share_covered,
    "refused": sorted(set(refused)),
    "alone": sidecar.care(lent).exit_code,
    "columns": spark.createDataFrame(sidecar.scan(table, "k = 78", ["s"])).columns,
}
spark.stop()
print(json.dumps(answer))
"""


@pytest.fixture
def server(spark: Any) -> Iterator[str]:
    """The address of a Connect server in the JVM of the classic session."""
    settings = spark._jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", "0")
    singleton = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    service = getattr(singleton, "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())


@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="grpc is missing: pip install 'pyspark[connect]'")
def test_rows_of_surviving_files(catalog: Any, server: str) -> None:
    table = catalog.create_table("db.connect", pa.schema([("k", pa.int64()), ("s", pa.string())]))
    for part in range(4):
        numbers = range(part, 200, 4)
        table.append(pa.table({"k": numbers, "s": [f"text {n}" for n in numbers]}))
    table.delete("k = 100")
    sidecar.build(table, ["k", "s"], engine="local", fpp=1e-4, save=True)
    options = {"type": "sql"} | {key: catalog.properties[key] for key in ("uri", "warehouse")}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options), server],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "rows": [[77, "text 77"], [101, "text 101"]],
        "again": 1,
        "lent": [[{"k": 77, "s": "text 77"}], 1],
        "covered": 1.0,
        "refused": [ConnectCatalog.cannot_commit],
        "alone": 4,
        "columns": ["s"],
    }
