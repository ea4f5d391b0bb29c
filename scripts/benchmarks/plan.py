"""Plans over very many data files, with the sidecar, and as pyiceberg plans the same predicate.

Real manifests on local disk; the data files do not exist, as planning opens none. The filters are random bits, as full
as such that are wrong once in 32,000 lookups. Each figure over 100,000 files is the first plan of a fresh process in
which modules are imported and the table is loaded. The table of many small manifests is planned in one warm process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_least, at_most
from scripts.benchmarks.harness.timing import Clock, Side, Taken
from scripts.benchmarks.inputs.manifests import KEY, catalog_of_manifests, write_sidecar
from sidecar.iceberg.predicates.predicate import as_expression

PREDICATES = {
    "point": (f"k = {KEY}", at_least(50)),
    "range that leaves few": ("t < '2020-01-02T00:00:00'", None),
    "range that leaves all": ("k > 0", at_least(3)),
}


def measure(bench: Bench) -> None:
    """Measure many files, a million row groups, and many manifests."""
    files, per_manifest = bench.size(100_000, quick=2_000), bench.size(5_000, quick=500)
    catalog = catalog_of_manifests(files, per_manifest)
    folder, table = data.folder_of(catalog), catalog.load_table("db.many")
    bench.say("writing a sidecar")
    write_sidecar(table, 1)
    for kind, (predicate, target) in PREDICATES.items():
        what = f"{kind}, {files:,} files"
        sides = {who: partial(first_plan, folder, who, predicate) for who in ("sidecar", "pyiceberg")}
        times = bench.compare(what, sides, 3, warm_ups=0)
        bench.faster(what, times, "sidecar", "pyiceberg", target)
        bench.faster(what, times, "sidecar", "pyiceberg", clock="cpu")
        plan = sidecar.plan(table, predicate)
        note = f"{plan.files_kept:,} files kept, {plan.index_reads} reads; {plan.manifests.explain()}"
        bench.row(f"{what}: bytes of the index", plan.index_bytes_read / 1e6, "MB", note=note)
    million(bench, catalog, files, bench.size(10, quick=2))
    small_manifests(bench)


def million(bench: Bench, catalog: Any, files: int, units: int) -> None:
    table = catalog.load_table("db.many")
    bench.say("writing a sidecar of more row groups")
    write_sidecar(table, units)
    predicate = PREDICATES["point"][0]
    what = f"point, {files * units:,} row groups"
    side = partial(first_plan, data.folder_of(catalog), "sidecar", predicate)
    found = bench.compare(what, {"sidecar": side}, 3, warm_ups=0).of("sidecar", "cpu")
    bench.row(f"{what} (CPU)", found.median, "s", at_most(1), spread=found.spread)
    read = sidecar.plan(table.refresh(), predicate).index_bytes_read
    bench.row(f"{what}: bytes of the index", read / 1e6, "MB", at_most(2))


def small_manifests(bench: Bench) -> None:
    """Compare 24 files in 24 manifests with 658 files in one."""
    tables = {}
    for name, files, per_manifest in (("24 files in 24 manifests", 24, 1), ("658 files in one manifest", 658, 658)):
        tables[name] = catalog_of_manifests(files, per_manifest).load_table("db.many")
        write_sidecar(tables[name], 1)
    for kind, (predicate, _) in PREDICATES.items():
        sides = {}
        for name, table in tables.items():
            sides[f"sidecar, {name}"] = Side(partial(sidecar.plan, table, predicate), repeat=5)
            sides[f"pyiceberg, {name}"] = Side(partial(_plan_alone, table, predicate), repeat=5)
        times = bench.compare(f"a warm plan, {kind}", sides, 7)
        for name, target in zip(tables, (at_most(8), None), strict=True):
            what = f"a warm plan of {name}, {kind}"
            for clock in ("wall", "cpu"):
                found = times.of(f"sidecar, {name}", clock)
                label = f"{what} (CPU)" if clock == "cpu" else what
                bench.row(label, found.median * 1000, "ms", target, spread=found.spread)
            bench.faster(what, times, f"sidecar, {name}", f"pyiceberg, {name}")


def _plan_alone(table: Any, predicate: str) -> int:
    return len(list(table.scan(row_filter=predicate).plan_files()))


def first_plan(folder: Path, who: str, predicate: str) -> Taken:
    """Return the times of a plan in a process of its own."""
    command = [sys.executable, "-m", "scripts.benchmarks.plan", str(folder), who, predicate]
    done = subprocess.run(command, cwd=data.ROOT, check=True, stdout=subprocess.PIPE)
    return Taken(**json.loads(done.stdout))


def plan_once(folder: Path, who: str, predicate: str) -> None:
    """Print the times of one plan in this process as JSON."""
    table = data.open_catalog(folder).load_table("db.many")
    plan = sidecar.plan  # imports
    if who == "sidecar":
        taken, _ = Clock().time(lambda: plan(table, predicate))
    else:
        row_filter = as_expression(predicate, table.schema(), True)
        taken, _ = Clock().time(lambda: list(table.scan(row_filter=row_filter).plan_files()))
    print(json.dumps({"wall": taken.wall, "cpu": taken.cpu}))


if __name__ == "__main__":
    plan_once(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
