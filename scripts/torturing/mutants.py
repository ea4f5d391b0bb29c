"""Plants one bug of a line at a time in a copy of the checkout, and runs the tests that should notice it.

A bug that no test notices is a line of the output, and the exit status is 1. ``planted_lines`` has the bugs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from scripts.fuzzing.planted_bugs import ROOT
from scripts.torturing.planted_lines import BUGS, Bug

COPIED = ("sidecar", "tests", "spec_vectors", "scripts", "pyproject.toml", "README.md", "ARCHITECTURE.md", ".github")
"""What the tests of a room need."""
SECONDS = 900
"""How long the tests of a bug may take; a bug that makes them hang counts as noticed."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/torture mutants", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of bugs")
    parser.add_argument("--workers", type=int, default=2, help="processes that run the tests of a bug")
    given = parser.parse_args(arguments)
    chosen = [bug for bug in BUGS if given.only in bug.name]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        copy_checkout(copy)
        if not passes(copy, sorted({test for bug in chosen for test in bug.tests}), given.workers):
            print("the tests fail without a bug")
            return 2
        missed = [bug.name for bug in chosen if not is_noticed(bug, copy, given.workers)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} bugs were noticed; not: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def copy_checkout(to: Path) -> None:
    to.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
        else:
            shutil.copy(source, to / name)


def is_noticed(bug: Bug, copy: Path, workers: int) -> bool:
    """Whether some test fails with the bug in. The line is as it was afterwards."""
    path = copy / bug.change.path.relative_to(ROOT)
    text = path.read_text("utf-8")
    path.write_text(bug.change.changed(text), "utf-8")
    try:
        noticed = not passes(copy, bug.tests, workers)
    finally:
        path.write_text(text, "utf-8")
    print(f"{bug.name:<64}{'noticed' if noticed else 'MISSED'}", flush=True)
    return noticed


def passes(copy: Path, tests: Iterable[str], workers: int) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(workers), "-m", "not services and not jvm", *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, env=environment(copy))
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def environment(copy: Path) -> dict[str, str]:
    """The copy comes before an installed checkout."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
