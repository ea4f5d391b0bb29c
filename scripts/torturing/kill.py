"""Kills every operation at every named step, prints the grid, and goes on with kills at system calls.

The grid is the one of the guide page ``trust``. With ``--minutes``, processes are then killed where no step has a name:
when they enter a system call that changes a file. That needs ``strace``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from random import Random

from scripts.torturing.arguments import minutes
from sidecar.iceberg import entry_commits
from tests.faults import killed_tables, system_calls
from tests.faults.kill_grid import GRID, kill_everywhere
from tests.faults.killing import HEADER, row_of


def main(arguments: list[str]) -> int:
    """Run, and return the exit status: 1 if a killed run has done harm."""
    parser = argparse.ArgumentParser(prog="scripts/torture kill", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the order of the kills at system calls")
    parser.add_argument("--minutes", type=minutes, default=0.0, help="how long processes are killed at system calls")
    parser.add_argument("--operation", choices=GRID, action="append", help="only this row of the grid; may be repeated")
    given = parser.parse_args(arguments)
    killed_tables.THOROUGH = True
    entry_commits.FIRST_PAUSE = 0.0
    names = given.operation or list(GRID)
    harm: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sidecar-kill-") as folder:
        kill_at_steps(names, Path(folder), harm)
        if given.minutes and not system_calls.has_strace():
            print("strace is not installed: no kills at system calls")
        elif given.minutes:
            seconds = given.minutes * 60
            system_calls.kill_at_system_calls(names, Path(folder) / "calls", seconds, Random(given.seed), harm, print)
    print("\n".join(harm))
    return 1 if harm else 0


def kill_at_steps(names: list[str], folder: Path, harm: list[str]) -> None:
    """Print the grid."""
    start, kills = time.monotonic(), 0
    print(HEADER, flush=True)
    for name in names:
        try:
            killed = kill_everywhere(name, folder / name.replace(" ", "-"), is_thorough=True)
        except AssertionError as error:
            harm.append(f"{name}: {error}; {error.__cause__!r}")
        else:
            kills += len(killed)
            print(row_of(name, killed), flush=True)
    took = time.monotonic() - start
    print(f"{kills} kills at named steps of {len(names)} operations; {took:.0f} s; operations with harm: {len(harm)}")
