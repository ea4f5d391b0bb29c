"""Builds on Spark, local[2], beside Spark's own sketches, Spark writing the data again with filters, and no Spark.

lineitem of TPC-H in 24 files, three columns of keys. The session is warm, Python workers and kernels too: the first
turns of everything are not counted. CPU time is that of this process, the Java virtual machine and its Python workers.
A curve shows how the ratio to a build in this process falls with rows; `scripts/bench scaling` has more of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any

import sidecar
from scripts.benchmarks.build import build, forget
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import Clock, Side
from scripts.benchmarks.inputs.lineitem import catalog_with_table
from scripts.benchmarks.inputs.longs import catalog_of_two_longs
from scripts.benchmarks.peers.spark import ICEBERG, SQLITE, EventLog, jdbc_catalog, pid_of, spark_session

COLUMNS = ["l_orderkey", "l_partkey", "l_suppkey"]
FILES = 24
WARM_UPS = 2


def measure(bench: Bench) -> None:
    """Measure one table."""
    catalog = catalog_with_table(bench.size(1.0, quick=0.05), FILES, COLUMNS)
    table = catalog.load_table("db.lineitem")
    with data.scratch() as folder:
        log = EventLog(folder / "events")
        settings = {**log.settings, **jdbc_catalog("bench", data.folder_of(catalog))}
        with spark_session(settings, packages=f"{ICEBERG},{SQLITE}") as session:
            compare(bench, session, table, log, folder / "rewritten")
            ratio_in_rows(bench, session, 2, bench.size((1_000_000, 3_000_000, 10_000_000), quick=(100_000, 300_000)))
        work = log.last_work()
    bench.row("tasks of a build on Spark", work.tasks, "tasks", note=f"{FILES} files")
    bench.row("shuffled by a build on Spark", work.shuffled / 1e6, "MB")


def compare(bench: Bench, session: Any, table: Any, log: EventLog, target: Any) -> None:
    names = ", ".join(f"'{name}'" for name in COLUMNS)
    every = ", ".join(COLUMNS)
    options = {f"parquet.bloom.filter.enabled#{name}": "true" for name in COLUMNS}
    options |= {f"parquet.bloom.filter.expected.ndv#{name}": "1000000" for name in COLUMNS}
    reports = []

    def build_on_spark() -> None:
        with log.span():
            reports.append(sidecar.build(table, COLUMNS, engine="spark", spark=session, full=True))

    def rewrite() -> None:
        frame = session.sql(f"SELECT {every} FROM bench.db.lineitem")
        frame.write.options(**options).option("compression", "zstd").mode("overwrite").parquet(str(target))

    counts = ", ".join(f"approx_count_distinct({name})" for name in COLUMNS)
    sides = {
        "sidecar on Spark": Side(build_on_spark, before=partial(forget, table)),
        "sidecar in process": Side(lambda: build(table, COLUMNS), before=partial(forget, table)),
        "compute_table_stats": Side(
            lambda: session.sql(
                f"CALL bench.system.compute_table_stats(table => 'db.lineitem', columns => array({names}))"
            ).collect(),
            before=partial(forget, table),
        ),
        "approx_count_distinct": Side(lambda: session.sql(f"SELECT {counts} FROM bench.db.lineitem").collect()),
        "Spark writes filters": Side(rewrite, before=lambda: shutil.rmtree(target, ignore_errors=True)),
    }
    rows = table.inspect.files()["record_count"].to_numpy().sum()
    what = f"build on Spark of 3 columns, {rows:,} rows in {FILES} files"
    times = bench.compare(what, sides, 3, warm_ups=WARM_UPS, clock=Clock([pid_of(session)]))
    for peer, most in (
        ("compute_table_stats", at_most(1.2)),
        ("Spark writes filters", at_most(0.35)),
        ("sidecar in process", at_most(5)),
        ("approx_count_distinct", None),
    ):
        bench.ratio(what, times, "sidecar on Spark", peer, most)
        bench.ratio(what, times, "sidecar on Spark", peer, clock="cpu")
    bench.row("the sidecar of a build on Spark", reports[-1].file_size / 1e6, "MB")
    forget(table)
    build_on_spark()


def ratio_in_rows(bench: Bench, session: Any, cores: int, sizes: Sequence[int]) -> None:
    """Draw how many times as long a build takes on a warm session as on as many threads of this process."""
    what, points = f"build on Spark, local[{cores}]", []
    for rows in sizes:
        table = catalog_of_two_longs(rows).load_table("db.longs")
        sides = {
            "sidecar on Spark": Side(
                partial(sidecar.build, table, ["k", "m"], engine="spark", spark=session, full=True),
                before=partial(forget, table),
            ),
            "sidecar in process": Side(
                partial(sidecar.build, table, ["k", "m"], engine="local", threads=cores, full=True),
                before=partial(forget, table),
            ),
        }
        of_rows = f"{what}, {rows:,} rows of 2 longs"
        times = bench.compare(of_rows, sides, 3, warm_ups=WARM_UPS, clock=Clock([pid_of(session)]))
        bench.ratio(of_rows, times, "sidecar on Spark", "sidecar in process")
        points.append((rows, times.ratio(["sidecar on Spark"], ["sidecar in process"]).median))
    bench.curve(f"{what}, against a build in process", "rows", "x", points)
