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
GUIDE = (PACKAGE / "guide" / "trust.md").read_text("utf-8")
SECTION = GUIDE.partition("## Killed at every step\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", GRID)
def test_killed_at_every_step(name: str, tmp_path: Path) -> None:
    row = kill_everywhere(name, tmp_path)
    print(row)
    assert row in SECTION, "scripts/torture kill prints the grid of the guide"


def test_the_grid_of_the_guide_has_every_step(tmp_path: Path) -> None:
    """A step that no operation of the grid reaches would never be killed; one without a kind is in no column."""
    rows, reached = [], set[str]()
    for name in GRID:
        steps = [step for one in prepared(name, tmp_path / name.replace(" ", "-")) for step in one.steps]
        rows.append(row_of(name, steps))
        reached.update(steps)
    assert reached == KIND_OF.keys()
    assert reached >= announced_steps()
    assert grid(rows) in SECTION
    assert legend() in SECTION


def announced_steps() -> set[str]:
    """The texts in calls of ``reached`` anywhere in the package."""
    calls = [
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reached"
    ]
    assert len(calls) > len(REQUESTS)
    return {ast.literal_eval(call.args[0]) for call in calls}
