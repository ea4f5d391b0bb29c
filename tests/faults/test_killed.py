"""A process is killed (SIGKILL) at every step: what it worked on is whole, and the next run ends well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.kill_grid import GRID, kill_everywhere

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.parametrize("name", GRID)
def test_killed_at_every_step(name: str, tmp_path: Path) -> None:
    print(kill_everywhere(name, tmp_path))
