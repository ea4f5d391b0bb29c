"""Kills every operation at every named step, prints the grid, and goes on with kills at system calls.

``.github/design/torture.md`` has the grid. Its last rows are drivers of Spark; without Java they are left out. With
``--minutes``, processes are then killed where no step has a name: when they enter a system call that changes a file.
That needs ``strace``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from scripts.torturing.arguments import minutes
from sidecar.iceberg.statistics_files import entry_commits
from sidecar.spark.session import unavailable
from tests.faults import killed_tables, system_calls
from tests.faults.kill_grid import GRID, kill_everywhere
from tests.faults.killed_spark import SPARK_ROWS, kill_drivers
from tests.faults.killing import HEADER, row_of

Kill = Callable[[Path], Sequence[str]]
"""Kills an operation at all of its steps, in a folder; returns the steps."""


def main(arguments: list[str]) -> int:
    """Run, and return the exit status: 1 if a killed run has done harm."""
    parser = argparse.ArgumentParser(prog="scripts/torture kill", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the order of the kills at system calls")
    parser.add_argument("--minutes", type=minutes, default=0.0, help="how long processes are killed at system calls")
    rows = [*GRID, *SPARK_ROWS]
    parser.add_argument("--operation", choices=rows, action="append", help="only this row of the grid; may be repeated")
    given = parser.parse_args(arguments)
    killed_tables.THOROUGH = True
    entry_commits.FIRST_PAUSE = 0.0
    names = given.operation or rows
    if any(name in SPARK_ROWS for name in names) and (why := unavailable()) is not None:
        print(f"Spark cannot start ({why}): its rows are left out")
        names = [name for name in names if name in GRID]
    harm: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sidecar-kill-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        session = cache(lambda: stack.enter_context(spark_session(folder)))
        kill_at_steps({name: kill_of(name, session) for name in names}, folder, harm)
        if given.minutes and not system_calls.has_strace():
            print("strace is not installed: no kills at system calls")
        elif given.minutes:
            local, seconds = [name for name in names if name in GRID], given.minutes * 60
            system_calls.kill_at_system_calls(local, folder / "calls", seconds, Random(given.seed), harm, print)
    print("\n".join(harm))
    return 1 if harm else 0


@contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """A session that does not print what becomes of drivers that were killed."""
    from tests.conftest import start_spark

    session = start_spark(folder)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def kill_of(name: str, session: Callable[[], Any]) -> Kill:
    """How a row of the grid is killed. ``session`` returns the session of Spark, which starts when it is needed."""
    if name in GRID:
        return partial(kill_everywhere, GRID[name], is_thorough=True)
    return lambda folder: kill_drivers(name, session(), folder)


def kill_at_steps(operations: dict[str, Kill], folder: Path, harm: list[str]) -> None:
    """Print the grid."""
    start, kills = time.monotonic(), 0
    print(HEADER, flush=True)
    for name, kill in operations.items():
        try:
            killed = kill(folder / name.replace(" ", "-"))
        except AssertionError as error:
            harm.append(f"{name}: {error}; {error.__cause__!r}")
        else:
            kills += len(killed)
            print(row_of(name, killed), flush=True)
    took = time.monotonic() - start
    print(f"{kills} kills at named steps of {len(operations)} operations; {took:.0f} s; with harm: {len(harm)}")
