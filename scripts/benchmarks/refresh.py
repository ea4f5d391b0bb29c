"""What a refresh costs: files read, requests, bytes and seconds, and what lookups cost after many refreshes.

A table of 10,000 files gets one more and is refreshed, then refreshed with nothing to do, in this process and as a
command; then a file is deleted. A table of ten files gets one more, thirty times, each followed by a refresh; its
lookups are compared with those after fresh builds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.counting import counted
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.inputs.tiny_files import catalog_of_tiny_files, rows


def measure(bench: Bench) -> None:
    """Measure a large table and a small one."""
    files = bench.size(10_000, quick=500)
    catalog = catalog_of_tiny_files(files)
    table = catalog.load_table("db.t")
    bench.say(f"building a sidecar of {files:,} files")
    sidecar.build(table, ["k", "m"], engine="local", save=True)
    one_more(bench, table, files)
    nothing_to_do(bench, table)
    one_removed(bench, table)
    many_refreshes(bench, bench.size(30, quick=5))


def one_more(bench: Bench, table: Any, files: int) -> None:
    numbers, last = count(files), [""]
    opened, requests = [], []

    def refresh() -> None:
        with counted() as found:
            report = sidecar.refresh(table, engine="local")
        assert (report.action, report.files_indexed) == ("written", 1), report
        last[0] = report.statistics_path.removeprefix("file:")
        opened.append(len(found.data_files))
        requests.append(str(found))

    what = f"refresh after one file more than {files:,}"
    sides = {
        "sidecar refreshes": Side(refresh, before=lambda: table.append(rows(next(numbers)))),
        "copy of the sidecar": Side(lambda: copy_of(last[0])),
    }
    times = bench.compare(what, sides)
    spent = [
        a.cpu - b.cpu for a, b in zip(times.taken["sidecar refreshes"], times.taken["copy of the sidecar"], strict=True)
    ]
    bench.values(f"{what}: CPU beyond copying", spent, "s", at_most(2))
    bench.row(f"{what}: data files opened", max(opened), "files", at_most(1), note=requests[-1])


def copy_of(path: str) -> None:
    """Copy a file and write it to disk, as the kernel does for a refresh."""
    with open(path, "rb") as old, open(f"{path}.copy", "wb") as new:
        shutil.copyfileobj(old, new, 8 << 20)
        new.flush()
        os.fsync(new.fileno())
    os.unlink(f"{path}.copy")


def nothing_to_do(bench: Bench, table: Any) -> None:
    def refresh() -> None:
        report = sidecar.refresh(table)
        assert report.action == "current", report

    with counted() as found:
        refresh()
    environment = {**os.environ, **data.catalog_environment(data.folder_of(table.catalog))}

    def python(*arguments: str) -> None:
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, cwd=data.ROOT, check=True, capture_output=True)

    load = "from pyiceberg.catalog import load_catalog; load_catalog('bench').load_table('db.t')"
    times = bench.compare(
        "refresh with nothing to do",
        {
            "sidecar refreshes": refresh,
            "sidecar refresh, a command": partial(python, "-m", "sidecar.cli", "refresh", "db.t"),
            "pyiceberg loads, a process": partial(python, "-c", load),
        },
    )
    own = times.of("sidecar refreshes", "cpu")
    bench.row("refresh with nothing to do (CPU)", own.median, "s", spread=own.spread, note=str(found))
    pairs = zip(times.taken["sidecar refresh, a command"], times.taken["pyiceberg loads, a process"], strict=True)
    beyond = [a.cpu - b.cpu for a, b in pairs]
    for clock in ("cpu", "wall"):
        whole = times.of("sidecar refresh, a command", clock)
        name = "refresh with nothing to do, a command, from the start of Python"
        bench.row(name + (" (CPU)" if clock == "cpu" else ""), whole.median, "s", spread=whole.spread)
    bench.values("refresh with nothing to do, a command: CPU beyond pyiceberg loading", beyond, "s", at_most(0.5))


def one_removed(bench: Bench, table: Any) -> None:
    gone = rows(3)["k"]
    table.delete(f"k >= {gone[0].as_py()} and k <= {gone[-1].as_py()}")
    with counted() as found:
        sidecar.refresh(table, engine="local")
    bench.row("refresh after a file was removed: data files opened", len(found.data_files), "files", at_most(0))


def many_refreshes(bench: Bench, steps: int) -> None:
    table, fresh = small_table("refreshed"), small_table("fresh")
    for each in (table, fresh):
        sidecar.build(each, ["k"], kinds=["bloom"], engine="local", save=True)
    reads, ratios = [], []
    for number in range(10, 10 + steps):
        table.append(rows(number))
        fresh.append(rows(number))
        sidecar.refresh(table, engine="local")
        sidecar.build(fresh, full=True, engine="local")
        ours, best = (sidecar.plan(each, "k = -5") for each in (table, fresh))
        assert ours.files_kept == best.files_kept == 0, number
        reads.append(ours.index_reads - best.index_reads)
        ratios.append(ours.index_bytes_read / best.index_bytes_read)
    what = f"a lookup after each of {steps} refreshes"
    bench.row(f"{what}: most reads more", max(reads), "reads", at_most(4), against="after a fresh build")
    bench.row(f"{what}: most bytes", max(ratios), "x", at_most(2), against="after a fresh build")


def small_table(name: str) -> Any:
    def make(folder: Path, catalog: Any) -> None:
        table = catalog.create_table("db.t", rows(0).schema)
        for number in range(10):
            table.append(rows(number))

    return data.table(f"small-{name}", make).load_table("db.t")
