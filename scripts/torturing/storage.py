"""``scripts/torture storage``: every request of every command fails, in every way in which storage fails.

The grid has a line for each command and a column for each way; a cell has how many requests failed, each in a run of
its own, and after a slash how many of these runs went wrong. The last column has seconds. A line is printed when its
command is done; ``--commands`` goes on where a run ended. With ``--minutes`` requests are chosen at random, in all
cells, until the time is over. The S3 server of ``scripts/services`` is used if it runs.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from scripts.servers import s3
from scripts.servers.services import running
from scripts.torturing.arguments import minutes, some_of
from sidecar import errors
from sidecar.iceberg import entry_commits
from tests.disk import spare_disk
from tests.faults.faults import Mode
from tests.faults.folder_place import DOORS, FolderPlace
from tests.faults.s3_place import CLIENTS, S3Place
from tests.faults.storage_cases import COMMANDS, Grid, Place
from tests.remembering import spare_pyiceberg

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
        places = list(_places(options.doors, Path(folder), ends))
        for place in places:
            seconds = None if options.minutes is None else options.minutes * 60 / len(places)
            wrong += run(place, options.commands, options.seed, seconds)
    print(f"{len(wrong)} runs went wrong")
    for text in wrong:
        print(text)
    return bool(wrong)


class Tally:
    """The grid: how many requests failed in each cell, and which runs went wrong."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wrong: list[str] = []
        self._broken, self._failed = Counter[tuple[str, Mode]](), Counter[tuple[str, Mode]]()

    def add(self, name: str, mode: Mode, broken: int, wrong: list[str]) -> None:
        """Count runs of a cell, and say at once what went wrong."""
        self._broken[name, mode] += broken
        self._failed[name, mode] += len(wrong)
        self.wrong += wrong
        for text in wrong:
            print(text, file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(f"\r{self.place.name}: {name}, {mode.value}: {self.total} ", end="", file=sys.stderr, flush=True)

    @property
    def total(self) -> int:
        """How many requests failed."""
        return self._broken.total()

    def head(self) -> str:
        """The first lines of the grid, in Markdown."""
        names = ["requests failed", *(mode.name.lower() for mode in self.place.modes), "s"]
        return f"\n{self.place.name}:\n\n| {' | '.join(names)} |\n|{' --- |' * len(names)}"

    def row(self, name: str, seconds: float | None) -> str:
        """The line of a command, which took so many seconds."""
        cells = []
        for mode in self.place.modes:
            failed = self._failed[name, mode]
            cells.append(f"{self._broken[name, mode]}{f'/{failed}' if failed else ''}")
        return f"| {name} | {' | '.join(cells)} | {'-' if seconds is None else f'{seconds:.0f}'} |"


def run(place: Place, commands: list[str], seed: int, seconds: float | None) -> list[str]:
    """Break the requests of one place, print the grid, and return what went wrong."""
    began = time.monotonic()
    grid, tally = Grid(place), Tally(place)
    if seconds is None:
        print(tally.head(), flush=True)
        for name in commands:
            start = time.monotonic()
            for mode in place.modes:
                tally.add(name, mode, *grid.cases(name, mode, itertools.count()))
            print(tally.row(name, time.monotonic() - start), flush=True)
    else:
        for name, mode, turn in _chosen([(name, mode) for name in commands for mode in place.modes], seed, seconds):
            tally.add(name, mode, *grid.cases(name, mode, [turn]))
        print(tally.head())
        for name in commands:
            print(tally.row(name, None))
    took = time.monotonic() - began
    unchecked = f"{grid.unchecked} of them by a bit that no checksum covers"
    print(f"\n{place.name}: {tally.total} requests failed, {unchecked}")
    print(f"{len(tally.wrong)} runs went wrong; {took:.0f} s", flush=True)
    return tally.wrong


def _chosen(cells: list[tuple[str, Mode]], seed: int, seconds: float) -> Iterator[tuple[str, Mode, int]]:
    """Commands, modes and requests at random, until the time is over."""
    chosen, until = random.Random(seed), time.monotonic() + seconds
    while True:
        for name, mode in chosen.sample(cells, len(cells)):
            if time.monotonic() > until:
                return
            yield name, mode, chosen.randrange(min(FIRST, 10 ** chosen.randint(0, 3)))


def _places(names: list[str], folder: Path, ends: ExitStack) -> Iterator[Place]:
    services = running()
    for name in names:
        if name in DOORS:
            yield FolderPlace(name, folder / name)
        elif "s3" in services:
            place = S3Place(name, services["s3"].catalogs["s3"], s3.BUCKET, folder / name)
            ends.callback(place.close)
            yield place
        else:
            print(f"{name}: left out, because scripts/services up was not run")
