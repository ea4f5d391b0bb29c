"""All tests of kernels run once more with bounds checks, as compiled code overruns arrays without an error."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEFT_OUT = ("test_bounds.py", "test_jit.py")  # this file, and the one about the cache
ELSEWHERE = (
    "bundle/test_slicing.py::test_kernel_equals_its_slow_twin_and_inverts",
    "filters/test_historical.py::test_the_lemmas_of_the_present_form_would_deny_values",
    "filters/test_historical.py::test_the_kernel_and_python_choose_the_same_block_and_bits",
    "parquet/test_dictionary_runs.py",
)
"""Tests of kernels that are beside the code around them."""
DAMAGED = ("parquet-page", "orc-stream")
"""Decoders whose kernels are given damaged bytes; ``CASES`` of each."""
CASES = 12
PLANTED = """
import numpy as np
from numba import types
from sidecar.kernels._jit import kernel, readable

@kernel(readable(types.int64))
def read_too_far(data):
    total = 0
    for i in range(len(data) + 1):
        total += data[i]
    return total

read_too_far(np.zeros(8, np.int64))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Bounds checks, and a cache of its own: code with checks must not be taken for code without."""
    root = str(HERE.parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}


def compiled_with_checks() -> Path:
    """The folder for machine code of these very kernels: compiling all of them takes half a minute.

    Its name has the digest of all sources, because numba does not notice a change in a function that is inlined.
    """
    sources = sorted((HERE.parents[1] / "sidecar" / "kernels").glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = HERE / "__pycache__" / f"bounds-{digest}"
    for earlier in folder.parent.glob("bounds-*"):
        if earlier != folder:
            shutil.rmtree(earlier, ignore_errors=True)
    return folder


def test_a_kernel_that_reads_too_far_is_caught(environment: dict[str, str], tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    done = subprocess.run([sys.executable, planted], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
    unchecked = {**environment, "NUMBA_BOUNDSCHECK": "0", "NUMBA_CACHE_DIR": str(tmp_path / "unchecked")}
    assert subprocess.run([sys.executable, planted], env=unchecked, capture_output=True).returncode == 0


def test_no_kernel_leaves_its_arrays(environment: dict[str, str]) -> None:
    """All kernels: a plugin fails the run if its tests do not call one of them."""
    tests = sorted(path for path in HERE.glob("test_*.py") if path.name not in LEFT_OUT)
    elsewhere = [HERE.parent / name for name in ELSEWHERE]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-p", "tests.kernels.all_called", *map(str, [*tests, *elsewhere])]
    environment["NUMBA_CACHE_DIR"] = str(compiled_with_checks())
    done = subprocess.run(command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in done.stdout


def test_damaged_bytes_do_not_lead_a_kernel_out_of_its_arrays(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "scripts.fuzzing", *DAMAGED, "--cases", str(CASES), "--seed", "2"]
    environment["NUMBA_CACHE_DIR"] = str(compiled_with_checks())
    done = subprocess.run(command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:-1]] == [[name, str(CASES)] for name in DAMAGED]
