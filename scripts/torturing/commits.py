"""Processes commit to one table at once: four that write, and one that compares plans with full scans all the time.

The writers append, delete, compact data files, register statistics as another engine does, build and refresh sidecars,
expire snapshots and registrations, and delete files. Afterwards :mod:`scripts.torturing.commit_history` walks
through all versions of the table's metadata and looks whether anything that was acknowledged is lost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scripts.servers.services import running
from scripts.torturing.arguments import minutes
from scripts.torturing.commit_history import Findings, examine, version_of
from scripts.torturing.commit_workers import NAME, Job, make_table, read_and_compare, write

WRITERS = 4
CATALOGS = ("rest", "postgres")
ENDING_SECONDS = 300
"""How long a process may take to end what it is doing."""


class Outcome(NamedTuple):
    """What a run came to.

    Attributes:
        commits: how many versions of the metadata the run made.
        seconds: how long it took.
        counts: what writers and the reader count.
        errors: errors that are none of those that a conflict has.
        findings: what the history shows.
        logs: the folder with the logs of the processes, which stays if something was lost, wrong or failed.
    """

    commits: int
    seconds: float
    counts: Counter[str]
    errors: list[str]
    findings: Findings
    logs: Path

    @property
    def is_good(self) -> bool:
        return not self.errors and not self.findings.lost and not self.counts["wrong answers"]


def run(properties: Mapping[str, str], commits: int, minutes: float, seed: int) -> Outcome:
    """Let processes commit to a new table of a catalog until it has so many commits, or the time is over."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    folder = Path(tempfile.mkdtemp(prefix="sidecar-commits-"))
    job = Job(dict(properties), f"torture_{uuid.uuid4().hex[:8]}.{NAME}", folder, seed)
    table = make_table(job)
    first = version_of(table.metadata_location)
    workers = [context.Process(target=write, args=(job, number, stop)) for number in range(WRITERS)]
    workers.append(context.Process(target=read_and_compare, args=(job, stop)))
    began = time.monotonic()
    try:
        for worker in workers:
            worker.start()
        while time.monotonic() - began < minutes * 60 and all(worker.is_alive() for worker in workers):
            time.sleep(0.5)
            if version_of(table.refresh().metadata_location) - first >= commits:
                break
        stop.set()
        errors = [line for worker in workers for line in _joined(worker)]
        seconds = time.monotonic() - began
        lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.open()]
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line.get("counts", {}))
        errors += [line["error"] for line in lines if "error" in line]
        last = version_of(table.refresh().metadata_location)
        outcome = Outcome(last - first, seconds, counts, errors, examine(table, lines), folder)
        if outcome.is_good:
            shutil.rmtree(folder)
        return outcome
    finally:
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                worker.kill()


def _joined(worker: Any) -> list[str]:
    worker.join(ENDING_SECONDS)
    if worker.exitcode == 0:
        return []
    return [f"{worker.name} {'hangs' if worker.exitcode is None else f'ended with status {worker.exitcode}'}"]


def lines_of(catalog: str, outcome: Outcome) -> list[str]:
    """The report of a run."""
    counts, findings = outcome.counts, outcome.findings
    shown = {
        "commits": outcome.commits,
        "seconds": round(outcome.seconds),
        "operations": counts["operations"],
        "conflicts": counts["conflicts"],
        "retries": counts["retries"],
        "operations given up": counts["given up"],
        "registrations acknowledged": findings.acknowledged,
        "replaced or removed by their rules": findings.replaced,
        "lost": len(findings.lost),
        "entries replaced before they were merged": findings.repaid,
        "files deleted by gc": counts["files deleted"],
        "plans compared with full scans": counts["checks"],
        "data files dropped by these plans": counts["files dropped"],
        "wrong answers": counts["wrong answers"],
        "errors": len(outcome.errors),
    }
    lines = [catalog, *(f"  {name:<44}{number:>8,}" for name, number in shown.items())]
    operations = {name.removeprefix("op "): n for name, n in sorted(counts.items()) if name.startswith("op ")}
    lines.append(f"  acknowledged: {', '.join(f'{name} {n:,}' for name, n in operations.items())}")
    lines += [f"  ! {text}" for text in (*findings.lost, *outcome.errors)]
    return lines if outcome.is_good else [*lines, f"  logs: {outcome.logs}"]


def main(arguments: list[str]) -> int:
    """Run for each catalog, print the report of each; return 1 if anything was lost, wrong or failed."""
    parser = argparse.ArgumentParser(prog="scripts/torture commits", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the choices of operations, by default random")
    parser.add_argument("--minutes", type=minutes, default=60.0, help="how long each catalog is tried at most")
    parser.add_argument("--commits", type=int, default=1000, help="how many commits each catalog gets")
    parser.add_argument("--catalog", choices=CATALOGS, help="this one alone")
    given = parser.parse_args(arguments)
    services = running()
    if not set(CATALOGS) <= set(services):
        print("the servers do not run: scripts/services up")
        return 2
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}")
    good = True
    for catalog in [given.catalog] if given.catalog else CATALOGS:
        outcome = run(services[catalog].catalogs[catalog], given.commits, given.minutes, seed)
        print("\n".join(lines_of(catalog, outcome)), flush=True)
        good &= outcome.is_good
    return 0 if good else 1
