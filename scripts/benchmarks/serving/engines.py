"""Spark SQL and pyiceberg, planned by the server, and by themselves through the same server.

Ratios are of CPU time, that of client and server together: on a machine with other work the time on the clock says more
about that work.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from plan import KEY
from pyiceberg.catalog.rest import RestCatalog

from serving.process import cpu_seconds, server

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
NEEDLE, ABSENT, ALL = "k = 2", "k = 3", f"k = {KEY}"
MODE = "scan-planning-mode"


def measure(files: int, runs: int) -> list[str]:
    """Return the targets that were missed. ``db.real`` has ``files`` files."""
    with server() as (address, pid):
        pids = [os.getpid(), pid]
        found = {**pyiceberg(address, runs, pids), **spark(address, files, runs, pids)}
    targets = {
        f"Spark, a value in 1 of {files} files": 1 / 4,
        f"Spark, a value in none of {files} files": 1 / 5,
        "Spark, plan that keeps all": 5,
        "pyiceberg, plan that keeps all": 1.3,
    }
    return [f"{what}: ratio {found[what]:.2f}" for what, most in targets.items() if found[what] > most]


def pyiceberg(address: str, runs: int, pids: list[int]) -> dict[str, float]:
    print("pyiceberg 0.12", flush=True)
    served, own = (RestCatalog("bench", uri=address, **{MODE: mode}) for mode in ("server", "client"))

    def planned(catalog: RestCatalog) -> int:
        return len(list(catalog.load_table("db.many").scan(row_filter=ALL).plan_files()))

    return compare("pyiceberg, plan that keeps all", partial(planned, served), partial(planned, own), runs, pids)


def spark(address: str, files: int, runs: int, pids: list[int]) -> dict[str, float]:
    print("Spark SQL 4.1, Iceberg 1.12", flush=True)
    session = session_for(address)
    pids = [*pids, session.sparkContext._gateway.proc.pid]
    try:

        def rows(catalog: str, predicate: str) -> int:
            return len(session.sql(f"select * from {catalog}.db.real where {predicate}").collect())

        def planned(catalog: str) -> int:
            frame = session.sql(f"select * from {catalog}.db.many where {ALL}")
            return int(frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0).inputPartitions().size())

        found = {}
        for what, predicate in ((f"in 1 of {files}", NEEDLE), (f"in none of {files}", ABSENT)):
            served, own = partial(rows, "served", predicate), partial(rows, "own", predicate)
            found |= compare(f"Spark, a value {what} files", served, own, runs, pids)
        served, own = partial(planned, "served"), partial(planned, "own")
        return found | compare("Spark, plan that keeps all", served, own, runs, pids)
    finally:
        session.stop()


def session_for(address: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("sidecar-bench")
    settings = {
        "spark.jars.packages": ICEBERG,
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    for name, mode in (("served", "server"), ("own", "client")):
        prefix = f"spark.sql.catalog.{name}"
        settings |= {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "rest"}
        settings |= {f"{prefix}.uri": address, f"{prefix}.{MODE}": mode}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def compare(
    what: str, served: Callable[[], int], own: Callable[[], int], runs: int, pids: list[int]
) -> dict[str, float]:
    """Run both in turn. Print medians, and return the ratio of the CPU time with the server to that without."""
    clock: dict[str, list[float]] = {"served": [], "own": []}
    cpu: dict[str, list[float]] = {"served": [], "own": []}
    counts = {}
    for _ in range(runs + 2):
        for name, run in (("served", served), ("own", own)):
            started, before = time.perf_counter(), cpu_seconds(pids)
            counts[name] = run()
            clock[name].append(time.perf_counter() - started)
            cpu[name].append(cpu_seconds(pids) - before)
    both = [{name: statistics.median(one[2:]) for name, one in times.items()} for times in (cpu, clock)]
    print(f"  {what}: found {counts['served']:,} and {counts['own']:,}")
    for kind, found in zip(("CPU", "clock"), both, strict=True):
        ratio = found["served"] / found["own"]
        print(f"    {kind:<6} {found['served']:.2f} s, by itself {found['own']:.2f} s: ratio {ratio:.2f}", flush=True)
    return {what: both[0]["served"] / both[0]["own"]}
