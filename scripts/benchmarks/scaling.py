"""How cost grows, over three decades each, with the exponent of the power law that fits (--quick: two decades).

Build time in rows and in files, on Spark in rows, and as a share of the time in this process; lookup in units; plan and
refresh in files; memory of a build in columns and in units, by the kernel's own count. CPU times but for that share,
each the median of a few turns. Files and row groups are tiny where their number is what grows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import sidecar
from scripts.benchmarks.build import forget
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.timing import Clock, Side, take_turns
from scripts.benchmarks.inputs.bundles import OneLookup, random_hashes, write_bundle
from scripts.benchmarks.inputs.longs import catalog_of_two_longs
from scripts.benchmarks.inputs.manifests import KEY, catalog_of_manifests, write_sidecar
from scripts.benchmarks.inputs.tiny_files import catalog_of_row_groups, catalog_of_tiny_files, rows
from scripts.benchmarks.memory import run as memory_of
from scripts.benchmarks.peers.spark import pid_of, spark_session
from scripts.benchmarks.spark import ratio_in_rows
from sidecar.maintenance import costs

MANY = 10_000_000


def measure(bench: Bench) -> None:
    """Draw all curves."""
    build_in_rows(bench)
    ratios_on_spark(bench)
    tiny = steps(bench, 10, 10_000)
    bench.curve(
        "build in files", "files", "seconds of CPU", [(n, build_of_files(bench, n)) for n in tiny], goes_on_to=MANY
    )
    units = steps(bench, 100, 1_000_000, decades=4)
    bench.curve("lookup in units", "units", "ms of CPU", [(n, lookup_in(bench, n)) for n in units], goes_on_to=MANY)
    plans_in_files(bench)
    bench.curve(
        "refresh in files", "files", "seconds of CPU", [(n, refresh_of(bench, n)) for n in tiny], goes_on_to=MANY
    )
    memory(bench)


def steps(bench: Bench, least: int, most: int, *, decades: int = 3) -> list[int]:
    """Return sizes three to a decade, from ``least`` to ``most``; two decades of the smallest in a quick run."""
    wanted = bench.size(decades, quick=2)
    found = [round(least * 10 ** (third / 3), -1 if least >= 10 else None) for third in range(3 * wanted + 1)]
    return [int(size) for size in found if size <= most]


def build_in_rows(bench: Bench) -> None:
    sizes = steps(bench, 10_000, 10_000_000)
    here, on_spark = [], []
    with spark_session({}) as session:
        for number in sizes:
            table = catalog_of_two_longs(number).load_table("db.longs")
            sides = {
                "here": Side(partial(build, table), before=partial(forget, table)),
                "on Spark": Side(partial(build, table, spark=session), before=partial(forget, table)),
            }
            bench.say(f"build of {number:,} rows")
            times = take_turns(sides, turns_of(bench), clock=Clock([pid_of(session)]))
            here.append((number, times.of("here", "cpu").median))
            on_spark.append((number, times.of("on Spark", "cpu").median))
    bench.curve("build in rows", "rows", "seconds of CPU", here)
    bench.curve("build on Spark in rows", "rows", "seconds of CPU", on_spark)


def build(table: Any, **more: Any) -> None:
    sidecar.build(table, ["k", "m"], engine="spark" if more else "local", full=True, **more)


def ratios_on_spark(bench: Bench) -> None:
    """Draw how the time of a build on Spark, divided by that in this process, falls with rows and cores."""
    millions = bench.size((1, 3, 10, 30), quick=(1, 3))
    for cores in (1, 2):
        with spark_session({}, cores=cores) as session:
            ratio_in_rows(bench, session, cores, [1_000_000 * number for number in millions])


def seconds(bench: Bench, what: str, run: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
    """Return the median CPU time."""
    bench.say(what)
    return take_turns({"sidecar": Side(run, before=before)}, turns_of(bench)).of("sidecar", "cpu").median


def turns_of(bench: Bench) -> int:
    return bench.size(3, quick=1)


def build_of_files(bench: Bench, number: int) -> float:
    table = catalog_of_tiny_files(number).load_table("db.t")
    return seconds(bench, f"build of {number:,} files", partial(build, table), partial(forget, table))


def lookup_in(bench: Bench, number: int) -> float:
    bench.say(f"lookup in {number:,} units")
    with data.scratch() as folder:
        path = folder / "many.stats"
        write_bundle(path, number, 4)
        return 1000 * statistics.median([OneLookup(path, key_hash).cpu for key_hash in random_hashes(21)][1:])


def plans_in_files(bench: Bench) -> None:
    point, all_files = [], []
    for number in steps(bench, 100, 100_000):
        table = catalog_of_manifests(number, min(number, 5_000)).load_table("db.many")
        write_sidecar(table, 1)
        for points, predicate in ((point, f"k = {KEY}"), (all_files, "k > 0")):
            what = f"plan of {predicate} over {number:,} files"
            points.append((number, seconds(bench, what, partial(sidecar.plan, table, predicate))))
    bench.curve("plan of a key in files", "files", "seconds of CPU", point, goes_on_to=MANY)
    bench.curve("plan that keeps all in files", "files", "seconds of CPU", all_files, goes_on_to=MANY)


def refresh_of(bench: Bench, number: int) -> float:
    table, numbers = catalog_of_tiny_files(number).load_table("db.t"), count(number)
    sidecar.build(table, ["k", "m"], engine="local", save=True)

    def refresh() -> None:
        costs.FEW_ROWS = 0.0
        sidecar.refresh(table, engine="local")

    return seconds(bench, f"refresh of {number:,} files", refresh, lambda: table.append(rows(next(numbers))))


def memory(bench: Bench) -> None:
    """Draw what a build adds to the memory of a process that built next to nothing."""
    least = peak_of(catalog_of_row_groups(1, 1, 1))
    bench.row("memory of a process that builds one unit", least / 1e6, "MB")
    for what, shapes in (
        ("columns", [(10, 10, number) for number in steps(bench, 1, 1_000)]),
        ("units", [(100, number // 100, 3) for number in steps(bench, 100, 100_000)]),
    ):
        points = []
        for files, row_groups, columns in shapes:
            bench.say(f"memory of {files * row_groups:,} units x {columns:,} columns")
            size = columns if what == "columns" else files * row_groups
            more = peak_of(catalog_of_row_groups(files, row_groups, columns)) - least
            points.append((size, max(more, 1e5) / 1e6))
        bench.curve(f"memory that {what} add", what, "MB", points, goes_on_to=MANY if what == "units" else None)


def peak_of(catalog: Any) -> int:
    return max(peak.num_bytes for peak in memory_of(data.folder_of(catalog), "build-all", "local"))
