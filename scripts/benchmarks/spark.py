"""Builds on Spark, local[2], beside Spark's own sketches, Spark writing the data again with filters, and no Spark.

lineitem of TPC-H in 24 files, three columns of keys. The session is warm, Python workers and kernels too: one turn
of everything is not counted. CPU time is that of this process, the Java virtual machine and its Python workers.
"""

from __future__ import annotations

import shutil
from typing import Any

import sidecar
from scripts.benchmarks.build import build, forget
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import Clock, Side
from scripts.benchmarks.inputs.lineitem import catalog_with_table
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

    def forget_all() -> None:
        table.refresh()
        forget(table)

    def rewrite() -> None:
        frame = session.sql(f"SELECT {every} FROM bench.db.lineitem")
        frame.write.options(**options).option("compression", "zstd").mode("overwrite").parquet(str(target))

    counts = ", ".join(f"approx_count_distinct({name})" for name in COLUMNS)
    sides = {
        "sidecar on Spark": Side(build_on_spark, before=forget_all),
        "sidecar in process": Side(lambda: build(table, COLUMNS), before=forget_all),
        "compute_table_stats": Side(
            lambda: session.sql(
                f"CALL bench.system.compute_table_stats(table => 'db.lineitem', columns => array({names}))"
            ).collect(),
            before=forget_all,
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
    forget_all()
    build_on_spark()
