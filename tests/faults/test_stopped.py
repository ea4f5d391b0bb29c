"""A build is stopped (SIGSTOP) at each step, gc deletes what looks left over, and the build goes on (SIGCONT).

To gc four days have passed. The build has not noticed them: its own clock says that it registers a young file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.errors import SidecarError
from sidecar.failpoints import observe
from tests.faults.harness import OPERATIONS, check, copied
from tests.faults.killing import LONGEST
from tests.maintenance.cases import pass_days
from tests.object_store import open_store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

DAYS = 4
FAILED = 3
"""The status of a child that ended with an error of ours."""


def named_steps(run: Callable[[Table], object], table: Table) -> list[str]:
    seen: list[str] = []
    with observe(seen.append):
        run(table)
    return seen


def stopped_at(run: Callable[[Table], object], table: Table, number: int, meanwhile: Callable[[], object]) -> int:
    """Run an operation in a child that stops at a step; do something; let it go on. Return the child's status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            left = [number]

            def stop(_: str) -> None:
                left[0] -= 1
                if left[0] == -1:
                    os.kill(os.getpid(), signal.SIGSTOP)

            with observe(stop):
                run(table)
            status = 0
        except SidecarError:
            status = FAILED
        finally:
            os._exit(status)
    assert os.WIFSTOPPED(waited(child, os.WUNTRACED))
    meanwhile()
    os.kill(child, signal.SIGCONT)
    return os.waitstatus_to_exitcode(waited(child, 0))


def waited(child: int, options: int) -> int:
    deadline = time.monotonic() + LONGEST
    while True:
        done, status = os.waitpid(child, options | os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.002)


def test_a_stopped_build_loses_no_file_or_says_so(prepared: Path, tmp_path: Path) -> None:
    run = OPERATIONS["build"].run
    steps = named_steps(run, copied(prepared, tmp_path / "whole"))
    assert {"build: index", "register: written", "register: commit", "register: check"} <= set(steps)
    outcomes: dict[str, Any] = {}
    deleted: dict[str, int] = {}
    for number, step in enumerate(steps):
        folder = tmp_path / str(number)
        table = copied(prepared, folder)

        def meanwhile(folder: Path = folder, step: str = step) -> None:
            seen = open_store(folder).load_table("db.t")
            pass_days(seen, DAYS)
            report = sidecar.gc(seen)
            deleted[step] = len(report.files)

        outcomes[step] = stopped_at(run, table, number, meanwhile)
        assert outcomes[step] in (0, FAILED), step
        check(folder, "build")
    # The file is whole and not named: gc takes it, and the build says so. Before and after, there is nothing to take.
    assert deleted["register: commit"] > deleted["build: index"]
    assert outcomes["register: commit"] == FAILED
    assert (outcomes["build: index"], outcomes["register: check"]) == (0, 0)
