"""The compile cache may be unwritable, damaged or raced: kernels must answer all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"
SCRIPT = """
import sys
import numpy as np
from sidecar.kernels import theta
out = np.zeros(3, np.uint64)
hashes = np.array([7, 1, 9], np.uint64)
hashes.setflags(write=sys.argv[1] != "read-only")  # another type to numba
assert theta.below(hashes, np.uint64(8), out) == 2
assert out.tolist() == [7, 1, 0]
print(theta.__file__, theta.below.stats.cache_hits.total())
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the package, as small as imports allow."""
    root = tmp_path / "site"
    kernels = root / "sidecar" / "kernels"
    kernels.mkdir(parents=True)
    for source in (PACKAGE / "kernels").glob("*.py"):
        shutil.copy(source, kernels / source.name)
    (root / "sidecar" / "__init__.py").touch()
    return root


def start(root: Path, cache: str | None = None, kind: str = "writable") -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(root / "no-home")}
    environment.pop("XDG_CACHE_HOME", None)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind],
        env=environment,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hits(process: subprocess.Popen[str], root: Path) -> int:
    """How many kernels came from the cache; fails unless the answers were right."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    file, count = out.rsplit(maxsplit=1)
    assert Path(file).is_relative_to(root), "the copy was not the package that ran"
    return int(count)


def test_compiled_code_is_cached(copied: Path) -> None:
    assert hits(start(copied), copied) == 0
    assert hits(start(copied), copied) == 1


def blocked(path: Path) -> str:
    """A file where a folder is wanted: nobody, not even root, can write below it."""
    path.write_text("no folder")
    return str(path / "below")


def test_no_writable_folder_compiles_without_cache(copied: Path) -> None:
    """A read-only package folder and an unusable NUMBA_CACHE_DIR, several workers at once."""
    blocked(copied / "sidecar" / "kernels" / "__pycache__")
    blocked(copied / "no-home")
    os.chmod(copied / "sidecar" / "kernels", 0o555)
    workers = [start(copied, cache=blocked(copied / "cache")) for _ in range(3)]
    assert [hits(worker, copied) for worker in workers] == [0, 0, 0]


def test_many_workers_start_cold_on_one_folder(copied: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    workers = [start(copied, cache=str(shared)) for _ in range(4)]
    assert all(hits(worker, copied) in (0, 1) for worker in workers)
    assert hits(start(copied, cache=str(shared)), copied) == 1


def test_damaged_index_compiles_again_and_heals(copied: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert hits(start(copied, cache=str(shared)), copied) == 0
    for damage in (b"", b"garbage that is no pickle", None):
        (index,) = shared.rglob("theta.below*.nbi")
        whole = index.read_bytes()
        index.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
        assert hits(start(copied, cache=str(shared)), copied) == 0
        assert hits(start(copied, cache=str(shared)), copied) == 1


def test_lost_index_never_leads_to_other_code(copied: Path, tmp_path: Path) -> None:
    """Two workers read the same empty index, compile for different types, and write one after the other."""
    shared = tmp_path / "shared"
    shared.mkdir()
    assert hits(start(copied, str(shared), "writable"), copied) == 0
    (index,) = shared.rglob("theta.below*.nbi")
    first = index.read_bytes()
    index.unlink()
    assert hits(start(copied, str(shared), "read-only"), copied) == 0
    index.write_bytes(first)
    assert len(list(shared.rglob("theta.below*.nbc"))) == 2
    assert hits(start(copied, str(shared), "writable"), copied) == 1
