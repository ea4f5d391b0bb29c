"""Spark SQL and pyiceberg, planned by the server, and by themselves through the same server.

CPU time is that of client and server together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import Target, at_least, at_most
from scripts.benchmarks.harness.timing import Clock
from scripts.benchmarks.inputs.manifests import KEY
from scripts.benchmarks.peers.spark import pid_of, spark_session
from scripts.benchmarks.serving.process import server
from scripts.benchmarks.serving.tables import GROUP_FILES, GROUPS
from sidecar.serving.application import application_with
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings

NEEDLE, ABSENT, ALL = "k = 2", "k = 3", f"k = {KEY}"
MODE = "scan-planning-mode"
TURNS, WARM_UPS = 5, 4


def measure(bench: Bench, files: int, rows: int) -> None:
    """Measure both. ``db.real`` has ``files`` files, and those of ``db.groups`` have ``rows`` rows."""
    with server() as (address, pid), committing() as other:
        pyiceberg(bench, address, pid)
        settings = {}
        for name, uri, mode in (("served", address, "server"), ("own", address, "client"), ("other", other, "server")):
            prefix = f"spark.sql.catalog.{name}"
            settings |= {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "rest"}
            settings |= {f"{prefix}.uri": uri, f"{prefix}.{MODE}": mode}
        with spark_session(settings) as session:
            spark(bench, session, files, Clock([pid, pid_of(session)]))
            residuals(bench, session, rows * GROUP_FILES // 3, Clock([pid_of(session)]))


@contextmanager
def committing() -> Iterator[str]:
    """Serve the same catalog as if clients could commit to it, as they can with ``--upstream``; yield the address."""
    settings = ServeSettings(catalog="bench", port=0).checked()
    with running(settings, application_with(settings, ScanPlanner(shares_manifests=True))) as address:
        yield address


def residuals(bench: Bench, session: Any, key: int, clock: Clock) -> None:
    """Compare reads of one file of many row groups, which are skipped where nobody can replace files."""
    for what, columns in (("all columns", "*"), ("three of eight columns", "k, v1, v2")):

        def rows(catalog: str, columns: str = columns) -> int:
            return len(session.sql(f"select {columns} from {catalog}.db.groups where k = {key}").collect())

        name = f"Spark, {what} of a value in 1 of {GROUPS} row groups"
        sides = {"--upstream": partial(rows, "other"), "--catalog": partial(rows, "served")}
        times = bench.compare(name, sides, TURNS, warm_ups=WARM_UPS, clock=clock)
        bench.ratio(name, times, "--upstream", "--catalog", clock="cpu")


def pyiceberg(bench: Bench, address: str, pid: int) -> None:
    served, own = (RestCatalog("bench", uri=address, **{MODE: mode}) for mode in ("server", "client"))

    def planned(catalog: RestCatalog) -> int:
        return len(list(catalog.load_table("db.many").scan(row_filter=ALL).plan_files()))

    both(bench, "pyiceberg, plan that keeps all", planned, served, own, Clock([pid]), most=at_most(1.3))


def spark(bench: Bench, session: Any, files: int, clock: Clock) -> None:
    def rows(predicate: str, catalog: str) -> int:
        return len(session.sql(f"select * from {catalog}.db.real where {predicate}").collect())

    def planned(catalog: str) -> int:
        frame = session.sql(f"select * from {catalog}.db.many where {ALL}")
        return int(frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0).inputPartitions().size())

    for what, predicate, least in ((f"in 1 of {files}", NEEDLE, 4), (f"in none of {files}", ABSENT, 5)):
        name = f"Spark, a value {what} files"
        both(bench, name, partial(rows, predicate), "served", "own", clock, least=at_least(least))
    both(bench, "Spark, plan that keeps all", planned, "served", "own", clock, most=at_most(5))


def both(
    bench: Bench,
    what: str,
    run: Callable[[Any], int],
    served: Any,
    own: Any,
    clock: Clock,
    *,
    least: Target | None = None,
    most: Target | None = None,
) -> None:
    """Compare a client with the server's plans and with its own."""
    sides = {"sidecar serve plans": partial(run, served), "its own plans": partial(run, own)}
    times = bench.compare(what, sides, TURNS, warm_ups=WARM_UPS, clock=clock)
    if least is not None:
        bench.faster(what, times, "sidecar serve plans", "its own plans", least, clock="cpu")
        bench.faster(what, times, "sidecar serve plans", "its own plans")
    else:
        bench.ratio(what, times, "sidecar serve plans", "its own plans", most, clock="cpu")
        bench.ratio(what, times, "sidecar serve plans", "its own plans")
