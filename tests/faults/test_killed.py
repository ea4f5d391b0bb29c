"""A process is killed (SIGKILL) at every step: what it worked on is whole, and the next run ends well."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.faults.kill_grid import GRID, grid, kill_everywhere, legend, prepared
from tests.faults.killing import KIND_OF, REQUESTS, row_of
from tests.syntax import tree_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"
PAGE = (PACKAGE.parent / ".github" / "design" / "torture.md").read_text("utf-8")
SECTION = PAGE.partition("## Killed at every step\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def killed() -> dict[str, list[str]]:
    """The steps of the rows that were killed so far."""
    return {}


@pytest.mark.parametrize("name", GRID)
def test_killed_at_every_step(name: str, tmp_path: Path, killed: dict[str, list[str]]) -> None:
    killed[name] = kill_everywhere(GRID[name], tmp_path)
    print(row_of(name, killed[name]))


def test_the_grid_of_the_page_has_every_step(tmp_path: Path, killed: dict[str, list[str]]) -> None:
    """A step that no operation of the grid reaches would never be killed; one without a kind is in no column."""
    for name in GRID.keys() - killed:
        folder = tmp_path / name.replace(" ", "-")
        killed[name] = [step for one in prepared(GRID[name], folder) for step in one.steps]
    print(grid(killed))
    reached = {step for steps in killed.values() for step in steps}
    assert reached >= announced_steps()
    assert reached == KIND_OF.keys()
    assert grid(killed) in SECTION, "scripts/torture kill prints the grid of the page"
    assert legend() in SECTION


def announced_steps() -> set[str]:
    """The texts in calls of ``hit`` anywhere in the package."""
    calls = [
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hit"
    ]
    assert len(calls) > len(REQUESTS)
    return {ast.literal_eval(call.args[0]) for call in calls}
