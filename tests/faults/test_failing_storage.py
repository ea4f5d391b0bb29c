"""A share of the requests of each command fails in each way: the answer is right or a named error, and no harm is done.

All requests: ``scripts/torture storage``.
"""

from __future__ import annotations

import pytest

from tests.faults.storage import DOORS, FolderPlace, Mode
from tests.faults.storage_cases import COMMANDS, Grid

MODES_OF_A_DOOR = {
    "file": (Mode.ERROR, Mode.SHORT, Mode.FULL, Mode.FLIPPED),
    "arrow": (Mode.LATE, Mode.STALE, Mode.FLIPPED),
    "fsspec": (Mode.RESET, Mode.DENIED, Mode.SHORT),
}
"""What the suite breaks, so that each mode and each door has a share; ``scripts/torture storage`` does the rest."""
ONCE_WRONG = {
    "file": [("scan", Mode.DENIED, 9), ("expire", Mode.FULL, 0)],
    "arrow": [("strip", Mode.FLIPPED, 0), ("convert", Mode.FLIPPED, 2), ("embed TABLE", Mode.FULL, 21)],
    "fsspec": [("repair", Mode.LATE, 5)],
}
"""Errors that named neither file nor table, a flipped bit that was written into the new file, and an entry of another
writer that was dropped because the question for its file was not answered."""


@pytest.fixture(scope="module", params=DOORS)
def grid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    return Grid(FolderPlace(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_request_of_a_command_fails(name: str, grid: Grid) -> None:
    broken, wrong = grid.share(name, MODES_OF_A_DOOR[grid.place.name], f"{name} by {grid.place.name}")
    assert wrong == []
    assert broken >= 1


def test_what_once_went_wrong(grid: Grid) -> None:
    for name, mode, turn in ONCE_WRONG[grid.place.name]:
        assert grid.cases(name, mode, [turn]) == (1, [])
