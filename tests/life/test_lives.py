"""Random lives of tables: after each change, plans, rows, searches and counts agree with a list of the rows.

``scripts/torture life`` runs more of them, for as long as it is told.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from sidecar.iceberg.statistics_files import entry_commits
from tests.case_counts import TIMES
from tests.life import changes, sidecar_changes
from tests.life.machine import KINDS, Lives, local_lives
from tests.life.planted import BUGS, planted
from tests.life.table_life import Change

LIVES, STEPS = 4, 16


def live(machine: type[Lives], lives: int, steps: int) -> None:
    """The same lives each time, as many of each kind. ``scripts/torture life`` has hypothesis draw and shrink them."""
    for number in range(lives):
        rng, one = random.Random(number), machine()
        one.begin(rng.getrandbits(14) * len(KINDS) + number)  # type: ignore[no-untyped-call]
        try:
            for change in rng.choices([*machine.known], [*machine.known.values()], k=steps):
                one.step(change, rng.getrandbits(16))
        finally:
            one.teardown()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)


def test_lives_of_tables_that_pyiceberg_writes() -> None:
    machine = local_lives()
    live(machine, LIVES, STEPS)
    grid = machine.grid
    assert grid.checks["plans"] > 2 * sum(grid.done.values()) > 60
    assert grid.checks["files dropped by indexes"] > 10
    assert len(grid.done) > 15
    assert grid.checks["served plans"] > 10
    assert grid.checks["plans of encrypted files"] > 10


def test_a_table_of_many_columns() -> None:
    """It is served, and its sidecar is damaged. ``SIDECAR_THOROUGH=50`` makes it one of 2,500 columns."""
    machine: Any = local_lives()()
    machine.more_columns = 50 * TIMES
    machine.begin(1)
    for number, change in enumerate([changes.append, sidecar_changes.damage, sidecar_changes.refresh]):
        machine.step(change, number)
    machine.teardown()
    assert machine.grid.checks["files dropped by indexes"] > 0
    assert machine.grid.done["damage"] == 1


@pytest.mark.parametrize(
    ("bug", "doing"),
    [
        ("position_deletes", [changes.delete_by_positions]),
        ("counts_without_marks", [sidecar_changes.build, changes.delete_by_positions, sidecar_changes.refresh]),
    ],
)
def test_bugs_are_found(bug: str, doing: list[Change]) -> None:
    """Each of these bugs is found in a life that has what it takes, and nothing is wrong in these lives without it."""
    assert not _is_found(doing, 2)
    with planted(bug):
        assert _is_found(doing, 20)


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_can_be_planted(bug: str) -> None:
    with planted(bug):
        pass


def _is_found(doing: list[Change], most: int) -> bool:
    for seed in range(most):
        machine: Any = local_lives()()
        try:
            machine.begin(seed)
            for change in doing:
                machine.step(change, seed)
        except AssertionError:
            return True
        finally:
            machine.teardown()
    return False
