"""What ``warm_up`` refuses."""

from __future__ import annotations

import os
import subprocess
import sys


def test_without_compilation_there_is_nothing_to_warm_up() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "sidecar.cli", "warm-up"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == ("error: numba compiles nothing; found NUMBA_DISABLE_JIT. Unset the variable.\n")
