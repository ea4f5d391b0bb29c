"""``scripts/torture storage``: every request of every command fails, in every way in which storage fails.

The grid has a line for each command and a column for each way; a cell has how many requests failed, each in a run of
its own, and after a slash how many of these runs went wrong. The last column has the seconds that all runs took. A
line is printed when its command is done; ``--commands`` goes on where a run ended. With ``--minutes`` requests are
chosen at random, in all cells, until the time is over. The S3 server of ``scripts/services`` is used if it runs.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from scripts.servers import s3
from scripts.servers.services import running
from scripts.torturing.arguments import minutes, some_of
from sidecar import errors
from sidecar.iceberg.statistics_files import entry_commits
from tests.disk import spare_disk
from tests.faults.faults import BREAKS, Mode
from tests.faults.folder_place import DOORS, FolderPlace
from tests.faults.s3_place import CLIENTS, S3Place
from tests.faults.storage_cases import COMMANDS, Grid, Place
from tests.memoized_pyiceberg import spare_pyiceberg

AT_ONCE = 8
"""Threads that break requests to S3."""
FIRST = 160
"""A random request is one of so many. Commands have fewer; then none fails, and another one is chosen."""


def main(arguments: list[str]) -> int:
    doors = [*DOORS, *CLIENTS]
    parser = argparse.ArgumentParser(prog="scripts/torture storage", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the random requests")
    parser.add_argument("--minutes", type=minutes, help="how long; all requests once if it is not given")
    parser.add_argument("--doors", type=some_of(doors), default=doors, help="how files are reached")
    parser.add_argument("--commands", type=some_of(COMMANDS), default=list(COMMANDS), help="what is run")
    options = parser.parse_args(arguments)
    errors.reraise_foreign = True  # a bug of ours is not to pass as a warning
    entry_commits.FIRST_PAUSE = 0.0
    spare_pyiceberg()
    spare_disk()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        doors = _doors(options.doors, Path(folder), ends)
        for name, make in doors.items():
            seconds = None if options.minutes is None else options.minutes * 60 / len(doors)
            wrong += run(name, make, options.commands, options.seed, seconds)
    print(f"{len(wrong)} runs went wrong")
    for text in wrong:
        print(text)
    return bool(wrong)


class Tally:
    """The grid: how many requests failed in each cell, which runs went wrong, and seconds of each command."""

    def __init__(self, door: str, modes: Sequence[Mode]) -> None:
        self.door, self.modes = door, modes
        self.wrong: list[str] = []
        self._broken, self._failed = Counter[tuple[str, Mode]](), Counter[tuple[str, Mode]]()
        self._seconds = defaultdict[str, float](float)

    def add(self, name: str, mode: Mode, broken: int, wrong: list[str], seconds: float) -> None:
        """Count runs of a cell, and say at once what went wrong."""
        self._broken[name, mode] += broken
        self._failed[name, mode] += len(wrong)
        self._seconds[name] += seconds
        self.wrong += wrong
        for text in wrong:
            print(text, file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(f"\r{self.door}: {name}, {mode.value}: {self.total} ", end="", file=sys.stderr, flush=True)

    @property
    def total(self) -> int:
        """How many requests failed."""
        return self._broken.total()

    def head(self) -> str:
        """The first lines of the grid, in Markdown."""
        names = ["requests failed", *(mode.name.lower() for mode in self.modes), "s"]
        return f"\n{self.door}:\n\n| {' | '.join(names)} |\n|{' --- |' * len(names)}"

    def is_whole(self, name: str) -> bool:
        """Whether all cells of a command were counted."""
        return all((name, mode) in self._broken for mode in self.modes)

    def row(self, name: str) -> str:
        """The line of a command."""
        cells = []
        for mode in self.modes:
            failed = self._failed[name, mode]
            cells.append(f"{self._broken[name, mode]}{f'/{failed}' if failed else ''}")
        return f"| {name} | {' | '.join(cells)} | {self._seconds[name]:.0f} |"


def run(door: str, make: Callable[[], Place], commands: list[str], seed: int, seconds: float | None) -> list[str]:
    """Break the requests of one door, print the grid, and return what went wrong.

    Clients of S3 wait most of the time, so threads share the cells; each has a place, a lake and a proxy of its own.
    """
    began, lock = time.monotonic(), threading.Lock()
    modes = tuple(BREAKS)
    tally = Tally(door, modes)
    cells = [(name, mode) for name in commands for mode in modes]
    work = _chosen(cells, seed, seconds)
    if seconds is None:
        print(tally.head(), flush=True)

    def work_on() -> int:
        grid = Grid(make())
        while True:
            with lock:
                cell = next(work, None)
            if cell is None:
                return grid.unchecked
            name, mode, turns = cell
            start = time.monotonic()
            broken, wrong = grid.cases(name, mode, turns)
            with lock:
                tally.add(name, mode, broken, wrong, time.monotonic() - start)
                if seconds is None and tally.is_whole(name):
                    print(tally.row(name), flush=True)

    threads = AT_ONCE if door in CLIENTS else 1
    with ThreadPoolExecutor(threads) as pool:
        unchecked = sum(pool.map(lambda _: work_on(), range(threads)))
    if seconds is not None:
        print(tally.head())
        for name in commands:
            print(tally.row(name))
    print(f"\n{door}: {tally.total} requests failed, {unchecked} of them by a bit that no checksum covers")
    print(f"{len(tally.wrong)} runs went wrong; {time.monotonic() - began:.0f} s", flush=True)
    return tally.wrong


def _chosen(
    cells: list[tuple[str, Mode]], seed: int, seconds: float | None
) -> Iterator[tuple[str, Mode, Iterable[int]]]:
    """Commands, modes and requests: all of them once, or random ones until the time is over."""
    if seconds is None:
        for name, mode in cells:
            yield name, mode, itertools.count()
        return
    chosen, until = random.Random(seed), time.monotonic() + seconds
    while True:
        for name, mode in chosen.sample(cells, len(cells)):
            if time.monotonic() > until:
                return
            yield name, mode, [chosen.randrange(min(FIRST, 10 ** chosen.randint(0, 3)))]


def _doors(names: list[str], folder: Path, ends: ExitStack) -> dict[str, Callable[[], Place]]:
    """Return a function for each door; it makes the door's place when it is called."""
    services, numbers = running(), itertools.count()

    def s3_place(name: str) -> Place:
        place = S3Place(name, services["s3"].catalogs["s3"], s3.BUCKET, folder / str(next(numbers)))
        ends.callback(place.close)
        return place

    doors: dict[str, Callable[[], Place]] = {}
    for name in names:
        if name in DOORS:
            doors[name] = partial(FolderPlace, name, folder / name)
        elif "s3" in services:
            doors[name] = partial(s3_place, name)
        else:
            print(f"{name}: left out, because scripts/services up was not run")
    return doors
