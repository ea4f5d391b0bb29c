"""The grid of kills: every operation, killed at every step."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.faults.killed_files import FILES
from tests.faults.killed_tables import TABLES
from tests.faults.killing import HEADER, KINDS, killed_at, put, row_of, state_of, steps_of


class Killable(Protocol):
    """Something that is done in a folder."""

    def prepare(self, place: Path) -> None:
        """Make the folder."""

    def run(self, place: Path) -> None:
        """Do it."""

    def check(self, place: Path) -> None:
        """Raise :class:`AssertionError` if a killed run has done harm, or a next one does not end well."""


GRID: dict[str, Sequence[Killable]] = {**TABLES, **FILES}
"""The operations by the names of their rows."""


class Prepared(NamedTuple):
    """An operation, the folder that is copied for each of its runs, and its steps."""

    operation: Killable
    folder: Path
    steps: list[str]

    def put(self, place: Path) -> None:
        """Make ``place`` such a folder."""
        put(self.folder, place)


def prepared(operations: Sequence[Killable], folder: Path) -> Iterator[Prepared]:
    """The operations of a row. They run in the folder ``place`` of ``folder``."""
    place = folder / "place"
    for number, operation in enumerate(operations):
        shutil.rmtree(place, ignore_errors=True)
        operation.prepare(place)
        place.rename(folder / str(number))
        put(folder / str(number), place)
        yield Prepared(operation, folder / str(number), steps_of(partial(operation.run, place)))


def kill_everywhere(operations: Sequence[Killable], folder: Path, is_thorough: bool = False) -> list[str]:
    """Kill each operation of a row at each of its steps, and check what is left. The steps.

    What two kills leave alike is checked once, unless the run ``is_thorough``.
    """
    place, killed = folder / "place", list[str]()
    for one in prepared(operations, folder):
        one.operation.check(place)  # the run that nobody killed
        checked = set[frozenset[object]]()
        for number, step in enumerate(one.steps):
            one.put(place)
            found = killed_at(partial(one.operation.run, place), number)
            assert found in one.steps, "files that are written at the same time reach their steps in any order"
            killed.append(step)
            left = state_of(place)
            if left in checked and not is_thorough:
                continue
            checked.add(left)
            try:
                one.operation.check(place)
            except Exception as error:
                raise AssertionError(f"killed at {step}, step {number} of {one.steps}") from error
    return killed


def legend() -> str:
    """The names of the steps of each kind, a list in Markdown."""
    whole = {step: f"`{step}`".replace(" ", "\0") for steps in KINDS.values() for step in steps}  # not to be cut
    lines = (f"- {kind}: {', '.join(whole[step] for step in steps)}" for kind, steps in KINDS.items())
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ") for line in lines).replace("\0", " ")


def grid(killed: Mapping[str, Sequence[str]]) -> str:
    """The grid of the steps of each row."""
    return "\n".join([HEADER, *(row_of(name, killed[name]) for name in GRID)])
