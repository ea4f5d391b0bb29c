"""A hundred refreshes of a large sidecar, in a simulated day and then at once: copies, bytes, and what is registered.

The table has 10,000 files, and the sidecar 131 kB a file (1.3 GB).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sidecar
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import Clock
from scripts.benchmarks.inputs.tiny_files import catalog_of_tiny_files, rate, rows
from sidecar.failpoints import observe

BLOCKS = 2048
"""Blocks of each of the two filters of a file."""


def measure(bench: Bench) -> None:
    """Measure both."""
    files, steps = bench.size(10_000, quick=200), bench.size(100, quick=5)
    table = catalog_of_tiny_files(files).load_table("db.t")
    bench.say("building")
    built = sidecar.build(table, ["k", "m"], kinds=["bloom"], fpp=rate(BLOCKS), engine="local", save=True)
    bench.row("the sidecar", built.file_size / 1e9, "GB")
    for name, apart in (("in a day", 86_400 / steps), ("at once", 0.0)):
        what = f"{steps} refreshes {name}"
        with forwarded_clock() as forward:
            written, copies, most, seconds = 0, 0, 0, []

            def reached(step: str) -> None:
                nonlocal most
                if step == "refresh: unregister":
                    most = max(most, registered(table))

            for number in range(steps):
                forward(apart)
                table.append(rows(files + number))
                with observe(reached):
                    taken, report = Clock().time(lambda: sidecar.refresh(table, engine="local"))
                seconds.append(taken.cpu)
                if report.action == "written":
                    written, copies = written + report.file_size, copies + 1
                most = max(most, registered(table))
                remove_unregistered(table)
        bench.row(f"{what}: written", written / 1e9, "GB", at_most(5), note=f"{copies} copies")
        bench.row(f"{what}: registered at most", most / 1e9, "GB", at_most(3))
        bench.values(f"{what}: a refresh (CPU)", seconds, "s")
        files += steps


@contextmanager
def forwarded_clock() -> Iterator[Callable[[float], None]]:
    """Put the clock of this process forward: by the seconds that the yielded function is given."""
    real, ahead = time.time, [0.0]
    time.time = lambda: real() + ahead[0]

    def forward(seconds: float) -> None:
        ahead[0] += seconds

    try:
        yield forward
    finally:
        time.time = real


def registered(table: Any) -> int:
    """Return the bytes of all files that the table's metadata names."""
    now = table.catalog.load_table(table.name())
    return sum({entry.statistics_path: entry.file_size_in_bytes for entry in now.metadata.statistics}.values())


def remove_unregistered(table: Any) -> None:
    """Delete the files that nothing names, to spare the disk."""
    named = {entry.statistics_path.rpartition("/")[2] for entry in table.refresh().metadata.statistics}
    for path in Path(table.metadata_location.removeprefix("file:")).parent.glob("*.stats"):
        if path.name not in named:
            path.unlink()
