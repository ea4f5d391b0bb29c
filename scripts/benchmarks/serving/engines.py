"""Wall time of Spark SQL and pyiceberg: planned by the server, and by themselves through the same server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from plan import KEY
from pyiceberg.catalog.rest import RestCatalog

from serving.process import server

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
NEEDLE, ABSENT, ALL = "k = 2", "k = 3", f"k = {KEY}"
MODE = "scan-planning-mode"


def measure(files: int, runs: int) -> list[str]:
    """Return the targets that were missed. ``db.real`` has ``files`` files."""
    with server() as address:
        found = {**pyiceberg(address, runs), **spark(address, files, runs)}
    targets = {
        f"Spark, a value in 1 of {files} files": 1 / 4,
        f"Spark, a value in none of {files} files": 1 / 5,
        "Spark, plan that keeps all": 5,
        "pyiceberg, plan that keeps all": 1.3,
    }
    return [f"{what}: ratio {found[what]:.2f}" for what, most in targets.items() if found[what] > most]


def pyiceberg(address: str, runs: int) -> dict[str, float]:
    print("pyiceberg 0.12", flush=True)
    served, own = (RestCatalog("bench", uri=address, **{MODE: mode}) for mode in ("server", "client"))

    def planned(catalog: RestCatalog) -> int:
        return len(list(catalog.load_table("db.many").scan(row_filter=ALL).plan_files()))

    return compare("pyiceberg, plan that keeps all", lambda: planned(served), lambda: planned(own), runs)


def spark(address: str, files: int, runs: int) -> dict[str, float]:
    print("Spark SQL 4.1, Iceberg 1.12", flush=True)
    session = session_for(address)
    try:

        def rows(catalog: str, predicate: str) -> int:
            return len(session.sql(f"select * from {catalog}.db.real where {predicate}").collect())

        def planned(catalog: str) -> int:
            frame = session.sql(f"select * from {catalog}.db.many where {ALL}")
            return int(frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0).inputPartitions().size())

        found = {}
        for what, predicate in ((f"in 1 of {files}", NEEDLE), (f"in none of {files}", ABSENT)):
            name = f"Spark, a value {what} files"
            found |= compare(name, lambda p=predicate: rows("served", p), lambda p=predicate: rows("own", p), runs)  # type: ignore[misc]
        return found | compare("Spark, plan that keeps all", lambda: planned("served"), lambda: planned("own"), runs)
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


def compare(what: str, served: Callable[[], int], own: Callable[[], int], runs: int) -> dict[str, float]:
    """Run both in turn. Print medians, and return the ratio of the server's time to the client's own."""
    seconds: dict[str, list[float]] = {"served": [], "own": []}
    counts = {}
    for _ in range(runs + 2):
        for name, run in (("served", served), ("own", own)):
            started = time.perf_counter()
            counts[name] = run()
            seconds[name].append(time.perf_counter() - started)
    warm = {name: statistics.median(one[2:]) for name, one in seconds.items()}
    ratio = warm["served"] / warm["own"]
    print(f"  {what:<36} {warm['served']:.2f} s by the server, {warm['own']:.2f} s by itself: ratio {ratio:.2f}")
    print(f"  {'':<36} found {counts['served']:,} and {counts['own']:,}", flush=True)
    return {what: ratio}
