"""A Spark session of its own process tree, with Iceberg's runtime, and what its event log says of each job."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
DRIVER_MEMORY = "3g"


@contextmanager
def spark_session(settings: Mapping[str, str], *, cores: int = 2, packages: str = ICEBERG) -> Iterator[Any]:
    """Yield a session that runs in this process's tree with Python workers of this interpreter, and stop it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    common = {
        "spark.jars.packages": packages,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("sidecar-bench")
    for key, value in {**common, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        process = session.sparkContext._gateway.proc
        session.stop()
        session.sparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # so that the next session starts a virtual machine
        process.stdin.close()
        process.wait(60)


def pid_of(session: Any) -> int:
    """Return the process id of the Java virtual machine; Python workers are its children."""
    return int(session.sparkContext._gateway.proc.pid)


def jdbc_catalog(name: str, folder: Path) -> dict[str, str]:
    """Return the settings of a catalog ``name`` that is pyiceberg's SQLite catalog ``bench`` in a folder."""
    prefix = f"spark.sql.catalog.{name}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/cat.db",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": f"file:{folder}/wh",
        f"{prefix}.cache-enabled": "false",
    }


@dataclass(frozen=True)
class Work:
    """What Spark did between two moments."""

    tasks: int
    shuffled: int
    """Bytes written for shuffles."""


class EventLog:
    """Spark's own account of its tasks, in a folder. Read it after the session has stopped."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{folder}",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        self._spans: list[tuple[float, float]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """Note when work starts and ends; the last span counts."""
        started = time.time()
        yield
        self._spans.append((started, time.time()))

    def last_work(self) -> Work:
        """Return what ran within the last span."""
        start, end = (moment * 1000 for moment in self._spans[-1])
        tasks = shuffled = 0
        for path in self._folder.iterdir():
            for line in path.read_text("utf-8").splitlines():
                if '"SparkListenerTaskEnd"' not in line:
                    continue
                event = json.loads(line)
                if start - 1 <= event["Task Info"]["Launch Time"] <= end + 1:
                    tasks += 1
                    metrics = event.get("Task Metrics") or {}
                    shuffled += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
        return Work(tasks, shuffled)
