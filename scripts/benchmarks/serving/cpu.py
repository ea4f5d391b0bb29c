"""CPU time of whole plan requests in the server, and its memory over many of them."""

from __future__ import annotations

import contextlib
import os
import statistics
from pathlib import Path
from typing import Any

from plan import KEY

from serving.asgi import JAVA, PYICEBERG, Asked, started
from serving.process import server
from sidecar.serving.application import make_application
from sidecar.serving.settings import checked_settings

WIDE = {"type": "gt", "term": "k", "value": -(2**62)}


def equal(key: int) -> dict[str, Any]:
    return {"type": "eq", "term": "k", "value": key}


def measure(folder: Path, runs: int, plans: int) -> list[str]:
    """Return the targets that were missed."""
    missed = []
    with contextlib.redirect_stderr(open(os.devnull, "w")):  # log lines of plans are made and thrown away
        with started(make_application(checked_settings(catalog="bench"))) as asked:
            print("--catalog, in this process: guards, routes, load of the table, plan, log line")
            if lookups(asked, 10 * runs) > 0.005:
                missed.append("a lookup in 5 ms of CPU")
            if wide_queries(asked, runs) > 0.3:
                missed.append("many files in 300 ms of CPU")
        with server() as (upstream, _):
            print("--upstream, in this process, before sidecar serve as another process")
            settings = checked_settings(upstream=upstream, storage=(f"file:{folder}",))
            with started(make_application(settings)) as asked:
                lookups(asked, 10 * runs)
        if plans:
            with started(make_application(checked_settings(catalog="bench"))) as asked:
                print("--catalog: memory of this process")
                remember(asked, plans)
    return missed


def lookups(asked: Asked, runs: int) -> float:
    java = median("lookup, another key each, Spark", runs, lambda n: asked.plan("few", equal(KEY + 1 + n), JAVA))
    median("lookup, pyiceberg", runs, lambda n: asked.plan("few", equal(KEY - 1 - n), PYICEBERG))
    return java


def wide_queries(asked: Asked, runs: int) -> float:
    kinds = {"no filter": True, "a range that keeps all": WIDE, "an indexed value in all": equal(KEY)}
    return max(
        median(f"{what}, {who}", runs, lambda _, condition=condition, agent=agent: asked.plan("many", condition, agent))  # type: ignore[misc]
        for who, agent in (("Spark", JAVA), ("pyiceberg", PYICEBERG))
        for what, condition in kinds.items()
    )


def median(what: str, runs: int, plan: Any) -> float:
    found = [plan(run) for run in range(runs + 1)]
    seconds = [one for one, _ in found]
    middle = statistics.median(seconds[1:])
    first = f"first {seconds[0] * 1000:,.1f} ms, {found[-1][1]:,} bytes"
    print(f"  {what:<36} {middle * 1000:>7.1f} ms of CPU, {first}", flush=True)
    return middle


def remember(asked: Asked, plans: int) -> None:
    """Print the memory of the process while it answers lookups, each for another key."""
    for tenth in range(10):
        for number in range(plans // 10):
            asked.plan("few", equal(tenth * plans + number), JAVA if number % 2 else PYICEBERG)
        kernel = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        now, most = (int(kernel[name].split()[0]) / 1000 for name in ("VmRSS", "VmHWM"))
        print(f"  {(tenth + 1) * (plans // 10):>9,} lookups: VmRSS {now:.0f} MB, VmHWM {most:.0f} MB", flush=True)
