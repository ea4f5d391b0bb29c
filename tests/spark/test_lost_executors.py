"""Every command that runs on Spark ends well when executors and workers are lost: files whole, results right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sidecar
from tests.conftest import JAVA_OPTIONS
from tests.conversion.cases import indexed
from tests.object_store import open_store
from tests.spark.dying_daemon import DEATHS

pytestmark = pytest.mark.jvm

SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import sidecar
from tests.object_store import open_store

folder, settings = Path(sys.argv[1]), sys.argv[2:]
builder = SparkSession.builder.master("local-cluster[1,2,1024]").appName("sidecar-lost")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
files = sorted(map(str, (folder / "data").glob("*.parquet")))
report = sidecar.embed(files, into=str(folder / "new"), bloom=["k"], spark=spark)
assert report.engine == "spark", report
sidecar.extract(files, str(folder / "extracted.puffin"), spark=spark)
sidecar.convert(files, str(folder / "converted.puffin"), as_="orc", spark=spark)
found = sidecar.verify(str(folder / "new"), data=True, spark=spark)
assert (len(found.files), found.problems) == (4, []), found
table = open_store(folder / "lake").load_table("db.lost")
embedded = sidecar.embed(table, bloom=["k"], spark=spark)
assert len(embedded.replaced) == 4 and embedded.refresh.engine == "spark", embedded
found = sidecar.verify(table, data=True, spark=spark)
assert found.problems == [] and found.looked_up.values > 1000, found
spark.stop()
"""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
    "spark.executor.extraJavaOptions": " ".join(JAVA_OPTIONS),
    "spark.python.daemon.module": "tests.spark.dying_daemon",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
KINDS = ("WriteOne", "TakeIndexes", "TakeFile", "FileCheck", "SuccessorWriter", "index_units", "CheckPlaces")
"""The work that a worker dies of, each once."""


def test_each_command_goes_on_without_an_executor(tmp_path: Path) -> None:
    spark_home = Path(pytest.importorskip("pyspark", reason="the extra [spark] is not installed").__file__).parent
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("no Java runtime; scripts/test installs one")
    (tmp_path / "data").mkdir()
    for number in range(4):
        shutil.move(indexed(tmp_path, number, 300), tmp_path / "data" / f"{number}.parquet")
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    (deaths / "WriteOne.executor").touch()
    (tmp_path / "lake").mkdir()
    rows = _table(tmp_path / "lake")
    environment = os.environ | {
        "SPARK_HOME": str(spark_home),
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        DEATHS: str(deaths),
    }
    executors = {f"spark.executorEnv.{name}": environment[name] for name in (DEATHS, "PYTHONPATH")}
    settings = [f"{name}={value}" for name, value in (SETTINGS | executors).items()]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *settings],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert {path.name for path in deaths.iterdir()} == {*KINDS, "WriteOne.executor"}
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    # A worker that was killed while it wrote leaves its temporary file, which a later run deletes after a day.
    whole = [name for name in names if not name.endswith(".sidecar-tmp")]
    assert whole == [f"{number}.parquet" for number in range(4)]
    assert len(names) - len(whole) <= 1  # the executor had two workers, and one of them had finished
    for number in range(4):
        old, new = (pq.read_table(tmp_path / folder / f"{number}.parquet") for folder in ("data", "new"))
        assert new.equals(old)
    files = sorted(map(str, (tmp_path / "data").iterdir()))
    assert sidecar.verify(tmp_path / "extracted.puffin", against=files).problems == []
    assert sidecar.verify(tmp_path / "converted.puffin", against=files).problems == []
    table = open_store(tmp_path / "lake").load_table("db.lost")
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == rows
    assert sidecar.plan(table, f"k = {rows[5]}").funnel is not None


def _table(folder: Path) -> list[int]:
    from tests.embedding.table_cases import rows
    from tests.tables import create_with_rows

    table = create_with_rows(open_store(folder), "db.lost", map(rows, range(4)), columns=["k"])
    return sorted(table.scan().to_arrow()["k"].to_pylist())
