"""What a plan costs the server: CPU time of a lookup over few hundred files, and of a query that keeps all of many.

The tables are those of ``plan.py``: real manifests, and data files that do not exist. A request is answered in this
process, by the catalog's table and the planner, without a connection; the bytes of the answer are made and joined.
Each lookup asks for another key. Figures are medians of --runs after one request that fills the caches. Targets: a
lookup in 5 ms of CPU time, a query that keeps all files in 300 ms.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from plan import KEY, catalog_of, write_sidecar, write_table

from sidecar.serving.answers import Caller
from sidecar.serving.planning.catalog_tables import CatalogTables
from sidecar.serving.planning.scan_planner import ScanPlanner

JAVA, PYICEBERG = Caller("Apache-HttpClient/5.5 (Java/17)", "Apache Iceberg 1.12.0"), Caller("PyIceberg/0.12.0")
NAME = "db", "many"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="serve", description=__doc__)
    parser.add_argument("--few", type=int, default=658)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--plans", type=int, default=0, help="so many lookups more, and the memory after each tenth")
    options = parser.parse_args(arguments)
    missed = measure_lookups(options) | measure_wide_queries(options)
    print(f"targets: {'missed' if missed else 'met'}")
    return int(missed)


@contextmanager
def asked_table(files: int, per_manifest: int, runs: int) -> Iterator[Asked]:
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as name:
        catalog = catalog_of(Path(name))
        write_sidecar(write_table(catalog, files, per_manifest), 1)
        print(f"{files:,} files in manifests of {per_manifest:,}", flush=True)
        yield Asked(catalog, ScanPlanner(shares_manifests=True, page_files=1_000_000), runs)


def measure_lookups(options: Any) -> bool:
    with asked_table(options.few, 100, options.runs) as asked:
        load = asked.median("load the table", lambda n: 0)
        lookup = asked.median("lookup, another key each", lambda n: asked.plan(equal(KEY + 1 + n), JAVA))
        asked.median("lookup by pyiceberg", lambda n: asked.plan(equal(KEY - 1 - n), PYICEBERG))
        print(f"  without loading the table: {(lookup - load) * 1000:.1f} ms")
        remember(asked, options.plans)
        return lookup > 0.005


def measure_wide_queries(options: Any) -> bool:
    wide = {"type": "gt", "term": "k", "value": -(2**62)}
    slowest = 0.0
    with asked_table(options.many, 1000, options.runs) as asked:
        for who, caller in (("Spark", JAVA), ("pyiceberg", PYICEBERG)):
            for what, condition in (("no filter", True), ("a filter that all files meet", wide)):
                plan = partial(asked.plan, condition, caller)
                slowest = max(slowest, asked.median(f"{what}, {who}", lambda n, plan=plan: plan()))  # type: ignore[misc]
    return slowest > 0.3


def equal(key: int) -> dict[str, Any]:
    return {"type": "eq", "term": "k", "value": key}


class Asked:
    def __init__(self, catalog: Any, planner: ScanPlanner, runs: int) -> None:
        self.tables, self.planner, self.runs = CatalogTables(catalog), planner, runs
        self.table: Any = None

    def plan(self, condition: Any, caller: Caller) -> int:
        request = json.dumps({"snapshot-id": self.table.metadata.current_snapshot_id, "filter": condition}).encode()
        return len(b"".join(self.planner.plan(self.table, NAME, request, caller).body))

    def median(self, what: str, answer: Callable[[int], int]) -> float:
        seconds, size = [], 0
        for run in range(self.runs + 1):
            started = time.process_time()
            self.table = self.tables.load(NAME)
            size = answer(run)
            seconds.append(time.process_time() - started)
        median = statistics.median(seconds[1:])
        print(
            f"  {what:<32} {median * 1000:>7.1f} ms of CPU, first {seconds[0] * 1000:.1f} ms, {size:,} bytes",
            flush=True,
        )
        return median


def remember(asked: Asked, plans: int) -> None:
    """Print how much memory the process has taken at most, while it answers many different lookups."""
    for tenth in range(10 if plans else 0):
        for number in range(plans // 10):
            asked.plan(equal(tenth * plans + number), JAVA)
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"  {(tenth + 1) * (plans // 10):,} plans: {taken:.0f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
