"""The grid of kills: every operation, killed at every step."""

from __future__ import annotations

import shutil

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.faults.killed_tables import TABLES
from tests.faults.killing import killed_at, put, row_of, steps_of


class Killable(Protocol):
    """Something that is done in a folder."""

    def prepare(self, place: Path) -> None:
        """Make the folder."""

    def run(self, place: Path) -> None:
        """Do it."""

    def check(self, place: Path) -> None:
        """Raise :class:`AssertionError` if a killed run has done harm, or a next one does not end well."""


GRID: dict[str, Sequence[Killable]] = {**TABLES}
"""The operations by the names of their rows."""


def steps_in(name: str, folder: Path) -> list[list[str]]:
    """The steps of each operation of a row. Leaves each prepared in a folder of ``folder``, named by its number."""
    found = []
    for number, operation in enumerate(GRID[name]):
        place, prepared = folder / "place", folder / str(number)
        operation.prepare(place)
        place.rename(prepared)
        put(prepared, place)
        found.append(steps_of(partial(operation.run, place)))
        operation.check(place)
        shutil.rmtree(place)
    return found


def kill_everywhere(name: str, folder: Path) -> str:
    """Kill each operation of a row at each of its steps, and check what is left. The row of the grid."""
    place, killed = folder / "place", []
    for number, steps in enumerate(steps_in(name, folder)):
        operation = GRID[name][number]
        for at in range(len(steps)):
            put(folder / str(number), place)
            step = killed_at(partial(operation.run, place), at)
            assert step is not None, f"the child ended before step {at} of {steps}"
            try:
                operation.check(place)
            except Exception as error:
                raise AssertionError(f"killed at {step}, step {at} of {steps}") from error
            killed.append(step)
        assert killed[-len(steps) :] == steps
    return row_of(name, killed)
