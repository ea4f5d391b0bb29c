"""Lives of tables: random changes of any kind, and after each the answers beside a list of the rows.

``scripts/torture life --seed 7 --minutes 30`` is for tables that pyiceberg writes, ``--spark`` for those that Spark and
pyiceberg write by turns, in a catalog on SQLite and in one of a REST server. ``--planted`` plants known bugs in
sidecar, one after another, and says how many lives it takes to find each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from scripts.servers.iceberg_rest import start_server
from scripts.torturing.arguments import minutes
from sidecar import errors
from sidecar.iceberg.statistics_files import entry_commits
from tests.disk import spare_disk
from tests.life.machine import Lives, local_lives, served, spark_lives
from tests.life.planted import BUGS, planted
from tests.life.table_life import SharedCatalog
from tests.memoized_pyiceberg import spare_pyiceberg

LIVES, STEPS = 10, 30
"""Lives of one run of hypothesis, and the most changes in each."""
MOST_LIVES = 60
"""Lives after which a planted bug counts as not found."""


def main(arguments: list[str]) -> int:
    """Run lives until the time is over. Returns 1 if any answer was wrong, or a planted bug was not found."""
    given = _parser().parse_args(arguments)
    errors.reraise_foreign = True  # a bug in advisory code is no warning here
    entry_commits.FIRST_PAUSE = 0.0
    spare_pyiceberg()
    spare_disk()
    with _machine(given.spark) as machine:
        if given.planted:
            return _find_planted(machine, given.seed)
        return _run(machine, given.seed, time.monotonic() + given.minutes * 60)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/torture life", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="lives are the same for the same seed")
    parser.add_argument("--minutes", type=minutes, default=1.0, help="how long lives are begun")
    parser.add_argument("--spark", action="store_true", help="tables that Spark writes as well")
    parser.add_argument("--planted", action="store_true", help="plant known bugs, and count the lives to find each")
    return parser


@contextmanager
def _machine(with_spark: bool) -> Iterator[type[Lives]]:
    if not with_spark:
        yield local_lives()
        return
    from tests.conftest import open_catalog, start_spark

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        session = start_spark(folder)
        try:
            with _server(folder / "rest") as address:
                yield spark_lives(session, [SharedCatalog(open_catalog(folder)), served(session, address)])
        finally:
            session.stop()


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The address of a REST server, for whose tables of version 3 pyiceberg can register statistics."""
    process, address = start_server(folder, lambda process, *folders: None)
    try:
        yield address
    finally:
        process.stop()


def _run(machine: type[Lives], first: int, end: float) -> int:
    wrong, number = 0, first
    while time.monotonic() < end:
        try:
            _live(machine, number, LIVES)
        except Exception as error:
            wrong += 1
            print(f"seed {number}: {_life_of(error)}", flush=True)
        number += 1
    print("\n".join([*machine.grid.lines(), f"wrong answers and errors: {wrong}"]))
    return 1 if wrong else 0


def _live(machine: type[Lives], number: int, lives: int, shrink: bool = True) -> None:
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=lives,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            report_multiple_bugs=shrink,  # else the first one ends the run
            suppress_health_check=list(HealthCheck),
        ),
    )


def _life_of(error: BaseException) -> str:
    """The shrunk life and what went wrong; of several lives, one after the other."""
    several: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if several:
        return "\n".join(map(_life_of, several))
    notes = "\n".join(getattr(error, "__notes__", []))
    places = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return f"{type(error).__name__}: {error}\n{places}{notes}"


def _find_planted(machine: type[Lives], first: int) -> int:
    missed = 0
    print(f"{'planted bug':<24}{'lives':>8}{'changes':>9}  found as")
    for name in BUGS:
        lives, changes = machine.grid.lives, sum(machine.grid.done.values())
        found: Any = None
        with planted(name):
            for number in range(first, first + MOST_LIVES // LIVES):
                try:
                    _live(machine, number, LIVES, shrink=False)
                except Exception as error:
                    found = error
                    break
        missed += found is None
        text = "not found" if found is None else f"{type(found).__name__}: {str(found)[:70]}"
        done = sum(machine.grid.done.values()) - changes
        print(f"{name:<24}{machine.grid.lives - lives:>8,}{done:>9,}  {text}".splitlines()[0], flush=True)
    return 1 if missed else 0
