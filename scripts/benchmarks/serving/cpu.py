"""CPU time of whole plan requests in the server, and its memory over many of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.processes import own_memory
from scripts.benchmarks.harness.results import Target, at_most
from scripts.benchmarks.harness.timing import Side, Taken
from scripts.benchmarks.inputs.manifests import KEY
from scripts.benchmarks.serving.asgi import JAVA, PYICEBERG, Asked, started
from scripts.benchmarks.serving.process import server
from sidecar.serving.application import make_application
from sidecar.serving.settings import ServeSettings

CLIENTS = {"Spark": JAVA, "pyiceberg": PYICEBERG}
WIDE = {
    "no filter": True,
    "a range that keeps all": {"type": "gt", "term": "k", "value": -(2**62)},
    "an indexed value in all": {"type": "eq", "term": "k", "value": KEY},
}


def measure(bench: Bench, folder: Path, few: int, many: int) -> None:
    """Measure a server on a catalog, one before another server, and memory."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # log lines are made and thrown away
        with started(make_application(ServeSettings(catalog="bench").checked())) as asked:
            lookups(bench, asked, f"lookup in {few} files", at_most(5))
            wide_queries(bench, asked, many)
        with server() as (upstream, _):
            settings = ServeSettings(upstream=upstream, storage=(f"file:{folder}",)).checked()
            with started(make_application(settings)) as asked:
                lookups(bench, asked, f"lookup in {few} files, before sidecar serve", None)
        with started(make_application(ServeSettings(catalog="bench").checked())) as asked:
            remember(bench, asked, bench.size(2_000, quick=200, large=100_000))


def plans(asked: Asked, table: str, condition: Callable[[], Any], client: str) -> Callable[[], Taken]:
    """Return a side that measures itself: the CPU time of a plan and its pages, and nothing else."""

    def run() -> Taken:
        seconds, _ = asked.plan(table, condition(), CLIENTS[client])
        return Taken(seconds, seconds)

    return run


def lookups(bench: Bench, asked: Asked, what: str, target: Target | None) -> None:
    """Ask for another key each time."""
    keys = count(KEY + 1)
    sides = {
        f"sidecar serve, {client}": Side(
            plans(asked, "few", lambda: {"type": "eq", "term": "k", "value": next(keys)}, client), repeat=10
        )
        for client in CLIENTS
    }
    show(bench, what, sides, target)


def wide_queries(bench: Bench, asked: Asked, many: int) -> None:
    for what, condition in WIDE.items():
        sides = {
            f"sidecar serve, {client}": Side(plans(asked, "many", partial(lambda c: c, condition), client))
            for client in CLIENTS
        }
        show(bench, f"{what}, {many:,} files", sides, at_most(300))


def show(bench: Bench, what: str, sides: dict[str, Side], target: Target | None) -> None:
    times = bench.compare(f"plan request: {what} (CPU)", sides, 7)
    for name in sides:
        found = times.of(name, "cpu")
        client = name.rpartition(", ")[2]
        label = f"plan request of {client}: {what} (CPU)"
        bench.row(label, found.median * 1000, "ms", target, spread=found.spread)


def remember(bench: Bench, asked: Asked, number: int) -> None:
    """Measure how much the process grows while it answers lookups, each for another key."""
    bench.say(f"{number:,} lookups")
    before, keys = 0, count(10 * KEY)
    for _half in range(2):
        before = own_memory()[0]
        for at in range(number // 2):
            asked.plan("few", {"type": "eq", "term": "k", "value": next(keys)}, JAVA if at % 2 else PYICEBERG)
    now, most = own_memory()
    bench.row(f"memory of the server after {number:,} lookups", now / 1e6, "MB", note=f"at most {most / 1e6:,.0f} MB")
    bench.row(f"memory that the last {number // 2:,} lookups added", (now - before) / 1e6, "MB")
