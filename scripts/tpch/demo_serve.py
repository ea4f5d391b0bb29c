"""The last step of the demo: ``sidecar serve`` before the catalog, asked by Spark SQL and pyiceberg as they are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_table import CountingIO
from pyiceberg.catalog import load_catalog

from sidecar.cli import humanize

START_SECONDS = 60


@dataclass(frozen=True)
class Asked:
    """A lookup that an engine ran: rows, data files opened, and the best time of three."""

    rows: int
    files: int
    seconds: float


@contextmanager
def server(lake: Path, log: Path) -> Iterator[str]:
    """Run ``sidecar serve --catalog demo`` as a process of its own, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "sidecar.cli", "serve", "--catalog", "demo", "--port", str(port)]
    where = {"PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{lake}/cat.db"}
    with log.open("w") as chatter:
        process = subprocess.Popen(command, env={**os.environ, **where}, stdout=chatter, stderr=chatter)
        try:
            wait_for(address, process, log)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(START_SECONDS * 10):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}; see {log}")
        try:
            urllib.request.urlopen(f"{address}/healthz", timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server did not answer within {START_SECONDS} s; see {log}")


def ask_pyiceberg(table: Any, predicate: str) -> Asked:
    """Run pyiceberg's own ``scan``, and count the data files that it opens at its FileIO."""
    seconds, rows = best_of_three(lambda: table.scan(row_filter=predicate).to_arrow())
    plain = table.io
    table.io = counting = CountingIO(plain)
    try:
        table.scan(row_filter=predicate).to_arrow()
    finally:
        table.io = plain
    return Asked(rows.num_rows, len(counting.data_files), seconds)


def served_table(address: str) -> Any:
    """The table as pyiceberg's REST catalog loads it: nothing but an address is configured."""
    return load_catalog("served", type="rest", uri=address).load_table("db.lineitem")


def spark_catalog(session: Any, address: str) -> None:
    """Tell Spark about the server: nothing but a type and an address is configured."""
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}.items():
        session.conf.set(f"spark.sql.catalog.served{key}", value)


def ask_spark(session: Any, catalog: str, predicate: str) -> Asked:
    """Run a query of Spark SQL, and count the data files in its plan."""
    query = f"select * from {catalog}.db.lineitem where {predicate}"
    seconds, rows = best_of_three(lambda: session.sql(query).collect())
    frame = session.sql(query)
    frame.collect()
    return Asked(len(rows), len(files_of(frame)), seconds)


def files_of(frame: Any) -> set[str]:
    """The data files of the scan that Spark ran."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    parts = leaf.inputPartitions()
    groups = (parts.apply(number).taskGroup().tasks() for number in range(parts.size()))
    return {str(task.file().location()) for tasks in groups for task in tasks.toArray()}


def cells(found: Asked) -> tuple[str, str]:
    return f"{found.files:,}", humanize.duration(found.seconds)


def best_of_three(run: Callable[[], Any]) -> tuple[float, Any]:
    best, found = float("inf"), None
    for _ in range(3):
        started = time.perf_counter()
        found = run()
        best = min(best, time.perf_counter() - started)
    return best, found
