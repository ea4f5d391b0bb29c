"""What plans of ``sidecar serve`` cost, and what they save in Spark and pyiceberg.

CPU times of requests are those of whole requests in this process, without a connection: guards, routes, load of the
table, plan, log line. Each lookup asks for another key. Engines plan by the server and by themselves through it. Spark
reads all columns by residuals that skip row groups, and by those that skip none.
"""

from __future__ import annotations

import os

from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench


def measure(bench: Bench) -> None:
    """Measure requests, then engines."""
    few, many = bench.size(658, quick=50), bench.size(20_000, quick=1_000)
    rows = bench.size(1_000_000, quick=10_000)
    folder = data.WORK / "data" / name_of(few, many)
    os.environ.update(data.catalog_environment(folder))  # before pyiceberg, which reads it when it is imported
    from scripts.benchmarks.serving import cpu, engines, tables

    bench.say("writing tables and sidecars")
    tables.write_served_tables(name_of(few, many), few, many, rows)
    cpu.measure(bench, folder, few, many)
    engines.measure(bench, few, rows)


def name_of(few: int, many: int) -> str:
    return f"served-groups-{few}-{many}"
