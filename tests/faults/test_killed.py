"""A process is killed (SIGKILL) at every step: the table reads right, and the next run ends well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.harness import OPERATIONS, check, copied, killed_at, moments

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


BUILD = {"build: index", "build: register", "build: write new segment", "build: segments written"}
NAMED = {
    "build": BUILD | {"declare: commit"},
    "refresh": BUILD | {"refresh: build", "refresh: unregister"},
    "compact": {"segments: merge"},
    "embed": BUILD | {"embed: files written", "embed: committed"},
}
"""Steps that an operation reaches at least."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_every_step(name: str, prepared: Path, tmp_path: Path) -> None:
    run = OPERATIONS[name].run
    steps = moments(run, copied(prepared, tmp_path / "whole"))
    check(tmp_path / "whole", name)
    assert len(steps) >= 4, steps
    assert NAMED.get(name, set()) <= set(steps)
    for moment, step in enumerate(steps):
        folder = tmp_path / str(moment)
        assert killed_at(run, copied(prepared, folder), moment), step
        try:
            check(folder, name)
        except Exception as error:
            raise AssertionError(f"killed at {step}, moment {moment} of {steps}") from error
