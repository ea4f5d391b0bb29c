"""``scripts/torture storage``: every request of every command fails, in every way in which storage fails.

The grid has a line for each command and a column for each way; a cell has how many requests failed, each in a run of
its own, and after a slash how many of these runs went wrong. With ``--minutes`` requests are chosen at random, in all
cells, until the time is over. The S3 servers of ``scripts/services`` are used if they run.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.servers import s3
from scripts.servers.services import running
from scripts.torturing.arguments import minutes, some_of
from sidecar import errors
from sidecar.iceberg import entry_commits
from tests.disk import spare_disk
from tests.faults.s3_place import CLIENTS, S3Place
from tests.faults.storage import DOORS, FolderPlace, Mode
from tests.faults.storage_cases import COMMANDS, Grid, Place
from tests.remembering import spare_pyiceberg

FIRST = 160
"""A random request is one of so many. Commands have fewer; then none fails, and another one is chosen."""
WIDTH = 11


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
    with tempfile.TemporaryDirectory() as folder:
        places = list(_places(options.doors, Path(folder)))
        for place in places:
            seconds = None if options.minutes is None else options.minutes * 60 / len(places)
            wrong += run(place, options.commands, options.seed, seconds)
    print(f"{len(wrong)} runs went wrong")
    for text in wrong:
        print(text)
    return bool(wrong)


def run(place: Place, commands: list[str], seed: int, seconds: float | None) -> list[str]:
    """Break the requests of one place, print the grid, and return what went wrong."""
    grid, broken, wrong = Grid(place), Counter[tuple[str, Mode]](), []
    failed: Counter[tuple[str, Mode]] = Counter()
    began = time.monotonic()
    cells = [(name, mode) for name in commands for mode in place.modes]
    for name, mode, turns in _chosen(cells, seed, seconds):
        done, problems = grid.cases(name, mode, turns)
        broken[name, mode] += done
        failed[name, mode] += len(problems)
        wrong += problems
        if sys.stderr.isatty():
            print(f"\r{place.name}: {name}, {mode.value}: {broken.total()} ", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - began
    print(
        f"\n{place.name}: {broken.total()} requests failed, {grid.unchecked} of them by a bit that no checksum covers;"
    )
    print(f"{len(wrong)} runs went wrong; {took:.0f} s")
    print(" " * 12 + "".join(f"{mode.name.lower():>{WIDTH}}" for mode in place.modes))
    for name in commands:
        row = [f"{broken[name, mode]}{f'/{failed[name, mode]}' if failed[name, mode] else ''}" for mode in place.modes]
        print(f"{name:<12}" + "".join(f"{cell:>{WIDTH}}" for cell in row))
    return wrong


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


def _places(names: list[str], folder: Path) -> Iterator[Place]:
    services = running()
    for name in names:
        if name in DOORS:
            yield FolderPlace(name, folder / name)
        elif "s3" in services:
            yield S3Place(name, services["s3"].catalogs["s3"], s3.BUCKET, folder / name)
        else:
            print(f"{name}: left out, because scripts/services up was not run")
