"""A share of the requests of each command fails in each way: the answer is right or a named error, and no harm is done.

All requests: ``scripts/torture storage``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sidecar
from tests.faults.faults import BREAKS, Mode
from tests.faults.folder_place import DOORS, FolderPlace
from tests.faults.storage_cases import COMMANDS, Grid

PAGE = Path(sidecar.__file__).parents[1] / ".github" / "design" / "torture.md"
MODES_OF_A_DOOR = {
    "file": (Mode.ERROR, Mode.SHORT, Mode.FULL, Mode.FLIPPED),
    "arrow": (Mode.LATE, Mode.STALE, Mode.FLIPPED),
    "fsspec": (Mode.RESET, Mode.DENIED, Mode.SHORT),
}
"""What the suite breaks, so that each mode and each door has a share; ``scripts/torture storage`` does the rest."""
ONCE_WRONG = {
    "file": [("scan", Mode.DENIED, 9), ("expire", Mode.FULL, 0)],
    "arrow": [("strip", Mode.FLIPPED, 0), ("convert", Mode.FLIPPED, 1), ("embed TABLE", Mode.FULL, 21)],
    "fsspec": [("repair", Mode.LATE, 5), ("expire", Mode.STALE, 6)],
}
"""Errors that named neither file nor table, a flipped bit that was written into the new file, an entry of another
writer that was dropped because the question for its file was not answered, and an endless search for a cause."""


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


def test_the_grids_of_the_page_have_every_command_and_every_way() -> None:
    """One of local files, and one of S3. After a slash is how many runs went wrong; the text says what they left."""
    section = PAGE.read_text("utf-8").partition("## Storage that fails\n")[2].partition("\n## ")[0]
    head = f"| requests failed | {' | '.join(mode.name.lower() for mode in BREAKS)} | s |\n"
    _, *grids = section.split(head)
    assert [names_in(grid) for grid in grids] == [[*COMMANDS, "all"]] * 2
    assert re.findall(r"\d+/\d+", "".join(grids)) == ["21/1", "21/1"], "in the text before the grid, and in it"


def names_in(grid: str) -> list[str]:
    """The first cells of lines whose other cells are numbers."""
    return re.findall(r"^\| ([\w ]+?) \|(?: [\d,]+(?:/\d+)? \|)+$", grid, re.MULTILINE)
