"""The first plan of a new process, and what it takes to load the package, beside pyiceberg doing the same.

Each run is a process of its own, from its start to its end. The table is lineitem in 24 files and 24 manifests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from scripts.benchmarks.build import build
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.inputs.lineitem import SCANNED, catalog_with_table

FILES, PREDICATE = 24, "l_partkey = 1553"
PYICEBERG = f"""
from pyiceberg.catalog import load_catalog
list(load_catalog("bench").load_table("db.lineitem").scan(row_filter={PREDICATE!r}).plan_files())
"""


PYTHON = f"""
import sidecar
sidecar.plan(sidecar.open_table("db.lineitem", "bench"), {PREDICATE!r})
"""


def measure(bench: Bench) -> None:
    """Measure commands, an import, and pyiceberg."""
    catalog = catalog_with_table(bench.size(1.0, quick=0.05), FILES, SCANNED)
    build(catalog.load_table("db.lineitem"), SCANNED)
    environment = {**os.environ, **data.catalog_environment(data.folder_of(catalog))}

    def python(*arguments: str) -> None:
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, cwd=data.ROOT, check=True, capture_output=True)

    sides = {
        "sidecar plan": partial(python, "-m", "sidecar.cli", "plan", "db.lineitem", PREDICATE),
        "sidecar plan, from Python": partial(python, "-c", PYTHON),
        "pyiceberg loads and plans": partial(python, "-c", PYICEBERG),
        "sidecar --help": partial(python, "-m", "sidecar.cli", "--help"),
        "sidecar, import": partial(python, "-c", "import sidecar"),
        "python": partial(python, "-c", "pass"),
    }
    what = "the first plan in a new process"
    times = bench.compare(what, sides, 9)
    for clock in ("wall", "cpu"):
        for side, label in (("sidecar plan", what), ("sidecar plan, from Python", f"{what}, from Python")):
            bench.ratio(label, times, side, "pyiceberg loads and plans", at_most(1.05), clock=clock)
    for name in sides:
        found = times.of(name)
        bench.row(f"a process: {name}", found.median, "s", spread=found.spread)
